"""A worker process: runs episodes of a task, one at a time, for its parent. It never imports JAX.

Worker and parent exchange lines of JSON over a socket; controllers, seeds and all results are in shared
memory. The worker ignores Ctrl-C, which the parent handles, and never outlives its parent.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
from collections import deque
from typing import Any

import numpy as np

from elites.child_processes import end_with_parent
from elites.errors import format_error
from elites.evaluation.shared import map_arrays
from elites.imports import add_pickled
from elites.output import safe_output
from elites.tasks.episode import Ending, EpisodeResult, Transitions, WatchedStop

STOP, HEARTBEATS = "stop", "heartbeats"  # arrays that all workers of an evaluator share


def main(channel_file: int, board: int, lifeline: int, parent: int, by_main_thread: int, slot: int) -> None:
    """Executes the parent's requests until the parent is gone.

    The arguments are two file descriptors, those of `end_with_parent`, and the worker's index on the board.
    """
    gc.freeze()
    end_with_parent(lifeline, parent, by_main_thread)
    with (
        safe_output(),
        socket.socket(fileno=channel_file) as channel,
        contextlib.suppress(ConnectionError),
    ):
        requests = Requests(channel)
        setup = requests.next()
        if setup is None:
            return
        shared = map_arrays(board, setup["board"])
        try:
            if setup["task"].startswith("gym:"):
                import elites.tasks.gymnasium.simulator  # noqa: F401 # its time does not count as the task's
            shared[HEARTBEATS][slot] += 1
            add_pickled(setup["functions"])
            worker = Worker(setup, shared[STOP], shared[HEARTBEATS][slot : slot + 1])
        except BaseException as error:
            _send(channel, {"error": format_error(error)})
            return
        _send(channel, {"ready": True})
        while (request := requests.next()) is not None:
            if "batch" in request:
                worker.load_batch(requests.descriptors.popleft(), request["batch"])
            _send(channel, worker.run(request))
        with contextlib.suppress(Exception):  # its results are safe
            worker.simulator.close()


class Worker:
    """A simulator and its current batch."""

    def __init__(self, setup: dict[str, Any], stop: np.ndarray, beats: np.ndarray) -> None:
        from elites.tasks import make_task
        from elites.tasks.task import HostTask

        task = make_task(setup["task"], **setup["parameters"])
        assert isinstance(task, HostTask)
        self.simulator = task.make_simulator()
        self.sizes = np.array(setup["sizes"])
        self.beats, self.stop, self.watched = beats, stop, WatchedStop(stop, self.beat)
        self.batch: dict[str, np.ndarray] = {}

    def load_batch(self, descriptor: int, layout: Any) -> None:
        """Switches to another batch."""
        self.batch = {}
        self.batch = map_arrays(descriptor, layout)
        os.close(descriptor)

    def beat(self) -> None:
        """Shows the parent that this worker is alive."""
        self.beats[0] += 1

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one episode. Returns the message for the parent."""
        batch, index = self.batch, request["episode"]
        if self.stop[0]:
            return {"episode": index, "differs": ""}
        rows = None
        if "rewards" in batch:
            rows = Transitions(*(batch[name][index] for name in Transitions._fields))
            if request["again"]:  # clears the rows of a worker that died
                for row in rows:
                    row[...] = 0
        parameters = batch["parameters"][index // request["episodes"]]
        seed, noise = int(batch["seed"][index]), request["action_noise"]
        self.beat()
        try:
            result = self.simulator.run(parameters, self.sizes, seed, self.watched, rows, noise)
            second = None
            if request["twice"]:
                second = self.simulator.run(parameters, self.sizes, seed, self.watched, None, noise)
        except (Exception, SystemExit) as error:
            return {"error": format_error(error)}
        batch["fitness"][index] = result.fitness
        batch["descriptor"][index] = result.descriptor
        batch["length"][index] = result.length
        batch["ending"][index] = result.ending
        self.beat()
        return {"episode": index, "differs": "" if second is None else _differ(result, second)}


def _differ(first: EpisodeResult, second: EpisodeResult) -> str:
    """The difference between two runs of an episode; empty if there is none."""
    if Ending.SKIPPED in (first.ending, second.ending):
        return ""
    same = first.length == second.length and np.array_equal(
        [first.fitness, *first.descriptor], [second.fitness, *second.descriptor], equal_nan=True
    )
    if same:
        return ""
    return f"fitness {first.fitness} after {first.length} steps, then {second.fitness} after {second.length}"


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


class Requests:
    """The parent's requests, line by line.

    The parent may send one ahead, so that a worker does not have to wait.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._text = channel, b""
        self.descriptors: deque[int] = deque()  # files that were sent with requests, one for each new batch

    def next(self) -> dict[str, Any] | None:
        """The next request; None at the end."""
        while b"\n" not in self._text:
            part, descriptors, _, _ = socket.recv_fds(self._channel, 2**20, 8)
            if not part:
                return None
            self._text += part
            self.descriptors.extend(descriptors)
        line, _, self._text = self._text.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]
