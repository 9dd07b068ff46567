"""What a study will do and cost, and how far it is already."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elites.errors import ElitesError
from elites.experiments.config import RunConfig
from elites.files import read_arrays
from elites.results.names import CONFIG as FILE
from elites.results.names import GROUP
from elites.studies.study import Job, Study

WORKER_BYTES = 600_000_000  # of a worker beside what its run holds
RECORD = "study.json"
MEASURED = "measured.json"


class Cost(NamedTuple):
    """What is left to do."""

    runs: int
    evaluations: int
    corrections: int  # episodes, if every cell that can be is filled
    disk: int  # bytes, at most
    seconds: tuple[float, float] | None  # if episodes end as early as random ones do, and if none does


@dataclass(frozen=True)
class Measured:
    """What a worker found out about the cells of a study, by task and algorithm as in `cell_of`."""

    cells: dict[str, dict[str, Any]]
    platform: str  # on which JAX computes
    available: int  # bytes of memory


def cell_of(config: RunConfig) -> str:
    """What the costs of a run depend on."""
    return json.dumps([config.task, config.task_parameters, config.algorithm, config.hyper_parameters])


def unfinished(study: Path, jobs: Sequence[Job]) -> list[Job]:
    """Those that are not done yet. Refused if what is there was made otherwise."""
    for job in jobs:
        _refuse_others(study, job)
    return [job for job in jobs if not all(done(study / own, job) for own in job.folders)]


def done(folder: Path, job: Job) -> bool:
    """Whether a run of a job is finished, and corrected if need be."""
    config = job.configs[0]
    about = _about(folder / "archive.npz")
    if about is None or about["evaluations"] < config.evaluations:
        return False
    if not job.correct:
        return True
    about = _about(folder / "corrected.npz")
    wanted = {
        "evaluations": config.evaluations,
        "replications": config.correct_replications,
        "redraw": job.redraw,
    }
    return about is not None and all(about.get(name) == value for name, value in wanted.items())


def _about(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(ElitesError, ValueError):
        about: dict[str, Any] = json.loads(str(read_arrays(path, ("about",), "an archive")["about"]))
        return about
    return None


def evaluated(folder: Path) -> int:
    """Evaluations that the archive of a run has seen."""
    about = _about(folder / "archive.npz")
    return 0 if about is None else int(about["evaluations"])


def _refuse_others(study: Path, job: Job) -> None:
    for config, own in zip(job.configs, job.folders, strict=True):
        path = study / own / FILE
        if not path.exists():
            continue
        try:
            there = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ElitesError(f"{path} is damaged: {error}") from None
        wanted = json.loads(json.dumps(config.record()))
        for name in (field.name for field in dataclasses.fields(RunConfig)):
            if there.get(name) != wanted[name]:
                raise ElitesError(
                    f"{study / own} has {name} {_short(there.get(name), wanted[name])}, not "
                    f"{_short(wanted[name], there.get(name))}; --out takes another folder"
                )
    _refuse_other_seeds(study, job)


def _refuse_other_seeds(study: Path, job: Job) -> None:
    """Replications in one program have the seeds that it was begun with."""
    home = study / job.folder if job.group else (study / job.folder).parent
    there = _seeds_in(home, job)
    wanted = [config.seed for config in job.configs]
    if there is not None and there != wanted:
        raise ElitesError(
            f"{home} has {_named(there)} in one program, which cannot become {_named(wanted)}; "
            "--out takes another folder"
        )


def _seeds_in(home: Path, job: Job) -> list[int] | None:
    """The seeds of the program whose folder this is; None if there is none."""
    path = home / GROUP
    try:
        if path.exists():
            return [int(seed) for seed in json.loads(path.read_text())["seeds"]]
        seeds = []
        for path in home.glob(f"*/{FILE}") if job.group else ():
            if len(list(path.parent.iterdir())) > 1:  # a run alone, and begun: there is more than its record
                seeds.append(int(json.loads(path.read_text())["seed"]))
        return sorted(seeds) or None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ElitesError(f"{path} is damaged: {error}") from None


def _named(seeds: Sequence[int]) -> str:
    listed = ", ".join(map(str, seeds[:-1])) + f" and {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    return f"seeds {listed}" if len(seeds) > 1 else f"seed {listed}"


def _short(value: Any, other: Any) -> str:
    """A value; of tables, what differs."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: found for name, found in value.items() if other.get(name) != found}
    return json.dumps(value)


