import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from elites import TASKS, ElitesError, make_task
from elites.archives import cells
from elites.archives.cells import compute_centroids, make_cells, make_cvt, make_grid

points = st.lists(st.tuples(st.floats(-1, 2, width=32), st.floats(-1, 2, width=32)), min_size=1, max_size=20)


def nearest(centroids, descriptors):
    return ((descriptors[:, None] - centroids.astype(np.float32)) ** 2).sum(-1).argmin(1)


@given(points)
@settings(max_examples=30)
def test_a_descriptor_belongs_to_its_nearest_centroid(descriptors):
    descriptors = np.array(descriptors, np.float32)
    made = make_cells(make_task("qd-walker"))
    np.testing.assert_array_equal(made.assign(jnp.array(descriptors)), nearest(made.centroids, descriptors))


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([5, 60, 300]),
    st.sampled_from([1.0, 1e-3, 1e4]),
    st.integers(0, 2**32 - 1),
)
def test_bins_of_candidates_give_the_cells_of_a_search_in_all_centroids(dimensions, count, span, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 2, dimensions) * span
    bounds = np.stack([low, low + span * rng.uniform(0.5, 2, dimensions)], axis=1)
    unit = rng.random((count, dimensions)) ** rng.choice([1, 4])  # some are crowded in a corner
    made = cells.Cells(low + (bounds[:, 1] - low) * unit, bounds, ())
    centroids = jnp.array(made.centroids, jnp.float32)
    inside = low + (bounds[:, 1] - low) * rng.random((600, dimensions))
    ties = (made.centroids[rng.integers(count, size=600)] + made.centroids[rng.integers(count, size=600)]) / 2
    edges = low + (bounds[:, 1] - low) * rng.integers(0, 65, (600, dimensions)) / 64  # on the edges of bins
    beyond = inside + 3 * span * rng.normal(size=inside.shape)
    for descriptors in (inside, ties, edges, beyond, np.where(rng.random((600, 1)) < 0.1, np.nan, inside)):
        given = jnp.array(descriptors, jnp.float32)
        expected = cells._search_one_by_one(given, centroids, jnp.asarray(cells.spans(bounds)))
        np.testing.assert_array_equal(made.assign(given), expected)


def test_bins_are_used_where_they_have_few_candidates():
    walker, ant = (make_cells(make_task(name)) for name in ("qd-walker", "qd-ant"))
    assert len(cells.make_bins(walker.centroids, walker.bounds).candidates) < 10
    assert len(cells.make_bins(ant.centroids, ant.bounds).candidates) < 1296 / 8
    assert cells.make_bins(np.random.default_rng(0).random((100, 8)), np.array([[0.0, 1.0]] * 8)) is None


@given(points)
@settings(max_examples=50)
def test_a_grid_finds_the_nearest_centroid_too(descriptors):
    descriptors = np.array(descriptors, np.float32)
    made = make_grid((4, 8), [(0, 1), (-1, 1)])
    indices = np.asarray(made.assign(jnp.array(descriptors)))
    distance = np.sqrt(((np.clip(descriptors, [0, -1], [1, 1]) - made.centroids[indices]) ** 2).max(1))
    assert (distance <= 0.125 + 1e-6).all()  # half a cell's side, in either dimension


@pytest.mark.parametrize("name", list(TASKS))
def test_cells_of_our_tasks_are_shipped_and_cover_their_space(name, monkeypatch):
    monkeypatch.setattr(cells, "_load_or_compute", None)  # would be called if they were not shipped
    task = make_task(name)
    made = make_cells(task)
    assert made.centroids.shape == (task.cells, task.descriptor_size)
    assert len(np.unique(made.centroids, axis=0)) == task.cells
    low, high = made.bounds.T
    assert (made.centroids > low).all()
    assert (made.centroids < high).all()
    points = np.random.default_rng(1).random((20_000, task.descriptor_size))
    nearest = cKDTree((made.centroids - low) / (high - low)).query(points)[1]
    some = (low + (high - low) * points[:500]).astype(np.float32)
    assert (np.asarray(made.assign(jnp.array(some))) == nearest[:500]).mean() > 0.99  # but for rounding
    shares = np.bincount(nearest, minlength=task.cells) / len(points) * task.cells
    assert (shares > 0).mean() > 0.99
    assert shares.std() < 0.6


@pytest.mark.parametrize("version", [1, 2])
def test_shipped_cells_are_what_the_code_computes(version):
    computed = compute_centroids(1000, 1, version)
    np.testing.assert_allclose(make_cvt(1000, [(0, 1)], version).centroids, computed, atol=1e-12)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 30), st.none() | st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_skipping_points_does_not_change_centroids(dimensions, count, iterations, seed):
    points = np.random.default_rng(seed).random((300, dimensions))
    centroids = points[:count]
    for _ in range(10_000 if iterations is None else iterations):
        nearest = cKDTree(centroids).query(points)[1]
        sizes = np.bincount(nearest, minlength=count)
        sums = np.stack([np.bincount(nearest, axis, minlength=count) for axis in points.T], axis=1)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centroids)
        if np.abs(moved - centroids).max() < 1e-6:
            break
        centroids = moved
    np.testing.assert_array_equal(cells.lloyd(points, points[:count], iterations), centroids)


@pytest.mark.parametrize("name", ["qd-hopper", "qd-walker", "qd-ant"])
def test_cells_have_converged(name):
    """Each centroid is the mean of its cell; in one dimension cells are of equal size, in two more equal."""
    task = make_task(name)
    points = np.random.default_rng(5).random((400_000, task.descriptor_size))
    spread = {}
    for version in (1, 2):
        made = make_cells(task, "cvt", version)
        nearest = cKDTree(made.centroids).query(points)[1]
        sizes = np.bincount(nearest, minlength=task.cells)
        spread[version] = (
            np.sqrt(max(0, sizes.var() - sizes.mean())) / sizes.mean()
        )  # less that of the sample
    if task.descriptor_size < 3:
        assert spread[2] < (0.05 if task.descriptor_size == 1 else 0.85 * spread[1])
    shift = np.stack([np.bincount(nearest, axis, minlength=task.cells) / sizes for axis in points.T], 1)
    side = task.cells ** (-1 / task.descriptor_size)
    assert np.abs(shift - made.centroids).mean() < 0.05 * side


def test_other_cells_are_computed_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ELITES_CACHE", str(tmp_path))
    monkeypatch.setattr(cells, "SAMPLES", 1000)
    first = make_cvt(20, [(0, 1), (-5, 5)])
    assert first.centroids[:, 1].min() < -3
    monkeypatch.setattr(cells, "compute_centroids", None)
    np.testing.assert_array_equal(make_cvt(20, [(0, 1), (-5, 5)]).centroids, first.centroids)


def test_a_damaged_cache_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("ELITES_CACHE", str(tmp_path))
    monkeypatch.setattr(cells, "SAMPLES", 1000)
    first = make_cvt(20, [(0, 1), (0, 1)])
    for path in tmp_path.rglob("*.npz"):
        path.write_bytes(path.read_bytes()[:100])
    np.testing.assert_array_equal(make_cvt(20, [(0, 1), (0, 1)]).centroids, first.centroids)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ElitesError, match="archive is 'tree'; it must be cvt or grid"):
        make_cells(make_task("qd-ant"), "tree")


def test_more_cells_than_samples_are_refused():
    with pytest.raises(ElitesError, match="cells is 100001; it must be at most 100000"):
        make_cvt(100_001, [(0, 1)])
