"""The ranking of improvement emitters: samples of evolution strategies by what they add to an archive."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, Solutions
from elites.variation.isotropic import Ranking
from elites.variation.selection import select_uniformly


def compute_improvement(
    archive: Archive, cells: jax.Array, offspring: Solutions
) -> tuple[jax.Array, jax.Array]:
    """Rank and gain of each offspring, as if it were the only one. Offspring are ordered by rank, then gain.

    The rank is 2 for a new cell, 1 for a better elite, 0 otherwise. The gain is the fitness in a new cell,
    otherwise the difference to the elite's fitness.
    """
    valid = jnp.isfinite(offspring.fitness) & jnp.isfinite(offspring.descriptor).all(-1)
    before = archive.elites.fitness[cells]
    new = before == -jnp.inf
    gain = offspring.fitness - jnp.where(new, 0, before)
    rank = jnp.where(valid, jnp.where(new, 2, gain > 0), 0).astype(jnp.float32)
    return rank, jnp.where(valid, gain, jnp.finfo(jnp.float32).min)


def rank_samples(archive: Archive, key: jax.Array, rank: jax.Array, gain: jax.Array) -> Ranking:
    """The ranking of samples with these ranks and gains, `[strategies, batch]`.

    A strategy without an improvement restarts at an elite of the archive, sampled uniformly.
    """
    return Ranking(
        order=jnp.lexsort((gain, rank))[:, ::-1],
        values=jnp.stack([rank, gain], -1),
        parents=(rank > 0).sum(1),
        restart_points=select_uniformly(archive, key, len(rank)).parameters,
    )
