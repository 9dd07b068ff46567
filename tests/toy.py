"""A task that is pure JAX and takes no time: a point that is pushed about."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from elites.tasks.task import DeviceTask, StepResult


@dataclass(frozen=True, kw_only=True)
class PointTask(DeviceTask):
    """It starts near the origin, is rewarded for going right, and is lost where it goes too far up."""

    noise: float = 0.1

    def reset(self, seed):
        position = self.noise * jax.random.normal(jax.random.key(seed), (2,))
        return position, jnp.concatenate([position, jnp.ones(1)])

    def step(self, state, action):
        position = state + 0.2 * action
        observation = jnp.concatenate([position, jnp.ones(1)])
        broken = jnp.abs(position[0]) > 50  # never, unless a test starts it there
        return StepResult(
            position,
            observation,
            jnp.where(broken, jnp.nan, action[0]),
            position[1] > 1,
            position > 0,
        )


POINT = PointTask(
    name="point",
    observation_size=3,
    action_size=2,
    descriptor_names=("right", "up"),
    descriptor_bounds=((0.0, 1.0),) * 2,
    cells=50,
    grid=(7, 7),
    qd_offset=-30.0,
    episode_length=12,
)
