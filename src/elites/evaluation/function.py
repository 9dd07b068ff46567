"""Evaluation of a function of a batch: no episodes, no steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError, describe_error
from elites.evaluation.evaluation import Evaluation, Evaluator, flatten_episodes
from elites.tasks.episode import Ending
from elites.tasks.function import FunctionTask


def evaluate_function(
    task: FunctionTask, parameters: jax.Array, seeds: jax.Array, enabled: jax.Array
) -> Evaluation[jax.Array]:
    """Fitness and descriptor of vectors `[n, P]` for each seed, `[n]` or `[n, m]`. To be jitted.

    `enabled` has the shape of the seeds; where it is false, the episode is skipped.
    """
    shape = seeds.shape
    vectors = jnp.repeat(parameters, seeds.size // len(parameters), axis=0)
    fitness, descriptor = task(vectors, *((seeds.reshape(-1),) * task.takes_seeds))
    fitness, descriptor = jnp.asarray(fitness, jnp.float32), jnp.asarray(descriptor, jnp.float32)
    _check_shapes(task, seeds.size, fitness.shape, descriptor.shape)
    finite = jnp.isfinite(fitness) & jnp.isfinite(descriptor).all(-1)
    ending = jnp.where(finite, jnp.uint8(Ending.TERMINATED), jnp.uint8(Ending.INVALID))
    ending = jnp.where(enabled.reshape(-1), ending, jnp.uint8(Ending.SKIPPED))
    valid = ending == Ending.TERMINATED
    return Evaluation(
        seed=seeds,
        fitness=jnp.where(valid, fitness, jnp.nan).reshape(shape),
        descriptor=jnp.where(valid[:, None], descriptor, jnp.nan).reshape(*shape, -1),
        length=enabled.astype(jnp.int32),
        ending=ending.reshape(shape),
        transitions=None,
    )


class FunctionEvaluator(Evaluator):
    """Calls a function of a batch; JAX compiles it if it can."""

    task: FunctionTask

    def __init__(self, task: FunctionTask) -> None:
        super().__init__(task, ())
        self.parameter_count = task.parameters
        self._function: Callable[..., Any] = jax.jit(task.function) if task.is_jax else task.function

    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        """See `Evaluator._run`. The function is evaluated once for each seed."""
        if evaluation.transitions is not None:
            raise ElitesError(f"{self.task.name} is a function: it has no transitions")
        rows = flatten_episodes(evaluation)
        vectors = np.repeat(parameters, len(rows.seed) // len(parameters), axis=0)[:total]
        try:
            fitness, descriptor = (
                np.asarray(array, np.float32)
                for array in self._function(vectors, *((rows.seed[:total].copy(),) * self.task.takes_seeds))
            )
        except (Exception, SystemExit) as error:
            raise ElitesError(f"{self.task.name} failed: {describe_error(error)}") from error
        _check_shapes(self.task, total, fitness.shape, descriptor.shape)
        valid = np.isfinite(fitness) & np.isfinite(descriptor).all(-1)
        rows.fitness[:total] = np.where(valid, fitness, np.nan)
        rows.descriptor[:total] = np.where(valid[:, None], descriptor, np.nan)
        rows.length[:total] = 1
        rows.ending[:total] = np.where(valid, Ending.TERMINATED, Ending.INVALID)
        if on_episode is not None:
            for _ in range(total):
                on_episode(1)
        return evaluation


def _check_shapes(
    task: FunctionTask, count: int, fitness: tuple[int, ...], descriptor: tuple[int, ...]
) -> None:
    if fitness != (count,) or descriptor != (count, task.descriptor_size):
        raise ElitesError(
            f"{task.name} returned fitness {list(fitness)} and descriptors {list(descriptor)} for {count} "
            f"vectors; they must be [{count}] and [{count}, {task.descriptor_size}]"
        )
