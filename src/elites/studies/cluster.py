"""A study on a Ray cluster: each job is a task on one of its machines, which sends its files back regularly.

No shared file system is needed. A task begins with the files of its run that were sent back so far. If a
machine is lost, its runs continue on another one, from the last checkpoint that was sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

from elites.child_processes import describe_exit
from elites.cluster import connect, list_machines
from elites.errors import ElitesError
from elites.files import convert_os_errors, write_atomically
from elites.results import names
from elites.results.folder import GroupFolder
from elites.results.study import StudyFolder
from elites.studies.execution import POLL_SECONDS, make_request, start_worker
from elites.studies.plan import WORKER_BYTES
from elites.studies.resources import StudyExecution
from elites.studies.study import Job

MIN_SECONDS_BETWEEN_TRANSFERS = 1.0  # of files
TAIL = 20_000  # bytes of a worker's log that are sent back when it fails


def remote_run(request: dict[str, Any], files: dict[str, bytes], every: float) -> Iterator[dict[str, Any]]:
    """The Ray task: a worker in a temporary folder. Yields its messages, and its files as they change."""
    home = Path(tempfile.mkdtemp(prefix="elites-"))
    try:
        folder, log_path = home / names.RUNS, home / names.worker_log()
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        sent = {name: _mark(folder / name) for name in files}
        with log_path.open("w+b") as log:
            request = {**request, "folder": str(folder), "temporary": True}
            process = start_worker(request, log)
            try:
                yield {"kind": "where", "where": platform.node()}
                for message in _relay(process, folder, sent, every):
                    if message["kind"] in ("failed", "lost"):  # the log is removed with the folder
                        message["log"] = log_path.read_bytes()[-TAIL:]
                    yield message
            finally:
                process.kill()
                process.communicate()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _relay(
    process: subprocess.Popen[str], folder: Path, sent: dict[str, Any], every: float
) -> Iterator[dict[str, Any]]:
    messages: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                messages.put(json.loads(line))
        messages.put(None)

    threading.Thread(target=listen, daemon=True).start()
    clock, transfer_seconds = time.monotonic(), 0.0
    while True:
        message = None
        with contextlib.suppress(Empty):
            message = messages.get(timeout=POLL_SECONDS)
            if message is None:
                yield {"kind": "lost", "error": f"its worker {describe_exit(process.wait())}"}
                return
        if message is not None and message["kind"] in ("done", "failed"):
            yield from _changes(folder, sent)
            yield message
            return
        if message is not None:
            yield message
        if time.monotonic() - clock > max(every, 20 * transfer_seconds):
            began = time.monotonic()
            yield from _changes(folder, sent)
            clock = time.monotonic()
            transfer_seconds = clock - began


def _mark(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


def _changes(folder: Path, sent: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Files that have changed since they were sent. Logs are read last: checkpoints refer to their rows."""
    paths = sorted(GroupFolder(folder).complete_files(), key=lambda path: path.name in names.LOGS)
    changed: dict[str, bytes] = {}
    for path in paths:
        name = str(path.relative_to(folder))
        with contextlib.suppress(FileNotFoundError):  # a checkpoint that was replaced
            mark = _mark(path)
            if sent.get(name) != mark:
                changed[name] = path.read_bytes()
                sent[name] = mark
    removed = [name for name in sent if not (folder / name).exists()]
    for name in removed:
        del sent[name]
    if changed or removed:
        yield {"kind": "files", "changed": changed, "removed": removed}


def _order(name: str) -> int:
    """The order in which files are written: a checkpoint after its logs, the archive last."""
    path = Path(name)
    if path.name in names.LOGS:
        return 0
    return 3 if path.name == names.ARCHIVE else 2 if path.parent.name == names.CHECKPOINTS else 1


