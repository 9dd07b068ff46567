"""Episodes of tasks that are pure JAX: a whole batch runs inside one program, on an accelerator or not.

All episodes of a batch step together. Those that have ended keep stepping until the last one has ended;
these extra steps do not change the results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluation, Evaluator
from elites.evaluation.function import evaluate_function
from elites.genomes import Genome
from elites.options import Physics
from elites.policies import Policy
from elites.policies.layout import HIDDEN
from elites.tasks.episode import Ending, Transitions
from elites.tasks.function import FunctionTask
from elites.tasks.task import DeviceTask, StepResult, Task

CHECK_EVERY = 50  # steps between checks whether an episode is still running
MAX_EPISODES = {"cpu": 1000}  # at once; more are not faster, and progress would be reported too rarely
MAX_EPISODES_ELSEWHERE = 10_000
CHUNK_BYTES = 2**31  # of transitions that one call may record
NOISE_STREAM = 1  # folded into the key of an episode's seed, for the noise on its actions


class BatchFunctions(NamedTuple):
    """The functions of a task for a batch of robots."""

    reset: Callable[[jax.Array], tuple[Any, jax.Array]]
    step: Callable[[Any, jax.Array], StepResult]
    episode_descriptor: Callable[[jax.Array, Any], jax.Array]
    axis: int = 0  # of the robots, in the arrays of the states


def make_batch_functions(task: DeviceTask, physics: Physics | None = None) -> BatchFunctions:
    """The functions of a task: compiled by XLA, or with the step as a CUDA kernel."""
    if physics == "cuda":
        from elites.evaluation.kernels import make_kernel_functions

        return make_kernel_functions(task)
    return BatchFunctions(jax.vmap(task.reset), jax.vmap(task.step), jax.vmap(task.episode_descriptor))


class _EpisodeBatch(NamedTuple):
    """Episodes in progress, `[n, …]`; transitions are `[T, n, …]`, states as `BatchFunctions` says."""

    step: jax.Array
    states: Any
    observation: jax.Array
    alive: jax.Array
    fitness: jax.Array
    descriptor: jax.Array  # the sum over the steps
    length: jax.Array
    ending: jax.Array
    transitions: tuple[jax.Array, ...] | None


def rollout(
    task: DeviceTask,
    policy: Policy,
    parameters: jax.Array,
    seeds: jax.Array,
    *,
    transitions: bool,
    action_noise: float = 0.0,
    enabled: jax.Array | None = None,
    functions: BatchFunctions | None = None,
) -> Evaluation[jax.Array]:
    """Runs an episode for each seed, `[n]` or `[n, m]`, of the controllers `[n, P]`. To be jitted.

    `action_noise` is as in `Evaluator.evaluate`. `enabled` has the shape of the seeds; where it is false, the
    episode is skipped. `functions` replaces the task's own functions.
    """
    functions = functions or make_batch_functions(task)
    shape, steps = seeds.shape, task.episode_length
    chunks = math.ceil(steps / CHECK_EVERY)
    every = math.ceil(steps / chunks)
    flat = seeds.reshape(-1)
    count = len(flat)
    layers = jax.vmap(policy.unflatten)(parameters)
    dtype = np.dtype(task.step_descriptor_dtype)

    def act(observation: jax.Array, step: jax.Array) -> jax.Array:
        grouped = observation.reshape(len(parameters), -1, task.observation_size)
        action = jax.vmap(policy.act)(layers, grouped).reshape(count, task.action_size)
        if action_noise == 0:
            return action
        noise = jax.vmap(lambda seed: draw_step_noise(seed, step, task.action_size))(flat)
        return jnp.clip(action + action_noise * noise, -1, 1)

    states, observation = functions.reset(flat)
    alive = jnp.ones(count, bool) if enabled is None else enabled.reshape(-1)
    sizes = (task.observation_size, task.action_size, None, task.step_descriptor_size)
    dtypes = (jnp.float32, jnp.float32, jnp.float32, dtype)
    running = _EpisodeBatch(
        step=jnp.int32(0),
        states=states,
        observation=observation,
        alive=alive,
        fitness=jnp.zeros(count),
        descriptor=jnp.zeros(
            (count, task.step_descriptor_size), jnp.float32 if dtype.kind == "f" else jnp.int32
        ),
        length=jnp.zeros(count, jnp.int32),
        ending=jnp.where(alive, jnp.uint8(Ending.TRUNCATED), jnp.uint8(Ending.SKIPPED)),
        transitions=tuple(
            jnp.zeros((chunks * every, count) if size is None else (chunks * every, count, size), kind)
            for size, kind in zip(sizes, dtypes, strict=True)
        )
        if transitions
        else None,
    )

    def run_step(running: _EpisodeBatch, _: None) -> tuple[_EpisodeBatch, tuple[jax.Array, ...] | None]:
        alive, action = running.alive, act(running.observation, running.step)
        after = functions.step(running.states, action)
        check_descriptor(task, after.descriptor.shape[1:], after.descriptor.dtype)
        finite = (
            jnp.isfinite(after.reward)
            & jnp.isfinite(action).all(-1)
            & jnp.isfinite(after.observation).all(-1)
        )
        if jnp.issubdtype(after.descriptor.dtype, jnp.inexact):
            finite &= jnp.isfinite(after.descriptor).all(-1)
        reward = jnp.where(alive, after.reward, 0)
        if after.descriptor.dtype == bool:
            descriptor = alive[:, None] & after.descriptor
        else:
            descriptor = jnp.where(alive[:, None], after.descriptor, 0).astype(running.descriptor.dtype)
        ending_if_over = jnp.where(finite, jnp.uint8(Ending.TERMINATED), jnp.uint8(Ending.INVALID))
        is_over = alive & (after.terminated | ~finite)
        length = running.length + alive
        observed, acted = (jnp.where(alive[:, None], array, 0) for array in (after.observation, action))
        recorded = (observed, acted, reward, descriptor)
        return running._replace(
            step=running.step + 1,
            states=_freeze_ended(alive, after.state, running.states, functions.axis)
            if task.describes_episodes
            else after.state,
            observation=after.observation,
            alive=alive & ~is_over & (length < steps),
            fitness=running.fitness + reward,
            descriptor=running.descriptor + descriptor,
            length=length,
            ending=jnp.where(is_over, ending_if_over, running.ending),
        ), recorded if transitions else None

    def run_steps(running: _EpisodeBatch) -> _EpisodeBatch:
        start, rows = running.step, running.transitions
        running, recorded = jax.lax.scan(run_step, running, length=every)
        if rows is not None and recorded is not None:
            rows = tuple(
                jax.lax.dynamic_update_slice_in_dim(row, new.astype(row.dtype), start, 0)
                for row, new in zip(rows, recorded, strict=True)
            )
        return running._replace(transitions=rows)

    done = jax.lax.while_loop(lambda now: (now.step < chunks * every) & now.alive.any(), run_steps, running)
    valid = done.ending <= Ending.TRUNCATED
    ending, descriptor = done.ending, done.descriptor / jnp.maximum(done.length, 1)[:, None]
    if task.describes_episodes:
        descriptor = functions.episode_descriptor(descriptor, done.states)
        check_episode_descriptor(task, descriptor.shape[1:])
        finite = jnp.isfinite(descriptor).all(-1)
        ending = jnp.where(valid & ~finite, jnp.uint8(Ending.INVALID), ending)
        valid &= finite
    return Evaluation(
        seed=seeds,
        fitness=jnp.where(valid, done.fitness, jnp.nan).reshape(shape),
        descriptor=jnp.where(valid[:, None], descriptor, jnp.nan).reshape(*shape, -1),
        length=done.length.reshape(shape),
        ending=ending.reshape(shape),
        transitions=None
        if done.transitions is None
        else _transitions(done, observation, alive, steps, shape),
    )


def draw_step_noise(seed: jax.Array, step: jax.Array, size: int) -> jax.Array:
    """Standard normal numbers `[size]` for a step of the episode with this seed."""
    key = jax.random.fold_in(jax.random.key(seed), NOISE_STREAM)
    return jax.random.normal(jax.random.fold_in(key, step), (size,))


def check_descriptor(task: DeviceTask, shape: tuple[int, ...], dtype: Any) -> None:
    """Raises an error if a step's descriptor is not as the task declares it: a cast would hide that."""
    fits = np.can_cast(dtype, task.step_descriptor_dtype, "same_kind")
    if shape != (task.step_descriptor_size,) or not fits:
        raise ElitesError(
            f"{task.name}: a step's descriptor is {dtype}{list(shape)}; it must be "
            f"{task.step_descriptor_dtype}[{task.step_descriptor_size}] "
            "(step_descriptor_dtype, step_descriptor_size)"
        )


