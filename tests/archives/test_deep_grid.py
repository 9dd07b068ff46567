import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.archives.archive import Origin, Solutions, Status
from elites.archives.deep_grid import empty_deep_grid, insert, select_best, size_in_bytes
from elites.variation.selection import select_by_fitness

CELLS, DEPTH, BATCH = 3, 4, 6
batches = st.lists(
    st.lists(
        st.tuples(st.integers(0, CELLS - 1), st.sampled_from([-1.0, 0.0, 2.0, np.nan])),
        min_size=BATCH,
        max_size=BATCH,
    ),
    min_size=1,
    max_size=5,
)
insert_jitted = jax.jit(insert)


def offspring(first, fitness):
    count = len(fitness)
    numbers = jnp.arange(first, first + count)
    return Solutions(
        parameters=numbers[:, None] * jnp.ones(2),
        fitness=jnp.array(fitness, jnp.float32),
        descriptor=jnp.zeros((count, 1)),
        origin=Origin(
            numbers.astype(jnp.int32),
            numbers.astype(jnp.uint32),
            numbers.astype(jnp.int32),
            jnp.zeros(count, jnp.int32),
            jnp.full((count, 2), -1, jnp.int32),
        ),
    )


@given(batches, st.integers(0, 10**6))
@settings(max_examples=60)
def test_everything_valid_is_accepted_and_a_full_cell_loses_one(batches, seed):
    grid = empty_deep_grid(CELLS, DEPTH, 2, 1)
    for index, rows in enumerate(batches):
        cells = jnp.array([cell for cell, _ in rows])
        key = jax.random.fold_in(jax.random.key(seed), index)
        before = np.asarray(grid.members.origin.evaluation)
        grid, status = insert_jitted(grid, cells, offspring(index * BATCH, [f for _, f in rows]), key)
        after = np.asarray(grid.members.origin.evaluation)
        slots = np.asarray(jax.random.randint(key, (BATCH,), 0, DEPTH))
        kept = [[number for number in cell if number >= 0] for cell in before]
        for number, ((cell, fitness), own_status) in enumerate(
            zip(rows, status, strict=True), start=index * BATCH
        ):
            if np.isnan(fitness):
                assert own_status == Status.REJECTED
                continue
            if not kept[cell]:
                assert own_status == Status.NEW
            else:
                best_now = max(_fitness(batches, member) for member in kept[cell])
                assert own_status == (Status.IMPROVED if fitness > best_now else Status.STORED)
            if len(kept[cell]) < DEPTH:
                kept[cell].append(number)
            else:
                kept[cell][slots[number - index * BATCH]] = number
        for cell, members in zip(after, kept, strict=True):
            assert cell[cell >= 0].tolist() == members
            assert cell[: len(members)].tolist() == members
    shown = select_best(grid).elites
    np.testing.assert_array_equal(shown.fitness, np.asarray(grid.members.fitness).max(1))


def _fitness(batches, number):
    return batches[number // BATCH][number % BATCH][1]


def test_eviction_is_uniform():
    full = offspring(0, np.zeros(DEPTH))
    grid, _ = insert(empty_deep_grid(1, DEPTH, 2, 1), jnp.zeros(DEPTH, int), full, jax.random.key(0))
    one = offspring(99, [1.0])
    insert_one = jax.vmap(lambda key: insert(grid, jnp.zeros(1, int), one, key)[0].members.origin.evaluation)
    after = np.asarray(jax.jit(insert_one)(jax.random.split(jax.random.key(1), 8000)))[:, 0]
    evicted = (after == 99).sum(0)
    assert evicted.sum() == 8000
    assert np.abs(evicted - 2000).max() < 5 * np.sqrt(8000 * 3 / 16)


def test_parents_are_drawn_by_cell_then_by_fitness():
    grid = empty_deep_grid(CELLS, DEPTH, 2, 1)
    cells = jnp.array([0, 0, 0, 2, 2])
    grid, _ = insert(grid, cells, offspring(0, [1.0, 2.0, 4.0, 5.0, 5.0]), jax.random.key(0))
    parents = select_by_fitness(grid, jax.random.key(1), 30_000)
    numbers = np.asarray(grid.members.origin.evaluation)  # of the member in each slot
    counts = np.array([[(parents.evaluation == number).sum() for number in row] for row in numbers])
    np.testing.assert_array_equal(parents.parameters[:, 0], parents.evaluation)
    # In the first cell in proportion to 0, 1, 3; in the third, where all are as good, equally.
    expected = 15_000 * np.array([[0, 0.25, 0.75, 0], [0, 0, 0, 0], [0.5, 0.5, 0, 0]])
    assert np.abs(counts - expected).max() < 5 * np.sqrt(30_000 / 4)
    assert counts[expected == 0].sum() == 0


def test_the_papers_depth_takes_the_predicted_memory():
    assert abs(size_in_bytes(1024, 50, 20230, 2) / 1024 / 50 / 20230 / 4 - 1) < 0.001
