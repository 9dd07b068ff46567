"""Deep-grid: M. Flageat and A. Cully, "Fast and stable MAP-Elites in noisy domains using deep grids",
2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from elites.algorithms.base import (
    Algorithm,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    make_solutions,
    mark_skipped,
    random_rounds,
    zero_progress,
)
from elites.algorithms.map_elites import MAPElitesConfig, make_ga
from elites.archives import deep_grid
from elites.archives.archive import Archive
from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluation
from elites.memory import available_bytes
from elites.options import Count
from elites.tasks.task import Task
from elites.variation.selection import select_by_fitness


@dataclass(frozen=True, kw_only=True)
class DeepGridConfig(MAPElitesConfig):
    """MAP-Elites with several members per cell; a full cell loses one of them at random."""

    depth: Count = 50
    """Members per cell (D)."""
    keep_members: bool = False
    """Whether all members are saved at the end, for `elites correct --redraw`."""

    def shortest_opening(self) -> dict[str, Any]:
        """See `AlgorithmConfig.shortest_opening`."""
        return {**super().shortest_opening(), "depth": 2}


class State(NamedTuple):
    """The state of Deep-grid."""

    grid: deep_grid.DeepGridArchive
    progress: Progress


class DeepGrid(Algorithm):
    """All offspring are accepted; full cells lose a random member. Better members are parents more often."""

    Config = DeepGridConfig
    operators = ("random", "ga")
    has_members = True

    def __init__(self, task: Task, config: DeepGridConfig | None = None) -> None:
        super().__init__(task, config)
        config = self.config
        self.members_per_cell = config.depth
        self.ga = make_ga(config, self.genome, select_by_fitness)
        self.opening = random_rounds(config.initial, config.batch)
        self.generation = (Round("offspring", config.batch),)
        needed, free = deep_grid.size_in_bytes(*self._shape()), available_bytes()
        if needed > free:
            fits = config.depth * free // needed
            raise ElitesError(
                f"depth {config.depth} takes {needed / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free; "
                f"depth {fits} fits"
            )

    @classmethod
    def keeps_members(cls, config: DeepGridConfig) -> bool:
        """See `Algorithm.keeps_members`."""
        return config.keep_members

    def _shape(self) -> tuple[int, int, int, int]:
        depth, parameters = self.config.depth, self.genome.parameter_count
        return len(self.cells.centroids), depth, parameters, self.task.descriptor_size

    def init(self, key: jax.Array) -> State:
        """An empty grid."""
        return State(deep_grid.empty_deep_grid(*self._shape()), zero_progress())

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random controllers first, then offspring of the GA."""
        if round.name == "random":
            return state, self.make_random_batch(key, round.policies)
        variation_key = jax.random.fold_in(key, RandomStream.GA)
        return state, self.make_batch(ga=self.ga(state.grid, variation_key, round.policies))

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Adds the batch to the grid."""
        offspring = make_solutions(batch, evaluation, state.progress)
        cells = self.cells.assign(offspring.descriptor)
        eviction_key = jax.random.fold_in(key, RandomStream.EVICTION)
        grid, status = deep_grid.insert(state.grid, cells, offspring, eviction_key)
        return State(grid, advance(state.progress, evaluation)), mark_skipped(evaluation, status)

    def archive(self, state: State) -> Archive:
        """The best member of each cell."""
        return deep_grid.select_best(state.grid)

    def members(self, state: State) -> deep_grid.DeepGridArchive:
        """The whole grid."""
        return state.grid
