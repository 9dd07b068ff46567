import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elites import ElitesError
from elites.archives.cells import make_cvt, make_grid
from elites.metrics.corrected import (
    average_replications,
    average_samples,
    compute_loss,
    compute_losses,
    compute_spread,
    select_luckiest,
    select_most_reproducible,
)
from elites.metrics.metric import compute_archive_metrics

CELLS = make_cvt(12, [(0, 1), (0, 1)])
GRID = make_grid((4, 3), [(0, 1), (0, 1)])
WHERE = {"centroids": CELLS.centroids}
GRID_WHERE = {"centroids": GRID.centroids, "grid": GRID.grid, "bounds": GRID.bounds}
numbers = st.floats(-1e4, 1e4, width=32)
anything = st.floats(width=32)


@st.composite
def replicated(draw, fitness=numbers, where=CELLS):
    """An archive over twelve cells, and replications of its elites."""
    cell = np.array(draw(st.lists(st.integers(0, 11), unique=True)), np.int32)
    samples = draw(st.integers(1, 4))
    descriptor = where.centroids[cell].astype(np.float32)
    return (
        draw(arrays(np.float32, len(cell), elements=numbers)),
        descriptor,
        cell,
        draw(arrays(np.float32, (len(cell), samples), elements=fitness)),
        draw(arrays(np.float32, (len(cell), samples, 2), elements=st.floats(0, 1, width=32))),
    )


@given(arrays(np.float32, (3, 5), elements=numbers))
def test_a_mean_lies_within_its_samples(samples):
    means = average_samples(samples)
    assert (samples.min(1) <= means).all()
    assert (means <= samples.max(1)).all()
    np.testing.assert_allclose(means, samples.astype(float).mean(1), atol=1e-8)


@given(numbers, st.integers(1, 60))
def test_the_mean_of_equal_values_is_that_value(value, count):
    assert average_samples(np.full((1, count), value, np.float32))[0] == value


@given(replicated(), st.integers(1, 50), st.floats(-1e3, 1e3))
def test_equal_replications_have_no_loss(archive, count, offset):
    fitness, descriptor, cell, *_ = archive
    again = np.repeat(fitness[:, None], count, 1), np.repeat(descriptor[:, None], count, 1)
    correction = average_replications(fitness, descriptor, cell, *again, **WHERE, qd_offset=offset)
    assert correction.losses.qd_score == correction.losses.coverage == 0
    assert correction.losses.max_fitness == 0 or not len(cell)
    np.testing.assert_array_equal(correction.cell, cell)
    assert correction.kept.all()
    apart = compute_spread(cell, *again, **WHERE)
    assert not apart.fitness.any()
    assert not apart.descriptor.any()
    assert (apart.own_cell == 1).all()


@given(replicated(), st.floats(-1e3, 1e3))
def test_the_corrected_archive_never_exceeds_what_its_samples_allow(archive, offset):
    correction = average_replications(*archive, **WHERE, qd_offset=offset)
    samples = archive[3].astype(float)
    above = np.maximum(samples - offset, 0).mean(1).sum()  # no mean above the offset is more than this
    assert correction.metrics.qd_score <= above * (1 + 1e-12) + 1e-9
    assert correction.metrics.coverage <= len(archive[2]) / 12
    if len(samples):
        assert correction.metrics.max_fitness <= samples.max()


@given(replicated(fitness=anything), st.floats(-1e3, 1e3))
def test_the_corrected_archive_equals_adding_elites_one_by_one(archive, offset):
    _, _, _, samples, places = archive
    elites = {}
    for index, (values, descriptors) in enumerate(zip(samples.astype(float), places, strict=True)):
        if not np.isfinite(values).all():
            continue
        fitness = values[0] + (values - values[0]).mean()
        centre = descriptors[0].astype(float) + (descriptors.astype(float) - descriptors[0]).mean(0)
        cell = int(CELLS.assign(centre.astype(np.float32)[None])[0])
        if cell not in elites or fitness > elites[cell][0]:
            elites[cell] = fitness, index
    correction = average_replications(*archive, **WHERE, qd_offset=offset)
    assert sorted(index for _, index in elites.values()) == np.flatnonzero(correction.kept).tolist()
    expected = compute_archive_metrics([fitness for fitness, _ in elites.values()], 12, offset)
    np.testing.assert_allclose(correction.metrics, expected, rtol=1e-9)
    np.testing.assert_equal(
        correction.losses, compute_losses(compute_archive_metrics(archive[0], 12, offset), correction.metrics)
    )


@given(replicated(fitness=anything), st.floats(-1e3, 1e3))
def test_non_finite_values_are_left_out_and_counted(archive, offset):
    correction = average_replications(*archive, **WHERE, qd_offset=offset)
    invalid = ~np.isfinite(archive[3]).all(1)
    assert correction.invalid == invalid.sum()
    assert not correction.kept[invalid].any()
    assert np.isfinite(correction.fitness[correction.kept]).all()
    assert np.isfinite(correction.descriptor[correction.kept]).all()
    assert np.isfinite(correction.metrics.qd_score)
    apart = compute_spread(*archive[2:], **WHERE)
    np.testing.assert_array_equal(np.isnan(apart.fitness), invalid)
    assert not set(np.flatnonzero(invalid)) & set(select_most_reproducible(apart))


