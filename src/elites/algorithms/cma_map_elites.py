"""CMA-MAP-Elites: M. C. Fontaine, J. Togelius, S. Nikolaidis and A. K. Hoover, "Covariance matrix adaptation
for the rapid illumination of behavior space", 2020.

The emitters are improvement emitters, as in the paper on PGA-MAP-Elites. With its 20 000 parameters and 20
samples per strategy, the learning rates of a full covariance, c1 + cμ, are 3 to 5·10^-8: in 10^4 generations
the covariance changes by less than 10^-3. The paper's strategies were therefore practically isotropic, which
is the default here, in pure JAX. The strategies that adapt a covariance are those of pyribs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, get_args

import jax
import jax.numpy as jnp

from elites.algorithms.base import (
    START,
    Algorithm,
    AlgorithmConfig,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    make_solutions,
    mark_skipped,
    zero_progress,
)
from elites.archives.archive import Archive, insert
from elites.errors import ElitesError, require
from elites.evaluation.evaluation import Evaluation
from elites.memory import available_bytes
from elites.options import Range, Rate
from elites.tasks.task import Task
from elites.variation.covariance import Kind, make_strategies, size_in_bytes
from elites.variation.improvement import compute_improvement, rank_samples
from elites.variation.isotropic import Arrays
from elites.variation.offspring import without_parents


@dataclass(frozen=True, kw_only=True)
class CMAMAPElitesConfig(AlgorithmConfig):
    """Evolution strategies that adapt to what improves the archive."""

    emitters: Annotated[int, Range(1, 10_000)] = 5
    """Number of evolution strategies."""
    emitter_batch: Annotated[int, Range(2, 1_000_000)] = 20
    """Offspring per emitter and generation."""
    es: Kind = "isotropic"
    """Covariance: isotropic (the identity; only the step size adapts), full (n² entries), separable (its
    diagonal) or limited-memory (a few vectors)."""
    sigma0: Rate = 0.5
    """Initial step size (σ0)."""


class State(NamedTuple):
    """The state of CMA-MAP-Elites."""

    archive: Archive
    strategies: Arrays
    progress: Progress


class CMAMAPElites(Algorithm):
    """Emitters are evolution strategies that maximise improvement.

    An emitter without any improvement restarts at an elite.
    """

    Config = CMAMAPElitesConfig
    operators = ("cma",)

    def __init__(self, task: Task, config: CMAMAPElitesConfig | None = None) -> None:
        super().__init__(task, config)
        config = self.config
        self.generation = (Round("offspring", config.emitters * config.emitter_batch),)
        dimensions = self.genome.parameter_count
        require_memory(config, dimensions)
        if config.es == "limited-memory":
            most = f"at most {dimensions}, the parameters of a controller, if limited-memory"
            require(config.emitter_batch <= dimensions, "emitter_batch", config.emitter_batch, most)
        self.strategies = make_strategies(
            config.es, config.emitters, config.emitter_batch, dimensions, config.sigma0
        )

    @classmethod
    def shares_program(cls, task: Task, config: CMAMAPElitesConfig) -> bool:
        """Only if isotropic: the other strategies are pyribs objects, called from the program."""
        return config.es == "isotropic"

    def init(self, key: jax.Array) -> State:
        """An empty archive, and strategies that start at the origin."""
        return State(self.empty_archive(), self.strategies.start(), zero_progress())

    def start_round(self) -> Round:
        """A round with as many genomes as all strategies sample together."""
        return Round(START, self.config.emitters * self.config.emitter_batch)

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Samples of all strategies."""
        strategies, samples = self.strategies.ask(
            state.strategies, jax.random.fold_in(key, RandomStream.NOISE)
        )
        batch = self.make_batch(cma=without_parents(samples.reshape(round.policies, -1)))
        return state._replace(strategies=strategies), batch

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Adds the batch to the archive, and updates the strategies by its improvement.

        After a batch that the run begins with, all strategies start at elites.
        """
        offspring = make_solutions(batch, evaluation, state.progress)
        cells = self.cells.assign(offspring.descriptor)
        rank, gain = compute_improvement(state.archive, cells, offspring)
        archive, status = insert(state.archive, cells, offspring)

        shape, samples = (self.config.emitters, self.config.emitter_batch), batch.parameters
        if round.name == START:  # not samples of the strategies: with 0 parents, all restart
            rank = gain = jnp.zeros(shape)
            samples = jnp.zeros((*shape, samples.shape[1]))
        restart_key = jax.random.fold_in(key, RandomStream.PARENT)
        strategies = self.strategies.tell(
            state.strategies,
            samples.reshape(*shape, -1),
            rank_samples(archive, restart_key, rank.reshape(shape), gain.reshape(shape)),
        )
        progress = advance(state.progress, evaluation)
        return State(archive, strategies, progress), mark_skipped(evaluation, status)


def require_memory(config: CMAMAPElitesConfig, dimensions: int) -> None:
    """Raises an error if the strategies do not fit into memory, before anything is allocated."""
    free = available_bytes()

    def needed(kind: Kind) -> int:  # upper bound, as measured: old and new arrays, copies of pyribs
        return 6 * size_in_bytes(kind, config.emitters, config.emitter_batch, dimensions)

    if needed(config.es) > free:
        fitting = [f"{kind} ({needed(kind) / 1e9:.2g} GB)" for kind in get_args(Kind) if needed(kind) <= free]
        raise ElitesError(
            f"es {config.es} takes {needed(config.es) / 1e9:.1f} GB for {config.emitters} emitters of "
            f"{dimensions} parameters, but only {free / 1e9:.1f} GB are free; what fits: "
            f"{', '.join(fitting) or 'none of the variants'}"
        )
