"""Episodes of a Gymnasium environment, in the calling process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np

from elites.errors import ElitesError, describe_error
from elites.imports import load_function
from elites.policies.layout import parameter_count
from elites.policies.numpy import NumpyPolicy
from elites.tasks.action_noise import draw_noise
from elites.tasks.episode import Ending, EpisodeResult, Transitions, WatchedStop
from elites.tasks.gymnasium.environments import make_environment, read_spaces
from elites.tasks.mujoco.library import quiet_mujoco

if TYPE_CHECKING:
    from elites.tasks.gymnasium import GymnasiumTask

ROUNDING = 1e-6  # share of a bound's range by which a descriptor may exceed it


class Episode(NamedTuple):
    """The argument of a descriptor function: an episode of T steps, in the environment's units."""

    observations: np.ndarray  # [T + 1, observation_size], the first from `reset`
    actions: np.ndarray  # [T, action_size], within the environment's bounds
    rewards: np.ndarray  # [T]
    infos: list[dict[str, Any]]  # T + 1, the first from `reset`
    terminated: bool
    truncated: bool  # by the environment, or by the task's episode_length


class EpisodeError(Exception):
    """The environment or the descriptor returned something unusable. The message is one line."""


class GymnasiumSimulator:
    """Runs whole episodes of one task, one at a time, or steps through them."""

    def __init__(self, task: GymnasiumTask) -> None:
        self.task = task
        self.truncated = False  # whether the environment cut the episode off in the last `advance`
        self._describe = task.descriptor and load_function(task.descriptor, "descriptor")
        self._describe_step = task.step_descriptor and load_function(task.step_descriptor, "step_descriptor")
        self._environment = self._make_environment()
        spaces = read_spaces(self._environment, task.name)
        sizes = (spaces.observation_size, len(spaces.low))
        if sizes != (task.observation_size, task.action_size):
            raise ElitesError(
                f"{task.name} has {sizes[0]} observations and {sizes[1]} actions; "
                f"the task has {task.observation_size} and {task.action_size}"
            )
        self._low, self._high = spaces.low, spaces.high
        self._half = (spaces.high - spaces.low) / 2
        self._middle = spaces.low + self._half
        one = spaces.low.dtype == np.float32 and (spaces.low == -1).all() and (spaces.high == 1).all()
        self._unscaled = bool(one)
        steps = task.episode_length
        self._observations = np.zeros((steps + 1, sizes[0]), spaces.observation_type)
        self._outputs = np.zeros((steps, sizes[1]), np.float32)
        self._actions = np.zeros((steps, sizes[1]), spaces.low.dtype)
        self._rewards = np.zeros(steps)
        self._policy: NumpyPolicy | None = None
        self._used = False

    def _make_environment(self) -> gymnasium.Env[Any, Any]:
        task = self.task
        return make_environment(
            task.environment, task.environment_options, episode_length=task.episode_length
        )

    def run(
        self,
        parameters: np.ndarray,
        sizes: np.ndarray,
        seed: int,
        stop: np.ndarray,
        transitions: Transitions[np.ndarray] | None,
        action_noise: float = 0.0,
    ) -> EpisodeResult:
        """Runs one episode: see `elites.tasks.task.Simulator`."""
        if self._policy is None or self._policy.sizes != tuple(sizes):
            self._policy = NumpyPolicy(tuple(int(size) for size in sizes))
        self._policy.load(parameters)
        try:
            return self._run(self._policy, seed, stop, transitions, action_noise)
        except EpisodeError as error:
            raise ElitesError(f"{self.task.name}: the episode with seed {seed}: {error}") from error
        except (Exception, SystemExit) as error:
            raise ElitesError(
                f"{self.task.name}: the episode with seed {seed} failed: {describe_error(error)}"
            ) from error

    def _run(
        self,
        policy: NumpyPolicy,
        seed: int,
        stop: np.ndarray,
        transitions: Transitions[np.ndarray] | None,
        action_noise: float,
    ) -> EpisodeResult:
        task, outputs, actions = self.task, self._outputs, self._actions
        observations, rewards = self._observations, self._rewards
        size = task.descriptor_size
        noise = draw_noise(seed, action_noise, task.episode_length, task.action_size)
        observation, info = self._reset(seed)
        shape = observations.shape[1:]
        observations[0] = observation
        step = self._environment.step
        infos, described = [dict(info)], []
        length, ending, unscaled = 0, Ending.TRUNCATED, self._unscaled
        for length in range(1, task.episode_length + 1):
            output = policy(observations[length - 1])
            if math.isnan(output.dot(output)):  # because of the observation or the controller
                ending, length = Ending.INVALID, length - 1
                break
            if len(noise):
                output = np.clip(output + noise[length - 1], -1, 1)
            outputs[length - 1] = output
            if unscaled:
                action = output.copy()
            else:
                action = self._scaled(output)
                actions[length - 1] = action
            observation, reward, terminated, truncated, info = step(action)
            if stop[0]:
                return EpisodeResult(math.nan, np.full(size, np.nan), length, Ending.SKIPPED)
            if np.shape(observation) != shape:
                actual = list(np.shape(observation))
                raise EpisodeError(f"an observation has the shape {actual}; its space says {list(shape)}")
            observations[length] = observation
            rewards[length - 1] = reward
            infos.append(dict(info))
            if self._describe_step:
                if not (math.isfinite(reward) and np.isfinite(observations[length]).all()):
                    ending = Ending.INVALID
                    break
                value = self._describe_step(observation, action, info)
                described.append(self._check_descriptor(value, "step descriptor"))
            if terminated:
                ending = Ending.TERMINATED
            if terminated or truncated:
                break
        fitness = _sum(rewards[:length])
        recorded = (observations[: length + 1], outputs[:length])
        if not (math.isfinite(fitness) and all(np.isfinite(array).all() for array in recorded)):
            ending = Ending.INVALID
        if transitions is not None:
            transitions.observations[: length + 1] = observations[: length + 1]
            transitions.actions[:length] = outputs[:length]
            transitions.rewards[:length] = rewards[:length]
            if described:
                transitions.step_descriptors[: len(described)] = described
        if ending == Ending.INVALID:
            return EpisodeResult(math.nan, np.full(size, np.nan), length, ending)
        if self._describe:
            episode = Episode(
                observations[: length + 1].copy(),
                (outputs if unscaled else actions)[:length].copy(),
                rewards[:length].copy(),
                infos,
                ending == Ending.TERMINATED,
                ending == Ending.TRUNCATED,
            )
            descriptor = self._check_descriptor(self._describe(episode), "descriptor")
        else:
            descriptor = self._check_descriptor(np.mean(described, axis=0), "descriptor")
        return EpisodeResult(fitness, descriptor, length, ending)

    def _check_descriptor(self, value: Any, what: str) -> np.ndarray:
        """A descriptor, clipped to its bounds; an error if it is not within them."""
        size, bounds = self.task.descriptor_size, np.array(self.task.descriptor_bounds)
        try:
            numbers = np.atleast_1d(np.asarray(value, np.float64))
        except (TypeError, ValueError):
            numbers = np.empty((0, 0))
        if numbers.shape != (size,):
            raise EpisodeError(f"the {what} is {_short(value)}; it must be {size} number{'s' * (size > 1)}")
        low, high = bounds.T
        margin = ROUNDING * (high - low)
        if not ((numbers >= low - margin) & (numbers <= high + margin)).all():  # also if NaN
            ranges = ", ".join(f"{low:g} to {high:g}" for low, high in bounds)
            raise EpisodeError(
                f"the {what} is {numbers.tolist()}; its bounds are {ranges} (descriptor_bounds)"
            )
        return np.clip(numbers, low, high)

    def _scaled(self, output: np.ndarray) -> np.ndarray:
        """An action within the environment's bounds."""
        if self._unscaled:
            return output.astype(self._low.dtype)
        action: np.ndarray = np.clip(self._middle + output * self._half, self._low, self._high)
        return action.astype(self._low.dtype)

    def _reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        if self.task.fresh and self._used:
            self._environment.close()
            with quiet_mujoco():
                self._environment = self._make_environment()
        self._used = True
        return self._environment.reset(seed=seed)

    def begin(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed. Returns the observation."""
        self.truncated = False
        return np.asarray(self._reset(seed)[0], np.float32)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One step. Returns (observation, reward, whether the task ended the episode)."""
        observation, reward, terminated, truncated, _ = self._environment.step(self._scaled(action))
        self.truncated = bool(truncated)
        return np.asarray(observation, np.float32), float(reward), bool(terminated)

    def close(self) -> None:
        """Closes the environment."""
        self._environment.close()


def _short(value: Any) -> str:
    with contextlib.suppress(TypeError, ValueError):
        value = np.asarray(value, np.float64).tolist()  # not `np.float64(0.5)`
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}…"


