"""Tests of whether two algorithms differ, exact for any number of replications."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.05  # below it a p-value counts as significant


def rank_sum_p(first: ArrayLike, second: ArrayLike) -> float:
    """The p-value of the two-sided Wilcoxon rank-sum (Mann-Whitney) test, exact with ties too.

    Among all splits of the pooled values, it is the share with a rank sum at least as far from the expected
    one as that of `first`. Ties have their mean rank. NaN is left out; the result is NaN without any values.
    """
    one, other = _numbers(first), _numbers(second)
    if not len(one) or not len(other):
        return math.nan
    ranks = _doubled_ranks(np.concatenate([one, other]))
    return _share_of_splits(tuple(sorted(ranks.tolist())), len(one), int(ranks[: len(one)].sum()))


@functools.lru_cache(maxsize=4096)  # reports ask for the same ones several times
def _share_of_splits(ranks: tuple[int, ...], size: int, observed: int) -> float:
    """The share of the splits whose rank sum is as far from the expected one as `observed`."""
    total, count = sum(ranks), len(ranks)
    ways = _count_subsets(ranks, size)
    # Distances from the mean, times the number of values: integers, so that comparisons are exact.
    distance = np.abs(count * np.arange(len(ways)) - size * total)
    far = distance >= abs(count * observed - size * total)
    return float(sum(map(int, ways[far])) / math.comb(count, size))


def least_p(first: int, second: int) -> float:
    """The smallest p-value that `first` against `second` replications can reach, without ties."""
    if first < 1 or second < 1:
        return 1.0
    return min(1.0, 2 / math.comb(first + second, first))


def sign_p(successes: int, failures: int) -> float:
    """The p-value of the two-sided sign test."""
    count = successes + failures
    if not count:
        return math.nan
    tail = sum(math.comb(count, k) for k in range(min(successes, failures) + 1))
    return float(min(1.0, 2 * tail / 2**count))


def bonferroni(p: float, comparisons: int) -> float:
    """A p-value corrected for the number of comparisons."""
    return min(1.0, p * max(1, comparisons))


def quartiles(values: ArrayLike) -> tuple[float, float, float]:
    """(median, first quartile, third quartile); NaN is left out. NaN without any values."""
    numbers = _numbers(values)
    if not len(numbers):
        return (math.nan,) * 3
    levels = (0.25, 0.5, 0.75)
    below, above = (np.quantile(numbers, levels, method=method) for method in ("lower", "higher"))
    with np.errstate(invalid="ignore"):  # NumPy returns NaN between infinite values, which losses may be
        between = np.quantile(numbers, levels)
        between = np.where(np.isnan(between), below + above, between)
    low, middle, high = np.where(below == above, below, between)
    return float(middle), float(low), float(high)


def _numbers(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, np.float64).ravel()
    return array[~np.isnan(array)]


def _doubled_ranks(values: np.ndarray) -> np.ndarray:
    """Twice the rank of each value, ties at their mean rank: integers."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (2 * last - counts + 1)[inverse]


def _count_subsets(ranks: Sequence[int], size: int) -> np.ndarray:
    """The number of subsets of `size` ranks with each sum."""
    large = math.comb(len(ranks), size) >= 2**62
    ways: np.ndarray = np.zeros((size + 1, sum(ranks) + 1), object if large else np.int64)
    ways[0, 0] = 1
    for rank in ranks:
        for chosen in range(size, 0, -1):
            ways[chosen, rank:] += ways[chosen - 1, : ways.shape[1] - rank]
    return ways[size]  # type: ignore[no-any-return]
