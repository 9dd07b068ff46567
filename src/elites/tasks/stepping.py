"""An environment that algorithms act in step by step, as pure functions.

Where such an environment is follows from its episode's seed and the actions so far. That is what a checkpoint
holds; a simulator that is elsewhere is brought there by replaying them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, SupportsInt

import numpy as np


class Stepped(Protocol):
    """A simulator that can be stepped."""

    def begin(self, seed: int) -> np.ndarray:
        """Starts an episode. Returns the observation."""

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One step. Returns (observation, reward, whether the task ended the episode)."""


class Stepper:
    """Functions of their arguments alone, for `jax.pure_callback`. The simulator is made when needed."""

    def __init__(self, make: Callable[[], Stepped]) -> None:
        self._make = make
        self._simulator: Stepped | None = None
        self._at: tuple[int, int] | None = None  # (seed, steps so far) of the simulator
        self._lock = threading.Lock()

    def begin(self, seed: SupportsInt) -> np.ndarray:
        """The first observation of the episode with this seed."""
        with self._lock:
            return self._begin(int(seed))

    def step(
        self, seed: SupportsInt, count: SupportsInt, actions: np.ndarray, action: np.ndarray
    ) -> tuple[np.ndarray, np.float32, np.bool_, np.bool_]:
        """(observation, reward, terminated, truncated) of `action`, after the first `count` of `actions`.

        A simulator that can cut an episode off before its time says so by `truncated`.
        """
        with self._lock:
            place = (int(seed), int(count))
            if self._at != place:
                self._begin(place[0])
                for earlier in np.asarray(actions)[: place[1]]:
                    self._advance(earlier)
            observation, reward, terminated = self._advance(np.asarray(action))
            self._at = (place[0], place[1] + 1)
            truncated = getattr(self._simulator, "truncated", False)
            return observation, np.float32(reward), np.bool_(terminated), np.bool_(truncated)

    def _begin(self, seed: int) -> np.ndarray:
        if self._simulator is None:
            self._simulator = self._make()
        self._at = (seed, 0)
        return self._simulator.begin(seed)

    def _advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        assert self._simulator is not None
        return self._simulator.advance(np.ascontiguousarray(action, np.float32))
