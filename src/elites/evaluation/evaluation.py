"""The interface of all evaluators, and the result of a batch of episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from elites.tasks.episode import Array, Ending, Transitions
from elites.tasks.task import Task


class Evaluation(NamedTuple, Generic[Array]):
    """The results of a batch of episodes. All arrays begin with the shape of the seeds.

    Evaluators return `Evaluation[np.ndarray]`; inside a program it is `Evaluation[jax.Array]`.
    """

    seed: Array  # uint32
    fitness: Array  # float32; on the host, rewards are summed in float64 and the sum is rounded once
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


class Evaluator(ABC):
    """Runs batches of controllers on one task. A result depends on task, controller and seed alone.

    On the device, rounding also depends on the batch, and physics amplifies such differences.
    """

    @abstractmethod
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
            action_noise: standard deviation of Gaussian noise that is added to every action, within ±1. It is
                a function of the episode's seed and the step. A function of vectors has no actions.
            limit: the number of episodes to run, row by row; the others count as skipped, with NaN fitness.
            on_episode: called in the calling thread with the steps of each episode that has ended.
        """

    def controllers_per_call(self, episodes: int) -> int | None:
        """The best number of controllers per call, with `episodes` each; None if any number is fine."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Frees threads, processes and simulators."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
