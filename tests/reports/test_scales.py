"""Where colours end: at the extremes, unless single values lie far beyond the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites import ElitesError
from elites.reports.scales import ROBUST, ROBUST_MARGIN, choose_robust_limits, format_number, make_scale
from elites.reports.style import Style

NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(st.lists(NUMBERS, min_size=1, max_size=300))
def test_limits_are_values_and_few_values_are_beyond_them(values):
    low, high = choose_robust_limits(np.array(values))
    assert low in values
    assert high in values
    assert low <= high
    most = ROBUST[0] / 100 * len(values) + 1
    assert sum(value < low for value in values) <= most
    assert sum(value > high for value in values) <= most


@given(
    st.lists(NUMBERS, min_size=9, max_size=200, unique=True),
    st.floats(1e7, 1e30),
    st.sampled_from([-1, 1]),
)
def test_one_outlier_does_not_stretch_them(values, outlier, sign):
    low, high = choose_robust_limits(np.array([*values, sign * outlier]))
    room = ROBUST_MARGIN * (max(values) - min(values))
    assert min(values) - room <= low
    assert high <= max(values) + room


def test_all_values_are_within_them_where_none_is_far_away():
    values = np.random.default_rng(0).random(500)
    assert choose_robust_limits(values) == (values.min(), values.max())
    assert choose_robust_limits(np.array([0.0] * 99 + [5.0])) == (0.0, 5.0)  # else all would be one colour
    assert choose_robust_limits(np.array([1.0, 2.0, 1e9])) == (1.0, 1e9)  # too few to say
    assert choose_robust_limits(np.array([np.nan, 3.0, np.inf])) == (3.0, 3.0)
    assert choose_robust_limits(np.empty(0)) == (0.0, 1.0)


@given(st.lists(st.lists(NUMBERS, max_size=50), min_size=1, max_size=4), NUMBERS, st.floats(1e-3, 1e6))
def test_the_note_says_what_lies_beyond(parts, low, width):
    arrays, style = [np.array(part) for part in parts], Style(limits=(low, low + width))
    values = np.concatenate(arrays)
    beyond = make_scale(arrays, style).out_of_range(*arrays)
    below, above = (values < low).any(), (values > low + width).any()
    assert beyond.sides == {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]
    assert ("lowest" in beyond.note, "highest" in beyond.note) == (below and not above, above and not below)
    assert "percentile" not in beyond.note


def test_one_scale_spans_several_pictures():
    rng = np.random.default_rng(0)
    scale = make_scale([rng.random(100), 10 + rng.random(20), np.full(3, np.nan)])
    assert scale.ends[0] < 0.1
    assert scale.ends[1] > 10.9
    outlier = np.append(rng.random(100), 50.0)
    scale = make_scale([rng.random(100), outlier])
    assert scale.ends[1] < 1.1
    assert scale.out_of_range(outlier) == ("max", "up to percentile 98; highest value 50")
    both = np.concatenate([outlier, [-9000.0]])
    assert make_scale([both]).out_of_range(both) == ("both", "percentiles 2 to 98; values from -9,000 to 50")


def test_percentiles_and_fixed_ends():
    values = np.arange(101.0)
    assert make_scale([values], Style(percentiles=(10, 60))).ends == (10, 60)
    assert make_scale([values], Style(percentiles=(0, 100))).out_of_range(values).sides == "neither"
    assert make_scale([values + 500], None, (0.0, None)).ends == (0, 600)
    assert make_scale([values + 500], Style(limits=(1, 2)), (0.0, None)).ends == (1, 2)
    for nothing in ([np.full(3, np.nan)], [np.empty(0)]):
        assert make_scale(nothing).ends == (0, 1)
    for value in (0.0, 1e30, -3e38):  # of one value there is a scale too
        low, high = make_scale([np.full(20, value)]).ends
        assert low == value < high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": (2, 1)}, "limits is 2 1; it must be a lower and a higher number"),
        ({"limits": (float("nan"), 1)}, "limits is nan; it must be from "),
        ({"limits": (1,)}, "limits is \\(1,\\); it must be 2 values"),
        ({"percentiles": (-1, 50)}, "percentiles is -1; it must be from 0 to 100"),
        ({"percentiles": (50, 50)}, "percentiles is 50 50; it must be a lower and a higher number"),
        ({"percentiles": (0, 50), "limits": (0, 1)}, "limits and percentiles cannot be combined"),
        ({"cmap": "mud"}, "cmap is 'mud'; it must be a colour map of matplotlib, such as viridis"),
        ({"colour": "luck"}, "colour is 'luck'; it must be one of fitness, operator, generation"),
        ({"colour": "operator", "cmap": "magma"}, "colour operator has no scale, so cmap cannot be set"),
        ({"size": (1, 5)}, "size is 1; it must be from 3 to 40"),
    ],
)
def test_bad_styles_get_one_line(options, message):
    with pytest.raises(ElitesError, match=f"^{message}") as raised:
        Style(**options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-20.126, "-20.1"),
        (1237.4, "1,237"),
        (123456.7, "123,457"),
        (3e30, "3e+30"),
        (5e-7, "5e-07"),
    ],
)
def test_numbers_are_formatted_as_short_text(value, text):
    assert format_number(value) == text
