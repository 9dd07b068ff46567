"""The archive of QD-PG's state descriptors: visited states, at a minimum distance from each other."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class StateDescriptors(NamedTuple):
    """Rows `[capacity, d]`, inf for empty rows."""

    rows: jax.Array
    size: jax.Array


def empty_state_descriptors(capacity: int, dimensions: int) -> StateDescriptors:
    """An empty archive."""
    return StateDescriptors(jnp.full((capacity, dimensions), jnp.inf), jnp.int32(0))


def add(stored: StateDescriptors, candidates: jax.Array, distance: float) -> StateDescriptors:
    """Adds candidates `[n, d]` one by one, if they are farther than `distance` from all stored ones.

    NaN is never added, and nothing is added to a full archive.
    """
    capacity = len(stored.rows)

    def add_one(stored: StateDescriptors, candidate: jax.Array) -> tuple[StateDescriptors, None]:
        nearest = ((stored.rows - candidate) ** 2).sum(-1).min()
        taken = (nearest > distance**2) & (stored.size < capacity)
        place = jnp.where(taken, stored.size, capacity)
        rows = stored.rows.at[place].set(candidate, mode="drop")
        return StateDescriptors(rows, stored.size + taken.astype(jnp.int32)), None

    return jax.lax.scan(add_one, stored, candidates)[0]


def compute_novelty(stored: StateDescriptors, descriptors: jax.Array, neighbours: int) -> jax.Array:
    """Mean distance of descriptors `[n, d]` to their nearest stored neighbours; 0 for an empty archive."""
    squared = ((descriptors[:, None] - stored.rows) ** 2).sum(-1)
    nearest = -jax.lax.top_k(-squared, min(neighbours, len(stored.rows)))[0]
    finite = jnp.isfinite(nearest)
    return jnp.where(finite, jnp.sqrt(nearest), 0).sum(1) / jnp.maximum(finite.sum(1), 1)