def check_episode_descriptor(task: DeviceTask, shape: tuple[int, ...]) -> None:
    """Raises an error if an episode's descriptor does not have the length that the task declares."""
    if shape != (task.descriptor_size,):
        raise ElitesError(
            f"{task.name}: the episode descriptor has the shape {list(shape)}; "
            f"it must be [{task.descriptor_size}]"
        )


def _freeze_ended(alive: jax.Array, after: Any, before: Any, axis: int) -> Any:
    """The states after a step; those of episodes that had ended before it stay as they are."""
    return jax.vmap(
        lambda running, *states: jax.tree.map(functools.partial(jnp.where, running), *states),
        in_axes=(0, axis, axis),
        out_axes=axis,
    )(alive, after, before)


def _transitions(
    done: _EpisodeBatch, first: jax.Array, alive: jax.Array, steps: int, shape: tuple[int, ...]
) -> Transitions[jax.Array]:
    """The steps of each episode in a row."""
    assert done.transitions is not None
    rows = [jnp.moveaxis(row[:steps], 0, 1) for row in done.transitions]
    rows[0] = jnp.concatenate([jnp.where(alive[:, None], first, 0)[:, None], rows[0]], axis=1)
    return Transitions(*(row.reshape(*shape, *row.shape[1:]) for row in rows))


