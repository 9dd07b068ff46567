"""The interface of an episode that can be drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np


class Scene(Protocol):
    """An episode that can be drawn. `frames` may be called several times, for different steps."""

    steps: int  # of the episode
    seconds: float  # of a step
    threaded: bool  # whether several threads may draw

    def frames(self, steps: Sequence[int]) -> Iterator[np.ndarray]:
        """Pictures `[height, width, 3]` of the states after these numbers of steps, in ascending order."""


class SmoothTarget:
    """A camera's target, which follows the robot smoothly."""

    def __init__(self, pace: float) -> None:
        self._pace = pace  # share of the distance per step
        self._position: np.ndarray | None = None

    def __call__(self, robot: np.ndarray) -> np.ndarray:
        last = self._position
        self._position = robot if last is None else last + self._pace * (robot - last)
        return self._position
