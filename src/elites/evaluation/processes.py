"""Evaluation in worker processes, for tasks whose episodes run in Python.

Workers start once. The controllers, seeds and results of a batch are in shared memory; an episode takes one
line of text in each direction. A worker that is free gets the next episode. A result depends on its
controller and seed alone: the number of workers changes only the speed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from elites.child_processes import START_SECONDS, in_child, start_child
from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluation, Evaluator, flatten_episodes
from elites.evaluation.shared import Layout, allocate, map_arrays, plan_layout
from elites.evaluation.threads import choose_thread_count
from elites.evaluation.worker import HEARTBEATS, STOP
from elites.policies.layout import HIDDEN
from elites.tasks import list_parameters
from elites.tasks.episode import Transitions
from elites.tasks.task import HostTask

ATTEMPTS = 3  # for an episode that kills its worker, or hangs
CHECK_SECONDS = 0.5  # between checks whether a worker hangs
STOP_SECONDS = 2.0  # for a running episode to end at its next step


class _Worker:
    """The parent's end of a worker process."""

    def __init__(
        self, slot: int, process: subprocess.Popen[bytes], channel: socket.socket, beat: int
    ) -> None:
        self.slot, self.process, self.channel = slot, process, channel
        self.ready = False
        self.episodes: deque[int] = deque()  # the running one, then the next ones
        self.batch = -1  # number of the last batch that it received
        self.beat, self.active = beat, time.monotonic()  # its last beat, and the time of its last activity
        self.started = False  # whether it has imported this package
        self._text = b""

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        text = json.dumps(message).encode() + b"\n"
        if descriptor is None:
            self.channel.sendall(text)
        else:
            sent = socket.send_fds(self.channel, [text], [descriptor])
            self.channel.sendall(text[sent:])
        self.active = time.monotonic()

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages of the worker; None if it is gone."""
        try:
            part = self.channel.recv(2**16)
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
        self.channel.close()
        if kill:
            self.process.kill()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ProcessEvaluator(Evaluator):
    """Runs batches with one simulator per process; a process that is free takes the next episode.

    A worker that dies, or makes no step for longer than the task's `patience`, is replaced and its episode is
    run again. The evaluation fails if this happens three times to one episode, or if an episode
    raises an exception.
    """

    def __init__(
        self, task: HostTask, *, hidden: tuple[int, ...] = HIDDEN, processes: int | None = None
    ) -> None:
        """`hidden` are the sizes of the hidden layers; there is one process per core by default."""
        processes = choose_thread_count(processes)
        if in_child():
            raise ElitesError(
                "a worker process has imported a script that starts a run; the script must do that "
                'only below `if __name__ == "__main__":`'
            )
        super().__init__(task, task.controller_sizes(hidden))
        self.patience = task.step_seconds
        # the board: shared memory with the stop flag and the heartbeats of all workers
        board, size = plan_layout({STOP: np.zeros(1, np.uint8), HEARTBEATS: np.zeros(processes, np.int64)})
        self._board_layout: Layout = board
        self._board_file = allocate(size)
        self._board = map_arrays(self._board_file, board)
        self._lifeline = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Worker] = {}
        self._compared = False  # whether an episode has been run twice, to compare the results
        self._batches = self._died_at_start = 0
        self._end = weakref.finalize(
            self, _end_all, self._workers, self._selector, (self._board_file, *self._lifeline)
        )
        try:
            for slot in range(processes):
                self._start(slot)
            while not all(worker.ready for worker in self._workers.values()):
                self._listen(lambda worker, message: None, lambda worker, reason: None)
        except BaseException:
            self.close()
            raise

    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        rows = flatten_episodes(evaluation)
        small = rows._asdict()
        del small["transitions"]
        recorded = {} if rows.transitions is None else rows.transitions._asdict()
        layout, size = plan_layout({"parameters": parameters, **small, **recorded})
        file = allocate(size)
        try:
            batch = map_arrays(file, layout)
            for name, array in {"parameters": parameters, **small}.items():
                batch[name][:] = array
            self._work(batch, file, layout, total, len(rows.seed) // len(parameters), noise, on_episode)
        finally:
            os.close(file)
        for name, array in small.items():
            array[:] = batch[name]
        if evaluation.transitions is None:
            return evaluation
        # Transitions stay in the shared memory.
        steps = evaluation.transitions._asdict().items()
        shared = Transitions(*(batch[name].reshape(array.shape) for name, array in steps))
        return evaluation._replace(transitions=shared)

    def _work(
        self,
        batch: dict[str, np.ndarray],
        file: int,
        layout: Layout,
        total: int,
        episodes: int,
        action_noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> None:
        self._batches += 1
        waiting, done = deque(range(total)), 0
        attempts: dict[int, int] = {}

        def assign_episodes(worker: _Worker) -> None:
            # One ahead while many are left: a worker that never sleeps stays on its core and never waits.
            ahead = 2 if len(waiting) > 2 * len(self._workers) else 1
            while worker.ready and waiting and len(worker.episodes) < ahead:
                index = waiting.popleft()
                request = {
                    "episode": index,
                    "episodes": episodes,
                    "action_noise": action_noise,
                    "again": index in attempts,
                    "twice": False,
                }
                if not self._compared:
                    self._compared = request["twice"] = True
                worker.episodes.append(index)
                new = worker.batch != self._batches
                worker.batch = self._batches
                with contextlib.suppress(ConnectionError):  # `_listen` notices a worker that is gone
                    worker.send({**request, "batch": layout} if new else request, file if new else None)

        def handle_result(worker: _Worker, message: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            if message["differs"]:
                warnings.warn(
                    f"{self.task.name}: the same episode run twice differs ({message['differs']}): either "
                    "reset(seed=…) does not seed all random numbers, or the environment keeps some state "
                    "between episodes; runs cannot be repeated exactly",
                    stacklevel=6,
                )
            if on_episode is not None:
                on_episode(int(batch["length"][message["episode"]]))

        def handle_lost_worker(worker: _Worker, reason: str) -> None:
            if not worker.episodes:
                return
            index = worker.episodes[0]
            waiting.extendleft(reversed(worker.episodes))
            attempts[index] = attempts.get(index, 0) + 1
            if attempts[index] >= ATTEMPTS:
                raise ElitesError(
                    f"{self.task.name}: the episode with seed {batch['seed'][index]} failed: "
                    f"its worker {reason}, {ATTEMPTS} times"
                )

        self._board[STOP][0] = 0
        try:
            while done < total:
                for worker in list(self._workers.values()):
                    assign_episodes(worker)
                self._listen(handle_result, handle_lost_worker)
        finally:
            self._board[STOP][0] = 1
            self._wait_until_idle()

    def _listen(
        self,
        handle_result: Callable[[_Worker, dict[str, Any]], None],
        handle_lost_worker: Callable[[_Worker, str], None],
    ) -> None:
        """Waits for messages of workers, and replaces those that are dead or hang."""
        for key, _ in self._selector.select(CHECK_SECONDS):
            worker: _Worker = key.data
            messages = worker.receive()
            if messages is None:
                self._replace(worker, "died", handle_lost_worker)
                continue
            for message in messages:
                if "error" in message:
                    raise ElitesError(message["error"])
                if "ready" in message:
                    self._died_at_start = 0
                else:
                    handle_result(worker, message)
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.ready and not worker.episodes:
                continue
            beat = int(self._board[HEARTBEATS][worker.slot])
            if beat != worker.beat:
                worker.beat, worker.active, worker.started = beat, now, True
                continue
            limit = self.patience if worker.started else START_SECONDS
            if now - worker.active > limit:
                doing = "made no step" if worker.ready else "was not ready"
                self._replace(worker, f"{doing} for {limit:g} s (patience)", handle_lost_worker)

    def _replace(
        self, worker: _Worker, reason: str, handle_lost_worker: Callable[[_Worker, str], None]
    ) -> None:
        self._remove(worker, kill=True)
        if not worker.ready:
            self._died_at_start += 1
            if self._died_at_start >= ATTEMPTS:
                raise ElitesError(f"{self.task.name}: a worker {reason} during its start, {ATTEMPTS} times")
        self._start(worker.slot)
        handle_lost_worker(worker, reason)

    def _remove(self, worker: _Worker, *, kill: bool) -> None:
        del self._workers[worker.slot]
        self._selector.unregister(worker.channel)
        worker.end(kill=kill)

    def _wait_until_idle(self) -> None:
        """Waits until no episode is running. A worker that does not stop is replaced."""
        deadline = time.monotonic() + STOP_SECONDS
        while busy := [worker for worker in self._workers.values() if worker.episodes]:
            if time.monotonic() > deadline:
                for worker in busy:
                    self._remove(worker, kill=True)
                    self._start(worker.slot)
                return
            for key, _ in self._selector.select(0.05):
                if key.data.receive() is None:
                    self._remove(key.data, kill=True)
                    self._start(key.data.slot)

    def _start(self, slot: int) -> None:
        """Starts a worker, which sends a message when it is ready."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = (theirs.fileno(), self._board_file)
            process = start_child("elites.evaluation.worker", descriptors, self._lifeline[0], slot)
        worker = _Worker(slot, process, ours, int(self._board[HEARTBEATS][slot]))
        self._workers[slot] = worker
        self._selector.register(ours, selectors.EVENT_READ, worker)
        setup = {
            "board": self._board_layout,
            "task": self.task.name,
            "parameters": list_parameters(self.task),
            "functions": self.task.pickled_functions(),
            "sizes": self.sizes,
        }
        with contextlib.suppress(ConnectionError):
            worker.send(setup)

    def close(self) -> None:
        """Ends the workers. Closing twice does nothing."""
        super().close()
        self._end()


def _end_all(
    workers: dict[int, _Worker], selector: selectors.BaseSelector, descriptors: tuple[int, ...]
) -> None:
    for worker in workers.values():
        worker.channel.close()
        if worker.episodes:
            worker.process.kill()
    while workers:
        workers.popitem()[1].end(kill=False)
    for descriptor in descriptors:
        os.close(descriptor)
    selector.close()
