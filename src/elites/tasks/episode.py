"""An episode: how it ends, its result and its steps."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, NamedTuple, Self

import numpy as np

from elites.policies.layout import Array


class Ending(IntEnum):
    """How an episode ended."""

    TERMINATED = 0  # the task ended it: the robot fell
    TRUNCATED = 1  # it reached the time limit: learning bootstraps from the last observation
    INVALID = 2  # the controller or the simulation gave NaN: fitness and descriptor are NaN
    SKIPPED = 3  # it was not run: the budget was spent


class Transitions(NamedTuple, Generic[Array]):
    """Every step of some episodes, `[…, T, …]`; rows from an episode's length on are zero.

    Step t goes from `observations[t]` by `actions[t]`, noise included, to `observations[t + 1]`.
    """

    observations: Array  # float32 […, T + 1, observation_size]
    actions: Array  # float32 […, T, action_size]
    rewards: Array  # […, T], float64 on the host and float32 on the device
    step_descriptors: Array  # […, T, step_descriptor_size] of the task's step_descriptor_dtype


class EpisodeResult(NamedTuple):
    """The result of one episode."""

    fitness: float
    descriptor: np.ndarray
    length: int  # steps
    ending: int  # an Ending


class WatchedStop(np.ndarray):
    """The `stop` of `Simulator.run` that calls `beat` each time it is read: the simulator is alive."""

    beat: Callable[[], None]

    def __new__(cls, stop: np.ndarray, beat: Callable[[], None]) -> Self:
        watched = stop.view(cls)
        watched.beat = beat
        return watched

    def __array_finalize__(self, source: Any) -> None:
        self.beat = getattr(source, "beat", lambda: None)

    def __getitem__(self, index: Any) -> Any:
        self.beat()
        return super().__getitem__(index)
