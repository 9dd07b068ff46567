"""The archive: one elite per cell. Pure functions over arrays, jitted and vmapped by their callers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp

PAIRWISE = 128  # offspring; up to this number, comparing all pairs is faster than sorting


class Status(IntEnum):
    """The result of adding an offspring."""

    REJECTED = 0
    NEW = 1  # entered an empty cell
    IMPROVED = 2  # replaced an elite that it beat
    SKIPPED = 3  # not evaluated: the budget was spent
    STORED = 4  # kept in addition to the elite of its cell; Deep-grid only


class Origin(NamedTuple):
    """The origin of solutions. All fields are `[n]`, except `parents` `[n, 2]`; -1 means none."""

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
    """One row per cell; the fitness of an empty cell is -inf."""

    elites: Solutions

    @property
    def filled(self) -> jax.Array:
        return self.elites.fitness > -jnp.inf


def empty_archive(cells: int, parameters: int, descriptor: int, episodes: int = 1) -> Archive:
    """An archive without elites. A solution's fitness is the mean over `episodes`."""
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
    """Adds a batch as if one by one: always to an empty cell, to a filled one only if strictly better.

    Returns the archive and the Status of each offspring. Offspring that are not finite are rejected.
    """
    count = len(archive.elites.fitness)
    valid = jnp.isfinite(offspring.fitness) & jnp.isfinite(offspring.descriptor).all(-1)
    fitness = jnp.where(valid, offspring.fitness, -jnp.inf)
    # The best in the cell of each offspring: the elite, or an earlier offspring of the batch.
    best = jnp.maximum(archive.elites.fitness[cells], best_before(cells, fitness, count))
    enters = fitness > best
    top = jnp.full(count, -jnp.inf, fitness.dtype).at[cells].max(fitness)
    stays = enters & (fitness == top[cells])  # one per cell: a later offspring must be strictly better

    destination = jnp.where(stays, cells, count)  # beyond the end: dropped, and its parameters are not read
    elites = jax.tree.map(
        lambda old, new: old.at[destination].set(new.astype(old.dtype), mode="drop"),
        archive.elites,
        offspring,
    )
    status = jnp.where(enters, jnp.where(best > -jnp.inf, Status.IMPROVED, Status.NEW), Status.REJECTED)
    return Archive(elites), status


def best_before(cells: jax.Array, fitness: jax.Array, count: int) -> jax.Array:
    """The best fitness among earlier offspring of the batch in the same cell, for each one; -inf if none.

    Takes time n log n and memory n for a batch of n; `count` is the number of cells.
    """
    if len(cells) <= PAIRWISE:
        order = jnp.arange(len(cells))
        earlier = (cells[:, None] == cells) & (order[:, None] > order)
        return jnp.where(earlier, fitness, -jnp.inf).max(1, initial=-jnp.inf)
    group, order = sort_by_group(cells, count)
    _, upto = jax.lax.associative_scan(_later_maximum, (group, fitness[order]))
    before = jnp.where(group[1:] == group[:-1], upto[:-1], -jnp.inf)
    before = jnp.concatenate([jnp.full(1, -jnp.inf, fitness.dtype), before])
    return jnp.zeros_like(fitness).at[order].set(before, unique_indices=True)


def _later_maximum(
    earlier: tuple[jax.Array, jax.Array], later: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Combines (group, maximum) of adjacent ranges. The maximum restarts with each group."""
    maximum = jnp.where(earlier[0] == later[0], jnp.maximum(earlier[1], later[1]), later[1])
    return later[0], maximum


def sort_by_group(groups: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """A stable sort of integers `[n]` below `count`: the sorted integers and their original indices."""
    size = len(groups)
    places = jnp.arange(size, dtype=jnp.int32)
    if size * count > 2**32:
        sorted_groups, order = jax.lax.sort((groups.astype(jnp.int32), places), num_keys=1, is_stable=True)
        return sorted_groups, order
    # Group and index in one integer: a CPU sorts one array four times as fast as two.
    both = jax.lax.sort(groups.astype(jnp.uint32) * size + places.astype(jnp.uint32), is_stable=False)
    return (both // size).astype(jnp.int32), (both % size).astype(jnp.int32)


def select(archive: Archive, key: jax.Array, count: int) -> jax.Array:
    """Cells of `count` parents, sampled uniformly from the filled ones, with replacement."""
    return draw(archive.filled, key, count)


def draw(mask: jax.Array, key: jax.Array, count: int) -> jax.Array:
    """Indices where `mask` [n] is true, sampled uniformly with replacement; n if it is never true."""
    ranks = jnp.cumsum(mask)
    chosen = jax.random.randint(key, (count,), 0, jnp.maximum(ranks[-1], 1))
    return jnp.searchsorted(ranks, chosen, side="right").astype(jnp.int32)
