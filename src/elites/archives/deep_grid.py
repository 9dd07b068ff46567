"""The archive of Deep-grid: several members per cell.

Pure functions over arrays `[cells, depth, …]`; with the grid donated to `jit`, nothing is copied.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, Solutions, Status, empty_archive, sort_by_group


class DeepGridArchive(NamedTuple):
    """Members `[cells, depth, …]`; the fitness of an empty slot is -inf. A cell fills from its first slot."""

    members: Solutions


def empty_deep_grid(cells: int, depth: int, parameters: int, descriptor: int) -> DeepGridArchive:
    """A grid without members."""
    flat = empty_archive(cells * depth, parameters, descriptor).elites
    return DeepGridArchive(jax.tree.map(lambda array: array.reshape(cells, depth, *array.shape[1:]), flat))


def size_in_bytes(cells: int, depth: int, parameters: int, descriptor: int) -> int:
    """Memory of such a grid."""
    grid = jax.eval_shape(lambda: empty_deep_grid(cells, depth, parameters, descriptor))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(grid))


def insert(
    grid: DeepGridArchive, cells: jax.Array, offspring: Solutions, key: jax.Array
) -> tuple[DeepGridArchive, jax.Array]:
    """Adds a batch as if one by one. In a full cell, an offspring replaces a random member.

    Returns the grid and the Status of each offspring: NEW in an empty cell, IMPROVED if better than all
    members of the cell, REJECTED if not finite, otherwise STORED.
    """
    count, depth = grid.members.fitness.shape
    valid = jnp.isfinite(offspring.fitness) & jnp.isfinite(offspring.descriptor).all(-1)
    evicted = jax.random.randint(key, (len(cells),), 0, depth)

    # From here on sorted by cell; invalid offspring come last, in an extra cell.
    cell, order = sort_by_group(jnp.where(valid, cells, count), count + 1)
    valid, fitness = valid[order], jnp.where(valid, offspring.fitness, -jnp.inf)[order]
    position = jnp.arange(len(cells), dtype=jnp.int32)
    sizes = jnp.zeros(count + 1, jnp.int32).at[cell].add(1)
    ends = jnp.cumsum(sizes)
    rank = position - (ends - sizes)[cell]
    present = (grid.members.fitness > -jnp.inf).sum(1).at[cell].get(mode="clip") + rank
    slot = jnp.where(present < depth, present, evicted[order])

    # Position of the next offspring in the same slot; beyond the end of the cell if none.
    group, entry = sort_by_group(cell * depth + slot, (count + 1) * depth)
    following = jnp.where(group[:-1] == group[1:], entry[1:], ends[cell[entry[:-1]]])
    following = jnp.concatenate([following, jnp.full(1, len(cells), jnp.int32)])
    following = jnp.zeros_like(position).at[entry].set(following, unique_indices=True)
    stays = valid & (following >= ends[cell])

    best = jnp.maximum(
        _best_of_old(grid.members.fitness, cell, slot),
        _best_of_intervals(fitness, position + 1, jnp.minimum(following, ends[cell] - 1)),
    )
    status = jnp.where(fitness > best, Status.IMPROVED, Status.STORED)
    status = jnp.where(present == 0, Status.NEW, status)
    status = jnp.where(valid, status, Status.REJECTED)

    def in_batch_order(values: jax.Array) -> jax.Array:
        return jnp.zeros_like(values).at[order].set(values, unique_indices=True)

    destination = in_batch_order(jnp.where(stays, cell, count))  # beyond the end: dropped
    slot = in_batch_order(slot)
    members = jax.tree.map(
        lambda old, new: old.at[destination, slot].set(new.astype(old.dtype), mode="drop"),
        grid.members,
        offspring,
    )
    return DeepGridArchive(members), in_batch_order(status)


def _best_of_old(members: jax.Array, cell: jax.Array, slot: jax.Array) -> jax.Array:
    """The best old member of the cell that no earlier offspring has replaced, for each offspring.

    `members` is [cells, depth]; `cell` and `slot` [n] are those of the offspring, sorted by cell.
    """
    position = jnp.arange(len(cell), dtype=jnp.int32)
    taken = jnp.full(members.shape, len(cell), jnp.int32).at[cell, slot].min(position, mode="drop")
    return jnp.where(taken[cell] < position[:, None], -jnp.inf, members[cell]).max(1)


def _best_of_intervals(values: jax.Array, first: jax.Array, last: jax.Array) -> jax.Array:
    """The maximum at each position `[n]` of the values `[n]` that are valid at it; -inf if none is.

    A value is valid from its `first` to its `last` position. Two intervals with lengths of a power of two
    cover that range. From the longest to the shortest, each interval passes its maximum on to its halves.
    """
    size = len(values)
    length = last - first + 1
    level = 31 - jax.lax.clz(jnp.maximum(length, 1))
    level = jnp.where(length > 0, level, 32)  # beyond the end: dropped
    best = jnp.full((max(size.bit_length(), 1), size), -jnp.inf, values.dtype)
    best = best.at[level, first].max(values, mode="drop")
    best = best.at[level, last + 1 - (1 << jnp.minimum(level, 30))].max(values, mode="drop")
    passed = best[-1]
    for half in reversed(range(len(best) - 1)):
        later = jnp.pad(passed, (min(1 << half, size), 0), constant_values=-jnp.inf)[:size]
        passed = jnp.maximum(best[half], jnp.maximum(passed, later))
    return passed


def selection_weights(fitness: jax.Array) -> jax.Array:
    """Unnormalised selection probabilities of the members `[n, depth]`; 0 for empty slots."""
    filled = fitness > -jnp.inf
    low = jnp.where(filled, fitness, jnp.inf).min(1, keepdims=True)
    high = fitness.max(1, keepdims=True)
    return jnp.where(filled, jnp.where(high > low, (fitness - low) / (high - low), 1.0), 0.0)


def select_best(grid: DeepGridArchive) -> Archive:
    """The best member of each cell."""
    slots = grid.members.fitness.argmax(1)
    return Archive(jax.tree.map(lambda array: array[jnp.arange(len(slots)), slots], grid.members))