def test_a_descriptor_that_is_not_finite_is_invalid_too():
    places = np.full((2, 3, 2), 0.5)
    places[1, 2, 0] = np.nan
    correction = average_replications(
        [1, 2], places[:, 0], [0, 1], np.ones((2, 3)), places, **WHERE, qd_offset=0
    )
    assert correction.invalid == 1
    assert correction.cell[1] == -1
    assert correction.kept.tolist() == [True, False]


@given(replicated(where=GRID), st.floats(-1e3, 1e3))
def test_a_grid_finds_the_nearest_cell(archive, offset):
    correction = average_replications(*archive, **GRID_WHERE, qd_offset=offset)
    distances = np.linalg.norm(correction.descriptor[:, None] - GRID.centroids, axis=-1)
    of = distances[np.arange(len(correction.cell)), correction.cell]
    np.testing.assert_allclose(of, distances.min(1, initial=np.inf), atol=1e-6)


def test_a_small_archive_by_hand():
    """Three elites of four cells on a line: two meet in one cell, one of them below the offset."""
    centroids = [[0.125], [0.375], [0.625], [0.875]]
    descriptor = [[0.1], [0.4], [0.6]]
    samples = [[2.0, 4.0], [10.0, 0.0], [-7.0, -5.0]]
    places = [[[0.4], [0.3]], [[0.4], [0.4]], [[0.6], [1.0]]]
    correction = average_replications(
        [8.0, 10.0, 1.0], descriptor, [0, 1, 2], samples, places, centroids, -2.0
    )
    assert correction.fitness.tolist() == [3.0, 5.0, -6.0]
    assert correction.cell.tolist() == [1, 1, 3]
    assert correction.kept.tolist() == [False, True, True]
    assert correction.metrics == (7.0, 5.0, 0.5)  # the third is below the offset and counts 0
    assert correction.losses == pytest.approx(((10 + 12 + 3 - 7) / 25, 0.5, 1 / 3))
    apart = compute_spread([0, 1, 2], samples, places, centroids)
    assert apart.fitness.tolist() == [1.0, 5.0, 1.0]
    assert apart.descriptor == pytest.approx([0.05, 0.0, 0.2])
    assert apart.own_cell.tolist() == [0.0, 1.0, 0.5]
    assert select_most_reproducible(apart).tolist() == [1, 2, 0]
    assert select_luckiest([8.0, 10.0, -8.0], correction.fitness).tolist() == [0, 1]  # the third had bad luck


def test_an_empty_archive_has_no_loss():
    correction = average_replications(
        [], np.zeros((0, 2)), [], np.zeros((0, 5)), np.zeros((0, 5, 2)), **WHERE, qd_offset=0
    )
    assert correction.losses.qd_score == correction.losses.coverage == 0
    assert math.isnan(correction.losses.max_fitness)
    assert correction.metrics.coverage == correction.invalid == 0
    assert (
        select_luckiest([], []).size
        == select_most_reproducible(compute_spread([], *found_nothing(), **WHERE)).size
        == 0
    )


def found_nothing():
    return np.zeros((0, 5)), np.zeros((0, 5, 2))


@given(numbers, numbers)
@example(0.0, 0.0)
@example(-5.0, -10.0)
def test_a_loss_is_positive_if_the_value_decreases(original, corrected):
    lost = compute_loss(original, corrected)
    assert (lost > 0) == (corrected < original)
    assert (lost == 0) == (corrected == original)


def test_losses_of_zero_and_of_negative_numbers():
    assert compute_loss(0, 0) == 0
    assert compute_loss(0, -3) == math.inf
    assert compute_loss(0, 3) == -math.inf
    assert compute_loss(-100, -150) == 0.5
    assert compute_loss(-100, -50) == -0.5
    assert math.isnan(compute_loss(math.nan, 1))
    assert math.isnan(compute_loss(1, math.nan))


@pytest.mark.parametrize(
    ("samples", "places", "message"),
    [
        (
            np.ones((3, 5)),
            np.ones((2, 5, 2)),
            r"shapes \(3, 5\) and \(2, 5, 2\); with 2 elites they must be \(2, N\)",
        ),
        (np.ones((2, 0)), np.ones((2, 0, 2)), "N at least 1"),
        (np.ones(2), np.ones((2, 2)), "with 2 elites they must be"),
        (np.ones((2, 5)), np.ones((2, 5, 3)), "do not belong to replications"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(samples, places, message):
    with pytest.raises(ElitesError, match=message):
        average_replications([1, 2], np.ones((2, 2)), [0, 1], samples, places, **WHERE, qd_offset=0)
    with pytest.raises(ElitesError, match="a grid needs its bounds"):
        average_replications(
            [1.0], [[0.5, 0.5]], [0], [[1.0]], [[[0.1, 0.5]]], GRID.centroids, 0, grid=GRID.grid
        )
