"""The directional variation of Vassiliades and Mouret (2018), the paper's GA operator."""

from __future__ import annotations

import jax


def vary(key: jax.Array, first: jax.Array, second: jax.Array, sigma1: float, sigma2: float) -> jax.Array:
    """x + σ1 N(0, I) + σ2 (y - x) N(0, 1) for parents x, y `[n, P]`; one draw along the line for each."""
    everywhere, along = jax.random.split(key)
    noise = jax.random.normal(everywhere, first.shape)
    line = jax.random.normal(along, (len(first), 1))
    return first + sigma1 * noise + sigma2 * (second - first) * line
