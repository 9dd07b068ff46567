"""A study on a Ray cluster: each job is a task on one of its machines, and its files come back as they grow.

No file system need be shared. A task begins with what has come back of its run so far, so a run whose machine
is lost goes on elsewhere from the last checkpoint that was sent.
"""

from __future__ import annotations

import contextlib
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

from elites.cluster import connect, nodes
from elites.errors import ElitesError
from elites.files import error_in_one_line, write_atomically
from elites.studies.execution import POLL_SECONDS, asked_of, log_of, lost, worker_process
from elites.studies.plan import WORKER_BYTES
from elites.studies.study import Job

LEAST_SECONDS = 1.0  # between files that are sent
TAIL = 20_000  # bytes of a worker's log that come back when it fails
LOGS = (".csv", ".elites")  # only ever appended to; a checkpoint needs as much of them as it saw


def remote_run(asked: dict[str, Any], files: dict[str, bytes], every: float) -> Iterator[dict[str, Any]]:
    """The task: a worker in a folder of its own, what it tells, and its files as they change."""
    home = Path(tempfile.mkdtemp(prefix="elites-"))
    try:
        folder = home / "run"
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        sent = {name: _mark(folder / name) for name in files}
        with (home / "log").open("w+b") as log:
            asked = {**asked, "folder": str(folder), "temporary": True}
            process = worker_process(asked, log)
            try:
                yield {"kind": "where", "where": platform.node()}
                for message in _relayed(process, folder, sent, every):
                    if message["kind"] in ("failed", "lost"):  # the log goes with the folder
                        message["log"] = (home / "log").read_bytes()[-TAIL:]
                    yield message
            finally:
                process.kill()
                process.communicate()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _relayed(
    process: subprocess.Popen[str], folder: Path, sent: dict[str, Any], every: float
) -> Iterator[dict[str, Any]]:
    told: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                told.put(json.loads(line))
        told.put(None)

    threading.Thread(target=listen, daemon=True).start()
    clock, took = time.monotonic(), 0.0
    while True:
        message = None
        with contextlib.suppress(Empty):
            message = told.get(timeout=POLL_SECONDS)
            if message is None:
                yield {"kind": "lost", "error": lost(process.wait())}
                return
        if message is not None and message["kind"] in ("done", "failed"):
            yield from _changes(folder, sent)
            yield message
            return
        if message is not None:
            yield message
        if time.monotonic() - clock > max(every, 20 * took):
            began = time.monotonic()
            yield from _changes(folder, sent)
            clock = time.monotonic()
            took = clock - began


