"""A Gymnasium environment in a separate process: if it hangs or crashes, this process continues.

The two processes exchange lines of JSON. An empty line means that the environment has made a step.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from elites.child_processes import START_SECONDS, describe_exit, end_child, end_with_parent, start_child
from elites.errors import ElitesError, describe_error
from elites.imports import add_pickled, select_pickles
from elites.output import safe_output

if TYPE_CHECKING:
    from elites.tasks.gymnasium import GymnasiumTask

NAMES = {
    "first_episode": "its first episode",
    "make": "its constructor",
    "reset": "a reset",
    "step": "a step",
    "draw": "its picture",
}  # of the calls, in messages
BEAT_SECONDS = 0.1  # between empty lines, at least


class Remote:
    """The parent's end. A call waits as long as each step takes at most `patience` seconds."""

    def __init__(self, name: str, patience: float) -> None:
        self.name, self.patience = name, patience
        self._channel, theirs = socket.socketpair()
        self._lifeline = os.pipe()
        self._text = b""
        with theirs:
            self._process = start_child(__name__, (theirs.fileno(),), self._lifeline[0])
        self.close = weakref.finalize(self, end_child, self._process, self._channel, self._lifeline)
        self._receive(START_SECONDS, "its start")

    def call(self, what: str, **arguments: Any) -> Any:
        """Calls a method of `_RemoteMethods` in the process. Returns its answer."""
        with contextlib.suppress(ConnectionError):
            self._channel.sendall(json.dumps({"call": what, **arguments}).encode() + b"\n")
        answer = self._receive(self.patience, NAMES[what])
        if "refusal" in answer:
            self.close()
            raise ElitesError(answer["refusal"])
        if "error" in answer:
            self.close()
            raise ElitesError(f"{self.name}: {NAMES[what]} failed: {answer['error']}")
        return answer["value"]

    def _receive(self, seconds: float, what: str) -> dict[str, Any]:
        self._channel.settimeout(seconds)
        while True:
            line, end, rest = self._text.partition(b"\n")
            if end:
                self._text = rest
                if line:
                    return json.loads(line)  # type: ignore[no-any-return]
                continue
            try:
                part = self._channel.recv(2**16)
            except TimeoutError:
                self.close()
                raise ElitesError(
                    f"{self.name}: {what} made no progress for {seconds:g} s (patience)"
                ) from None
            except ConnectionError:
                part = b""
            if not part:
                self._process.wait()
                self.close()
                raise ElitesError(
                    f"{self.name}: {what} failed: its process {describe_exit(self._process.returncode)}"
                )
            self._text += part


def inspect_remotely(
    name: str, environment: str, fields: Mapping[str, Any], patience: float
) -> dict[str, Any]:
    """See `inspect_environment`."""
    remote = Remote(name, patience)
    try:
        functions = select_pickles((environment, fields.get("descriptor"), fields.get("step_descriptor")))
        sizes = remote.call(
            "first_episode", functions=functions, name=name, environment=environment, fields=dict(fields)
        )
    finally:
        remote.close()
    if "descriptor_bounds" in sizes:
        sizes["descriptor_bounds"] = tuple(tuple(pair) for pair in sizes["descriptor_bounds"])
    return sizes  # type: ignore[no-any-return]


def no_drawing_reason(task: GymnasiumTask) -> str:
    """The reason why an environment cannot draw its first state, in a line; empty if it can."""
    from elites.tasks import list_parameters

    remote = Remote(task.name, task.patience)
    try:
        remote.call("draw", task=task.name, parameters=list_parameters(task))
    except ElitesError as error:
        return str(error)
    finally:
        remote.close()
    return ""


class RemoteSimulator:
    """Steps through the episodes of a task: see `elites.tasks.task.Stepper`."""

    def __init__(self, task: GymnasiumTask) -> None:
        from elites.tasks import list_parameters

        self.truncated = False  # whether the environment cut the episode off in the last `advance`
        self._remote = Remote(task.name, task.patience)
        functions, parameters = task.pickled_functions(), list_parameters(task)
        self._remote.call("make", functions=functions, task=task.name, parameters=parameters)

    def begin(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed. Returns the observation."""
        return np.array(self._remote.call("reset", seed=seed), np.float32)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One step. Returns (observation, reward, whether the task ended the episode)."""
        answer = self._remote.call("step", action=action.tolist())
        observation, reward, terminated, self.truncated = answer
        return np.array(observation, np.float32), reward, terminated

    def close(self) -> None:
        """Ends the process."""
        self._remote.close()


class _RemoteMethods:
    """The methods that the parent can call in the process."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self.beat = beat
        self.simulator: Any = None

    def first_episode(
        self, functions: dict[str, str], name: str, environment: str, fields: dict[str, Any]
    ) -> Any:
        from elites.tasks.gymnasium.simulator import inspect_environment

        add_pickled(functions)
        return inspect_environment(name, environment, fields, self.beat)

    def make(self, functions: dict[str, str], task: str, parameters: dict[str, Any]) -> None:
        from elites.tasks import make_task

        add_pickled(functions)
        run_task: Any = make_task(task, **parameters)
        self.simulator = run_task.make_simulator()

    def draw(self, task: str, parameters: dict[str, Any]) -> None:
        from elites.tasks import make_task
        from elites.tasks.gymnasium.drawing import DrawingSimulator

        run_task: Any = make_task(task, **parameters)
        simulator = DrawingSimulator(run_task)
        simulator.begin(0)
        simulator.picture()

    def reset(self, seed: int) -> Any:
        return self.simulator.begin(seed).tolist()

    def step(self, action: list[float]) -> Any:
        observation, reward, terminated = self.simulator.advance(np.array(action, np.float32))
        return observation.tolist(), reward, terminated, self.simulator.truncated


def main(channel_file: int, lifeline: int, parent: int, by_main_thread: int) -> None:
    """Answers the parent's calls until the parent is gone."""
    import elites.tasks.gymnasium.simulator  # noqa: F401 # its time does not count as the environment's

    end_with_parent(lifeline, parent, by_main_thread)
    sent = 0.0

    def beat() -> None:
        nonlocal sent
        if (now := time.monotonic()) - sent > BEAT_SECONDS:
            sent = now
            channel.sendall(b"\n")

    with (
        safe_output(),
        socket.socket(fileno=channel_file) as channel,
        channel.makefile("rb") as orders,
        contextlib.suppress(ConnectionError),
    ):
        methods = _RemoteMethods(beat)
        channel.sendall(b"{}\n")
        for line in orders:
            order = json.loads(line)
            try:
                answer = {"value": getattr(methods, order.pop("call"))(**order)}
            except ElitesError as error:
                answer = {"refusal": str(error)}
            except BaseException as error:
                answer = {"error": describe_error(error)}
            channel.sendall(json.dumps(answer).encode() + b"\n")
    os._exit(0)  # at once: the user's code may have left threads running
