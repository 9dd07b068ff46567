"""Executes the jobs of a study: several at once, each in its own process. A failure stops no other job."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from elites.child_processes import describe_exit
from elites.errors import ElitesError
from elites.experiments.guards import Interrupts
from elites.experiments.options import RunResources
from elites.files import convert_os_errors
from elites.options import select_values
from elites.results.study import StudyFolder
from elites.studies.resources import StudyExecution
from elites.studies.study import Job

TRIES = 3  # of a job whose worker dies
POLL_SECONDS = 0.25


@dataclass
class State:
    """The progress of a job."""

    job: Job
    stage: str = "waiting"  # running, correcting, finished, stopped, failed
    phase: str = ""  # before the first generation
    done: int = 0
    total: int = 0
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""
    tries: int = 0  # in a row without progress
    farthest: int = 0
    corrected: bool = False  # whether a correction has begun
    where: str = ""
    started: float = 0.0
    seconds: float = 0.0


class Pool(Protocol):
    """Workers, on this machine or on a cluster. Their messages come as (job, message)."""

    def has_room(self) -> bool:
        """Whether another job can be started."""

    def start(self, job: Job) -> None:
        """Gives a job to a worker."""

    def events(self) -> list[tuple[Job, dict[str, Any]]]:
        """The messages since the last call; waits a moment if there are none."""

    def stop(self) -> None:
        """Asks all workers to stop so that their runs can be resumed."""

    def close(self) -> None:
        """Kills the workers that are left."""


def make_request(job: Job, folder: Path, execution: StudyExecution) -> dict[str, Any]:
    """The request for a worker."""
    return {
        "what": "run",
        "folder": str(folder),
        "config": dataclasses.asdict(job.configs[0]),
        "seeds": [config.seed for config in job.configs],
        "group": job.group,
        "correct": job.correct,
        "redraw": job.redraw,
        "resources": select_values(execution, RunResources),
    }


def start_worker(request: dict[str, Any], log: Any) -> subprocess.Popen[str]:
    """Starts a worker on a request. It ends when its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "elites.studies.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,  # so that Ctrl-C reaches only this process, which passes it on
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return process


class Processes:
    """Workers on this machine."""

    def __init__(self, study: Path, execution: StudyExecution) -> None:
        self.study, self.execution, self.workers = StudyFolder(study), execution, execution.workers or 1
        self._messages: SimpleQueue[tuple[Job, dict[str, Any]]] = SimpleQueue()
        self._running: dict[str, subprocess.Popen[str]] = {}

    def has_room(self) -> bool:
        return len(self._running) < self.workers

    def start(self, job: Job) -> None:
        log = self.study.log_path(job.folder)
        folder = self.study.path / job.folder
        request = make_request(job, folder, self.execution)
        with convert_os_errors(f"cannot write to {self.study}"):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                process = start_worker(request, file)
        self._running[job.folder] = process
        threading.Thread(target=self._listen, args=(job, process), daemon=True).start()

    def _listen(self, job: Job, process: subprocess.Popen[str]) -> None:
        ended = False
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with contextlib.suppress(ValueError):  # a line cut short by a kill
                    message = json.loads(line)
                    ended = ended or message["kind"] in ("done", "failed")
                    self._messages.put((job, message))
        code = process.wait()
        if not ended:
            self._messages.put((job, {"kind": "lost", "error": f"its worker {describe_exit(code)}"}))

    def events(self) -> list[tuple[Job, dict[str, Any]]]:
        events: list[tuple[Job, dict[str, Any]]] = []
        with contextlib.suppress(Empty):
            events.append(self._messages.get(timeout=POLL_SECONDS))
            while True:
                events.append(self._messages.get_nowait())
        for job, message in events:
            if message["kind"] in ("done", "failed", "lost"):
                process = self._running.pop(job.folder)
                assert process.stdin is not None
                with contextlib.suppress(OSError):
                    process.stdin.close()
                process.wait()
                if message["kind"] == "done" and message["finished"]:
                    self.study.log_path(job.folder).unlink(missing_ok=True)
        return events

    def stop(self) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()


