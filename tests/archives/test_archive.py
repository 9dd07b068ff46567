import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.archives.archive import Origin, Solutions, Status, empty_archive, insert, select

CELLS, BATCH = 4, 8
fitnesses = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, np.nan, np.inf, -np.inf])  # many ties
batches = st.lists(
    st.lists(st.tuples(st.integers(0, CELLS - 1), fitnesses, st.booleans()), min_size=BATCH, max_size=BATCH),
    min_size=1,
    max_size=4,
)
insert_jitted = jax.jit(insert)


def offspring(first, rows):
    count = len(rows)
    return Solutions(
        parameters=jnp.arange(first, first + count, dtype=jnp.float32)[:, None] * jnp.ones(3),
        fitness=jnp.array([fitness for _, fitness, _ in rows], jnp.float32),
        descriptor=jnp.array([[np.nan if broken else 0.5] for _, _, broken in rows], jnp.float32),
        origin=Origin(
            evaluation=jnp.arange(first, first + count, dtype=jnp.int32),
            seed=jnp.arange(first, first + count, dtype=jnp.uint32),
            generation=jnp.full(count, first // BATCH, jnp.int32),
            operator=jnp.zeros(count, jnp.int32),
            parents=jnp.full((count, 2), -1, jnp.int32),
        ),
    )


def one_by_one(kept, first, rows):
    """The rule in plain Python: (fitness, evaluation) by cell, and the status of each."""
    statuses = []
    for number, (cell, fitness, broken) in enumerate(rows, start=first):
        if not np.isfinite(fitness) or broken:
            statuses.append(Status.REJECTED)
        elif cell not in kept:
            kept[cell] = (fitness, number)
            statuses.append(Status.NEW)
        elif fitness > kept[cell][0]:
            kept[cell] = (fitness, number)
            statuses.append(Status.IMPROVED)
        else:
            statuses.append(Status.REJECTED)
    return statuses


@given(batches)
@settings(max_examples=200)
def test_a_batch_enters_as_if_one_by_one(batches):
    archive, kept = empty_archive(CELLS, 3, 1), {}
    for index, rows in enumerate(batches):
        cells = jnp.array([cell for cell, _, _ in rows], jnp.int32)
        archive, status = insert_jitted(archive, cells, offspring(index * BATCH, rows))
        assert status.tolist() == one_by_one(kept, index * BATCH, rows)
        assert {int(cell) for cell in np.flatnonzero(archive.filled)} == set(kept)
        for cell, (fitness, number) in kept.items():
            elites = archive.elites
            assert elites.fitness[cell] == fitness
            assert elites.origin.evaluation[cell] == number
            assert elites.origin.generation[cell] == number // BATCH
            np.testing.assert_array_equal(elites.parameters[cell], np.full(3, number, np.float32))


@given(st.sets(st.integers(0, 49), min_size=1), st.integers(0, 1000))
@settings(max_examples=30)
def test_parents_are_elites(filled, seed):
    archive = empty_archive(50, 1, 1)
    fitness = archive.elites.fitness.at[jnp.array(sorted(filled))].set(1.0)
    archive = archive._replace(elites=archive.elites._replace(fitness=fitness))
    assert set(select(archive, jax.random.key(seed), 40).tolist()) <= filled


def test_parents_are_drawn_uniformly():
    archive = empty_archive(10, 1, 1)
    fitness = archive.elites.fitness.at[jnp.array([1, 4, 9])].set(jnp.array([5.0, -3.0, 0.0]))
    archive = archive._replace(elites=archive.elites._replace(fitness=fitness))
    drawn = np.bincount(select(archive, jax.random.key(0), 30_000), minlength=10)
    assert drawn[[1, 4, 9]].sum() == 30_000
    assert np.abs(drawn[[1, 4, 9]] - 10_000).max() < 5 * np.sqrt(30_000 * 2 / 9)
