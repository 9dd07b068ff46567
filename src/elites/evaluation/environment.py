"""The environment that an algorithm acts in step by step, inside its own program."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from elites.errors import ElitesError
from elites.tasks.stepping import Stepper
from elites.tasks.task import CompiledTask, DeviceTask, Task


class Place(NamedTuple):
    """Where an environment is in its episode."""

    state: Any
    steps: jax.Array  # so far
    observation: jax.Array


class Environment(Protocol):
    """Pure functions, to be jitted, scanned and vmapped."""

    def begin(self, seed: jax.Array) -> Place:
        """The beginning of the episode with this seed."""

    def step(self, place: Place, action: jax.Array) -> tuple[Place, jax.Array, jax.Array]:
        """One step: (where it leads, reward, whether the task ended the episode)."""


def environment_of(task: Task) -> Environment:
    """The environment of a task."""
    if isinstance(task, DeviceTask):
        return _OnDevice(task)
    if isinstance(task, CompiledTask):
        return _OnHost(task)
    raise ElitesError(f"{task.name} cannot be stepped through")


class _OnDevice:
    """One that is pure JAX."""

    def __init__(self, task: DeviceTask) -> None:
        self.task = task

    def begin(self, seed: jax.Array) -> Place:
        state, observation = self.task.reset(seed)
        return Place(state, jnp.int32(0), observation)

    def step(self, place: Place, action: jax.Array) -> tuple[Place, jax.Array, jax.Array]:
        after = self.task.step(place.state, action)
        return Place(after.state, place.steps + 1, after.observation), after.reward, after.terminated


class _Trace(NamedTuple):
    """A simulator outside JAX is where its episode's seed and the actions so far have led it."""

    seed: jax.Array  # uint32
    actions: jax.Array  # [episode_length, action_size]


class _OnHost:
    """One that is simulated outside JAX."""

    def __init__(self, task: CompiledTask) -> None:
        self.task, self.stepper = task, Stepper(task.simulator)

    def begin(self, seed: jax.Array) -> Place:
        task = self.task
        observation = jax.pure_callback(
            self.stepper.begin,
            jax.ShapeDtypeStruct((task.observation_size,), jnp.float32),
            seed,
            vmap_method="sequential",
        )
        actions = jnp.zeros((task.episode_length, task.action_size))
        return Place(_Trace(seed, actions), jnp.int32(0), observation)

    def step(self, place: Place, action: jax.Array) -> tuple[Place, jax.Array, jax.Array]:
        trace: _Trace = place.state
        observation, reward, terminated = jax.pure_callback(
            self.stepper.step,
            (place.observation, jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.bool_)),
            trace.seed,
            place.steps,
            trace.actions,
            action,
            vmap_method="sequential",
        )
        after = trace._replace(actions=trace.actions.at[place.steps].set(action))
        return Place(after, place.steps + 1, observation), reward, terminated
