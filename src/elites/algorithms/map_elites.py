"""MAP-Elites: J.-B. Mouret and J. Clune, "Illuminating search spaces by mapping elites", 2015.

With the directional variation of V. Vassiliades and J.-B. Mouret, "Discovering the elite hypervolume by
leveraging interspecies correlation", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax

from elites.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    random_rounds,
    zero_progress,
)
from elites.archives.archive import Archive
from elites.evaluation.evaluation import Evaluation
from elites.genomes import Genome
from elites.options import Count, Spread
from elites.tasks.task import Task
from elites.variation.isoline import IsoLine
from elites.variation.selection import Selection, select_uniformly


@dataclass(frozen=True, kw_only=True)
class MAPElitesConfig(AlgorithmConfig):
    """MAP-Elites with the directional GA variation."""

    initial: Count = 500
    """Random controllers evaluated first (I)."""
    batch: Count = 100
    """Offspring per generation (b)."""
    sigma1: Spread = 0.005
    """Spread of the GA variation in all directions (σ1)."""
    sigma2: Spread = 0.05
    """Spread of the GA variation along the line between the parents (σ2)."""
    line_draw: Literal["offspring", "tensor"] = "offspring"
    """Random numbers along the line between the parents: one per offspring, or one per weight and bias
    tensor."""

    def shortest_opening(self) -> dict[str, Any]:
        """See `AlgorithmConfig.shortest_opening`."""
        return {"initial": self.batch}


def make_ga(config: MAPElitesConfig, genome: Genome, select: Selection = select_uniformly) -> IsoLine:
    """The GA variation."""
    tensors = genome.tensors if config.line_draw == "tensor" else ()
    return IsoLine(config.sigma1, config.sigma2, tensors, select)


class State(NamedTuple):
    """The state of MAP-Elites."""

    archive: Archive
    progress: Progress


class MAPElites(Algorithm):
    """Elites are drawn uniformly, varied, evaluated, and added where they are new or better."""

    Config = MAPElitesConfig
    operators = ("random", "ga")

    def __init__(self, task: Task, config: MAPElitesConfig | None = None) -> None:
        super().__init__(task, config)
        self.ga = make_ga(self.config, self.genome)
        self.opening = random_rounds(self.config.initial, self.config.batch)
        self.generation = (Round("offspring", self.config.batch),)

    def init(self, key: jax.Array) -> State:
        """An empty archive."""
        return State(self.empty_archive(), zero_progress())

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random controllers first, then offspring of the GA."""
        if round.name == "random":
            return state, self.make_random_batch(key, round.policies)
        variation_key = jax.random.fold_in(key, RandomStream.GA)
        return state, self.make_batch(ga=self.ga(state.archive, variation_key, round.policies))

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Adds the batch to the archive."""
        archive, status = self.insert(state.archive, batch, evaluation, state.progress)
        return State(archive, advance(state.progress, evaluation)), status
