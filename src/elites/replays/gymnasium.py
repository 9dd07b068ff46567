"""Gymnasium tasks drawn by their environments, whose `render_mode` is `rgb_array`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elites.errors import ElitesError, describe
from elites.tasks.gymnasium import GymnasiumTask
from elites.tasks.gymnasium.environments import make_environment
from elites.tasks.gymnasium.simulator import GymnasiumSimulator

WITHOUT_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
if not os.environ.get("DISPLAY"):
    WITHOUT_DISPLAY["MUJOCO_GL"] = "egl"  # also draws without a GPU; MuJoCo reads it when it is imported
RATE = 30.0  # steps per second of an environment without render_fps


class GymnasiumScene:
    """An episode, given by its seed and the controller's actions, in an environment that renders."""

    threaded = False  # renderers of environments may be bound to one thread

    def __init__(self, task: GymnasiumTask, seed: int, actions: np.ndarray, size: tuple[int, int]) -> None:
        for name, value in WITHOUT_DISPLAY.items():
            os.environ.setdefault(name, value)
        self.task, self.seed, self.actions = task, seed, actions
        self.steps = len(actions)
        self._simulator = _RenderingSimulator(task)
        self.seconds = 1 / float(self._simulator.environment.metadata.get("render_fps") or RATE)

    def frames(self, wanted: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        try:
            wanted_steps = set(wanted)
            with self._errors_in_one_line():
                self._simulator.begin(self.seed)
            for step in range(max(wanted_steps, default=-1) + 1):
                if step:
                    with self._errors_in_one_line():
                        self._simulator.advance(self.actions[step - 1])
                if step in wanted_steps:
                    yield self._picture()
        finally:
            self._simulator.close()

    @contextlib.contextmanager
    def _errors_in_one_line(self) -> Iterator[None]:
        """Turns any exception of the environment into an error of one line."""
        try:
            yield
        except ElitesError:
            raise
        except Exception as error:
            raise ElitesError(f"{self.task.name} could not be drawn: {describe(error)}{_hint()}") from error

    def _picture(self) -> np.ndarray:
        with self._errors_in_one_line():
            picture: Any = self._simulator.environment.render()
        valid = isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3
        if not valid:
            raise ElitesError(f"{self.task.name}: render() returned no picture (height, width, 3)")
        return np.asarray(picture, np.uint8)


class _RenderingSimulator(GymnasiumSimulator):
    """A simulator whose environment renders."""

    @property
    def environment(self) -> Any:
        return self._environment

    def _make_environment(self) -> Any:
        task = self.task
        try:
            return make_environment(
                task.environment,
                task.environment_options,
                episode_length=task.episode_length,
                render_mode="rgb_array",
            )
        except ElitesError as error:
            message = f"{task.name} cannot be drawn with render_mode='rgb_array': {error}{_hint()}"
            raise ElitesError(message) from error


def _hint() -> str:
    """Advice where MuJoCo cannot render."""
    if "mujoco" not in sys.modules:
        return ""
    return "; MuJoCo renders with MUJOCO_GL=egl or osmesa if that library is installed"
