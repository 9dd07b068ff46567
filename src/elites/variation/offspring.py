"""The result of a variation operator."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.genomes import Genome

NO_PARENT = -1


class Offspring(NamedTuple):
    """New genomes `[n, P]` and the evaluations of their parents, int32 `[n, 2]`; -1: none."""

    parameters: jax.Array
    parents: jax.Array


def without_parents(parameters: jax.Array) -> Offspring:
    """Genomes without parents."""
    return Offspring(parameters, jnp.full((len(parameters), 2), NO_PARENT, jnp.int32))


def with_one_parent(parameters: jax.Array, parents: jax.Array) -> Offspring:
    """Genomes with one parent each, `parents` its evaluation `[n]`."""
    no_parent = jnp.full(len(parameters), NO_PARENT, jnp.int32)
    return Offspring(parameters, jnp.stack([parents, no_parent], axis=1))


def random_genomes(genome: Genome, key: jax.Array, count: int) -> Offspring:
    """Random genomes."""
    return without_parents(jax.vmap(genome.init)(jax.random.split(key, count)))
