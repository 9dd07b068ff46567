import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites.metrics.contribution import choose_window, count_added, smooth


def test_what_is_added_is_new_or_improved():
    rows = {"made_ga": np.array([9, 9]), "new_ga": np.array([1, 2]), "improved_ga": np.array([3, 0])}
    for generations, expected in (([1, 2], [4, 2]), ([2, 6], [2, 0.5])):
        (contribution,) = count_added({"generation": np.array(generations), **rows}).items()
        assert (contribution[0], contribution[1].tolist()) == ("ga", expected)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 80))
def test_smoothing_is_the_mean_of_a_window_around_each_value(values, width):
    smoothed = smooth(np.array(values), width)
    for place, value in enumerate(smoothed):
        around = values[max(0, place - (width - 1) // 2) : place + width // 2 + 1]
        assert value == pytest.approx(np.mean(around))


def test_short_runs_are_smoothed_less():
    assert [choose_window(count) for count in (1, 19, 40, 3999, 4000, 10**6)] == [1, 1, 2, 199, 200, 200]
