"""The environment that an algorithm acts in step by step, inside its own program."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError
from elites.tasks.stepping import Stepper
from elites.tasks.task import DeviceTask, HostTask, Task


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
    if isinstance(task, HostTask):
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

    def __init__(self, task: HostTask) -> None:
        self.task, self.stepper = task, Stepper(task.simulator)
        self.failure: ElitesError | None = None

    def begin(self, seed: jax.Array) -> Place:
        task = self.task
        observation = jax.pure_callback(
            self._begin,
            jax.ShapeDtypeStruct((task.observation_size,), jnp.float32),
            seed,
            vmap_method="sequential",
        )
        actions = jnp.zeros((task.episode_length, task.action_size))
        return Place(_Trace(seed, actions), jnp.int32(0), observation)

    def step(self, place: Place, action: jax.Array) -> tuple[Place, jax.Array, jax.Array]:
        trace: _Trace = place.state
        flag = jax.ShapeDtypeStruct((), jnp.bool_)
        observation, reward, terminated, truncated = jax.pure_callback(
            self._step,
            (place.observation, jax.ShapeDtypeStruct((), jnp.float32), flag, flag),
            trace.seed,
            place.steps,
            trace.actions,
            action,
            vmap_method="sequential",
        )
        after = trace._replace(actions=trace.actions.at[place.steps].set(action))
        # Cut off by the simulator itself is cut off by the time limit, before its time.
        steps = jnp.where(truncated, self.task.episode_length, place.steps + 1)
        return Place(after, steps, observation), reward, terminated

    # An exception would go through JAX, which makes pages of it: it is kept, and NaN goes on instead.

    def _begin(self, seed: jax.Array) -> np.ndarray:
        try:
            if self.failure is None:
                return self.stepper.begin(seed)
        except Exception as error:
            self._fail(error, seed)
        return np.full(self.task.observation_size, np.nan, np.float32)

    def _step(self, seed: jax.Array, *rest: Any) -> tuple[np.ndarray, np.float32, np.bool_, np.bool_]:
        try:
            if self.failure is None:
                return self.stepper.step(seed, *rest)
        except Exception as error:
            self._fail(error, seed)
        nothing = np.full(self.task.observation_size, np.nan, np.float32)
        return nothing, np.float32(np.nan), np.bool_(False), np.bool_(False)

    def _fail(self, error: Exception, seed: jax.Array) -> None:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        failed = f"the training episode with seed {int(seed)} failed"
        self.failure = ElitesError(f"{self.task.name}: {failed}: {told}")
        self.failure.__cause__ = error


def raise_failure(environment: Environment | None) -> None:
    """Raises what went wrong in an environment, if anything did."""
    failure = getattr(environment, "failure", None)
    if failure is not None:
        raise failure
