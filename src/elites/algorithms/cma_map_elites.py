"""CMA-MAP-Elites: M. C. Fontaine, J. Togelius, S. Nikolaidis and A. K. Hoover, "Covariance matrix adaptation
for the rapid illumination of behavior space", 2020.

With improvement emitters on the evolution strategies of pyribs, as in the paper on PGA-MAP-Elites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from elites.algorithms.algorithm import Batch, Progress, Round, Stream, advance, skipped, solutions, start
from elites.archives.archive import Archive, Solutions, empty_archive, insert, select
from elites.archives.cells import make_cells
from elites.errors import ElitesError, require
from elites.evaluation.evaluation import Evaluation
from elites.memory import available_bytes
from elites.policies import Policy
from elites.tasks.task import Task
from elites.variation.covariance import Arrays, Kind, Strategies, size_in_bytes


@dataclass(frozen=True, kw_only=True)
class CMAMAPElitesConfig:
    """Evolution strategies that adapt their covariance to what improves the archive."""

    emitters: int = 5
    """Evolution strategies side by side."""
    emitter_batch: int = 20
    """Offspring of each per generation."""
    es: Kind = "separable"
    """Covariance: full (n² entries), separable (its diagonal) or limited-memory (a few vectors)."""
    sigma0: float = 0.5
    """Step size that a strategy starts with (σ0)."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden units of the controllers."""
    archive: Literal["cvt", "grid"] = "cvt"
    """How descriptor space is cut into cells."""

    def __post_init__(self) -> None:
        require(self.emitters >= 1, "emitters", self.emitters, "at least 1")
        require(self.emitter_batch >= 2, "emitter_batch", self.emitter_batch, "at least 2")
        require(self.sigma0 > 0, "sigma0", self.sigma0, "above 0")
        require(all(width >= 1 for width in self.hidden), "hidden", self.hidden, "widths of at least 1")


class State(NamedTuple):
    """All that CMA-MAP-Elites knows."""

    archive: Archive
    strategies: Arrays
    seeds: jax.Array  # uint32 [emitters], of what the strategies sampled last
    progress: Progress


class CMAMAPElites:
    """Emitters are evolution strategies towards improvement; a barren one starts anew at an elite."""

    operators = ("cma",)
    on_host = True  # pyribs is no part of any program

    def __init__(self, task: Task, config: CMAMAPElitesConfig | None = None) -> None:
        self.task = task
        self.config = config = config or CMAMAPElitesConfig()
        self.policy = Policy.of(task, config.hidden)
        self.cells = make_cells(task, config.archive)
        self.opening: tuple[tuple[Round, ...], ...] = ()
        self.generation = (Round("offspring", config.emitters * config.emitter_batch),)
        dimensions = self.policy.parameter_count
        require_memory(config, dimensions)
        if config.es == "limited-memory":
            most = f"at most {dimensions}, the parameters of a controller, if limited-memory"
            require(config.emitter_batch <= dimensions, "emitter_batch", config.emitter_batch, most)
        self.strategies = Strategies(
            config.es, config.emitters, config.emitter_batch, dimensions, config.sigma0
        )

    def init(self, key: jax.Array) -> State:
        """An empty archive, and the strategies where all parameters are 0."""
        return State(
            empty_archive(len(self.cells.centroids), self.policy.parameter_count, self.task.descriptor_size),
            self.strategies.start(),
            jnp.zeros(self.config.emitters, jnp.uint32),
            start(),
        )

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """What the strategies sample."""
        seeds = jax.random.bits(jax.random.fold_in(key, Stream.NOISE), (self.config.emitters,))
        strategies, samples = self.strategies.ask(state.strategies, seeds)
        none = jnp.full((round.policies, 2), -1, jnp.int32)
        batch = Batch(samples.reshape(round.policies, -1), jnp.zeros(round.policies, jnp.int32), none)
        return state._replace(strategies=strategies, seeds=seeds), batch

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[State, jax.Array]:
        """Adds the batch to the archive, and moves the strategies towards what it gained by it."""
        offspring = solutions(batch, evaluation, state.progress)
        cells = self.cells.of(offspring.descriptor)
        rank, gain = improvement(state.archive, cells, offspring)
        archive, status = insert(state.archive, cells, offspring)

        each = (self.config.emitters, self.config.emitter_batch)
        rank, gain = rank.reshape(each), gain.reshape(each)
        elites = select(archive, jax.random.fold_in(key, Stream.PARENT), self.config.emitters)
        strategies = self.strategies.tell(
            state.strategies,
            state.seeds,
            order=jnp.lexsort((gain, rank))[:, ::-1],
            values=jnp.stack([rank, gain], -1),
            parents=(rank > 0).sum(1),
            fresh=archive.elites.parameters[elites],
        )
        progress = advance(state.progress, evaluation)
        return State(archive, strategies, state.seeds, progress), skipped(evaluation, status)

    def archive(self, state: State) -> Archive:
        """The collection so far."""
        return state.archive

    def gradient_steps(self, state: State) -> jax.Array:
        """None."""
        return jnp.zeros((), jnp.int32)


def improvement(archive: Archive, cells: jax.Array, offspring: Solutions) -> tuple[jax.Array, jax.Array]:
    """What each offspring would add to the archive if it came alone, in the order in which it counts.

    First the rank: 2 for a new cell, 1 for a better elite, 0 for nothing. Then the gain: the fitness in a new
    cell, else by how much it is above the elite's.
    """
    valid = jnp.isfinite(offspring.fitness) & jnp.isfinite(offspring.descriptor).all(-1)
    before = archive.elites.fitness[cells]
    new = before == -jnp.inf
    gain = offspring.fitness - jnp.where(new, 0, before)
    rank = jnp.where(valid, jnp.where(new, 2, gain > 0), 0).astype(jnp.float32)
    return rank, jnp.where(valid, gain, jnp.finfo(jnp.float32).min)


def require_memory(config: CMAMAPElitesConfig, dimensions: int) -> None:
    """Refuses strategies that cannot fit, before anything is allocated."""
    there = available_bytes()

    def needed(kind: Kind) -> int:  # at the peak, as measured: old and new arrays, and pyribs' own copies
        return 6 * size_in_bytes(kind, config.emitters, config.emitter_batch, dimensions)

    if needed(config.es) > there:
        fitting = [
            f"{kind} ({needed(kind) / 1e9:.2g} GB)" for kind in get_args(Kind) if needed(kind) <= there
        ]
        raise ElitesError(
            f"es {config.es} takes {needed(config.es) / 1e9:.1f} GB for {config.emitters} emitters of "
            f"{dimensions} parameters and {there / 1e9:.1f} GB are free; what fits: "
            f"{', '.join(fitting) or 'none of the variants'}"
        )
