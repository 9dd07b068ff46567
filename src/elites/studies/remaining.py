"""The part of a study that is left to do: its jobs, compared with the runs in its folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elites.errors import ElitesError
from elites.experiments.config import RunConfig
from elites.results.folder import GroupFolder, RunFolder
from elites.results.names import seed_folder, seeds_folder
from elites.studies.study import Job


def select_unfinished(study: Path, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that are not done yet. Runs in the folder with other settings are an error."""
    parts = [part for job in jobs for part in split_by_folder(study, job)]
    for part in parts:
        _refuse_other_settings(study, part)
    return [part for part in parts if not _all_done(study, part)]


def _all_done(study: Path, job: Job) -> bool:
    return all(is_done(study / folder, job) for folder in job.folders)


def is_done(folder: Path, job: Job) -> bool:
    """Whether a run of a job is finished, and corrected if the job requires it."""
    config, run = job.configs[0], RunFolder(folder)
    if run.evaluations() < config.evaluations:
        return False
    if not job.correct:
        return True
    correction = run.read_correction()
    required = {
        "evaluations": config.evaluations,
        "replications": config.correct_replications,
        "redraw": job.redraw,
    }
    return all(correction.get(name) == value for name, value in required.items())


def split_by_folder(study: Path, job: Job) -> list[Job]:
    """Splits a job into the parts that the folder has: its seeds may have been added at different times.

    A group stays a group. A run that is not part of one, because it was merged or began alone, stays alone.
    New seeds form groups of consecutive ones, each in its own folder.
    """
    home = job.folder if job.group else job.folder.rpartition("/")[0]
    planned = {config.seed: config for config in job.configs}
    parts: list[Job] = []
    groups = GroupFolder(study / home).list_groups()
    for group in groups:
        seeds = group.seeds()
        own = tuple(planned[seed] for seed in seeds if seed in planned)
        if own or group.path == study / home:
            part = Job(str(group.path.relative_to(study)), own, True, job.correct)
            parts += _split_by_group(study, group, seeds, part, job)
    present = {config.seed for part in parts for config in part.configs}
    new = [config for config in job.configs if config.seed not in present]
    if not job.group:
        return parts if present else [job]
    alone = [config for config in new if GroupFolder(study / home).run_folder(config.seed).has_begun]
    if not parts and not alone and not groups:
        return [job]
    rest = _group_consecutive([config for config in new if config not in alone])
    for configs in [*([config] for config in alone), *rest]:
        first, last = configs[0].seed, configs[-1].seed
        name = seeds_folder(first, last) if len(configs) > 1 else seed_folder(first)
        parts.append(Job(f"{home}/{name}", tuple(configs), len(configs) > 1, job.correct))
    return parts


def _split_by_group(study: Path, group: GroupFolder, seeds: Sequence[int], part: Job, job: Job) -> list[Job]:
    """The parts of a job that a group executes. An error if its seeds would change before it is finished.

    The first group also contains the folders of groups that are added later; it must be finished before.
    """
    whole = len(part.configs) == len(seeds)
    if whole and (len(seeds) == len(job.configs) or part.folder != job.folder):
        return [part]
    finished = all(run.evaluations() >= job.configs[0].evaluations for run in group.runs())
    if finished and whole:
        return [part]
    if finished and (not part.configs or _all_done(study, part)):
        pairs = zip(part.folders, part.configs, strict=True)
        return [Job(folder, (config,), False, part.correct) for folder, config in pairs]
    planned = [config.seed for config in job.configs]
    raise ElitesError(
        f"{group} trains {_list_seeds(seeds)} together and cannot change to {_list_seeds(planned)} before "
        "they are finished; choose another folder with --out"
    )


def _group_consecutive(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Groups of configurations with consecutive seeds, given in ascending order."""
    ranges: list[list[RunConfig]] = []
    for config in configs:
        if ranges and config.seed == ranges[-1][-1].seed + 1:
            ranges[-1].append(config)
        else:
            ranges.append([config])
    return ranges


def _list_seeds(seeds: Sequence[int]) -> str:
    *others, last = seeds
    return f"seeds {', '.join(map(str, others))} and {last}" if others else f"seed {last}"


def _refuse_other_settings(study: Path, job: Job) -> None:
    for config, folder in zip(job.configs, job.folders, strict=True):
        run = RunFolder(study / folder)
        if not run.exists:
            continue
        present = run.read_record().settings()
        planned = json.loads(json.dumps(config.record()))
        for name in (field.name for field in dataclasses.fields(RunConfig)):
            if name == "physics" and planned[name] is None:  # it was chosen when the run started
                continue
            if present[name] != planned[name]:
                raise ElitesError(
                    f"{run} has {name} {format_differing_part(present[name], planned[name])}, not "
                    f"{format_differing_part(planned[name], present[name])}; choose another folder with --out"
                )


def format_differing_part(value: Any, other: Any) -> str:
    """A value; of a table only the entries that differ from the other."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: entry for name, entry in value.items() if other.get(name) != entry}
    return json.dumps(value)