def execute(
    jobs: Sequence[Job],
    pool: Pool,
    show: Callable[[Sequence[State]], None],
    on_end: Callable[[State], None],
    deadline_passed: Callable[[], bool] = lambda: False,
    on_stop: Callable[[str, int], None] | None = None,
    evaluations_so_far: Callable[[Job], int] = lambda job: 0,
) -> list[State]:
    """Executes the jobs, as many at a time as there is room for.

    Ctrl-C and SIGTERM ask all workers to stop; a second one ends them at once. In both cases their runs can
    be resumed. Workers also stop when `deadline_passed` returns true. `show` is called repeatedly with the
    state of all jobs, `on_end` when a job has ended, `on_stop` at each Ctrl-C, as that of an Execution.
    `evaluations_so_far` returns the evaluations that a job has at the start.
    """
    states = {job.folder: State(job) for job in jobs}
    for state in states.values():
        if done := evaluations_so_far(state.job):
            state.done, state.total, state.farthest = done, state.job.configs[0].evaluations, done
    everything = list(states.values())
    waiting, stopping = deque(everything), False
    try:
        with Interrupts("the running generation of each run", on_stop) as interrupts:
            while (waiting and not stopping) or any(map(_is_active, everything)):
                if not stopping and (interrupts.requested or deadline_passed()):
                    stopping = True
                    pool.stop()
                while waiting and not stopping and pool.has_room():
                    state = waiting.popleft()
                    state.stage, state.started = "running", time.monotonic()
                    pool.start(state.job)
                for job, message in pool.events():
                    state = states[job.folder]
                    update(state, message, stopping=stopping or interrupts.requested)
                    if message["kind"] == "lost" and state.stage == "waiting":
                        waiting.appendleft(state)
                    elif not _is_active(state):
                        state.seconds = time.monotonic() - state.started
                        on_end(state)
                show(everything)
    finally:
        pool.close()
    return everything


def _is_active(state: State) -> bool:
    return state.stage in ("running", "correcting")


def update(state: State, message: dict[str, Any], *, stopping: bool) -> None:
    """Updates a state with a worker's message. A worker that is lost while `stopping` counts as stopped."""
    kind = message["kind"]
    if kind in ("progress", "correcting"):
        state.stage = "running" if kind == "progress" else "correcting"
        state.done, state.total = message["done"], message["total"]
        state.metrics = message.get("metrics", state.metrics)
        state.corrected = state.corrected or kind == "correcting"
        if kind == "progress" and state.done > state.farthest:
            state.tries, state.farthest = 0, state.done
    elif kind == "phase":
        state.phase = message["phase"]
    elif kind == "where":
        state.where = message["where"]
    elif kind == "done":
        state.stage = "finished" if message["finished"] else "stopped"
    elif kind == "failed":
        state.stage, state.error = "failed", message["error"]
    elif kind == "lost" and stopping:
        state.stage = "stopped"
    elif kind == "lost":
        state.tries += 1
        state.error = message["error"]
        state.stage = "waiting" if state.tries < TRIES else "failed"


def measure(
    configs: Sequence[dict[str, Any]], seeds: Sequence[int], calibrate: bool, log: Callable[[str], None]
) -> dict[str, Any]:
    """Sizes and paces of runs, measured in a worker: see `elites.studies.calibration`."""
    request = {"what": "measure", "configs": list(configs), "seeds": list(seeds), "calibrate": calibrate}
    with tempfile.TemporaryFile("w+") as output:
        process = start_worker(request, output)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                if message["kind"] == "text":
                    log(message["text"])
                elif message["kind"] == "failed":
                    raise ElitesError(f"the study cannot be measured: {message['error']}")
                elif message["kind"] == "measured":
                    return {name: value for name, value in message.items() if name != "kind"}
            code = process.wait()
            output.seek(0)
            last = (output.read().strip().splitlines() or [""])[-1]
            raise ElitesError(f"the study cannot be measured: {f'its worker {describe_exit(code)}'}: {last}")
        finally:
            process.kill()
            process.communicate()
