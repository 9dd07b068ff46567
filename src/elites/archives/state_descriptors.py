"""QD-PG's archive of state descriptors: what has been visited, at a distance from each other."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class StateDescriptors(NamedTuple):
    """Rows `[capacity, d]`, inf where nothing is stored."""

    rows: jax.Array
    size: jax.Array


def empty_state_descriptors(capacity: int, dimensions: int) -> StateDescriptors:
    """Nothing visited yet."""
    return StateDescriptors(jnp.full((capacity, dimensions), jnp.inf), jnp.int32(0))


def add(stored: StateDescriptors, candidates: jax.Array, distance: float) -> StateDescriptors:
    """Takes the candidates `[n, d]` one by one, each that is farther than `distance` from all inside.

    NaN is never taken; nothing is once the archive is full.
    """
    capacity = len(stored.rows)

    def one(stored: StateDescriptors, candidate: jax.Array) -> tuple[StateDescriptors, None]:
        nearest = ((stored.rows - candidate) ** 2).sum(-1).min()
        taken = (nearest > distance**2) & (stored.size < capacity)
        place = jnp.where(taken, stored.size, capacity)
        rows = stored.rows.at[place].set(candidate, mode="drop")
        return StateDescriptors(rows, stored.size + taken.astype(jnp.int32)), None

    return jax.lax.scan(one, stored, candidates)[0]


def novelty(stored: StateDescriptors, descriptors: jax.Array, neighbours: int) -> jax.Array:
    """Mean distance of descriptors `[n, d]` to their nearest ones inside, as many as there are; 0 if none."""
    squared = ((descriptors[:, None] - stored.rows) ** 2).sum(-1)
    nearest = -jax.lax.top_k(-squared, min(neighbours, len(stored.rows)))[0]
    there = jnp.isfinite(nearest)
    return jnp.where(there, jnp.sqrt(nearest), 0).sum(1) / jnp.maximum(there.sum(1), 1)
