"""Runs: ask, evaluate, tell, until the budget is spent; logged, checkpointed, resumable.

All random numbers are functions of the run's seed, the generation and the number of the evaluation, so a run
that is killed and resumed ends with the same bits as an uninterrupted one. Replications are checkpointed and
resumed together, as a group; each has its own folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from elites.algorithms.base import Algorithm
from elites.cache import keep_compiled_programs
from elites.errors import ElitesError, require
from elites.evaluation import refuse_cluster
from elites.evaluation.physics import choose_physics
from elites.experiments.config import RunConfig, load_config, read_versions
from elites.experiments.correct import Settings, require_correction_memory
from elites.experiments.display import show_progress
from elites.experiments.episodes_inside import EpisodesInside
from elites.experiments.episodes_outside import EpisodesOutside
from elites.experiments.execution import Execution, Report
from elites.experiments.guards import Interrupts, folder_lock
from elites.experiments.loop import STOP_AWAITS, Outcome, compute_medians, remove_checkpoints, run_to_end
from elites.experiments.replications import Replications, StartGenomes, require_memory, runs_inside
from elites.files import convert_os_errors
from elites.options import Evaluations, Seeds, convert_value
from elites.results.archive import SavedArchive, save_archive
from elites.results.folder import GroupFolder, RunFolder, find_group, refuse_used_folder
from elites.results.names import RUNS
from elites.tasks.in_memory import provide_functions, remember_function
from elites.tasks.task import DeviceTask, Task
from elites.text import MAX_NAME_BYTES, make_folder_name


def choose_default_folder(config: RunConfig, seeds: int = 1) -> Path:
    """The default folder of a run or a group."""
    last = config.seed if seeds == 1 else f"{config.seed}-to-{config.seed + seeds - 1}"
    algorithm, task = (re.sub(r"[^\w.-]+", "-", name) for name in (config.algorithm, config.task_name))
    name = f"{algorithm}-{task}-{last}"
    return Path(RUNS) / (name if len(name.encode()) <= MAX_NAME_BYTES else make_folder_name(name))


def run(
    config: RunConfig,
    folder: Path | str | None = None,
    seeds: int = 1,
    execution: Execution | None = None,
    *,
    progress: bool | None = None,
) -> Outcome:
    """Executes a run in a new folder.

    Args:
        config: what to run.
        folder: folder of the run's files; it must be new or empty.
        seeds: number of replications, with consecutive seeds from the configuration's on. Each has a folder
            in `folder`. They train together and share the evaluator, if the algorithm allows it.
        execution: threads, limits and callbacks.
        progress: whether to show the progress: live on a terminal or in a notebook, elsewhere as lines. The
            default is to show it live, unless `execution` has an `on_generation`.
    """
    title = f"{config.algorithm} on {config.task_name}"
    with show_progress(title, execution or Execution(), progress) as execution:
        return _run(config, folder, seeds, execution)


def _run(config: RunConfig, folder: Path | str | None, seeds: int, execution: Execution) -> Outcome:
    convert_value(Seeds, "seeds", seeds)
    require(config.seed + seeds <= 2**32, "seeds", seeds, f"at most {2**32 - config.seed} from that seed on")
    path = choose_default_folder(config, seeds) if folder is None else Path(folder)
    _warn_about_functions_in_memory(config, execution)
    return start_runs(config, seeds, path, execution, group=seeds > 1)


def start_runs(config: RunConfig, seeds: int, path: Path, execution: Execution, *, group: bool) -> Outcome:
    """Executes replications in a new folder: as a group, which may have a single one, or as the run itself.

    If a killed process left an incomplete group there, its records are written again.
    """
    if not (group and GroupFolder(path).is_incomplete()):
        refuse_used_folder(path)
    together = seeds if config.shares_program else 1  # replications in one program
    physics, line = choose_physics(config.make_task(), config.physics, together, execution.threads)
    if physics is not None:
        execution.log(line)
        config = dataclasses.replace(config, physics=physics)
    algorithm, start = config.make_algorithm(), config.read_start()
    _warn_if_only_opening(config, algorithm, execution)
    configs = [dataclasses.replace(config, seed=config.seed + index) for index in range(seeds)]
    new_folders = _make_folders(path, configs, start, group=group)
    if group and not config.shares_program:
        require_memory(algorithm, physics)
        with new_folders:
            pass
        # Seeds that run one after another are started by `_resume`: it continues each from its current state.
        return _resume(path, execution, None)
    genomes = None if start is None else lambda: start.parameters
    # Errors in the configuration are raised before anything is written.
    with make_replications(configs, execution, genomes) as replications, new_folders as folders:
        outcomes = run_to_end(path, folders, replications, execution)
    return _make_group_outcome(path, outcomes) if group else outcomes[0]


def make_replications(
    configs: list[RunConfig],
    execution: Execution | None = None,
    start_genomes: StartGenomes | None = None,
) -> Replications:
    """The runs of these configurations, which differ only in their seeds, if they fit into memory.

    `start_genomes` returns the genomes that they begin with, if their configuration has a `start`.
    """
    keep_compiled_programs()
    execution, algorithm = execution or Execution(), configs[0].make_algorithm()
    task = algorithm.task
    if isinstance(task, DeviceTask):
        if problem := task.unavailable_reason():
            raise ElitesError(problem)
        refuse_cluster(task, execution.cluster)
    if configs[0].correct_every:
        elites = min(len(algorithm.cells.centroids), configs[0].evaluations)
        settings = Settings(replications=configs[0].correct_replications, redraw=configs[0].correct_redraw)
        require_correction_memory(elites, task.descriptor_size, algorithm.genome.parameter_count, settings)
    driver = EpisodesInside if runs_inside(algorithm, configs[0].physics) else EpisodesOutside
    return driver(configs, algorithm, execution, start_genomes)


@contextlib.contextmanager
def _make_folders(
    path: Path, configs: list[RunConfig], start: SavedArchive | None, *, group: bool
) -> Iterator[list[RunFolder]]:
    """Makes and locks the folder of new runs, with the record of each."""
    home, records = GroupFolder(path), [config.record() for config in configs]
    home.create_folder()
    with folder_lock(path):
        if group and home.is_incomplete():
            home.clear_incomplete()
        refuse_used_folder(path)
        if group:
            folders = home.create(records)
        else:
            folders = [RunFolder(path)]
            folders[0].create(records[0])
        _keep_start(path, start)
        task = configs[0].make_task()
        for folder in folders:
            remember_function(folder.path, task)
        yield folders


def _warn_about_functions_in_memory(config: RunConfig, execution: Execution) -> None:
    functions = ", ".join(config.make_task().functions_in_memory())
    if functions:
        execution.log(
            f"only in the memory of this process: {functions}. Another process that resumes, corrects or "
            "replays this run needs the task again: elites.resume(folder, task=…)"
        )


def resume(
    folder: Path | str,
    execution: Execution | None = None,
    *,
    evaluations: int | None = None,
    task: Task | None = None,
    progress: bool | None = None,
) -> Outcome:
    """Continues a run, or a group of runs, that was killed, interrupted or out of time, or extends it.

    Resuming one run of a group resumes them all.

    Args:
        folder: folder of the run or the group.
        execution: threads, limits and callbacks.
        evaluations: larger budget. The result is bit for bit that of a run planned with this budget. A
            finished run must have kept its state (`Execution.keep_state`).
        task: the run's task again. It is needed in another process if its environment, its descriptor or the
            function that it optimises was defined in a notebook or inside a function.
        progress: as for `run`.
    """
    path = Path(folder)
    convert_value(Evaluations | None, "evaluations", evaluations)
    if task is not None:
        group = GroupFolder(path) if GroupFolder(path).exists else find_group(path)
        for run in [RunFolder(path)] if group is None else group.runs():
            record = run.read_record()
            provide_functions(run.path, record.task, record.task_parameters, task)
    with show_progress(str(folder), execution or Execution(), progress) as execution:
        return _resume(path, execution, evaluations)


def _resume(path: Path, execution: Execution, evaluations: int | None) -> Outcome:
    group = GroupFolder(path) if GroupFolder(path).exists else find_group(path)
    if group is None:
        RunFolder(path).read_record()  # an error if there is none
        return _resume_runs(path, [RunFolder(path)], execution, evaluations)[0]
    outcomes = _resume_runs(group.path, group.runs(), execution, evaluations)
    if GroupFolder(path).exists:
        return _make_group_outcome(path, outcomes)
    return next(outcome for outcome in outcomes if outcome.folder == path.resolve())


def _resume_runs(
    home: Path, folders: list[RunFolder], execution: Execution, evaluations: int | None
) -> list[Outcome]:
    """Continues the runs of a group, or a single run: together, or one after the other."""
    started = time.perf_counter()
    with folder_lock(home):
        loaded = [load_config(run.path) for run in folders]
        configs, original_versions = [config for config, _ in loaded], loaded[0][1]
        budget = max(config.evaluations for config in configs)  # a killed process may have extended only some
        is_group = GroupFolder(home).exists
        if is_group:
            same = [dataclasses.replace(config, evaluations=budget) for config in configs]
            _refuse_different(folders, same, GroupFolder(home).seeds())
        start_genomes = functools.partial(_read_genomes, home, configs[0])
        if not is_group or configs[0].shares_program:
            configs = _extend_configs(home, folders, configs, evaluations or budget)
            return _continue(home, folders, configs, original_versions, execution, start_genomes)
        pairs = zip(folders, configs, strict=True)
        configs = [
            _extend_configs(run.path, [run], [config], evaluations or budget)[0] for run, config in pairs
        ]
        outcomes = []
        with Interrupts(STOP_AWAITS, execution.on_stop) as interrupts:
            for run, config in zip(folders, configs, strict=True):
                hours = execution.max_hours
                remaining_hours = None if hours is None else hours - (time.perf_counter() - started) / 3600
                if interrupts.requested or (remaining_hours is not None and remaining_hours <= 0):
                    outcomes.append(_find_outcome_so_far(run, config))
                    continue
                limited = dataclasses.replace(execution, max_hours=remaining_hours)
                with folder_lock(run.path):
                    outcomes += _continue(
                        run.path, [run], [config], original_versions, limited, start_genomes, interrupts
                    )
        return outcomes


def _refuse_different(folders: list[RunFolder], configs: list[RunConfig], seeds: list[int]) -> None:
    """Raises an error if replications of a group differ in more than the seed."""
    for run, config, seed in zip(folders, configs, seeds, strict=True):
        expected = configs[0].record() | {"seed": seed}
        for name, given in config.record().items():
            if json.dumps(given) != json.dumps(expected[name]):
                raise ElitesError(
                    f"{run.config} has {name} {json.dumps(given)}; in this group it must be "
                    f"{json.dumps(expected[name])}"
                )


def _continue(
    home: Path,
    folders: list[RunFolder],
    configs: list[RunConfig],
    original_versions: dict[str, str | None],
    execution: Execution,
    start_genomes: StartGenomes,
    interrupts: Interrupts | None = None,
) -> list[Outcome]:
    checkpoints = GroupFolder(home).checkpoints
    for run in folders:
        run.refuse_folders()
    outcomes = [
        _read_outcome(run, config, log=execution.log if checkpoints.paths() else None)
        for run, config in zip(folders, configs, strict=True)
    ]
    known = [outcome for outcome in outcomes if outcome is not None]
    done = [outcome for outcome in known if outcome.finished]
    if len(done) == len(folders):
        execution.log(f"{home} is finished: {done[0].evaluations} evaluations")
        remove_checkpoints(checkpoints, execution)
        return done
    archived = any(run.has_archive for run in folders)
    if (
        archived and not done and not checkpoints.paths()
    ):  # a group may have been killed while it saved archives
        raise ElitesError(f"{home} has an archive but no checkpoint to continue from; nothing was changed")
    changed = {name: (original_versions.get(name, now), now) for name, now in read_versions().items()}
    differing = ", ".join(
        f"{name} {then} (now {now})" for name, (then, now) in changed.items() if then != now
    )
    if differing:
        execution.log(f"started with {differing}: the result may differ from that of an uninterrupted run")
    if len(known) == len(folders):
        rows = [{"evaluations": outcome.evaluations, **outcome.metrics} for outcome in known]
        seeds = tuple(config.seed for config in configs)
        execution.on_resume(Report(compute_medians(rows), {}, configs[0].evaluations, seeds))
    with make_replications(configs, execution, start_genomes) as replications:
        return run_to_end(home, folders, replications, execution, interrupts)


def _extend_configs(
    home: Path, folders: list[RunFolder], configs: list[RunConfig], evaluations: int | None
) -> list[RunConfig]:
    """The configurations with a larger budget, if one is given; an error if the runs cannot be extended.

    Writes nothing. The record of a run gets the new budget once its checkpoint in `home` has been read.
    """
    if evaluations is None:
        return configs
    for run, config in zip(folders, configs, strict=True):
        if evaluations < config.evaluations:
            raise ElitesError(
                f"evaluations is {evaluations}; it must be at least {config.evaluations}, the budget of {run}"
            )
    if all(config.evaluations == evaluations for config in configs):
        return configs
    checkpoints = GroupFolder(home).checkpoints
    begun = checkpoints.paths() or any(run.has_archive for run in folders)
    if begun and checkpoints.find_extensible() is None:
        raise ElitesError(
            f"{home} has no saved state to continue from (--keep-state; the runs of a study keep none); "
            f"`elites run … --from {folders[0]}` begins a new run with its elites"
        )
    return [dataclasses.replace(config, evaluations=evaluations) for config in configs]


def _warn_if_only_opening(config: RunConfig, algorithm: Algorithm, execution: Execution) -> None:
    """Logs a line if the budget ends with the initial genomes."""
    first = algorithm.opening_evaluations()
    if config.evaluations > first:
        return
    start_count = algorithm.starting_genome_count
    what = f"{start_count:,} elites" if start_count else f"random {algorithm.task.genomes}"
    option = " (--initial)" if "initial" in algorithm.config.shortest_opening() and not start_count else ""
    execution.log(
        f"the budget is spent before anything is varied or trained: {config.algorithm} begins with "
        f"{first:,} evaluations of {what}{option}, and this run has {config.evaluations:,}"
    )


def _keep_start(home: Path, start: SavedArchive | None) -> None:
    """Copies the archive that a run or a group begins with, if there is one, into its folder."""
    if start is not None:
        with convert_os_errors(f"cannot write to {home}"):
            save_archive(GroupFolder(home).start, start)


def _read_genomes(home: Path, config: RunConfig) -> np.ndarray:
    """The genomes that a resumed run begins with. A run may have been killed before they were copied."""
    copy = GroupFolder(home).start
    copied, start = copy.exists(), config.read_start(copy)
    assert start is not None
    if not copied:
        _keep_start(home, start)
    return start.parameters


def _make_group_outcome(path: Path, outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        path,
        all(outcome.finished for outcome in outcomes),
        min(outcome.evaluations for outcome in outcomes),
        {},
        tuple(outcomes),
    )


def _find_outcome_so_far(run: RunFolder, config: RunConfig) -> Outcome:
    """The current outcome of a run."""
    return _read_outcome(run, config) or Outcome(run.path, False, 0, {})


def _read_outcome(
    run: RunFolder, config: RunConfig, log: Callable[[str], None] | None = None
) -> Outcome | None:
    """The outcome of a run so far, from its archive; None if there is none.

    A damaged archive is an error. With `log`, it is a line: the checkpoint has the archive, too.
    """
    if not run.has_archive:
        return None
    try:
        archive = run.read_archive()
    except ElitesError as error:
        if log is None:
            raise
        log(f"{error}; it is made again from the checkpoint")
        return None
    evaluations = archive.about["evaluations"]
    return Outcome(run.path, evaluations >= config.evaluations, evaluations, archive.metrics._asdict())
