"""What an evaluator takes and gives back, whichever way it runs the episodes."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from elites.tasks.task import Task


class Ending(IntEnum):
    """How an episode ended."""

    TERMINATED = 0  # the task ended it: the robot fell
    TRUNCATED = 1  # it reached the time limit: learning bootstraps from the last observation
    INVALID = 2  # the controller gave NaN, or the simulation did: fitness and descriptor are NaN
    SKIPPED = 3  # it was never run: the budget was spent


class Transitions(NamedTuple):
    """Every step of some episodes, `[…, T, …]`; rows from an episode's length on are zero.

    Step t goes from `observations[t]` by `actions[t]` to `observations[t + 1]`.
    """

    observations: np.ndarray  # float32 […, T + 1, observation_size]
    actions: np.ndarray  # float32 […, T, action_size]
    rewards: np.ndarray  # float64 […, T]
    contacts: np.ndarray  # […, T, step_descriptor_size] of the task's step_kind: what describes each step


class Outcome(NamedTuple):
    """What one episode came to."""

    fitness: float
    descriptor: np.ndarray
    length: int
    ending: int


class Evaluation(NamedTuple):
    """What a batch of episodes came to. All arrays begin with the shape of the seeds."""

    seed: np.ndarray  # uint32
    fitness: np.ndarray  # float32; where the episode runs on the host, summed in float64 and rounded once
    descriptor: np.ndarray  # float32 […, descriptor_size]
    length: np.ndarray  # int32, steps
    ending: np.ndarray  # uint8, an Ending
    transitions: Transitions | None

    @property
    def invalid(self) -> int:
        """How many episodes gave NaN and must stay out of any archive."""
        return int(np.count_nonzero(self.ending == Ending.INVALID))


def blank_evaluation(task: Task, seeds: np.ndarray, transitions: bool) -> Evaluation:
    """To be filled in: nothing has been run yet.

    Transitions are zeros: pages that no episode reaches are never touched, so they take no memory.
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
            contacts=np.zeros((*shape, steps, task.step_descriptor_size), task.step_kind),
        )
        if transitions
        else None,
    )


class Evaluator(Protocol):
    """Runs batches of controllers on one task. A result depends on task, controller and seed alone.

    On the device that holds but for rounding, which differs from batch to batch and which physics blows up.
    """

    def evaluate(
        self,
        parameters: ArrayLike,
        seeds: ArrayLike,
        *,
        transitions: bool = False,
        limit: int | None = None,
        on_episode: Callable[[int], None] | None = None,
    ) -> Evaluation:
        """Runs an episode for each seed.

        Args:
            parameters: `[n, P]`, a flat controller a row.
            seeds: whole numbers from 0, `[n]` for one episode a controller or `[n, m]` for m episodes.
            transitions: whether to record every step.
            limit: how many episodes to run, row by row; the others count as skipped, with NaN fitness.
            on_episode: called in the calling thread with the steps of each episode that has ended.
        """

    def at_once(self, episodes: int) -> int | None:
        """How many controllers, with so many episodes each, a call should have; None if it matters not."""

    def close(self) -> None:
        """Frees threads, processes and simulators."""
