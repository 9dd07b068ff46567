"""MuJoCo's robots as Gymnasium environments, on the same compiled step as the evaluators."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from elites.errors import ElitesError
from elites.tasks import resolve_environment_task
from elites.tasks.mujoco import MujocoTask
from elites.tasks.mujoco.simulator import MujocoSimulator


class MujocoEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One robot in MuJoCo. `reset(seed=s)` starts the same episode as an evaluator does with seed s.

    Observations and actions are those of Gymnasium's own environments: actions are in the actuators' units.
    `info` holds `contacts`, whether each foot touches the ground now, and `descriptor`, that of the episode
    so far. The time limit is Gymnasium's: `make(…, max_episode_steps=…)`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own name

    def __init__(self, task: str | MujocoTask, **parameters: Any) -> None:
        """`parameters` are the task's: `noise`, `healthy_reward`, `frame_skip` and so on."""
        self.task = task = resolve_environment_task(task, MujocoTask, "mujoco", parameters)
        self._simulator = MujocoSimulator(task)
        model = self._simulator.model
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (task.observation_size,), np.float64)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self._described = np.zeros(task.descriptor_size)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode, at random or with `options={"qpos": …, "qvel": …}` or one of these."""
        super().reset(seed=seed)
        given = options or {}
        qpos, qvel = self._simulator.draw_initial_state(self.np_random)
        observation = self._simulator.reset(
            _state("qpos", given.get("qpos", qpos), len(qpos)),
            _state("qvel", given.get("qvel", qvel), len(qvel)),
        )
        self._described[:] = 0
        self._steps = 0
        return observation, self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step."""
        control = np.ascontiguousarray(action, np.float32)
        if control.shape != self.action_space.shape or not np.isfinite(control).all():
            raise ElitesError(f"the action is {action}; it must be {self.task.action_size} finite numbers")
        observation, reward, ended = self._simulator.step(control)
        self._described += self._simulator.step_descriptor
        self._steps += 1
        return observation, reward, ended, False, self._info()

    def close(self) -> None:
        """Frees the simulation."""
        self._simulator.close()

    def _info(self) -> dict[str, Any]:
        so_far = self._simulator.step_descriptor
        if self.task.descriptor != "position":
            so_far = self._described / max(self._steps, 1)
        return {"contacts": self._simulator.contacts, "descriptor": so_far}


def _state(name: str, values: Any, size: int) -> np.ndarray:
    state = np.array(values, np.float64)
    if state.shape != (size,) or not np.isfinite(state).all():
        raise ElitesError(f"{name} is {values}; it must be {size} finite numbers")
    return state
