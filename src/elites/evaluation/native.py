"""Episodes of tasks that are pure JAX as machine code, on threads: no XLA, several robots per thread at once.

`rollout` in `device.py` defines an episode: how it ends, and what is recorded. The numbers here agree with it
up to rounding. The bits of an episode depend on task, controller and seed alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.cache import keep_in_process
from elites.evaluation import lanes as episodes
from elites.evaluation.device import check_descriptor, check_episode_descriptor, draw_step_noise
from elites.evaluation.evaluation import Evaluation, Evaluator, blank_evaluation, flatten_episodes
from elites.evaluation.threads import choose_thread_count
from elites.native import CompiledFunction, compile_function
from elites.native.compiled import allocate_aligned
from elites.native.perceptron import Perceptron
from elites.policies.layout import HIDDEN
from elites.tasks.episode import Ending
from elites.tasks.task import DeviceTask

REPORT_SECONDS = 0.05  # between looks for episodes that have ended


class Programs(NamedTuple):
    """The functions of a task as machine code."""

    reset: CompiledFunction
    step: CompiledFunction
    act: Callable[[bool], CompiledFunction]  # with noise or without


@keep_in_process(max_results=8)
def make_programs(task: DeviceTask, lanes: int | None = None) -> Programs:
    """The functions of a task. Raises UnknownPrimitiveError if one of them cannot be compiled.

    `lanes` is the number of robots side by side. By default they fill a vector register.
    """
    dtype = jnp.float32 if np.dtype(task.step_descriptor_dtype).kind == "f" else jnp.int32
    reset = jax.jit(lambda seed: task.reset(seed))  # traced once
    version = task.code_version

    def make_cache_name(function: str) -> str | None:
        return None if version is None else f"{function} of {version}"

    @functools.cache
    def find_state_types() -> Any:
        return jax.eval_shape(reset, jnp.uint32(0))[0]

    def begin(seed: jax.Array) -> tuple[Any, ...]:
        state, observation = reset(seed)
        total = jnp.zeros(task.step_descriptor_size, dtype)
        return (unwrap_keys(state), jnp.float32(0), total, jnp.int32(0)), observation.astype(jnp.float32)

    def advance(before: Any, action: jax.Array) -> tuple[Any, ...]:
        plain, fitness, total, length = before
        after = task.step(wrap_keys(plain, find_state_types()), action)
        check_descriptor(task, after.descriptor.shape, after.descriptor.dtype)
        reward, observation = after.reward.astype(jnp.float32), after.observation.astype(jnp.float32)
        step_descriptor = after.descriptor.astype(dtype)
        numbers = [reward[None], action, observation, *([step_descriptor] if dtype == jnp.float32 else [])]
        finite = jnp.isfinite(jnp.concatenate(numbers)).all()
        fitness, total, length = fitness + reward, total + step_descriptor, length + 1
        episode_descriptor, episode_descriptor_finite = total / length, jnp.bool_(True)
        if task.describes_episodes:
            episode_descriptor = task.episode_descriptor(episode_descriptor, after.state)
            check_episode_descriptor(task, episode_descriptor.shape)
            episode_descriptor_finite = jnp.isfinite(episode_descriptor).all()
        return (
            (unwrap_keys(after.state), fitness, total, length),
            observation,
            (reward, fitness),
            step_descriptor,
            episode_descriptor.astype(jnp.float32),
            (after.terminated | ~finite, finite, episode_descriptor_finite),
        )

    def act(outputs: jax.Array, noise_inputs: Any, *, noisy: bool) -> tuple[jax.Array]:
        action = jnp.tanh(outputs)
        if noisy:
            seed, step, spread = noise_inputs
            action = jnp.clip(action + spread * draw_step_noise(seed, step, task.action_size), -1, 1)
        return (action,)

    numbers, seed = (
        jax.ShapeDtypeStruct((task.action_size,), jnp.float32),
        jax.ShapeDtypeStruct((), jnp.uint32),
    )
    noise_inputs = seed, jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32)

    def example_state() -> Any:
        return jax.eval_shape(begin, seed)[0]

    @functools.cache
    def make_act(noisy: bool) -> CompiledFunction:
        function = functools.partial(act, noisy=noisy)
        return compile_function(
            function, numbers, noise_inputs, lanes=lanes, cache_name=make_cache_name(f"act, noisy {noisy},")
        )

    return Programs(
        compile_function(begin, seed, lanes=lanes, cache_name=make_cache_name("reset")),
        compile_function(
            advance,
            example_state,
            numbers,
            lanes=lanes,
            state=True,
            fused=True,
            cache_name=make_cache_name("step"),
        ),
        make_act,
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def unwrap_keys(state: Any) -> Any:
    """A state with the words of its random keys."""
    arrays = jax.tree.map(jnp.asarray, state)
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, arrays)


def wrap_keys(plain: Any, kinds: Any) -> Any:
    """The inverse of `unwrap_keys`; `kinds` are the types of the state's arrays."""
    return jax.tree.map(
        lambda kind, leaf: (
            jax.random.wrap_key_data(leaf, impl=kind.dtype._impl.name) if _is_key(kind) else leaf
        ),
        kinds,
        plain,
    )


