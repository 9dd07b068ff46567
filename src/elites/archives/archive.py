"""The archive: one elite per cell. Pure functions over arrays, jitted and vmapped by their callers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Status(IntEnum):
    """What became of an offspring."""

    REJECTED = 0
    NEW = 1  # entered an empty cell
    IMPROVED = 2  # replaced an elite that it beat
    SKIPPED = 3  # was never evaluated: the budget was spent
    STORED = 4  # was kept beside its cell's elite: only Deep-grid does that


class Origin(NamedTuple):
    """Where solutions come from. All fields `[n]` but `parents` `[n, 2]`; -1 means none."""

    evaluation: jax.Array  # int32, its number in the run
    seed: jax.Array  # uint32, of its episode; [n, episodes] for means over several
    generation: jax.Array  # int32, from 1, as in the metrics
    operator: jax.Array  # int32, an index into the algorithm's `operators`
    parents: jax.Array  # int32, their evaluations


class Solutions(NamedTuple):
    """Evaluated controllers, `[n, …]`."""

    parameters: jax.Array
    fitness: jax.Array
    descriptor: jax.Array
    origin: Origin


class Archive(NamedTuple):
    """One row per cell; a cell whose fitness is -inf is empty."""

    elites: Solutions

    @property
    def filled(self) -> jax.Array:
        return self.elites.fitness > -jnp.inf


def empty_archive(cells: int, parameters: int, descriptor: int, episodes: int = 1) -> Archive:
    """An archive with no elite in it; `episodes` are those that a solution's fitness is the mean of."""
    return Archive(
        Solutions(
            parameters=jnp.zeros((cells, parameters)),
            fitness=jnp.full(cells, -jnp.inf),
            descriptor=jnp.full((cells, descriptor), jnp.nan),
            origin=Origin(
                evaluation=jnp.full(cells, -1, jnp.int32),
                seed=jnp.zeros(cells if episodes == 1 else (cells, episodes), jnp.uint32),
                generation=jnp.full(cells, -1, jnp.int32),
                operator=jnp.full(cells, -1, jnp.int32),
                parents=jnp.full((cells, 2), -1, jnp.int32),
            ),
        )
    )


def insert(archive: Archive, cells: jax.Array, offspring: Solutions) -> tuple[Archive, jax.Array]:
    """Adds a batch as if one by one: to an empty cell always, to a full one when strictly better.

    Returns the archive and each offspring's Status. What is not finite never enters.
    """
    valid = jnp.isfinite(offspring.fitness) & jnp.isfinite(offspring.descriptor).all(-1)
    fitness = jnp.where(valid, offspring.fitness, -jnp.inf)
    order = jnp.arange(len(cells))
    together = cells[:, None] == cells
    earlier = together & (order[:, None] > order)
    # The best that an offspring finds in its cell: the elite, or one of the batch that came before it.
    best = jnp.maximum(archive.elites.fitness[cells], jnp.where(earlier, fitness, -jnp.inf).max(1))
    enters = fitness > best
    stays = enters & ~(together & (order[:, None] < order) & enters).any(1)

    destination = jnp.where(stays, cells, len(archive.elites.fitness))  # beyond the end: dropped
    elites = jax.tree.map(
        lambda old, new: old.at[destination].set(new.astype(old.dtype), mode="drop"),
        archive.elites,
        offspring,
    )
    status = jnp.where(enters, jnp.where(best > -jnp.inf, Status.IMPROVED, Status.NEW), Status.REJECTED)
    return Archive(elites), status


def select(archive: Archive, key: jax.Array, count: int) -> jax.Array:
    """Cells of `count` parents, drawn uniformly from the filled ones, with replacement."""
    return draw(archive.filled, key, count)


def draw(mask: jax.Array, key: jax.Array, count: int) -> jax.Array:
    """Places where `mask` [n] is true, uniformly, with replacement; n or beyond if it is nowhere."""
    ranks = jnp.cumsum(mask)
    drawn = jax.random.randint(key, (count,), 0, jnp.maximum(ranks[-1], 1))
    return jnp.searchsorted(ranks, drawn, side="right").astype(jnp.int32)
