"""Batches of any size enter as if one by one: compared with loops in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.archives import deep_grid
from elites.archives.archive import (
    PAIRWISE,
    Origin,
    Solutions,
    Status,
    empty_archive,
    insert,
    sort_by_group,
)
from elites.archives.cells import Cells

# Few sizes, because each is compiled; on both sides of the size from which on batches are sorted.
SIZES = (1, 7, PAIRWISE, PAIRWISE + 1, 300)
FITNESSES = np.array([-2, -1, -0.0, 0, 0.5, 1, 1.5, 2, np.nan, np.inf, -np.inf], np.float32)
insert_jitted = jax.jit(insert)
insert_deep = jax.jit(deep_grid.insert)


def batch(rng, size, first):
    """Offspring whose parameters and origin tell their number; many ties, some of them not finite."""
    numbers = np.arange(first, first + size)
    descriptor = rng.random((size, 2), np.float32)
    descriptor[rng.random(size) < 0.1, 1] = np.nan
    return Solutions(
        parameters=numbers[:, None] * np.ones(3, np.float32),
        fitness=rng.choice(FITNESSES, size),
        descriptor=descriptor,
        origin=Origin(
            evaluation=numbers.astype(np.int32),
            seed=numbers.astype(np.uint32),
            generation=np.full(size, first, np.int32),
            operator=np.zeros(size, np.int32),
            parents=np.stack([numbers, numbers + 1], 1).astype(np.int32),
        ),
    )


def entering(offspring, index):
    return np.isfinite(offspring.fitness[index]) and np.isfinite(offspring.descriptor[index]).all()


def one_by_one(elites, cells, offspring):
    """Changes the elites, plain arrays, and returns the status of each."""
    statuses = []
    for index, cell in enumerate(cells):
        best = elites.fitness[cell]
        if not entering(offspring, index) or offspring.fitness[index] <= best:
            statuses.append(Status.REJECTED)
            continue
        statuses.append(Status.NEW if best == -np.inf else Status.IMPROVED)
        for old, new in zip(jax.tree.leaves(elites), jax.tree.leaves(offspring), strict=True):
            old[cell] = new[index]
    return statuses


def one_by_one_deep(members, cells, offspring, evicted):
    """The same in a deep grid."""
    statuses, depth = [], members.fitness.shape[1]
    for index, cell in enumerate(cells):
        if not entering(offspring, index):
            statuses.append(Status.REJECTED)
            continue
        present, best = (members.fitness[cell] > -np.inf).sum(), members.fitness[cell].max()
        improved = Status.IMPROVED if offspring.fitness[index] > best else Status.STORED
        statuses.append(improved if present else Status.NEW)
        slot = present if present < depth else evicted[index]
        for old, new in zip(jax.tree.leaves(members), jax.tree.leaves(offspring), strict=True):
            old[cell, slot] = new[index]
    return statuses


def assert_same_bits(actual, expected):
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one).view(np.uint32), other.view(np.uint32))


def on_host(tree):
    return jax.tree.map(np.array, tree)


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**32 - 1), few=st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_a_batch_of_any_size_enters_as_if_one_by_one(size, seed, few):
    rng = np.random.default_rng(seed)
    archive = empty_archive(30, 3, 2)
    elites = on_host(archive.elites)
    for number in range(3):
        cells = rng.integers(0, few, size).astype(np.int32)
        offspring = batch(rng, size, number * size)
        archive, status = insert_jitted(archive, cells, offspring)
        assert status.tolist() == one_by_one(elites, cells, offspring)
        assert_same_bits(archive.elites, elites)


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**32 - 1), few=st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_a_batch_of_any_size_enters_a_deep_grid_as_if_one_by_one(size, seed, few):
    rng = np.random.default_rng(seed)
    grid = deep_grid.empty_deep_grid(30, 5, 3, 2)
    members = on_host(grid.members)
    for number in range(3):
        cells = rng.integers(0, few, size).astype(np.int32)
        offspring = batch(rng, size, number * size)
        key = jax.random.fold_in(jax.random.key(seed), number)
        evicted = np.asarray(jax.random.randint(key, (size,), 0, 5))
        grid, status = insert_deep(grid, cells, offspring, key)
        assert status.tolist() == one_by_one_deep(members, cells, offspring, evicted)
        assert_same_bits(grid.members, members)


@pytest.mark.parametrize("size", [100, 300])
def test_vmapped_replications_equal_single_ones(size):
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 20, (4, size)).astype(np.int32)
    batches = [batch(rng, size, 0) for _ in range(4)]
    archives = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), empty_archive(30, 3, 2))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
    together = on_host(jax.jit(jax.vmap(insert))(archives, cells, stacked))
    for index, offspring in enumerate(batches):
        alone = on_host(insert_jitted(empty_archive(30, 3, 2), cells[index], offspring))
        assert_same_bits(jax.tree.map(lambda leaf, index=index: leaf[index], together), alone)


def test_a_batch_of_100_000_enters_in_little_memory():
    rng = np.random.default_rng(0)
    size, count = 100_000, 1024
    cells = rng.integers(0, count, size).astype(np.int32)
    offspring = batch(rng, size, 0)
    offspring = offspring._replace(fitness=rng.permutation(size).astype(np.float32))
    for name, into, arguments in (
        ("archive", empty_archive(count, 3, 2), ()),
        ("deep grid", deep_grid.empty_deep_grid(count, 5, 3, 2), (jax.random.key(0),)),
    ):
        function = insert if name == "archive" else deep_grid.insert
        compiled = jax.jit(function).lower(into, cells, offspring, *arguments).compile()
        # Pairs of offspring would take 10 GB, were they bits.
        assert compiled.memory_analysis().temp_size_in_bytes < 500 * size, name
        after, status = compiled(into, cells, offspring, *arguments)
        if name == "archive":
            elites = on_host(into.elites)
            assert status.tolist() == one_by_one(elites, cells, offspring)
            assert_same_bits(after.elites, elites)
        else:
            members, evicted = (
                on_host(into.members),
                np.asarray(jax.random.randint(*arguments, (size,), 0, 5)),
            )
            assert status.tolist() == one_by_one_deep(members, cells, offspring, evicted)
            assert_same_bits(after.members, members)


@pytest.mark.parametrize("count", [6, 2**31 - 1])  # the latter does not fit into one number with the place
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_sorting_by_group_keeps_the_order_within_a_group(count, seed):
    groups = np.random.default_rng(seed).integers(max(0, count - 6), count, 200).astype(np.int32)
    ordered, order = sort_by_group(jnp.array(groups), count)
    np.testing.assert_array_equal(order, np.argsort(groups, kind="stable"))
    np.testing.assert_array_equal(ordered, np.sort(groups))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 100, 3000])  # the last is cut into slices
def test_the_nearest_centroid_is_found_of_any_number_of_descriptors(dimensions, size):
    rng = np.random.default_rng(dimensions)
    bounds = np.stack([np.zeros(dimensions), np.arange(1, dimensions + 1)], 1)
    cells = Cells(rng.random((50, dimensions)) * bounds[:, 1], bounds, ())
    descriptors = ((rng.random((size, dimensions)) * 1.4 - 0.2) * bounds[:, 1]).astype(np.float32)
    descriptors[rng.random(size) < 0.05, 0] = np.nan
    descriptors[rng.random(size) < 0.05, 0] = np.inf
    apart = (descriptors.astype(np.float64)[:, None] - cells.centroids) / bounds[:, 1]
    expected = (apart**2).sum(-1).argmin(1)  # 0 where nothing is comparable
    indices = jax.jit(cells.assign)(descriptors)
    assert indices.dtype == jnp.int32
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(cells.assign_in_parts(descriptors), indices)


def test_the_first_of_equally_near_centroids_is_found():
    cells = Cells(np.array([[0.9], [0.25], [0.75], [0.25]]), np.array([[0.0, 1.0]]), ())
    assert cells.assign(jnp.array([[0.5], [0.25], [0.0]])).tolist() == [1, 1, 1]


def test_looking_up_100_000_descriptors_takes_little_memory():
    cells = Cells(np.random.default_rng(0).random((1024, 2)), np.array([[0.0, 1.0]] * 2), ())
    lookup = jax.jit(cells.assign).lower(jax.ShapeDtypeStruct((100_000, 2), jnp.float32)).compile()
    assert lookup.memory_analysis().temp_size_in_bytes < 16 * 100_000
