"""The environment that an algorithm steps through, inside its own program.

The state of an environment is determined by its episode's seed and the actions so far. A checkpoint holds
these. A simulator in another state replays them to reach this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, SupportsInt

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError, format_error
from elites.tasks.task import DeviceTask, HostTask, Stepper, Task


class EpisodeState(NamedTuple):
    """The state of an environment during an episode."""

    state: Any
    steps: jax.Array  # so far
    observation: jax.Array


class Environment(Protocol):
    """Pure functions, to be jitted, scanned and vmapped."""

    failure: ElitesError | None  # an error outside the program: see `raise_failure`

    def begin(self, seed: jax.Array) -> EpisodeState:
        """The beginning of the episode with this seed."""

    def step(self, current: EpisodeState, action: jax.Array) -> tuple[EpisodeState, jax.Array, jax.Array]:
        """One step: (the next state, the reward, whether the task ended the episode)."""


def make_training_environment(task: Task) -> Environment:
    """The environment of a task."""
    if isinstance(task, DeviceTask):
        return JaxEnvironment(task)
    if isinstance(task, HostTask):
        return SimulatedEnvironment(task)
    raise ElitesError(f"{task.name} has no environment to step through")


class JaxEnvironment:
    """The environment of a task that is pure JAX."""

    failure: ElitesError | None = None

    def __init__(self, task: DeviceTask) -> None:
        self.task = task

    def begin(self, seed: jax.Array) -> EpisodeState:
        """See `Environment.begin`."""
        state, observation = self.task.reset(seed)
        return EpisodeState(state, jnp.int32(0), observation)

    def step(self, current: EpisodeState, action: jax.Array) -> tuple[EpisodeState, jax.Array, jax.Array]:
        """See `Environment.step`."""
        after = self.task.step(current.state, action)
        return EpisodeState(after.state, current.steps + 1, after.observation), after.reward, after.terminated


class StatelessSimulator:
    """Pure functions over a simulator, for `jax.pure_callback`: a result depends only on the arguments.

    The simulator is made when it is first used.
    """

    def __init__(self, make: Callable[[], Stepper]) -> None:
        self._make = make
        self._simulator: Stepper | None = None
        self._position: tuple[int, int] | None = None  # (seed, steps so far) of the simulator
        self._lock = threading.Lock()

    def begin(self, seed: SupportsInt) -> np.ndarray:
        """The first observation of the episode with this seed."""
        with self._lock:
            return self._begin(int(seed))

    def step(
        self, seed: SupportsInt, count: SupportsInt, actions: np.ndarray, action: np.ndarray
    ) -> tuple[np.ndarray, np.float32, np.bool_, np.bool_]:
        """(observation, reward, terminated, truncated) of `action`, after the first `count` of `actions`.

        `truncated` is true where the simulator itself cuts the episode off before its time limit.
        """
        with self._lock:
            position = (int(seed), int(count))
            if self._position != position:
                self._begin(position[0])
                for earlier in np.asarray(actions)[: position[1]]:
                    self._advance(earlier)
            observation, reward, terminated = self._advance(np.asarray(action))
            self._position = (position[0], position[1] + 1)
            truncated = self._simulator is not None and self._simulator.truncated
            return observation, np.float32(reward), np.bool_(terminated), np.bool_(truncated)

    def _begin(self, seed: int) -> np.ndarray:
        if self._simulator is None:
            self._simulator = self._make()
        self._position = (seed, 0)
        return self._simulator.begin(seed)

    def _advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        assert self._simulator is not None
        return self._simulator.advance(np.ascontiguousarray(action, np.float32))


class _Trace(NamedTuple):
    """The state of a simulator outside JAX: its episode's seed and the actions so far."""

    seed: jax.Array  # uint32
    actions: jax.Array  # [episode_length, action_size]


class SimulatedEnvironment:
    """The environment of a task that is simulated outside JAX."""

    def __init__(self, task: HostTask) -> None:
        self.task, self.simulator = task, StatelessSimulator(task.make_stepper)
        self.failure: ElitesError | None = None

    def begin(self, seed: jax.Array) -> EpisodeState:
        """See `Environment.begin`."""
        task = self.task
        observation = jax.pure_callback(
            self._begin,
            jax.ShapeDtypeStruct((task.observation_size,), jnp.float32),
            seed,
            vmap_method="sequential",
        )
        actions = jnp.zeros((task.episode_length, task.action_size))
        return EpisodeState(_Trace(seed, actions), jnp.int32(0), observation)

    def step(self, current: EpisodeState, action: jax.Array) -> tuple[EpisodeState, jax.Array, jax.Array]:
        """See `Environment.step`."""
        trace: _Trace = current.state
        flag = jax.ShapeDtypeStruct((), jnp.bool_)
        observation, reward, terminated, truncated = jax.pure_callback(
            self._step,
            (current.observation, jax.ShapeDtypeStruct((), jnp.float32), flag, flag),
            trace.seed,
            current.steps,
            trace.actions,
            action,
            vmap_method="sequential",
        )
        after = trace._replace(actions=trace.actions.at[current.steps].set(action))
        # An episode that the simulator cuts off counts as one that has reached its time limit.
        steps = jnp.where(truncated, self.task.episode_length, current.steps + 1)
        return EpisodeState(after, steps, observation), reward, terminated

    # JAX would turn an exception into pages of text: it is kept, and the program continues with NaN.

    def _begin(self, seed: jax.Array) -> np.ndarray:
        try:
            if self.failure is None:
                return self.simulator.begin(seed)
        except (Exception, SystemExit) as error:
            self._fail(error, seed)
        return np.full(self.task.observation_size, np.nan, np.float32)

    def _step(self, seed: jax.Array, *rest: Any) -> tuple[np.ndarray, np.float32, np.bool_, np.bool_]:
        try:
            if self.failure is None:
                return self.simulator.step(seed, *rest)
        except (Exception, SystemExit) as error:
            self._fail(error, seed)
        observation = np.full(self.task.observation_size, np.nan, np.float32)
        return observation, np.float32(np.nan), np.bool_(False), np.bool_(False)

    def _fail(self, error: BaseException, seed: jax.Array) -> None:
        cause = format_error(error).removeprefix(f"{self.task.name}: ")
        failed = f"the training episode with seed {int(seed)} failed"
        self.failure = ElitesError(f"{self.task.name}: {failed}: {cause}")
        self.failure.__cause__ = error


def raise_failure(environment: Environment | None) -> None:
    """Raises the error that occurred in an environment, if any."""
    if environment is not None and environment.failure is not None:
        raise environment.failure
