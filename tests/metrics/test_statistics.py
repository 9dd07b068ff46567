import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, mannwhitneyu

from elites.metrics.statistics import bonferroni, quartiles, rank_sum_p, sign_p, smallest_p


def test_p_of_three_against_three_by_hand():
    """One of the 20 ways to divide six values is as extreme, and its mirror image."""
    assert rank_sum_p([4, 5, 6], [1, 2, 3]) == pytest.approx(2 / 20)
    assert rank_sum_p([1, 2, 6], [3, 4, 5]) == pytest.approx(14 / 20)  # sums of at most 9, or at least 12
    assert rank_sum_p([1, 2, 3], [1, 2, 3]) == 1.0


def test_p_with_ties_by_hand():
    """[1, 1] against [1, 2]: ranks 2, 2, 2, 4. Of the six pairs three have sum 4, three have 6."""
    assert rank_sum_p([1, 1], [1, 2]) == 1.0
    # ranks 1.5, 1.5, 3.5, 3.5: one pair of six has the sum 3, one has 7, four have 5
    assert rank_sum_p([1, 1], [2, 2]) == pytest.approx(2 / 6)


@given(st.data())
def test_without_ties_p_equals_that_of_scipy(data):
    values = data.draw(st.lists(st.integers(-1000, 1000), min_size=2, max_size=24, unique=True))
    cut = data.draw(st.integers(1, len(values) - 1))
    one, other = values[:cut], values[cut:]
    expected = mannwhitneyu(one, other, method="exact").pvalue
    assert rank_sum_p(one, other) == pytest.approx(expected, rel=1e-9)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
)
def test_with_ties_p_is_the_share_of_all_divisions(one, other):
    pooled = np.array([*one, *other], float)
    ranks = np.array([(pooled < value).sum() + ((pooled == value).sum() + 1) / 2 for value in pooled])
    expected = len(one) * ranks.mean()
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(one))]
    far = [abs(total - expected) >= abs(ranks[: len(one)].sum() - expected) - 1e-9 for total in sums]
    assert rank_sum_p(one, other) == pytest.approx(np.mean(far))
    assert rank_sum_p(one, other) == pytest.approx(rank_sum_p(other, one))


@pytest.mark.parametrize("count", [20, 40])
def test_p_of_many_replications(count):
    """At 40 against 40 the numbers of ways no longer fit 64 bits."""
    rng = np.random.default_rng(count)
    one, other = rng.normal(size=count), rng.normal(0.5, size=count)
    assert rank_sum_p(one, other) == pytest.approx(mannwhitneyu(one, other, method="exact").pvalue)
    apart = rank_sum_p(np.arange(count), np.arange(count) + count)
    assert apart == pytest.approx(smallest_p(count, count)) == pytest.approx(2 / math.comb(2 * count, count))


def test_the_smallest_p_that_replications_can_reach():
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert smallest_p(1, 1) == 1.0
    assert smallest_p(0, 3) == 1.0
    assert bonferroni(smallest_p(3, 3), 10) == 1.0
    assert bonferroni(0.001, 10) == pytest.approx(0.01)


def test_nan_is_left_out():
    assert rank_sum_p([4, np.nan, 5, 6], [1, 2, 3]) == pytest.approx(0.1)
    assert math.isnan(rank_sum_p([np.nan], [1, 2]))
    assert quartiles([1, 2, np.nan, 3]) == (2.0, 1.5, 2.5)
    assert all(map(math.isnan, quartiles([])))
    assert quartiles([0.1, np.inf, np.inf, np.inf]) == (np.inf,) * 3  # a loss may be infinite
    assert quartiles([-np.inf, 1, 2, np.inf, np.inf]) == (2.0, 1.0, np.inf)


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_sign_test_equals_that_of_scipy(successes, failures):
    if successes + failures == 0:
        assert math.isnan(sign_p(0, 0))
    else:
        expected = binomtest(successes, successes + failures).pvalue
        assert sign_p(successes, failures) == pytest.approx(expected)
