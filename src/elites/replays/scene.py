"""What is drawn: one episode, from its first step to its last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np


class Scene(Protocol):
    """An episode that can be drawn. `frames` may be called several times, for other steps."""

    steps: int  # that the episode has
    seconds: float  # that a step takes
    threaded: bool  # whether pictures may be drawn on several threads, not only on the first

    def frames(self, wanted: Sequence[int]) -> Iterator[np.ndarray]:
        """Pictures `[height, width, 3]` of the state after so many steps each, which must ascend."""


class Following:
    """A camera's target, which follows smoothly: jolts of the robot are the robot's, not the picture's."""

    def __init__(self, pace: float) -> None:
        self._pace = pace  # share of the distance that it makes up in a step
        self._at: np.ndarray | None = None

    def __call__(self, place: np.ndarray) -> np.ndarray:
        self._at = place if self._at is None else self._at + self._pace * (place - self._at)
        return self._at
