"""Runs: ask, evaluate, tell, until the budget is spent; logged, checkpointed, resumable.

Everything random comes from the run's seed, the generation and the number of the evaluation, so a run that is
killed and resumed ends with the same bits as one that is not. Replications are checkpointed and resumed
together, as a group; each has a run's folder of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from elites.errors import ElitesError, require
from elites.experiments.config import RunConfig, load_config, versions
from elites.experiments.execution import Execution
from elites.experiments.guards import Interrupts, alone
from elites.experiments.loop import Outcome, drive
from elites.experiments.replications import Replications, make_replications, require_memory
from elites.results.folder import GroupFolder, RunFolder, group_of, refuse_taken


def default_folder(config: RunConfig, seeds: int = 1) -> Path:
    """The folder of a run, or of a group, whose place was not given."""
    last = config.seed if seeds == 1 else f"{config.seed}-to-{config.seed + seeds - 1}"
    algorithm, task = (re.sub(r"[^\w.-]+", "-", name) for name in (config.algorithm, config.task))
    return Path("runs") / f"{algorithm}-{task}-{last}"


def run(
    config: RunConfig,
    folder: Path | str | None = None,
    seeds: int = 1,
    execution: Execution | None = None,
) -> Outcome:
    """Starts a run in a new folder and drives it to its end.

    Args:
        config: what to run.
        folder: where its files go; it must be new or empty.
        seeds: replications, with the seeds from the configuration's on. Each gets a folder in `folder`. They
            train in one program and share the evaluator, where the algorithm allows it.
        execution: threads, limits and callbacks.
    """
    execution = execution or Execution()
    require(seeds >= 1, "seeds", seeds, "at least 1")
    require(config.seed + seeds <= 2**32, "seeds", seeds, f"at most {2**32 - config.seed} from that seed on")
    path = default_folder(config, seeds) if folder is None else Path(folder)
    refuse_taken(path)
    if seeds > 1:
        return run_group(config, seeds, GroupFolder(path), execution)
    home = RunFolder(path)
    with _replications([config], execution) as current:  # fails before anything is written
        home.create_folder()
        with alone(path):
            refuse_taken(path)
            home.create(config.record())
            return drive(path, [home], current, execution)[0]


def resume(folder: Path | str, execution: Execution | None = None) -> Outcome:
    """Continues a run, or a group of runs, that was killed, interrupted or out of time.

    One of a group takes the others with it.
    """
    path, execution = Path(folder), execution or Execution()
    if GroupFolder(path).exists:
        return _resume_group(GroupFolder(path), execution)
    group = group_of(path)
    if group is not None:
        whole = path.resolve()
        return next(run for run in _resume_group(group, execution).runs if run.folder == whole)
    config, made_with = load_config(path)
    with alone(path):
        return _continue(path, [RunFolder(path)], [config], made_with, execution)[0]


def run_group(config: RunConfig, seeds: int, group: GroupFolder, execution: Execution) -> Outcome:
    """Starts replications in a group's folder; a group may have a single one."""
    configs = [dataclasses.replace(config, seed=config.seed + index) for index in range(seeds)]
    algorithm = config.make_algorithm()
    with contextlib.ExitStack() as stack:
        current = None
        if algorithm.shares_program:
            current = stack.enter_context(_replications(configs, execution))
        else:
            require_memory(algorithm)
        group.create_folder()
        stack.enter_context(alone(group.path))
        refuse_taken(group.path)
        folders = group.create([config.record() for config in configs])
        if current is not None:
            return _group_outcome(group, drive(group.path, folders, current, execution))
    return _resume_group(group, execution)


def _resume_group(group: GroupFolder, execution: Execution) -> Outcome:
    started, folders = time.perf_counter(), group.runs()
    loaded = [load_config(run.path) for run in folders]
    configs, made_with = [config for config, _ in loaded], loaded[0][1]
    with alone(group.path):
        if configs[0].make_algorithm().shares_program:
            outcomes = _continue(group.path, folders, configs, made_with, execution)
            return _group_outcome(group, outcomes)
        outcomes = []
        with Interrupts("stopping after this generation") as interrupts:
            for run, config in zip(folders, configs, strict=True):
                hours = execution.max_hours
                left = None if hours is None else hours - (time.perf_counter() - started) / 3600
                if interrupts.requested or (left is not None and left <= 0):
                    outcomes.append(_outcome_so_far(run, config))
                    continue
                within = dataclasses.replace(execution, max_hours=left)
                with alone(run.path):
                    outcomes += _continue(run.path, [run], [config], made_with, within, interrupts)
        return _group_outcome(group, outcomes)


def _continue(
    home: Path,
    folders: list[RunFolder],
    configs: list[RunConfig],
    made_with: dict[str, str | None],
    execution: Execution,
    interrupts: Interrupts | None = None,
) -> list[Outcome]:
    checkpoints = GroupFolder(home).checkpoints
    finished = [_finished(run, config) for run, config in zip(folders, configs, strict=True)]
    done = [outcome for outcome in finished if outcome is not None]
    if len(done) == len(folders):
        execution.log(f"{home} is finished: {done[0].evaluations} evaluations")
        checkpoints.clear()
        return done
    archived = any(run.has_archive for run in folders)
    if archived and not done and not checkpoints.paths():  # a group may have been killed at its very end
        raise ElitesError(f"{home} has an archive but no checkpoint to go on from; nothing was changed")
    changed = {name: (made_with.get(name, now), now) for name, now in versions().items()}
    differing = ", ".join(
        f"{name} {then} (now {now})" for name, (then, now) in changed.items() if then != now
    )
    if differing:
        execution.log(f"begun with {differing}: the result may differ from an undisturbed run's")
    with _replications(configs, execution) as current:
        return drive(home, folders, current, execution, interrupts)


@contextlib.contextmanager
def _replications(configs: list[RunConfig], execution: Execution) -> Iterator[Replications]:
    current = make_replications(configs, execution.threads, execution.cluster)
    try:
        yield current
    finally:
        current.evaluator.close()


def _group_outcome(group: GroupFolder, outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        group.path,
        all(outcome.finished for outcome in outcomes),
        min(outcome.evaluations for outcome in outcomes),
        {},
        tuple(outcomes),
    )


def _outcome_so_far(run: RunFolder, config: RunConfig) -> Outcome:
    """The outcome of a run that is left as it is."""
    return _finished(run, config) or Outcome(run.path, False, run.evaluations(), {})


def _finished(run: RunFolder, config: RunConfig) -> Outcome | None:
    """The outcome of a run that has spent its budget; None if it has not."""
    if not run.has_archive:
        return None
    archive = run.read_archive()
    if archive.about["evaluations"] < config.evaluations:
        return None
    return Outcome(run.path, True, archive.about["evaluations"], archive.metrics._asdict())
