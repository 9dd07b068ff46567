"""The archive of Deep-grid: several members per cell, always room for one more.

Pure functions over arrays `[cells, depth, …]`; with the grid donated to `jit`, nothing is copied.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, Solutions, Status, draw, empty_archive


class DeepGrid(NamedTuple):
    """Members `[cells, depth, …]`; those with fitness -inf are empty. A cell fills from its first slot."""

    members: Solutions


def empty_deep_grid(cells: int, depth: int, parameters: int, descriptor: int) -> DeepGrid:
    """A grid with nothing in it."""
    flat = empty_archive(cells * depth, parameters, descriptor).elites
    return DeepGrid(jax.tree.map(lambda array: array.reshape(cells, depth, *array.shape[1:]), flat))


def size_in_bytes(cells: int, depth: int, parameters: int, descriptor: int) -> int:
    """What such a grid takes."""
    grid = jax.eval_shape(lambda: empty_deep_grid(cells, depth, parameters, descriptor))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(grid))


def insert(
    grid: DeepGrid, cells: jax.Array, offspring: Solutions, key: jax.Array
) -> tuple[DeepGrid, jax.Array]:
    """Adds a batch as if one by one: always, in place of a random member where the cell is full.

    Returns the grid and each offspring's Status: NEW in an empty cell, IMPROVED if it is better than all in
    its cell, else STORED. What is not finite never enters and is REJECTED.
    """
    count, depth = grid.members.fitness.shape
    valid = jnp.isfinite(offspring.fitness) & jnp.isfinite(offspring.descriptor).all(-1)
    fitness = jnp.where(valid, offspring.fitness, -jnp.inf)
    order = jnp.arange(len(cells))
    together = (cells[:, None] == cells) & valid
    earlier = together & (order[:, None] > order)

    present = (grid.members.fitness > -jnp.inf).sum(1)[cells] + earlier.sum(1)
    evicted = jax.random.randint(key, (len(cells),), 0, depth)
    slot = jnp.where(present < depth, present, evicted)
    # Of two that take the same slot the later one stays.
    overwritten = ((slot[:, None] == slot) & together & (order[:, None] < order)).any(1)
    destination = jnp.where(valid & ~overwritten, cells, count)  # beyond the end: dropped
    members = jax.tree.map(
        lambda old, new: old.at[destination, slot].set(new.astype(old.dtype), mode="drop"),
        grid.members,
        offspring,
    )
    best = _best_before(grid.members.fitness[cells], slot, fitness, earlier)
    status = jnp.where(fitness > best, Status.IMPROVED, Status.STORED)
    status = jnp.where(present == 0, Status.NEW, status)
    return DeepGrid(members), jnp.where(valid, status, Status.REJECTED)


def _best_before(members: jax.Array, slot: jax.Array, fitness: jax.Array, earlier: jax.Array) -> jax.Array:
    """The best in each offspring's cell just before it came: some may have been evicted by then.

    `members` [n, depth] are the cell's before the batch, `earlier` [n, n] who came into it before whom.
    """
    order, came = jnp.arange(len(slot)), earlier.astype(jnp.float32)
    taken = came @ (slot[:, None] == jnp.arange(members.shape[1])) > 0
    into_its_slot = (slot[:, None] == slot) & (order[:, None] > order)  # [k, j]: k comes after j
    evicted = came @ into_its_slot > 0
    old = jnp.where(taken, -jnp.inf, members).max(1)
    new = jnp.where(earlier & ~evicted, fitness, -jnp.inf).max(1)
    return jnp.maximum(old, new)


def select(grid: DeepGrid, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """(cells, slots) of `count` parents: a filled cell uniformly, then a member by its fitness in the cell.

    A member's chance is in proportion to its fitness above the cell's worst; equal when all are as good.
    """
    choosing, drawing = jax.random.split(key)
    fitness = grid.members.fitness
    cells = draw((fitness > -jnp.inf).any(1), choosing, count)

    return cells, jax.random.categorical(drawing, jnp.log(weights(fitness[cells]))).astype(jnp.int32)


def weights(fitness: jax.Array) -> jax.Array:
    """What the chances of members `[n, depth]` of a cell are in proportion to; 0 where there is none."""
    filled = fitness > -jnp.inf
    low = jnp.where(filled, fitness, jnp.inf).min(1, keepdims=True)
    high = fitness.max(1, keepdims=True)
    return jnp.where(filled, jnp.where(high > low, (fitness - low) / (high - low), 1.0), 0.0)


def best(grid: DeepGrid) -> Archive:
    """The best member of each cell."""
    slots = grid.members.fitness.argmax(1)
    return Archive(jax.tree.map(lambda array: array[jnp.arange(len(slots)), slots], grid.members))
