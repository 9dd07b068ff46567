"""OpenAI-ES (T. Salimans et al., "Evolution strategies as a scalable alternative to reinforcement learning").

Perturbations come in mirrored pairs. Each chunk is generated from a key twice: for the evaluation, and for
the gradient. Only one chunk is in memory at a time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def draw_noise(key: jax.Array, chunk: jax.Array | int, pairs: int, size: int) -> jax.Array:
    """The standard normal perturbations `[pairs, size]` of one chunk."""
    return jax.random.normal(jax.random.fold_in(key, chunk), (pairs, size))


def mirror(centre: jax.Array, perturbations: jax.Array, sigma: float) -> jax.Array:
    """Controllers to evaluate: all with positive perturbations, then all with negative ones."""
    return jnp.concatenate([centre + sigma * perturbations, centre - sigma * perturbations])


def centred_ranks(scores: jax.Array) -> jax.Array:
    """Ranks from -0.5 to 0.5; equal scores have equal ranks, and NaN is worst."""
    scores = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    ordered = jnp.sort(scores)
    below, upto = (jnp.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    return ((below + upto - 1) / 2) / jnp.maximum(len(scores) - 1, 1) - 0.5


def estimate_gradient(key: jax.Array, scores: jax.Array, size: int, divisor: float = 1.0) -> jax.Array:
    """The estimated gradient of the rank, from scores `[chunks, 2, pairs]` of mirrored perturbations.

    It is the mean over the pairs of (difference of ranks) x noise, divided by `divisor`: 2 sigma makes it an
    estimate of the derivative.
    """
    chunks, _, pairs = scores.shape
    ranks = centred_ranks(scores.reshape(-1)).reshape(scores.shape)
    weights = ranks[:, 0] - ranks[:, 1]

    def add_chunk(total: jax.Array, chunk: jax.Array) -> tuple[jax.Array, None]:
        return total + weights[chunk] @ draw_noise(key, chunk, pairs, size), None

    total, _ = jax.lax.scan(add_chunk, jnp.zeros(size), jnp.arange(chunks))
    return total / (chunks * pairs * divisor)