def write_files(folder: Path, message: dict[str, Any]) -> None:
    """Writes files that were sent back, in an order that allows to resume the run at any moment."""
    for name in sorted(message["changed"], key=_order):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ElitesError(f"a machine of the cluster sent a file that is not the run's: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        data: bytes = message["changed"][name]

        def write(file: IO[bytes], data: bytes = data) -> None:
            file.write(data)

        write_atomically(path, write)
    for name in message["removed"]:
        (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (folder / name).parent.rmdir()


def write_log(path: Path, message: dict[str, Any]) -> None:
    """Writes what a failed worker printed; removes the log of a finished job."""
    if message.get("log"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(message["log"])
    elif message["kind"] == "done" and message["finished"]:
        path.unlink(missing_ok=True)


class ClusterPool:
    """Workers on the machines of a Ray cluster."""

    def __init__(self, study: Path, execution: StudyExecution, needs: dict[str, int]) -> None:
        """`needs` is the memory of each job in bytes."""
        self._ray = connect(execution.cluster or "auto")
        self.study, self.workers, self.threads = StudyFolder(study), execution.workers, execution.threads or 1
        self.execution = dataclasses.replace(execution, threads=self.threads)
        self.needs = {folder: needed + WORKER_BYTES for folder, needed in needs.items()}
        self._task = self._ray.remote(max_retries=0)(
            remote_run
        )  # a retry begins with the files that were sent back
        self._running: dict[str, tuple[Job, Any]] = {}
        self._stopped: list[tuple[Job, dict[str, Any]]] = []
        self._gpus = self._ray.cluster_resources().get("GPU", 0) > 0
        self._refuse_too_large()

    def describe(self) -> str:
        """The cluster, for the plan."""
        machines = list_machines(self._ray)
        cores = sum(int(node["Resources"]["CPU"]) for node in machines)
        return (
            f"a Ray cluster of {len(machines)} machine{'s' * (len(machines) != 1)} with {cores} "
            f"core{'s' * (cores != 1)}, {self.threads} for each run; the "
            "predicted time is for this machine alone"
        )

    def has_room(self) -> bool:
        """Whether the machines of the cluster have cores for another run."""
        cores = sum(int(node["Resources"]["CPU"]) for node in list_machines(self._ray))
        most = max(1, cores // self.threads)
        return len(self._running) < (most if self.workers is None else min(self.workers, most))

    def start(self, job: Job) -> None:
        folder = self.study.path / job.folder
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in GroupFolder(folder).complete_files()
        }
        request = make_request(job, folder, self.execution)
        options: dict[str, Any] = {"num_cpus": self.threads, "memory": self.needs[job.folder]}
        if job.group and self._gpus:
            options["num_gpus"] = 1
        every = max(MIN_SECONDS_BETWEEN_TRANSFERS, self.execution.checkpoint_seconds)
        self._running[job.folder] = (job, self._task.options(**options).remote(request, files, every))

    def events(self) -> list[tuple[Job, dict[str, Any]]]:
        events, self._stopped = self._stopped, []
        streams = [stream for _, stream in self._running.values()]
        if not streams:
            return events
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=POLL_SECONDS)
        for job, stream in list(self._running.values()):
            if stream not in ready:
                continue
            message = self._next(stream)
            if message["kind"] == "files":
                with convert_os_errors(f"cannot write to {self.study}"):
                    write_files(self.study.path / job.folder, message)
                continue
            if message["kind"] in ("done", "failed", "lost"):
                del self._running[job.folder]
                with convert_os_errors(f"cannot write to {self.study}"):
                    write_log(self.study.log_path(job.folder), message)
            events.append((job, message))
        return events

    def _next(self, stream: Any) -> dict[str, Any]:
        errors = self._ray.exceptions
        try:
            message: dict[str, Any] = self._ray.get(next(stream))
            return message
        except StopIteration:
            return {"kind": "lost", "error": "its task ended without a message"}
        except errors.RayTaskError as error:
            return {"kind": "failed", "error": str(error).strip().splitlines()[-1]}
        except errors.RayError as error:
            return {"kind": "lost", "error": f"its machine or process was lost ({type(error).__name__})"}

    def stop(self) -> None:
        """Ends the tasks; their runs can be resumed from the files that were sent back."""
        for job, stream in self._running.values():
            with contextlib.suppress(Exception):
                self._ray.cancel(stream, force=True)
            self._stopped.append((job, {"kind": "done", "finished": False}))
        self._running.clear()

    def close(self) -> None:
        self.stop()
        self._stopped.clear()

    def _refuse_too_large(self) -> None:
        offers = [node["Resources"] for node in list_machines(self._ray)]
        needed = max(self.needs.values(), default=0)
        if not any(offer["CPU"] >= self.threads and offer.get("memory", 0) >= needed for offer in offers):
            raise ElitesError(
                f"no machine of the cluster offers {self.threads} cores and {needed / 1e9:.1f} GB to a run"
            )
