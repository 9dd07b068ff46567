"""Gymnasium tasks drawn by their environments, whose `render_mode` is `rgb_array`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elites.errors import ElitesError
from elites.imports import one_line
from elites.tasks.gymnasium import GymnasiumTask
from elites.tasks.gymnasium.environments import make_environment
from elites.tasks.gymnasium.simulator import GymnasiumSimulator

WITHOUT_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
if not os.environ.get("DISPLAY"):
    WITHOUT_DISPLAY["MUJOCO_GL"] = "egl"  # draws without a GPU, too; read when MuJoCo is imported
RATE = 30.0  # steps a second of an environment that does not say


class GymnasiumScene:
    """An episode given by its seed and the controller's actions, run again in an environment that draws."""

    threaded = False  # what draws for an environment may hold on to one thread

    def __init__(self, task: GymnasiumTask, seed: int, actions: np.ndarray, size: tuple[int, int]) -> None:
        for name, value in WITHOUT_DISPLAY.items():
            os.environ.setdefault(name, value)
        self.task, self.seed, self.actions = task, seed, actions
        self.steps = len(actions)
        self._simulator = _Drawing(task)
        self.seconds = 1 / float(self._simulator.environment.metadata.get("render_fps") or RATE)

    def frames(self, wanted: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        try:
            due = set(wanted)
            with self._told():
                self._simulator.begin(self.seed)
            for step in range(max(due, default=-1) + 1):
                if step:
                    with self._told():
                        self._simulator.advance(self.actions[step - 1])
                if step in due:
                    yield self._picture()
        finally:
            self._simulator.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the environment raises, in one line."""
        try:
            yield
        except ElitesError:
            raise
        except Exception as error:
            raise ElitesError(f"{self.task.name} could not be drawn: {one_line(error)}{_hint()}") from error

    def _picture(self) -> np.ndarray:
        with self._told():
            picture: Any = self._simulator.environment.render()
        drawn = isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3
        if not drawn:
            raise ElitesError(f"{self.task.name}: render() gave no picture (height, width, 3)")
        return np.asarray(picture, np.uint8)


class _Drawing(GymnasiumSimulator):
    """A simulator whose environment draws."""

    @property
    def environment(self) -> Any:
        return self._environment

    def _made(self) -> Any:
        task = self.task
        try:
            return make_environment(
                task.environment,
                task.environment_options,
                episode_length=task.episode_length,
                render_mode="rgb_array",
            )
        except ElitesError as error:
            told = f"{task.name} cannot be drawn with render_mode='rgb_array': {error}{_hint()}"
            raise ElitesError(told) from error


def _hint() -> str:
    """What helps where MuJoCo cannot draw."""
    if "mujoco" not in sys.modules:
        return ""
    return "; MuJoCo draws with MUJOCO_GL=egl or osmesa, set before it is imported, if their library is there"
