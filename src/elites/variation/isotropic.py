"""Isotropic evolution strategies: CMA-ES without the adaptation of the covariance, which is the identity.

The constants, the update of the step size and the conditions to stop are those of pyribs' CMA-ES. Its second
path (pc), and the learning rates c1 and cμ, are for the covariance only.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Arrays = dict[str, jax.Array]  # [strategies, …]

MIN_SIGMA = 1e-11  # step size
MIN_VALUE_DISTANCE = 1e-12  # distance between the ranking values of the best and the worst sample


class Ranking(NamedTuple):
    """The ranking of the samples of each strategy."""

    order: jax.Array  # indices of the samples from best to worst [strategies, batch]
    values: jax.Array  # ranking values of the samples, in their own order [strategies, batch, …]
    parents: jax.Array  # number of best samples to use [strategies]; 0 restarts the strategy
    restart_points: jax.Array  # starting points of restarts [strategies, dimensions]


class IsotropicStrategies:
    """Independent evolution strategies that sample from N(mean, σ²I), each with its own batch."""

    def __init__(self, strategies: int, batch: int, dimensions: int, sigma: float) -> None:
        self.count, self.batch, self.dimensions, self.sigma = strategies, batch, dimensions, sigma

    def start(self) -> Arrays:
        """The arrays of strategies at the origin."""
        return jax.vmap(self._start)(jnp.zeros((self.count, self.dimensions)))

    def ask(self, arrays: Arrays, key: jax.Array) -> tuple[Arrays, jax.Array]:
        """Samples `[strategies, batch, dimensions]`."""
        noise = jax.random.normal(key, (self.count, self.batch, self.dimensions))
        return arrays, arrays["mean"][:, None] + arrays["sigma"][:, None, None] * noise

    def tell(self, arrays: Arrays, samples: jax.Array, ranking: Ranking) -> Arrays:
        """Moves each strategy towards its best samples, or restarts it if it has no parents or has converged.

        `arrays` and `samples` are as returned by `ask`.
        """
        return jax.vmap(self._tell)(arrays, samples, ranking)

    def _start(self, mean: jax.Array) -> Arrays:
        return {"mean": mean, "sigma": jnp.float32(self.sigma), "ps": jnp.zeros_like(mean)}

    def _tell(self, arrays: Arrays, samples: jax.Array, ranking: Ranking) -> Arrays:
        """As `tell`, for one strategy."""
        order, values, parents, restart_points = ranking
        n, mean, sigma = self.dimensions, arrays["mean"], arrays["sigma"]
        weights = recombination_weights(jnp.maximum(parents, 1), self.batch)
        mueff = 1 / jnp.square(weights).sum()
        cs = (mueff + 2) / (n + mueff + 5)
        damps = 1 + 2 * jnp.maximum(0, jnp.sqrt((mueff - 1) / (n + 1)) - 1) + cs

        weight = weights[jnp.argsort(order), None]  # of each sample
        step = jnp.where(weight > 0, weight * (samples - mean), 0).sum(0)
        ps = (1 - cs) * arrays["ps"] + jnp.sqrt(cs * (2 - cs) * mueff) / sigma * step
        growth = cs / damps * (jnp.square(ps).sum() / n - 1) / 2
        moved = {"mean": mean + step, "sigma": sigma * jnp.exp(jnp.minimum(1, growth)), "ps": ps}

        flat = jnp.linalg.norm(values[order[0]] - values[order[-1]]) < MIN_VALUE_DISTANCE
        stops = (parents == 0) | (moved["sigma"] < MIN_SIGMA) | flat
        return {
            name: jnp.where(stops, array, moved[name]) for name, array in self._start(restart_points).items()
        }


def recombination_weights(parents: jax.Array, batch: int) -> jax.Array:
    """Weights of samples from best to worst `[batch]`, positive for the parents. Their sum is 1."""
    place = jnp.arange(1, batch + 1)
    weights = jnp.where(place <= parents, jnp.log(parents + 0.5) - jnp.log(place), 0)
    return weights / weights.sum()
