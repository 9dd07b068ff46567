"""Values along a descriptor of one dimension, in bins of adjacent cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_BINS = 50


class Bins(NamedTuple):
    """The contents of the bins, `[bins]`; values are NaN where there is no elite."""

    edges: np.ndarray  # [bins + 1]
    cells: np.ndarray
    elites: np.ndarray
    highest: np.ndarray
    upper: np.ndarray  # quartile
    median: np.ndarray
    lower: np.ndarray  # quartile

    @property
    def size(self) -> str:
        """The cells of a bin, in words."""
        least, most = int(self.cells.min()), int(self.cells.max())
        if most == 1:
            return "1 cell"
        return f"{most} cells" if least == most else f"{least} to {most} cells"


def assign_bins(centroids: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of bins, and the bin of each cell. Sizes of bins differ by one cell at most."""
    low, high = map(float, bounds)
    order = np.argsort(centroids, kind="stable")
    groups = np.array_split(order, min(MAX_BINS, len(order)))
    places = np.asarray(centroids, np.float64)[order]
    first = np.cumsum([len(group) for group in groups])[:-1]
    edges = np.concatenate([[low], np.clip((places[first - 1] + places[first]) / 2, low, high), [high]])
    numbers = np.empty(len(order), int)
    for number, group in enumerate(groups):
        numbers[group] = number
    return edges, numbers


def bin_values(centroids: np.ndarray, bounds: np.ndarray, cell: np.ndarray, values: np.ndarray) -> Bins:
    """Values of elites and their cells, in bins; values that are NaN are left out."""
    edges, numbers = assign_bins(centroids, bounds)
    finite = np.isfinite(values)
    own, values = numbers[cell[finite]], np.asarray(values, np.float64)[finite]
    count = len(edges) - 1
    quartiles = np.full((count, 4), np.nan)
    for number in np.unique(own):
        quartiles[number] = np.percentile(values[own == number], (100, 75, 50, 25))
    cells, elites = np.bincount(numbers, minlength=count), np.bincount(own, minlength=count)
    return Bins(edges, cells, elites, *quartiles.T)


def count_by_bin(
    centroids: np.ndarray, bounds: np.ndarray, cell: np.ndarray, kinds: np.ndarray, count: int
) -> np.ndarray:
    """Elites of each of `count` kinds in each bin, `[count, bins]`."""
    edges, numbers = assign_bins(centroids, bounds)
    counts = np.zeros((count, len(edges) - 1), int)
    np.add.at(counts, (kinds, numbers[cell]), 1)
    return counts
