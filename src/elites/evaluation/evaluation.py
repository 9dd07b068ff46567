"""The interface of all evaluators, and the result of a batch of episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from elites.errors import ElitesError
from elites.options import Spread, convert_value
from elites.policies.layout import Array, parameter_count
from elites.tasks.episode import Ending, Transitions
from elites.tasks.task import Task


class Evaluation(NamedTuple, Generic[Array]):
    """The results of a batch of episodes. All arrays begin with the shape of the seeds.

    Evaluators return `Evaluation[np.ndarray]`; inside a program it is `Evaluation[jax.Array]`.
    """

    seed: Array  # uint32
    fitness: (
        Array  # float32; tasks outside JAX sum rewards in float64 and round once, tasks in JAX sum in float32
    )
    descriptor: Array  # float32 […, descriptor_size]
    length: Array  # int32, steps
    ending: Array  # uint8, an Ending
    transitions: Transitions[Array] | None

    @property
    def recorded(self) -> Transitions[Array]:
        """The transitions of an evaluation that recorded them."""
        assert self.transitions is not None
        return self.transitions

    @property
    def invalid(self) -> int:
        """The number of episodes that gave NaN and must stay out of any archive."""
        return int(np.count_nonzero(self.ending == Ending.INVALID))


def blank_evaluation(task: Task, seeds: np.ndarray, transitions: bool) -> Evaluation[np.ndarray]:
    """An evaluation to fill in: no episode has been run yet.

    Transitions are zeros: pages that no episode writes take no memory.
    """
    steps, shape = task.episode_length, seeds.shape
    return Evaluation(
        seed=seeds.astype(np.uint32),
        fitness=np.full(shape, np.nan, np.float32),
        descriptor=np.full((*shape, task.descriptor_size), np.nan, np.float32),
        length=np.zeros(shape, np.int32),
        ending=np.full(shape, Ending.SKIPPED, np.uint8),
        transitions=Transitions(
            observations=np.zeros((*shape, steps + 1, task.observation_size), np.float32),
            actions=np.zeros((*shape, steps, task.action_size), np.float32),
            rewards=np.zeros((*shape, steps)),
            step_descriptors=np.zeros((*shape, steps, task.step_descriptor_size), task.step_descriptor_dtype),
        )
        if transitions
        else None,
    )


def flatten_episodes(evaluation: Evaluation[np.ndarray]) -> Evaluation[np.ndarray]:
    """Views of the arrays of an evaluation with one leading axis, over all episodes."""
    seeds, steps = evaluation.seed, evaluation.transitions

    def view(array: np.ndarray) -> np.ndarray:
        return array.reshape(seeds.size, *array.shape[seeds.ndim :])

    return Evaluation(
        seed=view(seeds),
        fitness=view(evaluation.fitness),
        descriptor=view(evaluation.descriptor),
        length=view(evaluation.length),
        ending=view(evaluation.ending),
        transitions=steps and Transitions(*map(view, steps)),
    )


class Evaluator(ABC):
    """Runs batches of controllers on one task.

    A result depends only on the task, the controller and the seed. Exception: under XLA or CUDA, rounding
    also depends on the batch, and physics amplifies such differences.
    """

    def __init__(self, task: Task, sizes: tuple[int, ...]) -> None:
        """`sizes` are those of the controllers' layers."""
        self.task, self.sizes = task, sizes
        self.parameter_count = parameter_count(sizes)
        self._open = True

    def evaluate(
        self,
        parameters: ArrayLike,
        seeds: ArrayLike,
        *,
        transitions: bool = False,
        action_noise: float = 0.0,
        limit: int | None = None,
        on_episode: Callable[[int], None] | None = None,
    ) -> Evaluation[np.ndarray]:
        """Runs an episode for each seed.

        Args:
            parameters: `[n, P]`, one flat controller per row.
            seeds: whole numbers from 0, `[n]` for one episode per controller or `[n, m]` for m episodes.
            transitions: whether to record every step.
            action_noise: standard deviation of the Gaussian noise on every action; noisy actions are clipped
                to ±1. The noise depends only on the episode's seed and the step. Functions of vectors ignore
                it.
            limit: the number of episodes to run, row by row; the others count as skipped, with NaN fitness.
            on_episode: called in the calling thread with the steps of each episode that has ended.

        An interrupt ends episodes on threads and in processes at their next step.
        """
        if not self._open:
            raise ElitesError("the evaluator is closed")
        genomes = np.ascontiguousarray(parameters, np.float32).view()
        # read-only like JAX's arrays, so that Numba compiles for one type only
        genomes.flags.writeable = False
        if genomes.ndim != 2 or genomes.shape[1] != self.parameter_count:
            layers = f" with layers {self.sizes}" if self.sizes else ""
            raise ElitesError(
                f"parameters have shape {genomes.shape}; {self.task.name}{layers} takes "
                f"(n, {self.parameter_count})"
            )
        given, count = np.asarray(seeds), len(genomes)
        in_range = given.size == 0 or 0 <= given.min() <= given.max() < 2**32
        if not np.issubdtype(given.dtype, np.integer) or not in_range:
            raise ElitesError(f"seeds are {given}; they must be whole numbers from 0 to 2**32 - 1")
        if given.ndim not in (1, 2) or len(given) != count:
            raise ElitesError(
                f"seeds have shape {given.shape}; with {count} rows of parameters it must be "
                f"({count},) or ({count}, episodes)"
            )
        noise = convert_value(Spread, "action_noise", action_noise)
        total = given.size if limit is None else min(max(limit, 0), given.size)
        blank = blank_evaluation(self.task, given, transitions)
        return self._run(genomes, blank, total, noise, on_episode) if total else blank

    @abstractmethod
    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        """Runs the first `total` episodes of a blank evaluation. Returns it filled in.

        The arguments have been checked: compiled code checks nothing.
        """

    def controllers_per_call(self, episodes: int) -> int | None:
        """The best number of controllers per call, with `episodes` each; None if any number is fine."""
        return None

    def close(self) -> None:
        """Frees threads, processes and simulators."""
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