def _mark(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


def _changes(folder: Path, sent: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Files that have changed since they were sent. Logs are read last: they hold what a checkpoint saw."""
    there = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".partial")]
    there.sort(key=lambda path: path.suffix in LOGS)
    changed: dict[str, bytes] = {}
    for path in there:
        name = str(path.relative_to(folder))
        with contextlib.suppress(FileNotFoundError):  # a checkpoint that has had its day
            mark = _mark(path)
            if sent.get(name) != mark:
                changed[name] = path.read_bytes()
                sent[name] = mark
    removed = [name for name in sent if not (folder / name).exists()]
    for name in removed:
        del sent[name]
    if changed or removed:
        yield {"kind": "files", "changed": changed, "removed": removed}


def keep(folder: Path, message: dict[str, Any]) -> None:
    """Writes what has come back, so that whenever this is interrupted the run can go on from it."""

    def order(name: str) -> int:
        if Path(name).suffix in LOGS:
            return 0
        return 2 if name.startswith("checkpoints/") else 3 if name == "archive.npz" else 1

    for name in sorted(message["changed"], key=order):
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


def keep_log(path: Path, message: dict[str, Any]) -> None:
    """What a worker that failed had printed; nothing of a job that is finished, as on one machine."""
    if message.get("log"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(message["log"])
    elif message["kind"] == "done" and message["finished"]:
        path.unlink(missing_ok=True)


class ClusterPool:
    """Workers on the machines of a Ray cluster."""

    def __init__(
        self,
        study: Path,
        address: str,
        workers: int | None,
        threads: int | None,
        checkpoint_seconds: float,
        needs: dict[str, int],
    ) -> None:
        """`needs` are the bytes of memory that each job takes."""
        self._ray = connect(address)
        self.study, self.workers, self.threads = study, workers, threads or 1
        self.checkpoint_seconds = checkpoint_seconds
        self.needs = {folder: needed + WORKER_BYTES for folder, needed in needs.items()}
        self._task = self._ray.remote(max_retries=0)(remote_run)  # retries begin from files that came back
        self._running: dict[str, tuple[Job, Any]] = {}
        self._stopped: list[tuple[Job, dict[str, Any]]] = []
        self._gpus = self._ray.cluster_resources().get("GPU", 0) > 0
        self._refuse_what_fits_nowhere()

    def describe(self) -> str:
        """The cluster, for the plan."""
        there = nodes(self._ray)
        cores = sum(int(node["Resources"]["CPU"]) for node in there)
        return (
            f"a Ray cluster of {len(there)} machines with {cores} cores, {self.threads} for each run; the "
            "time is what this machine alone would take"
        )

    def room(self) -> bool:
        """As many as the machines that are there now have cores for."""
        cores = sum(int(node["Resources"]["CPU"]) for node in nodes(self._ray))
        most = max(1, cores // self.threads)
        return len(self._running) < (most if self.workers is None else min(self.workers, most))

    def start(self, job: Job) -> None:
        folder = self.study / job.folder
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in (folder.rglob("*") if folder.is_dir() else ())
            if path.is_file() and not path.name.endswith(".partial")
        }
        asked = asked_of(job, folder, self.threads, self.checkpoint_seconds)
        options: dict[str, Any] = {"num_cpus": self.threads, "memory": self.needs[job.folder]}
        if job.group and self._gpus:
            options["num_gpus"] = 1
        every = max(LEAST_SECONDS, self.checkpoint_seconds)
        self._running[job.folder] = (job, self._task.options(**options).remote(asked, files, every))

    def events(self) -> list[tuple[Job, dict[str, Any]]]:
        found, self._stopped = self._stopped, []
        streams = [stream for _, stream in self._running.values()]
        if not streams:
            return found
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=POLL_SECONDS)
        for job, stream in list(self._running.values()):
            if stream not in ready:
                continue
            message = self._next(stream)
            if message["kind"] == "files":
                with error_in_one_line(f"cannot write to {self.study}"):
                    keep(self.study / job.folder, message)
                continue
            if message["kind"] in ("done", "failed", "lost"):
                del self._running[job.folder]
                with error_in_one_line(f"cannot write to {self.study}"):
                    keep_log(log_of(self.study, job), message)
            found.append((job, message))
        return found

    def _next(self, stream: Any) -> dict[str, Any]:
        errors = self._ray.exceptions
        try:
            message: dict[str, Any] = self._ray.get(next(stream))
            return message
        except StopIteration:
            return {"kind": "lost", "error": "its task ended without a word"}
        except errors.RayTaskError as error:
            return {"kind": "failed", "error": str(error).strip().splitlines()[-1]}
        except errors.RayError as error:
            return {"kind": "lost", "error": f"its machine or process was lost ({type(error).__name__})"}

    def stop(self) -> None:
        """Ends the tasks; their runs go on from what has come back."""
        for job, stream in self._running.values():
            with contextlib.suppress(Exception):
                self._ray.cancel(stream, force=True)
            self._stopped.append((job, {"kind": "done", "finished": False}))
        self._running.clear()

    def close(self) -> None:
        self.stop()
        self._stopped.clear()

    def _refuse_what_fits_nowhere(self) -> None:
        offers = [node["Resources"] for node in nodes(self._ray)]
        needed = max(self.needs.values(), default=0)
        if not any(offer["CPU"] >= self.threads and offer.get("memory", 0) >= needed for offer in offers):
            raise ElitesError(
                f"no machine of the cluster offers {self.threads} cores and {needed / 1e9:.1f} GB to a run"
            )
