"""The selection of parents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, draw, select
from elites.archives.deep_grid import DeepGridArchive, selection_weights


class Parents(NamedTuple):
    """Genomes `[n, P]` and the numbers of their evaluations, int32 `[n]`."""

    parameters: jax.Array
    evaluation: jax.Array


Selection = Callable[[Any, jax.Array, int], Parents]
"""Selects a number of parents from an archive, or from what an algorithm has in its place."""


def select_uniformly(archive: Archive, key: jax.Array, count: int) -> Parents:
    """Elites, sampled uniformly with replacement."""
    cells, elites = select(archive, key, count), archive.elites
    return Parents(elites.parameters[cells], elites.origin.evaluation[cells])


def select_by_fitness(grid: DeepGridArchive, key: jax.Array, count: int) -> Parents:
    """Members of Deep-grid: a filled cell, sampled uniformly, then a member by its fitness.

    The probability of a member is proportional to its fitness above the worst of the cell; uniform if all are
    equal.
    """
    cell_key, member_key = jax.random.split(key)
    members = grid.members
    cells = draw((members.fitness > -jnp.inf).any(1), cell_key, count)
    slots = jax.random.categorical(member_key, jnp.log(selection_weights(members.fitness[cells])))
    return Parents(members.parameters[cells, slots], members.origin.evaluation[cells, slots])
