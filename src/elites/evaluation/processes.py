"""Evaluation in worker processes: for tasks whose episodes run in Python.

Workers start once. A batch's controllers and seeds, and everything that comes back, are in memory that they
share; an episode costs a line of text each way. One that is free gets the next episode, and each result
depends on its controller and seed alone: the number of workers changes nothing but the speed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from elites.errors import ElitesError, require
from elites.evaluation.evaluation import Evaluation
from elites.evaluation.shared import Layout, allocate, arrays_in, layout_of
from elites.evaluation.threads import checked_batch
from elites.evaluation.worker import BEATS, STOP, WORKING
from elites.tasks import parameters_of
from elites.tasks.episode import Ending, Transitions
from elites.tasks.task import HostTask

ATTEMPTS = 3  # at an episode that kills its worker, or hangs
LOOK_SECONDS = 0.5  # between looks at whether a worker hangs
START_SECONDS = 120.0  # that a worker has to import what it needs and make its simulator
STOP_SECONDS = 2.0  # that an episode under way has to end at its next step
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from elites.evaluation.worker import boot; boot(sys.argv[2:])"
)
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class _Worker:
    """The parent's end of a worker process."""

    def __init__(self, slot: int, process: subprocess.Popen[bytes], talk: socket.socket) -> None:
        self.slot, self.process, self.talk = slot, process, talk
        self.ready = False
        self.episodes: deque[int] = deque()  # the one under way, and those that it will go on with
        self.batch = -1  # number of the last one that it was told of
        self.beat, self.seen = -1, time.monotonic()  # its last sign of life, and when
        self._text = b""

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        text = json.dumps(message).encode() + b"\n"
        if descriptor is None:
            self.talk.sendall(text)
        else:
            sent = socket.send_fds(self.talk, [text], [descriptor])
            self.talk.sendall(text[sent:])
        self.seen = time.monotonic()

    def receive(self) -> list[dict[str, Any]] | None:
        """What it says; None if it is gone."""
        try:
            part = self.talk.recv(2**16)
        except ConnectionError:
            part = b""
        if not part:
            return None
        *lines, self._text = (self._text + part).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if "ready" in message:
                self.ready = True
            elif self.episodes:
                self.episodes.popleft()
        return messages

    def end(self, *, kill: bool) -> None:
        self.talk.close()
        if kill:
            self.process.kill()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ProcessEvaluator:
    """One simulator per process; a process that is free takes the next episode.

    A worker that is killed, or makes no step for as long as the task's `patience`, is replaced and its
    episode run again; one that does so three times ends the evaluation, as does an exception.
    """

    def __init__(
        self, task: HostTask, *, hidden: tuple[int, ...] = (128, 128), processes: int | None = None
    ) -> None:
        """`hidden` are the controllers' hidden layers; `processes` is one per core unless given."""
        processes = len(os.sched_getaffinity(0)) if processes is None else processes
        require(processes >= 1, "threads", processes, "at least 1")
        if os.environ.get(WORKING):
            raise ElitesError(
                "a worker process was asked to start a run: the script that it imports must do that "
                'only below `if __name__ == "__main__":`'
            )
        self.task = task
        self.sizes = task.controller(hidden)
        self.patience = float(getattr(task, "patience", 60.0))
        board, size = layout_of({STOP: (np.uint8, (1,)), BEATS: (np.int64, (processes,))})
        self._board_layout: Layout = board
        self._board_file = allocate(size)
        self._board = arrays_in(self._board_file, board)
        self._lifeline = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Worker] = {}
        self._checked = False  # whether an episode has been run twice
        self._batches = self._died_at_start = 0
        self._end = weakref.finalize(
            self, _end_all, self._workers, self._selector, (self._board_file, *self._lifeline)
        )
        try:
            for slot in range(processes):
                self._start(slot)
            while not all(worker.ready for worker in self._workers.values()):
                self._listen(lambda worker, message: None, lambda worker, how: None)
        except BaseException:
            self.close()
            raise

    def evaluate(
        self,
        parameters: ArrayLike,
        seeds: ArrayLike,
        *,
        transitions: bool = False,
        limit: int | None = None,
        on_episode: Callable[[int], None] | None = None,
    ) -> Evaluation[np.ndarray]:
        """See `Evaluator.evaluate`. An interrupt ends the running episodes at their next step."""
        if not self._end.alive:
            raise ElitesError("the evaluator is closed")
        parameters, seeds = checked_batch(self.task, self.sizes, parameters, seeds)
        total = seeds.size if limit is None else min(max(limit, 0), seeds.size)
        episodes = math.prod(seeds.shape[1:])
        layout, size = layout_of(self._arrays(parameters, seeds, transitions))
        file = allocate(size)
        try:
            batch = arrays_in(file, layout)
            batch["parameters"][:] = parameters
            batch["seed"][:] = seeds.ravel()
            batch["fitness"][:], batch["descriptor"][:] = np.nan, np.nan
            batch["ending"][:] = Ending.SKIPPED
            self._run(batch, file, layout, total, episodes, on_episode)
        finally:
            os.close(file)
        found = {
            name: array.reshape(*seeds.shape, *array.shape[1:])
            for name, array in batch.items()
            if name != "parameters"
        }
        rows = Transitions(*(found.pop(name) for name in Transitions._fields)) if transitions else None
        small = {name: array.copy() for name, array in found.items()}  # they do not keep the rest
        return Evaluation(**small, transitions=rows)

    def _arrays(
        self, parameters: np.ndarray, seeds: np.ndarray, transitions: bool
    ) -> dict[str, tuple[Any, tuple[int, ...]]]:
        task, count, steps = self.task, seeds.size, self.task.episode_length
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
            "parameters": (np.float32, parameters.shape),
            "seed": (np.uint32, (count,)),
            "fitness": (np.float32, (count,)),
            "descriptor": (np.float32, (count, task.descriptor_size)),
            "length": (np.int32, (count,)),
            "ending": (np.uint8, (count,)),
        }
        if transitions:
            arrays |= {
                "observations": (np.float32, (count, steps + 1, task.observation_size)),
                "actions": (np.float32, (count, steps, task.action_size)),
                "rewards": (np.float64, (count, steps)),
                "step_descriptors": (task.step_descriptor_dtype, (count, steps, task.step_descriptor_size)),
            }
        return arrays

    def _run(
        self,
        batch: dict[str, np.ndarray],
        file: int,
        layout: Layout,
        total: int,
        episodes: int,
        on_episode: Callable[[int], None] | None,
    ) -> None:
        self._batches += 1
        waiting, done = deque(range(total)), 0
        attempts: dict[int, int] = {}

        def give(worker: _Worker) -> None:
            # One ahead while there are many: a worker that never sleeps stays on its core, and never waits.
            ahead = 2 if len(waiting) > 2 * len(self._workers) else 1
            while worker.ready and waiting and len(worker.episodes) < ahead:
                index = waiting.popleft()
                order = {"episode": index, "episodes": episodes, "again": index in attempts, "twice": False}
                if not self._checked:
                    self._checked = order["twice"] = True
                worker.episodes.append(index)
                new = worker.batch != self._batches
                worker.batch = self._batches
                with contextlib.suppress(ConnectionError):  # it is gone, as will be noticed
                    worker.send({**order, "batch": layout} if new else order, file if new else None)

        def finished(worker: _Worker, message: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            if message["differs"]:
                warnings.warn(
                    f"{self.task.name}: the same episode run twice differs ({message['differs']}): either "
                    "reset(seed=…) does not settle all that is random, or something is kept from one episode "
                    "to the next; runs cannot be repeated exactly",
                    stacklevel=5,
                )
            if on_episode is not None:
                on_episode(int(batch["length"][message["episode"]]))

        def lost(worker: _Worker, how: str) -> None:
            if not worker.episodes:
                return
            index = worker.episodes[0]
            waiting.extendleft(reversed(worker.episodes))
            attempts[index] = attempts.get(index, 0) + 1
            if attempts[index] >= ATTEMPTS:
                raise ElitesError(
                    f"{self.task.name}: the episode with seed {batch['seed'][index]} failed: "
                    f"its worker {how}, {ATTEMPTS} times"
                )

        self._board[STOP][0] = 0
        try:
            while done < total:
                for worker in list(self._workers.values()):
                    give(worker)
                self._listen(finished, lost)
        finally:
            self._board[STOP][0] = 1
            self._quieten()

    def _listen(
        self,
        finished: Callable[[_Worker, dict[str, Any]], None],
        lost: Callable[[_Worker, str], None],
    ) -> None:
        """Waits for workers to say something, and replaces those that never will again."""
        for key, _ in self._selector.select(LOOK_SECONDS):
            worker: _Worker = key.data
            messages = worker.receive()
            if messages is None:
                self._replace(worker, "died", lost)
                continue
            for message in messages:
                if "error" in message:
                    raise ElitesError(message["error"])
                if "ready" in message:
                    self._died_at_start = 0
                else:
                    finished(worker, message)
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.ready and not worker.episodes:
                continue
            beat = int(self._board[BEATS][worker.slot])
            if beat != worker.beat:
                worker.beat, worker.seen = beat, now
            elif not worker.ready and now - worker.seen > START_SECONDS:
                self._replace(worker, f"was not ready after {START_SECONDS:g} s", lost)
            elif worker.ready and now - worker.seen > self.patience:
                self._replace(worker, f"made no step for {self.patience:g} s (patience)", lost)

    def _replace(self, worker: _Worker, how: str, lost: Callable[[_Worker, str], None]) -> None:
        self._forget(worker, kill=True)
        if not worker.ready:
            self._died_at_start += 1
            if self._died_at_start >= ATTEMPTS:
                raise ElitesError(f"{self.task.name}: a worker {how} as it started, {ATTEMPTS} times")
        self._start(worker.slot)
        lost(worker, how)

    def _forget(self, worker: _Worker, *, kill: bool) -> None:
        del self._workers[worker.slot]
        self._selector.unregister(worker.talk)
        worker.end(kill=kill)

    def _quieten(self) -> None:
        """Waits until no episode is under way; a worker that does not stop is replaced."""
        until = time.monotonic() + STOP_SECONDS
        while busy := [worker for worker in self._workers.values() if worker.episodes]:
            if time.monotonic() > until:
                for worker in busy:
                    self._forget(worker, kill=True)
                    self._start(worker.slot)
                return
            for key, _ in self._selector.select(0.05):
                if key.data.receive() is None:
                    self._forget(key.data, kill=True)
                    self._start(key.data.slot)

    def _start(self, slot: int) -> None:
        """Starts a worker; it says when it is ready."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = (theirs.fileno(), self._board_file, self._lifeline[0])
            by_main = threading.current_thread() is threading.main_thread()
            arguments = (*descriptors, slot, os.getpid(), int(by_main))
            # Ctrl-C reaches all processes of a terminal; this one takes none until it can ignore it.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", BOOT, json.dumps(_search_path()), *map(str, arguments)],
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **dict.fromkeys(ONE_THREAD, "1"), WORKING: "1"},
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        worker = _Worker(slot, process, ours)
        self._workers[slot] = worker
        self._selector.register(ours, selectors.EVENT_READ, worker)
        setup = {
            "board": self._board_layout,
            "task": self.task.name,
            "parameters": parameters_of(self.task),
            "sizes": self.sizes,
        }
        with contextlib.suppress(ConnectionError):
            worker.send(setup)

    def at_once(self, episodes: int) -> int | None:
        """Any number will do."""
        return None

    def close(self) -> None:
        """Ends the workers. Closing twice does nothing."""
        self._end()

    def __enter__(self) -> ProcessEvaluator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _search_path() -> list[str]:
    """Where a worker looks for modules: where this process does, and in the current folder."""
    here = os.getcwd()
    path = [entry or here for entry in sys.path]
    return path if here in path else [*path, here]


def _end_all(
    workers: dict[int, _Worker], selector: selectors.BaseSelector, descriptors: tuple[int, ...]
) -> None:
    for worker in workers.values():
        worker.talk.close()
        if worker.episodes:
            worker.process.kill()
    while workers:
        workers.popitem()[1].end(kill=False)
    for descriptor in descriptors:
        os.close(descriptor)
    selector.close()
