"""`elites study run`: plans, tells what it will cost, and executes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from elites.errors import require
from elites.experiments.guards import alone
from elites.files import error_in_one_line, write_atomically
from elites.studies import plan
from elites.studies.display import StudyDisplay
from elites.studies.execution import Pool, Processes, State, execute, measure
from elites.studies.study import Job, Study

FAILED, STOPPED = 1, 0


def run_study(
    study: Study,
    folder: Path | str,
    *,
    workers: int | None = None,
    threads: int | None = None,
    cluster: str | None = None,
    checkpoint_seconds: float = 60.0,
    calibrate: bool = True,
    only_plan: bool = False,
) -> list[State]:
    """Executes what is not finished yet of a study whose runs are in `folder`.

    Args:
        study: what to run.
        folder: where everything goes; the same study again goes on from what is there.
        workers: runs at once; one per core unless given, fewer where memory is short.
        threads: of each run's rollouts; the cores divided by the workers unless given.
        cluster: address of a Ray cluster whose machines share the work.
        checkpoint_seconds: least time between the checkpoints of a run.
        calibrate: measures how long it will take before it starts.
        only_plan: tells what it would do, and does nothing.
    """
    folder = Path(folder)
    require(workers is None or workers >= 1, "workers", workers, "at least 1")
    require(threads is None or threads >= 1, "threads", threads, "at least 1")
    require(checkpoint_seconds >= 0, "checkpoint_seconds", checkpoint_seconds, "at least 0")
    if cluster is not None:
        from elites.cluster import connect

        connect(cluster)  # before anything is measured for nothing
    if only_plan:
        return _execute(study, folder, workers, threads, cluster, checkpoint_seconds, calibrate, True)
    with error_in_one_line(f"cannot make the study's folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):  # before anything is measured
        return _execute(study, folder, workers, threads, cluster, checkpoint_seconds, calibrate, False)


def _execute(
    study: Study,
    folder: Path,
    workers: int | None,
    threads: int | None,
    cluster: str | None,
    checkpoint_seconds: float,
    calibrate: bool,
    only_plan: bool,
) -> list[State]:
    jobs = study.jobs()
    left = plan.unfinished(folder, jobs)
    finished = sum(len(job.folders) for job in jobs) - sum(len(job.folders) for job in left)
    display = StudyDisplay(folder, finished)
    if not left:
        display.log(f"{folder} is finished: {finished} run{'s' * (finished != 1)}")
        return []
    measured = _measured(folder, left, calibrate, display.log, keep=not only_plan)
    pool: Pool
    if cluster is None:
        workers = workers or plan.default_workers(left, measured)
        each = threads or max(1, plan.cores() // workers)
        where = f"this machine: {workers} at once, {each} {'threads' if each > 1 else 'thread'} each"
        pool = Processes(folder, workers, each, checkpoint_seconds)
    else:
        from elites.studies.cluster import ClusterPool

        needs = {job.folder: plan.needs(job, measured) for job in left}
        pool = ClusterPool(folder, cluster, workers, threads, checkpoint_seconds, needs)
        where = pool.describe()
    try:
        cost = plan.cost(folder, left, measured, workers or len(left))
        display.log(plan.describe(study, jobs, cost, finished, where))
        if only_plan:
            return []
        _record(folder, study)
        with display:
            return execute(left, pool, display, display.ended)
    finally:
        pool.close()


def _measured(
    folder: Path, jobs: Sequence[Job], calibrate: bool, tell: Callable[[str], None], *, keep: bool
) -> plan.Measured:
    """What a worker finds out about each cell; times that were measured before are not measured again.

    `keep` writes them into the folder for the next time; a plan alone leaves nothing behind.
    """
    cells = {plan.cell_of(job.configs[0]): job for job in jobs}
    path = folder / plan.MEASURED
    known: dict[str, dict[str, float]] = {}
    if path.exists():
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            known = {}
    new = calibrate and not set(cells) <= set(known)
    found = measure(
        [dataclasses.asdict(job.configs[0]) for job in cells.values()],
        [len(job.configs) for job in cells.values()],
        new,
        tell,
    )
    sizes = dict(zip(cells, found["cells"], strict=True))
    paces = {**known, **{cell: size["pace"] for cell, size in sizes.items() if "pace" in size}}
    if new and keep:
        text = json.dumps(paces, indent=1) + "\n"
        with error_in_one_line(f"cannot write to {folder}"):
            _write(path, text)
    for cell, size in sizes.items():
        if cell in paces:
            size["pace"] = paces[cell]
    return plan.Measured(sizes, found["platform"], found["available"])


def _write(path: Path, text: str) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    write_atomically(path, write)


def _record(folder: Path, study: Study) -> None:
    """The study, with the choices of it that were run before: reports call them by their labels."""
    record: dict[str, Any] = json.loads(json.dumps(study.record()))
    path = folder / plan.RECORD
    there: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        there = json.loads(path.read_text())
    for what in ("tasks", "algorithms"):
        try:
            before = {_key(choice): choice for choice in there[what]}
        except (KeyError, TypeError):  # none, or damaged
            before = {}
        record[what] = list({**before, **{_key(choice): choice for choice in record[what]}}.values())
    with error_in_one_line(f"cannot write to {folder}"):
        _write(path, json.dumps(record, indent=2) + "\n")


def _key(choice: dict[str, Any]) -> str:
    return json.dumps([choice["name"], choice["parameters"]], sort_keys=True)


def conclude(folder: Path, states: Sequence[State]) -> int:
    """Tells how it ended. Returns the exit status: 1 if a run has failed."""
    failed = [state for state in states if state.stage == "failed"]
    stopped = [state for state in states if state.stage in ("stopped", "waiting")]
    if failed:
        print(f"{len(failed)} of {len(states)} jobs failed; the same command tries them again", flush=True)
        return FAILED
    if stopped:
        print("stopped; the same command goes on", flush=True)
        return STOPPED
    print(f"`elites study report {folder}` shows what came out", flush=True)
    return 0
