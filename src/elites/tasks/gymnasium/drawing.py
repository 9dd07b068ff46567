"""Episodes of a Gymnasium environment that draws them itself: its `render_mode` is `rgb_array`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from elites.errors import ElitesError, describe_error
from elites.tasks.gymnasium import GymnasiumTask
from elites.tasks.gymnasium.environments import make_environment
from elites.tasks.gymnasium.simulator import GymnasiumSimulator

WITHOUT_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
if not os.environ.get("DISPLAY"):
    WITHOUT_DISPLAY["MUJOCO_GL"] = "egl"  # also draws without a GPU; MuJoCo reads it when it is imported
RATE = 30.0  # steps per second of an environment without render_fps


class DrawingSimulator(GymnasiumSimulator):
    """A simulator of an environment that draws. Its exceptions become errors of one line."""

    def __init__(self, task: GymnasiumTask) -> None:
        for name, value in WITHOUT_DISPLAY.items():
            os.environ.setdefault(name, value)
        super().__init__(task)
        self.seconds = 1 / float(self._environment.metadata.get("render_fps") or RATE)  # of a step

    def begin(self, seed: int) -> np.ndarray:
        """See `GymnasiumSimulator.begin`."""
        with self._errors_in_one_line():
            return super().begin(seed)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """See `GymnasiumSimulator.advance`."""
        with self._errors_in_one_line():
            return super().advance(action)

    def picture(self) -> np.ndarray:
        """The state as a picture, `[height, width, 3]`."""
        with self._errors_in_one_line():
            picture: Any = self._environment.render()
        if not (isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3):
            raise ElitesError(f"{self.task.name}: render() returned no picture (height, width, 3)")
        return np.asarray(picture, np.uint8)

    @contextlib.contextmanager
    def _errors_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except ElitesError:
            raise
        except Exception as error:
            raise ElitesError(
                f"{self.task.name} could not be drawn: {describe_error(error)}{_hint()}"
            ) from error

    def _make_environment(self) -> gymnasium.Env[Any, Any]:
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
    """Advice for the case that MuJoCo cannot render."""
    if "mujoco" not in sys.modules:
        return ""
    return "; MuJoCo renders with MUJOCO_GL=egl or osmesa if that library is installed"
