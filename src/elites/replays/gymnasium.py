"""Gymnasium tasks drawn by their environments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from elites.tasks.gymnasium import GymnasiumTask
from elites.tasks.gymnasium.drawing import DrawingSimulator


class GymnasiumScene:
    """An episode, given by its seed and the controller's actions, in an environment that renders."""

    threaded = False  # renderers of environments may be bound to one thread

    def __init__(self, task: GymnasiumTask, seed: int, actions: np.ndarray, size: tuple[int, int]) -> None:
        self.seed, self.actions = seed, actions
        self.steps = len(actions)
        self._simulator = DrawingSimulator(task)
        self.seconds = self._simulator.seconds

    def frames(self, steps: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        try:
            wanted_steps = set(steps)
            self._simulator.begin(self.seed)
            for step in range(max(wanted_steps, default=-1) + 1):
                if step:
                    self._simulator.advance(self.actions[step - 1])
                if step in wanted_steps:
                    yield self._simulator.picture()
        finally:
            self._simulator.close()
