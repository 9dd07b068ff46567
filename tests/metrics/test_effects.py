"""Effect sizes and their bootstrap intervals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, trim_mean

from elites.metrics.statistics import interquartile_mean, mean_superiority, median_difference, superiority

SAMPLE = st.lists(st.integers(-50, 50), min_size=2, max_size=12)


def test_superiority_by_hand():
    assert superiority([4, 5, 6], [1, 2, 3]) == (1, 1, 1)
    assert superiority([1, 2], [2, 3]).estimate == (0 + 0 + 0.5 + 0) / 4
    assert superiority([5, 1, 3], [2, 4]).estimate == 3 / 6
    assert median_difference([1, 2, 9], [4, 5]).estimate == 2 - 4.5
    assert interquartile_mean([[0, 1, 2, 100], [3, 4, 5, -100]]).estimate == (1 + 2 + 3 + 4) / 4
    assert mean_superiority([([2, 3], [0, 1]), ([1, 2], [2, 3])]).estimate == (1 + 0.125) / 2


def test_an_interval_by_hand():
    """Two values against one constant: a resample has both high with 1/4, one of each with 1/2."""
    assert superiority([0, 2], [1, 1]) == (0.5, 0, 1)
    assert median_difference([0, 2], [1, 1]) == (0, -1, 1)
    assert interquartile_mean([[7, 7, 7]]) == (7, 7, 7)


@given(SAMPLE)
def test_equal_samples_do_not_differ(values):
    interval = superiority(values, values)
    assert interval.estimate == 0.5
    assert interval.low <= 0.5 <= interval.high
    assert median_difference(values, values).estimate == 0


@given(SAMPLE, SAMPLE)
def test_swapped_samples_give_the_opposite_effect(first, second):
    assert superiority(first, second).estimate == pytest.approx(1 - superiority(second, first).estimate)
    assert median_difference(first, second).estimate == -median_difference(second, first).estimate
    u = mannwhitneyu(first, second).statistic
    assert superiority(first, second).estimate == pytest.approx(u / (len(first) * len(second)))


@given(SAMPLE, SAMPLE)
def test_intervals_contain_their_estimates(first, second):
    for interval in (
        superiority(first, second),
        median_difference(first, second),
        interquartile_mean([first, second]),
        mean_superiority([(first, second), (second, first)]),
    ):
        assert interval.low <= interval.estimate <= interval.high
    estimate, low, high = superiority(first, second)
    assert low >= 0
    assert high <= 1
    values = [*first, *second]
    assert min(values) <= interquartile_mean([first, second]).low
    assert interquartile_mean([values]).estimate == pytest.approx(trim_mean(np.array(values, float), 0.25))
    assert superiority(first[::-1], sorted(second)) == (estimate, low, high)


@given(SAMPLE, SAMPLE)
def test_the_interval_is_that_of_its_resamples(first, second):
    """The interval of A from the same resamples, counted pair by pair."""
    from elites.metrics import statistics as effects

    one, other = np.sort(np.array(first, float)), np.sort(np.array(second, float))
    places = effects._resample_indices(len(one), 0), effects._resample_indices(len(other), 1)
    drawn, against = one[places[0][:50], None], other[places[1][:50]][:, None]
    expected = ((drawn > against) + 0.5 * (drawn == against)).mean((1, 2))
    above = np.where(one[:, None] == other, 0.5, one[:, None] > other)
    times = effects._resample_counts(len(one), 0)[:50], effects._resample_counts(len(other), 1)[:50]
    np.testing.assert_allclose(((times[0] @ above) * times[1]).sum(1) / above.size, expected)
    medians = effects._resampled_medians(one, 0)[:50]
    np.testing.assert_array_equal(medians, np.median(one[places[0][:50]], axis=1))


def test_samples_that_are_too_small_have_no_interval():
    assert superiority([3], [1, 2])[0] == 1
    assert all(map(math.isnan, superiority([3], [1, 2])[1:]))  # one replication says nothing of their spread
    assert math.isnan(superiority([], [1, 2]).estimate)
    assert superiority([np.nan, 3, 4], [1, 2]).estimate == 1
    assert math.isnan(interquartile_mean([]).estimate)
    interval = median_difference([np.inf, np.inf, 1], [np.inf, 2, 3])  # losses may be infinite
    assert interval.estimate == np.inf
    assert math.isnan(interval.low)


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """About 95 % of them, with 20 against 20 normal values a standard deviation apart."""
    rng, truth = np.random.default_rng(0), 0.760249938906523  # of A: the normal distribution at 1 / sqrt(2)
    covered = np.zeros(3)
    for _ in range(1000):
        first, second = rng.normal(1, 1, 20), rng.normal(0, 1, 20)
        for place, (interval, true) in enumerate(
            (
                (superiority(first, second), truth),
                (median_difference(first, second), 1.0),
                (interquartile_mean([first, second]), 0.5),  # symmetric about it
            )
        ):
            covered[place] += interval.low <= true <= interval.high
    assert (covered >= 920).all()
    assert (covered <= 985).all()
