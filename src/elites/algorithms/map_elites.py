"""MAP-Elites: J.-B. Mouret and J. Clune, "Illuminating search spaces by mapping elites", 2015.

With the directional variation of V. Vassiliades and J.-B. Mouret, "Discovering the elite hypervolume by
leveraging interspecies correlation", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from elites.algorithms.algorithm import (
    Batch,
    Progress,
    Round,
    Stream,
    advance,
    ga_offspring,
    random_controllers,
    rounds_of_random,
    skipped,
    solutions,
    start,
)
from elites.archives.archive import Archive, empty_archive, insert
from elites.archives.cells import make_cells
from elites.errors import require
from elites.evaluation.evaluation import Evaluation
from elites.policies import Policy
from elites.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MAPElitesConfig:
    """MAP-Elites with the directional GA variation."""

    initial: int = 500
    """Random controllers evaluated first (I)."""
    batch: int = 100
    """Offspring per generation (b)."""
    sigma1: float = 0.005
    """Spread of the GA variation in all directions (σ1)."""
    sigma2: float = 0.05
    """Spread of the GA variation along the line between the parents (σ2)."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden units of the controllers."""
    archive: Literal["cvt", "grid"] = "cvt"
    """How descriptor space is cut into cells."""

    def __post_init__(self) -> None:
        require(self.initial >= 1, "initial", self.initial, "at least 1")
        require(self.batch >= 1, "batch", self.batch, "at least 1")
        require(self.sigma1 >= 0, "sigma1", self.sigma1, "at least 0")
        require(self.sigma2 >= 0, "sigma2", self.sigma2, "at least 0")
        require(all(width >= 1 for width in self.hidden), "hidden", self.hidden, "widths of at least 1")


class State(NamedTuple):
    """All that MAP-Elites knows."""

    archive: Archive
    progress: Progress


class MAPElites:
    """Elites are drawn uniformly, varied, evaluated, and added where they are new or better."""

    operators = ("random", "ga")

    def __init__(self, task: Task, config: MAPElitesConfig | None = None) -> None:
        self.task = task
        self.config = config = config or MAPElitesConfig()
        self.policy = Policy.of(task, config.hidden)
        self.cells = make_cells(task, config.archive)
        self.opening = rounds_of_random(config.initial, config.batch)
        self.generation = (Round("offspring", config.batch),)

    def init(self, key: jax.Array) -> State:
        """An empty archive."""
        cells = len(self.cells.centroids)
        return State(empty_archive(cells, self.policy.parameter_count, self.task.descriptor_size), start())

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random controllers first, then offspring of the GA."""
        if round.name == "random":
            drawing = jax.random.fold_in(key, Stream.RANDOM)
            return state, random_controllers(self.policy, drawing, round.policies, operator=0)
        varying = jax.random.fold_in(key, Stream.GA)
        return state, ga_offspring(
            state.archive, varying, round.policies, 1, self.config.sigma1, self.config.sigma2
        )

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[State, jax.Array]:
        """Adds the batch to the archive."""
        offspring = solutions(batch, evaluation, state.progress)
        archive, status = insert(state.archive, self.cells.of(offspring.descriptor), offspring)
        return State(archive, advance(state.progress, evaluation)), skipped(evaluation, status)

    def archive(self, state: State) -> Archive:
        """The collection so far."""
        return state.archive

    def gradient_steps(self, state: State) -> jax.Array:
        """None."""
        return jnp.zeros((), jnp.int32)