def evaluate_inside(
    task: Task,
    genome: Genome,
    parameters: jax.Array,
    seeds: jax.Array,
    *,
    transitions: bool,
    action_noise: float,
    enabled: jax.Array,
    physics: Physics | None = None,
) -> Evaluation[jax.Array]:
    """Evaluates genomes `[n, P]` inside a program; the arguments are those of `rollout`."""
    if isinstance(task, FunctionTask):
        return evaluate_function(task, parameters, seeds, enabled)
    assert isinstance(task, DeviceTask)
    assert isinstance(genome, Policy)
    return rollout(
        task,
        genome,
        parameters,
        seeds,
        transitions=transitions,
        action_noise=action_noise,
        enabled=enabled,
        functions=make_batch_functions(task, physics),
    )


class DeviceEvaluator(Evaluator):
    """Runs batches of controllers on a task that is pure JAX. Batches of the same size share one program."""

    task: DeviceTask

    def __init__(
        self,
        task: DeviceTask,
        *,
        hidden: tuple[int, ...] = HIDDEN,
        chunk: int | None = None,
        physics: Physics | None = None,
    ) -> None:
        super().__init__(task, task.controller_sizes(hidden))
        self.policy = Policy.for_task(task, hidden)
        self.chunk, self.physics = chunk, physics
        self._program = functools.cache(self._compiled)

    def _compiled(self, transitions: bool, action_noise: float) -> Callable[..., Evaluation[jax.Array]]:
        return jax.jit(
            functools.partial(
                rollout,
                self.task,
                self.policy,
                transitions=transitions,
                action_noise=action_noise,
                functions=make_batch_functions(self.task, self.physics),
            )
        )

    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        """See `Evaluator._run`. Runs as many controllers at a time as fit into one call."""
        seeds, transitions = evaluation.seed, evaluation.transitions is not None
        enabled = np.arange(seeds.size).reshape(seeds.shape) < total
        chunk = min(len(seeds), self.controllers_per_call(seeds.size // len(seeds), transitions))
        for start in range(0, len(seeds), chunk):
            rows = slice(start, start + chunk)
            if not enabled[rows].any():
                break
            short = chunk - len(seeds[rows])  # the last chunk is padded, so that all share a program
            part = [
                np.concatenate([array[rows], np.zeros((short, *array.shape[1:]), array.dtype)])
                for array in (parameters, seeds, enabled)
            ]
            ran = self._program(transitions, noise)(part[0], part[1], enabled=part[2])
            for whole, piece in zip(jax.tree.leaves(evaluation), jax.tree.leaves(ran), strict=True):
                whole[rows] = np.asarray(piece)[: chunk - short]
            if on_episode is not None:
                for length in evaluation.length[rows][enabled[rows]]:
                    on_episode(int(length))
        return evaluation

    def controllers_per_call(self, episodes: int, transitions: bool = False) -> int:
        """The number of controllers that run at once, with `episodes` episodes each."""
        task = self.task
        described = task.step_descriptor_size * np.dtype(task.step_descriptor_dtype).itemsize
        step = 4 * (task.observation_size + task.action_size + 1) + described
        most = MAX_EPISODES.get(jax.default_backend(), MAX_EPISODES_ELSEWHERE)
        if transitions:
            most = min(most, CHUNK_BYTES // (task.episode_length * step))
        return self.chunk or max(1, most // episodes)
