"""Whether two algorithms differ, by tests that are exact for any number of replications, and by how much.

Effect sizes have bootstrap intervals. The same values give the same intervals.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.05  # below it a p-value counts as significant
RESAMPLES, CONFIDENCE, SEED = 2000, 0.95, 20_220_101
TRIMMED = 0.25  # of the values, at each end of an interquartile mean


def rank_sum_p(first: ArrayLike, second: ArrayLike) -> float:
    """The p-value of the two-sided Wilcoxon rank-sum (Mann-Whitney) test, exact with ties too.

    It is the share of all splits of the pooled values whose rank sum is at least as far from the expected one
    as that of `first`. Ties have their mean rank. NaN is left out; the result is NaN without any values.
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


def smallest_p(first: int, second: int) -> float:
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
    """The sorted values, so that the order of replications does not matter; without NaN."""
    array = np.asarray(values, np.float64).ravel()
    return np.sort(array[~np.isnan(array)])


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


class Interval(NamedTuple):
    """An estimate and its 95 % bootstrap interval; NaN without values, no interval for single values."""

    estimate: float
    low: float = math.nan
    high: float = math.nan


def superiority(first: ArrayLike, second: ArrayLike) -> Interval:
    """The probability that a value of `first` is above one of `second`, ties counted half.

    It is the A of Vargha and Delaney (2000): 0.5 where they do not differ. NaN is left out.
    """
    return mean_superiority([(first, second)])


def mean_superiority(pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Interval:
    """The mean of `superiority` over strata; replications are resampled within each."""
    numbers = [(_numbers(first), _numbers(second)) for first, second in pairs]
    if not numbers or not all(len(values) for pair in numbers for values in pair):
        return Interval(math.nan)
    estimates, resampled = [], np.zeros(RESAMPLES)
    for stratum, (first, second) in enumerate(numbers):
        above = np.where(first[:, None] == second, 0.5, first[:, None] > second)
        estimates.append(above.mean())
        times = _resample_counts(len(first), 2 * stratum), _resample_counts(len(second), 2 * stratum + 1)
        resampled += ((times[0] @ above) * times[1]).sum(1) / above.size
    return _interval(
        float(np.mean(estimates)), resampled / len(numbers), [values for pair in numbers for values in pair]
    )


def median_difference(first: ArrayLike, second: ArrayLike) -> Interval:
    """The median of `first` minus that of `second`. NaN is left out."""
    one, other = _numbers(first), _numbers(second)
    if not len(one) or not len(other):
        return Interval(math.nan)
    with np.errstate(invalid="ignore"):  # infinite losses
        estimate = float(np.median(one) - np.median(other))
        resampled = _resampled_medians(one, 0) - _resampled_medians(other, 1)
    return _interval(estimate, resampled, [one, other])


def interquartile_mean(strata: Sequence[ArrayLike]) -> Interval:
    """The mean of the middle half of all values; replications are resampled within each stratum.

    As scipy's `trim_mean`, it leaves out a whole number of values at each end.
    """
    numbers = [_numbers(values) for values in strata]
    if not numbers or not all(map(len, numbers)):
        return Interval(math.nan)
    resampled = [
        values[_resample_indices(len(values), 2 * stratum)] for stratum, values in enumerate(numbers)
    ]  # the streams of the first algorithms of `mean_superiority`
    estimate = float(_trimmed_means(np.concatenate(numbers)[None])[0])
    return _interval(estimate, _trimmed_means(np.concatenate(resampled, axis=1)), numbers)


def _trimmed_means(rows: np.ndarray) -> np.ndarray:
    count = rows.shape[1]
    cut = int(TRIMMED * count)
    if cut:
        rows = np.partition(rows, (cut, count - cut - 1), axis=1)
    middle = rows[:, cut : count - cut]
    first = middle[:, :1]
    with np.errstate(invalid="ignore"):
        means: np.ndarray = first[:, 0] + (middle - first).mean(1)  # exact where all are equal
    return means


def _interval(estimate: float, resampled: np.ndarray, samples: Sequence[np.ndarray]) -> Interval:
    """The percentile interval. It contains the estimate, and is unknown where a sample is a single value."""
    if min(map(len, samples)) < 2 or not np.isfinite(resampled).all() or not math.isfinite(estimate):
        return Interval(estimate)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate))


def _resampled_medians(values: np.ndarray, stream: int) -> np.ndarray:
    """Medians of resamples of sorted values."""
    low, high = _middle_ranks(len(values), stream)
    return (values[low] + values[high]) / 2  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=128)
def _resample_indices(count: int, stream: int) -> np.ndarray:
    """The indices of the values in each resample `[RESAMPLES, count]`; each stream is independent."""
    return np.random.default_rng((SEED, stream, count)).integers(0, count, (RESAMPLES, count))


@functools.lru_cache(maxsize=128)
def _resample_counts(count: int, stream: int) -> np.ndarray:
    """The number of times that each resample contains each value."""
    rows = np.arange(RESAMPLES)[:, None] * count
    flat = np.bincount((rows + _resample_indices(count, stream)).ravel(), minlength=RESAMPLES * count)
    return flat.reshape(RESAMPLES, count).astype(np.float64)


@functools.lru_cache(maxsize=128)
def _middle_ranks(count: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """The ranks, among the sorted values, of the two middle values of each resample."""
    ranks = np.sort(_resample_indices(count, stream), axis=1)
    return ranks[:, (count - 1) // 2], ranks[:, count // 2]
