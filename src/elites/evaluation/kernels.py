"""Episodes of tasks that are pure JAX on a GPU, with one kernel for a step of all robots.

The rest of an episode, policy and bookkeeping, is that of `rollout` in `device.py`, under XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from elites.cache import keep_in_process
from elites.evaluation.device import BatchFunctions, check_descriptor
from elites.evaluation.native import unwrap_keys, wrap_keys
from elites.native.cuda import THREADS, Driver, Kernel, compile_kernel, find_jax_driver
from elites.tasks.task import DeviceTask, StepResult


def make_step(task: DeviceTask) -> tuple[Callable[..., Any], Any, Any]:
    """A task's step as a function that can be compiled, with examples of a state and an action.

    It returns the state, observation, reward, whether the episode ends, and the step's descriptor.
    """
    kinds = jax.eval_shape(task.reset, jnp.uint32(0))[0]

    def step(plain: Any, action: jax.Array) -> tuple[Any, ...]:
        after = task.step(wrap_keys(plain, kinds), action)
        check_descriptor(task, after.descriptor.shape, after.descriptor.dtype)
        numbers = after.observation.astype(jnp.float32), after.reward.astype(jnp.float32)
        return unwrap_keys(after.state), *numbers, after.terminated, after.descriptor

    state = jax.eval_shape(lambda: unwrap_keys(task.reset(jnp.uint32(0))[0]))
    return step, state, jax.ShapeDtypeStruct((task.action_size,), jnp.float32)


@keep_in_process(max_results=8)
def make_kernel(task: DeviceTask, driver: Driver, *, threads: int = THREADS, exact: bool = False) -> Kernel:
    """A task's step, with the results of `make_step`."""
    return compile_kernel(
        *make_step(task), driver=driver, whole=task.describes_episodes, threads=threads, exact=exact
    )


def make_kernel_functions(
    task: DeviceTask, driver: Driver | None = None, *, threads: int = THREADS, exact: bool = False
) -> BatchFunctions:
    """A task's functions for `rollout`: the step is a kernel of `threads` robots per block.

    Raises UnknownPrimitiveError, with the operation's name, if an operation of the step cannot be compiled.
    The default driver is that of JAX's GPU. `exact` is as in `elites.native.cuda.compile_ptx`.
    """
    kernel = make_kernel(task, driver or find_jax_driver(), threads=threads, exact=exact)
    kinds = jax.eval_shape(task.reset, jnp.uint32(0))[0]
    described = kernel.results[4][0]

    def reset(seeds: jax.Array) -> tuple[jax.Array, jax.Array]:
        states, observation = jax.vmap(task.reset)(seeds)
        return kernel.pack(jax.vmap(unwrap_keys)(states)), observation.astype(jnp.float32)

    def step(states: jax.Array, actions: jax.Array) -> StepResult:
        states, observation, reward, terminated, descriptor = kernel(states, actions)
        return StepResult(
            states, observation, reward[:, 0], terminated[:, 0] != 0, descriptor.astype(described.dtype)
        )

    def episode_descriptor(mean: jax.Array, states: jax.Array) -> jax.Array:
        whole = jax.tree.unflatten(jax.tree.structure(kinds), kernel.unpack(states))
        return jax.vmap(lambda mean, plain: task.episode_descriptor(mean, wrap_keys(plain, kinds)))(
            mean, whole
        )

    return BatchFunctions(reset, step, episode_descriptor, axis=1)
