"""A worker process: runs episodes of a task, one at a time, as it is told to. It never imports JAX.

It talks with its parent over a socket, a line of JSON each way; controllers, seeds and all results are in
memory that both share. It ignores Ctrl-C, which is the parent's affair, and never outlives its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections import deque
from typing import Any

import numpy as np

from elites.errors import ElitesError
from elites.evaluation.shared import arrays_in
from elites.tasks.episode import Ending, EpisodeResult, Transitions

PR_SET_PDEATHSIG = 1
WORKING = "ELITES_WORKER"  # is set in the environment of workers
STOP, BEATS = "stop", "beats"  # what all workers of an evaluator share


def main(channel: int, board: int, lifeline: int, slot: int, parent: int, by_main: int) -> None:
    """Serves until the parent is gone.

    The numbers are file descriptors, a place on the board, a process, and whether its main thread asks.
    """
    die_with(parent, lifeline, by_main=bool(by_main))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was blocked until it could be ignored
    with socket.socket(fileno=channel) as talk, contextlib.suppress(ConnectionError):
        orders = Orders(talk)
        setup = orders.next()
        if setup is None:
            return
        shared = arrays_in(board, setup["board"])
        try:
            worker = Worker(setup, shared[STOP], shared[BEATS][slot : slot + 1])
        except BaseException as error:
            _send(talk, {"error": told(error)})
            return
        _send(talk, {"ready": True})
        while (order := orders.next()) is not None:
            if "batch" in order:
                worker.take(orders.descriptors.popleft(), order["batch"])
            _send(talk, worker.run(order))
        worker.simulator.close()


class Worker:
    """A simulator, and the batch that it works on."""

    def __init__(self, setup: dict[str, Any], stop: np.ndarray, beats: np.ndarray) -> None:
        from elites.tasks import make_task
        from elites.tasks.task import HostTask

        task = make_task(setup["task"], **setup["parameters"])
        assert isinstance(task, HostTask)
        self.simulator: Any = task.simulator()
        self.sizes = np.array(setup["sizes"])
        self.stop, self.beats = stop, beats
        self.batch: dict[str, np.ndarray] = {}

    def take(self, descriptor: int, layout: Any) -> None:
        """Begins with another batch."""
        self.batch = {}
        self.batch = arrays_in(descriptor, layout)
        os.close(descriptor)

    def beat(self) -> None:
        """A sign of life."""
        self.beats[0] += 1

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """One episode. Returns what the parent is told."""
        batch, index = self.batch, order["episode"]
        if self.stop[0]:
            return {"episode": index, "differs": ""}
        rows = None
        if "rewards" in batch:
            rows = Transitions(*(batch[name][index] for name in Transitions._fields))
            if order["again"]:  # what a worker that died has left
                for row in rows:
                    row[...] = 0
        parameters = batch["parameters"][index // order["episodes"]]
        seed = int(batch["seed"][index])
        self.beat()
        try:
            outcome = self.simulator.run(parameters, self.sizes, seed, self.stop, rows, self.beat)
            second = None
            if order["twice"]:
                second = self.simulator.run(parameters, self.sizes, seed, self.stop, None, self.beat)
        except (Exception, SystemExit) as error:
            return {"error": told(error)}
        batch["fitness"][index] = outcome.fitness
        batch["descriptor"][index] = outcome.descriptor
        batch["length"][index] = outcome.length
        batch["ending"][index] = outcome.ending
        self.beat()
        return {"episode": index, "differs": "" if second is None else _differ(outcome, second)}


def _differ(first: EpisodeResult, second: EpisodeResult) -> str:
    """How two runs of an episode differ; nothing if they do not."""
    if Ending.SKIPPED in (first.ending, second.ending):
        return ""
    same = first.length == second.length and np.array_equal(
        [first.fitness, *first.descriptor], [second.fitness, *second.descriptor], equal_nan=True
    )
    if same:
        return ""
    return f"fitness {first.fitness} after {first.length} steps, then {second.fitness} after {second.length}"


def told(error: BaseException) -> str:
    """In one line what went wrong."""
    if isinstance(error, ElitesError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())


def die_with(parent: int, lifeline: int, *, by_main: bool) -> None:
    """Has this process killed when its parent ends, however that ends.

    Linux does it itself, even if the interpreter hangs, when the thread ends that has started it: only the
    main one lives as long as its process. Otherwise a thread waits for the end of a pipe that the parent
    alone holds open.
    """
    if sys.platform == "linux" and by_main:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="lifeline").start()


def _send(talk: socket.socket, message: dict[str, Any]) -> None:
    talk.sendall(json.dumps(message).encode() + b"\n")


class Orders:
    """What the parent says, line by line; it may be one ahead, so that a worker need not wait."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk, self._text = talk, b""
        self.descriptors: deque[int] = deque()  # files that came with orders, one with each new batch

    def next(self) -> dict[str, Any] | None:
        """The next order; None at the end."""
        while b"\n" not in self._text:
            part, descriptors, _, _ = socket.recv_fds(self._talk, 2**20, 8)
            if not part:
                return None
            self._text += part
            self.descriptors.extend(descriptors)
        line, _, self._text = self._text.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]


def boot(arguments: list[str]) -> None:
    """What the command line of a worker calls."""
    gc.freeze()
    main(*(int(argument) for argument in arguments))