def cost(study: Path, jobs: Sequence[Job], measured: Measured, workers: int) -> Cost:
    """What these jobs, none of which is done, will take from here on."""
    runs = evaluations = corrections = disk = 0
    low = high = 0.0
    known = True
    checkpoints = []
    compiled: set[str] = set()
    for job in jobs:
        cell = measured.cells[cell_of(job.configs[0])]
        each = cell["elites"] * job.configs[0].correct_replications
        left_runs = [own for own in job.folders if not done(study / own, job)]
        left = sum(max(0, job.configs[0].evaluations - evaluated(study / own)) for own in left_runs)
        again = _corrections(job) * len(left_runs)
        runs, evaluations, corrections = runs + len(left_runs), evaluations + left, corrections + each * again
        disk += len(left_runs) * (cell["archive_bytes"] * (1 + job.configs[0].snapshots) + cell["log_bytes"])
        disk += len(left_runs) * cell["corrected_bytes"] * (again > 0)
        checkpoints.append(cell["checkpoint_bytes"] * len(left_runs))
        pace = cell.get("pace")
        if pace is None:
            known = False
            continue
        share = left / max(1, job.configs[0].evaluations * len(left_runs))
        start = pace["start_s"]
        low += start if cell_of(job.configs[0]) not in compiled else 0.0  # later runs find it compiled
        compiled.add(cell_of(job.configs[0]))
        if "generation_s" in pace:
            seconds = share * cell["generations"] * pace["generation_s"]
            episodes = seconds * each * again / max(1, job.configs[0].evaluations)
            low, high = low + seconds, high + start + seconds + episodes
            continue
        learning, steps = share * cell["generations"] * pace["learning_s"], pace["steps_per_s"]
        episodes = left + each * again
        low += learning + episodes * pace["random_length"] / steps
        high += start + learning + episodes * cell["episode_length"] / steps
    disk += sum(sorted(checkpoints)[-workers:])
    return Cost(runs, evaluations, corrections, disk, (low, high) if known else None)


def _corrections(job: Job) -> int:
    """How often the archive of each run is corrected."""
    config = job.configs[0]
    along = -(-config.evaluations // config.correct_every) if config.correct_every else 0
    return along + (1 if job.correct and not along else 0)


def needs(job: Job, measured: Measured) -> int:
    """Bytes of memory that a job's runs hold together."""
    return int(measured.cells[cell_of(job.configs[0])]["needs"]) * len(job.folders)


def default_workers(jobs: Sequence[Job], measured: Measured) -> int:
    """One per core, fewer where memory is short; one alone on a device that is no CPU."""
    if measured.platform != "cpu" or not jobs:
        return 1
    needed = max(needs(job, measured) for job in jobs)
    fits = measured.available // (needed + WORKER_BYTES)
    return max(1, min(cores(), len(jobs), int(fits)))


def cores() -> int:
    return len(os.sched_getaffinity(0))


def describe(study: Study, jobs: Sequence[Job], left: Cost, finished: int, where: str) -> str:
    """The plan as a person reads it before it starts."""
    total = sum(len(job.folders) for job in jobs)
    rows = {
        "tasks": ", ".join(choice.slug() for choice in study.tasks),
        "algorithms": ", ".join(choice.slug() for choice in study.algorithms),
        "runs": f"{total:,}: {study.seeds} of each, {study.evaluations:,} evaluations a run"
        + (f"; {finished:,} are finished" if finished else ""),
        "left to do": f"{left.runs:,} run{'s' * (left.runs != 1)}, {left.evaluations:,} evaluations",
        "corrections": f"up to {left.corrections:,} episodes, {study.correct_replications} of each elite"
        if left.corrections
        else "none",
        "disk": f"up to {_bytes(left.disk)}",
        "time": "not measured"
        if left.seconds is None
        else f"{duration(left.seconds[0])} if episodes end as early as random controllers' do, "
        f"{duration(left.seconds[1])} if none ends early",
        "on": where,
    }
    return "\n".join([f"study {study.name}", *(f"  {name:<12} {text}" for name, text in rows.items())])


def _bytes(count: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def duration(seconds: float) -> str:
    """Days, hours, minutes and seconds, the first two of them that are not 0."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
