"""Bins along a descriptor of one dimension: unions of adjacent cells."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elites.reports.bins import MAX_BINS, assign_bins, bin_values, count_by_bin

BOUNDS = np.array([-1.0, 3.0])
CENTROIDS = st.lists(st.floats(-1, 3, width=32), min_size=1, max_size=260, unique=True).map(np.array)


@given(CENTROIDS)
def test_bins_hold_adjacent_cells_and_differ_by_one_at_most(centroids):
    edges, numbers = assign_bins(centroids, BOUNDS)
    assert (edges[0], edges[-1]) == (-1, 3)
    assert (np.diff(edges) >= 0).all()
    assert len(edges) - 1 == min(MAX_BINS, len(centroids))
    assert (edges[numbers] <= centroids).all()
    assert (centroids <= edges[numbers + 1]).all()
    sizes = np.bincount(numbers, minlength=len(edges) - 1)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@given(CENTROIDS, st.integers(0, 2**32 - 1))
def test_a_bin_has_the_values_of_its_cells(centroids, seed):
    rng = np.random.default_rng(seed)
    cell = rng.permutation(len(centroids))[: rng.integers(0, len(centroids) + 1)]
    values = rng.normal(size=len(cell))
    values[rng.random(len(cell)) < 0.1] = np.nan
    _, numbers = assign_bins(centroids, BOUNDS)
    bins = bin_values(centroids, BOUNDS, cell, values)
    assert bins.cells.sum() == len(centroids)
    assert bins.elites.sum() == np.isfinite(values).sum()
    assert (bins.elites <= bins.cells).all()
    for number in range(len(bins.cells)):
        own = values[(numbers[cell] == number) & np.isfinite(values)]
        assert bins.elites[number] == len(own)
        if not len(own):
            assert np.isnan([bins.highest[number], bins.upper[number], bins.median[number]]).all()
            continue
        assert bins.highest[number] == own.max()
        assert bins.median[number] == np.median(own)
        assert own.min() <= bins.lower[number] <= bins.median[number] <= bins.upper[number] <= own.max()
    kinds = rng.integers(0, 3, len(cell))
    counts = count_by_bin(centroids, BOUNDS, cell, kinds, 4)
    assert counts.sum(1).tolist() == np.bincount(kinds, minlength=4).tolist()
    assert counts.sum(0).tolist() == np.bincount(numbers[cell], minlength=len(bins.cells)).tolist()


def test_the_size_of_bins_in_words():
    for cells, words in ((1000, "20 cells"), (30, "1 cell"), (120, "2 to 3 cells")):
        centroids = np.linspace(-1, 3, cells)
        assert bin_values(centroids, BOUNDS, np.empty(0, int), np.empty(0)).size == words