class NativeEvaluator(Evaluator):
    """Runs batches of controllers on a task that is pure JAX, in threads."""

    def __init__(
        self,
        task: DeviceTask,
        *,
        hidden: tuple[int, ...] = HIDDEN,
        threads: int | None = None,
        lanes: int | None = None,
    ) -> None:
        """`hidden` are the sizes of the hidden layers; there is one thread per core by default.

        `lanes` is the number of robots that a thread simulates side by side. By default they fill a vector
        register. Raises UnknownPrimitiveError, with the operation's name, if an operation of the task cannot
        be compiled.
        """
        threads = choose_thread_count(threads)
        super().__init__(task, task.controller_sizes(hidden))
        self._programs = make_programs(task, lanes)
        self._perceptron = Perceptron(self.sizes, self._programs.step.lanes)
        places = np.array(self._perceptron.layout)
        self._layout = episodes.Layout(
            np.array(self.sizes),
            np.array(self._perceptron.padded),
            places[:-1, 0].copy(),
            places[:-1, 1].copy(),
            np.array(self._programs.step.stored_positions, np.int64),
        )
        self._blocks = [self._block() for _ in range(threads)]
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="episodes")
        self._stop = np.zeros(1, np.uint8)

    def _block(self) -> episodes.Block:
        """Memory for a thread."""
        reset, step = self._programs.reset, self._programs.step
        width = step.lanes
        real = np.dtype(self.task.step_descriptor_dtype).kind == "f"
        (seeds,), (initial_states, initial_observations) = (
            [array[0] for array in group] for group in reset.buffers(1)
        )
        (state, action), (_, observation, reward_and_fitness, step_descriptor, episode_descriptor, flags) = (
            [array[0] for array in group] for group in step.buffers(1)
        )
        return episodes.Block(
            seeds=seeds,
            initial_states=initial_states,
            initial_observations=initial_observations.view(np.float32),
            state=state,
            observation=observation.view(np.float32),
            outputs=allocate_aligned((self.task.action_size, width)).view(np.float32),
            noise_inputs=allocate_aligned((3, width)),
            action=action.view(np.float32),
            reward_and_fitness=reward_and_fitness.view(np.float32),
            step_descriptor=step_descriptor.view(np.float32 if real else np.int32),
            episode_descriptor=episode_descriptor.view(np.float32),
            flags=flags,
            weights=allocate_aligned((width, self._perceptron.numbers)).view(np.float32),
            controllers=np.zeros(width, np.int64),
            dense=np.zeros(width, np.int64),
            slot=np.zeros(width, np.int64),
            episode=np.zeros(width, np.int64),
            length=np.zeros(width, np.int64),
        )

    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        code, batch = self._code(noise > 0), self._batch(parameters, evaluation)
        counter = np.zeros(1, np.int64)
        self._stop[0] = 0
        threads, steps = len(self._blocks), self.task.episode_length
        for block in self._blocks:
            block.noise_inputs[2].view(np.float32)[:] = noise
        workers = [
            self._executor.submit(
                episodes.run, code, self._layout, block, batch, steps, total, threads, counter, self._stop
            )
            for block in self._blocks
        ]
        try:
            _report(workers, batch, on_episode)
        finally:
            self._stop[0] = 1
            wait(workers)
        return evaluation

    def _code(self, noisy: bool) -> episodes.Code:
        programs = self._programs
        return episodes.Code(
            programs.reset.address,
            programs.act(noisy).address,
            programs.step.address,
            self._perceptron.address,
        )

    def _batch(self, parameters: np.ndarray, evaluation: Evaluation[np.ndarray]) -> episodes.Batch:
        """The arrays of an evaluation, with one row per episode."""
        rows = flatten_episodes(evaluation)
        recorded = rows.transitions or blank_evaluation(self.task, np.zeros(0), True).recorded
        return episodes.Batch(parameters, *rows[:5], *recorded)

    def close(self) -> None:
        """Ends the threads and frees their memory."""
        super().close()
        self._executor.shutdown()
        self._blocks.clear()


def _report(
    workers: list[Future[None]], batch: episodes.Batch, on_episode: Callable[[int], None] | None
) -> None:
    """Waits for all episodes, and reports each one when it has ended."""
    reported = np.zeros(len(batch.endings), bool)
    running: Any = workers
    while running:
        done, running = wait(running, timeout=None if on_episode is None else REPORT_SECONDS)
        for worker in done:
            worker.result()
        if on_episode is not None:
            new = (batch.endings != Ending.SKIPPED) & ~reported
            reported |= new
            for length in batch.lengths[new]:
                on_episode(int(length))
