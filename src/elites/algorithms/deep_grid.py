"""Deep-grid: M. Flageat and A. Cully, "Fast and stable MAP-Elites in noisy domains using deep grids",
2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.algorithms.algorithm import (
    Batch,
    Progress,
    Round,
    Stream,
    advance,
    random_controllers,
    rounds_of_random,
    skipped,
    solutions,
    start,
)
from elites.algorithms.map_elites import MAPElitesConfig
from elites.archives import deep_grid
from elites.archives.archive import Archive
from elites.archives.cells import make_cells
from elites.errors import ElitesError, require
from elites.evaluation.evaluation import Evaluation
from elites.memory import available_bytes
from elites.policies import Policy
from elites.tasks.task import Task
from elites.variation import isoline


@dataclass(frozen=True, kw_only=True)
class DeepGridConfig(MAPElitesConfig):
    """MAP-Elites with several members per cell; a full cell loses one of them at random."""

    depth: int = 50
    """Members per cell (D)."""
    keep_members: bool = False
    """Whether all members are saved at the end, for `elites correct --redraw`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.depth >= 1, "depth", self.depth, "at least 1")


class State(NamedTuple):
    """All that Deep-grid knows."""

    grid: deep_grid.DeepGrid
    progress: Progress


class DeepGrid:
    """An offspring is always accepted, a full cell loses a random member; the good are parents more often."""

    operators = ("random", "ga")

    def __init__(self, task: Task, config: DeepGridConfig | None = None) -> None:
        self.task = task
        self.config = config = config or DeepGridConfig()
        self.policy = Policy.of(task, config.hidden)
        self.cells = make_cells(task, config.archive)
        self.opening = rounds_of_random(config.initial, config.batch)
        self.generation = (Round("offspring", config.batch),)
        needed, there = deep_grid.size_in_bytes(*self._shape()), available_bytes()
        if needed > there:
            fits = config.depth * there // needed
            raise ElitesError(
                f"depth {config.depth} takes {needed / 1e9:.1f} GB and {there / 1e9:.1f} GB are free; "
                f"depth {fits} fits"
            )

    def _shape(self) -> tuple[int, int, int, int]:
        depth, parameters = self.config.depth, self.policy.parameter_count
        return len(self.cells.centroids), depth, parameters, self.task.descriptor_size

    def init(self, key: jax.Array) -> State:
        """An empty grid."""
        return State(deep_grid.empty_deep_grid(*self._shape()), start())

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random controllers first, then offspring of the GA."""
        if round.name == "random":
            drawing = jax.random.fold_in(key, Stream.RANDOM)
            return state, random_controllers(self.policy, drawing, round.policies, operator=0)
        selecting, varying = jax.random.split(jax.random.fold_in(key, Stream.GA))
        cells, slots = deep_grid.select(state.grid, selecting, 2 * round.policies)
        members, pairs = state.grid.members, (2, round.policies)
        first, second = members.parameters[cells, slots].reshape(*pairs, -1)
        return state, Batch(
            isoline.vary(varying, first, second, self.config.sigma1, self.config.sigma2),
            jnp.full(round.policies, 1, jnp.int32),
            members.origin.evaluation[cells, slots].reshape(pairs).T,
        )

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[State, jax.Array]:
        """Adds the batch to the grid."""
        offspring = solutions(batch, evaluation, state.progress)
        cells = self.cells.of(offspring.descriptor)
        evicting = jax.random.fold_in(key, Stream.EVICTION)
        grid, status = deep_grid.insert(state.grid, cells, offspring, evicting)
        return State(grid, advance(state.progress, evaluation)), skipped(evaluation, status)

    def archive(self, state: State) -> Archive:
        """The best member of each cell."""
        return deep_grid.best(state.grid)

    def gradient_steps(self, state: State) -> jax.Array:
        """None."""
        return jnp.zeros((), jnp.int32)
