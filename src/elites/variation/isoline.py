"""The directional variation of Vassiliades and Mouret (2018), the paper's GA operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.variation.offspring import Offspring
from elites.variation.selection import Selection, select_uniformly


@dataclass(frozen=True)
class IsoLine:
    """Moves a parent in all directions, and along the line to a second parent."""

    sigma1: float
    sigma2: float
    tensors: tuple[int, ...] = ()  # lengths of the parts with a line draw of their own; none: one for all
    select: Selection = select_uniformly

    def __call__(self, archive: Any, key: jax.Array, count: int) -> Offspring:
        """Offspring of `count` pairs of parents, each selected independently."""
        selection_key, variation_key = jax.random.split(key)
        parents = self.select(archive, selection_key, 2 * count)
        first, second = parents.parameters.reshape(2, count, -1)
        return Offspring(self.vary(variation_key, first, second), parents.evaluation.reshape(2, count).T)

    def vary(self, key: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        """x + σ1 N(0, I) + σ2 (y - x) N(0, 1) for parents x, y `[n, P]`.

        N(0, 1) is one number per pair, or one per pair and tensor.
        """
        noise_key, line_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, first.shape)
        line = jax.random.normal(line_key, (len(first), max(1, len(self.tensors))))
        if self.tensors:
            lengths = np.array(self.tensors)
            line = jnp.repeat(line, lengths, axis=1, total_repeat_length=first.shape[1])
        return first + self.sigma1 * noise + self.sigma2 * (second - first) * line
