"""Plans a study, prints its cost, and executes it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from elites.errors import ElitesError
from elites.experiments.guards import folder_lock
from elites.files import convert_os_errors, format_bytes, require_space
from elites.results.folder import RunFolder
from elites.results.schemas import Pace, convert
from elites.results.study import StudyFolder
from elites.studies import plan, remaining
from elites.studies.display import StudyDisplay
from elites.studies.execution import Pool, Processes, State, execute, measure
from elites.studies.resources import StudyExecution
from elites.studies.study import Job, Study
from elites.text import format_duration

FAILED, STOPPED = 1, 0


def run_study(
    study: Study,
    folder: Path | str,
    execution: StudyExecution | None = None,
    *,
    only_plan: bool = False,
) -> list[State]:
    """Executes the runs of a study that are not finished yet.

    Args:
        study: the study.
        folder: folder of the study; the same study again continues the runs in it.
        execution: workers, threads and limits.
        only_plan: whether to show the plan and do nothing else.
    """
    folder, execution = Path(folder), execution or StudyExecution()
    execution.check()
    clock = _Clock(execution.max_hours)
    if execution.cluster is not None:
        from elites.cluster import connect

        connect(execution.cluster)  # fails early, before anything is measured
    if only_plan:
        return _execute(study, folder, execution, clock, only_plan=True)
    with convert_os_errors(f"cannot make the study's folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):  # fails early, before anything is measured
        StudyFolder(folder).remove_partials()
        return _execute(study, folder, execution, clock, only_plan=False)


class _Clock:
    """The time limit of a study."""

    def __init__(self, hours: float | None) -> None:
        self.hours, self._started = hours, time.monotonic()

    def is_over(self) -> bool:
        return self.hours is not None and time.monotonic() - self._started >= 3600 * self.hours

    def describe(self) -> str:
        return "" if self.hours is None else f"{format_duration(3600 * self.hours)} (--max-hours)"


def _execute(
    study: Study, folder: Path, execution: StudyExecution, clock: _Clock, *, only_plan: bool
) -> list[State]:
    display = StudyDisplay(folder)
    with display:
        jobs = study.jobs()
        unfinished = remaining.select_unfinished(folder, jobs)
        finished = sum(len(job.folders) for job in jobs) - sum(len(job.folders) for job in unfinished)
        if not unfinished:
            display.log(f"{folder} is finished: {finished} run{'s' * (finished != 1)}")
            return []
        display.activity = "measuring"
        measured = _measure(folder, unfinished, execution.calibrate, display.log, keep=not only_plan)
    display.finished = finished
    pool: Pool
    workers = execution.workers
    if execution.cluster is None:
        workers = workers or plan.choose_worker_count(unfinished, measured)
        run_threads = execution.threads or max(1, plan.count_cores() // workers)
        where = (
            f"this machine: {workers} at once, {run_threads} thread{'s' * (run_threads > 1)} each, "
            f"with up to {format_bytes(plan.predict_memory(unfinished, measured, workers))} of memory; "
            f"{format_bytes(measured.available)} are free"
        )
        pool = Processes(folder, dataclasses.replace(execution, workers=workers, threads=run_threads))
    else:
        from elites.studies.cluster import ClusterPool

        needs = {job.folder: plan.estimate_job_memory(job, measured) for job in unfinished}
        pool = ClusterPool(folder, execution, needs)
        where = pool.describe()
    try:
        cost = plan.predict_cost(
            folder, unfinished, measured, workers or len(unfinished), execution.keep_state
        )
        display.log(plan.describe(study, jobs, cost, finished, where, clock.describe()))
        if only_plan:
            return []
        require_space(folder, cost.disk - plan.measure_disk_use(folder, unfinished), "the study takes up to")
        _write_record(folder, study, display.log)
        display.activity = "starting"
        with display:
            states = execute(
                *(unfinished, pool, display, display.report_end, clock.is_over, display.show_stop),
                evaluations_so_far=lambda job: min(
                    RunFolder(folder / run).evaluations() for run in job.folders
                ),
            )
        if clock.is_over() and any(state.stage in ("stopped", "waiting") for state in states):
            display.log(f"the time limit is reached: {clock.describe()}")
        return states
    finally:
        pool.close()


def _measure(
    folder: Path, jobs: Sequence[Job], calibrate: bool, log: Callable[[str], None], *, keep: bool
) -> plan.Measurements:
    """Sizes and paces of the runs of each task and algorithm. Times in the study's folder are reused.

    With `keep`, new times are written into the folder for the next call.
    """
    combinations = {plan.make_cost_key(job.configs[0]): job for job in jobs}
    home = StudyFolder(folder)
    known: dict[str, Pace] = {}
    try:
        known = home.read_measured()
    except ElitesError as error:
        log(f"{error}; it is {'measured again' if calibrate else 'not used'}")
    new = calibrate and not set(combinations) <= set(known)
    measured = measure(
        [dataclasses.asdict(job.configs[0]) for job in combinations.values()],
        [len(job.configs) for job in combinations.values()],
        new,
        log,
    )
    sizes = dict(zip(combinations, measured["by_combination"], strict=True))
    paces = {**known, **{key: convert(size["pace"], Pace) for key, size in sizes.items() if "pace" in size}}
    if new and keep:
        home.write_measured(paces)
    for key, size in sizes.items():
        if key in paces:
            size["pace"] = paces[key].fields()
    return plan.Measurements(sizes, measured["platform"], measured["available"])


def _write_record(folder: Path, study: Study, log: Callable[[str], None]) -> None:
    """Writes the study's record. Choices of earlier runs are kept: reports need their labels."""
    home, record = StudyFolder(folder), json.loads(json.dumps(study.record()))
    last = None
    try:
        last = home.read_record()
    except ElitesError as error:
        log(f"{error}; it is written again, without the labels of runs before this study")
    if last is not None:
        for what, before in (("tasks", last.tasks), ("algorithms", last.algorithms)):
            choices = [*map(msgspec.to_builtins, before), *record[what]]
            record[what] = list({_make_key(choice): choice for choice in choices}.values())
    home.write_record(record)


def _make_key(choice: dict[str, Any]) -> str:
    return json.dumps([choice["name"], choice["parameters"]], sort_keys=True)


def print_outcome(folder: Path, states: Sequence[State]) -> int:
    """Prints the outcome of the study. Returns the exit status: 1 if a run has failed."""
    failed = [state for state in states if state.stage == "failed"]
    stopped = [state for state in states if state.stage in ("stopped", "waiting")]
    if failed:
        print(f"{len(failed)} of {len(states)} jobs failed; the same command tries them again", flush=True)
        return FAILED
    if stopped:
        print("stopped; the same command continues", flush=True)
        return STOPPED
    print(f"`elites study report {folder}` shows the results", flush=True)
    return 0