def inspect_environment(
    name: str, environment: str, fields: Mapping[str, Any], beat: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The sizes of an environment and of the descriptor, which is tried on an episode with zero actions."""
    from elites.tasks.gymnasium import LENGTH, GymnasiumTask

    options, length = fields.get("environment_options", {}), fields.get("episode_length")
    for what in ("descriptor", "step_descriptor"):  # first: their modules may register the environment
        if fields.get(what):
            load_function(fields[what], what)
            beat()
    instance = make_environment(environment, options, episode_length=length)
    try:
        spaces = read_spaces(instance, name)
        limit = getattr(instance.spec, "max_episode_steps", None)
    finally:
        instance.close()
    beat()
    sizes: dict[str, Any] = {
        "observation_size": spaces.observation_size,
        "action_size": len(spaces.low),
        "episode_length": length or limit or LENGTH,
    }
    bounds = fields.get("descriptor_bounds")
    probe = GymnasiumTask(
        name=name,
        environment=environment,
        environment_options=options,
        descriptor=fields.get("descriptor"),
        step_descriptor=fields.get("step_descriptor"),
        descriptor_bounds=((0.0, 1.0),) if bounds is None else bounds,
        descriptor_names=("dimension",) if bounds is None else tuple(map(str, bounds)),
        cells=1,
        grid=(1,) if bounds is None else (1,) * len(bounds),
        qd_offset=0.0,
        **sizes,
    )
    with quiet_mujoco():
        simulator = (_SizeProbe if bounds is None else GymnasiumSimulator)(probe)
    try:
        layers = (probe.observation_size, probe.action_size)
        zeros = np.zeros(parameter_count(layers), np.float32)
        simulator.run(zeros, np.array(layers), 0, WatchedStop(np.zeros(1), beat), None)
    finally:
        simulator.close()
    if isinstance(simulator, _SizeProbe):
        if simulator.size is None:
            raise ElitesError(f"{name}: an episode gave NaN; descriptor_bounds must be given")
        sizes["descriptor_bounds"] = ((0.0, 1.0),) * simulator.size
    return sizes


class _SizeProbe(GymnasiumSimulator):
    """Measures the length of a descriptor without given bounds: they are 0 and 1 in each dimension."""

    size: int | None = None

    def _check_descriptor(self, value: Any, what: str) -> np.ndarray:
        try:
            numbers = np.atleast_1d(np.asarray(value, np.float64))
        except (TypeError, ValueError):
            numbers = np.empty(0)
        if numbers.ndim != 1 or not numbers.size:
            raise EpisodeError(f"the {what} is {_short(value)}; it must be numbers")
        if not ((numbers >= -ROUNDING) & (numbers <= 1 + ROUNDING)).all():
            raise EpisodeError(
                f"the {what} is {numbers.tolist()}; without descriptor_bounds it must be from 0 to 1"
            )
        self.size = len(numbers)
        return numbers


def _sum(rewards: np.ndarray) -> float:
    """The exact sum, rounded once: NumPy's depends on the length of the array. NaN if it is not finite."""
    try:
        return math.fsum(rewards)
    except (OverflowError, ValueError):  # too large, or inf - inf
        return math.nan
