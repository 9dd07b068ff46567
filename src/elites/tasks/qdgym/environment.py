"""The QDGym tasks as Gymnasium environments, on the same compiled step as the evaluators."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from elites.errors import ElitesError
from elites.tasks import resolve_environment_task
from elites.tasks.qdgym import QDGymTask
from elites.tasks.qdgym.simulator import QDGymSimulator


class QDGymEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One QDGym task. `reset(seed=s)` starts the same episode as an evaluator does with seed s.

    `info` holds `contacts`, whether each foot touches the floor now, and `descriptor`, the share of this
    episode's steps after which it did. The time limit is Gymnasium's: `make(…, max_episode_steps=…)`.
    """

    metadata: dict[str, Any] = {"render_modes": [], "render_fps": 60}  # noqa: RUF012 - Gymnasium's own name

    def __init__(self, task: str | QDGymTask, **parameters: Any) -> None:
        """`parameters` are the task's: `noise`, `noise_distribution`, `ends_on_fall`."""
        self.task = task = resolve_environment_task(task, QDGymTask, "QDGym", parameters)
        self.observation_space = gymnasium.spaces.Box(-5, 5, (task.observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (task.action_size,), np.float32)
        self._simulator = QDGymSimulator(task)
        self._contacts = np.zeros(task.descriptor_size)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode, with random joint angles or those of `options={"angles": …}`."""
        super().reset(seed=seed)
        angles = (options or {}).get("angles")
        if angles is None:
            angles = self._simulator.draw_angles(self.np_random)
        angles = np.array(angles, np.float64)
        if angles.shape != self.action_space.shape or not np.isfinite(angles).all():
            raise ElitesError(f"angles are {angles}; they must be {self.task.action_size} finite numbers")
        observation = self._simulator.reset(angles)
        self._contacts[:] = 0
        self._steps = 0
        return observation, self._info(np.zeros(self.task.descriptor_size, np.float32))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step of 0.0165 s."""
        action = np.ascontiguousarray(action, np.float32)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            raise ElitesError(f"the action is {action}; it must be {self.task.action_size} finite numbers")
        observation, reward, upright, contacts = self._simulator.step(action)
        self._contacts += contacts
        self._steps += 1
        return observation, reward, self.task.ends_on_fall and not upright, False, self._info(contacts)

    def close(self) -> None:
        """Frees the Bullet world."""
        self._simulator.close()

    def _info(self, contacts: np.ndarray) -> dict[str, Any]:
        return {"contacts": contacts, "descriptor": self._contacts / max(self._steps, 1)}
