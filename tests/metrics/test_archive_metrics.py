import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elites.metrics.metric import compute_archive_metrics

fitnesses = st.lists(st.floats(-1e4, 1e4, width=32), max_size=50)


@given(fitnesses, st.floats(-1e3, 1e3), st.randoms())
def test_metrics_do_not_depend_on_the_order_of_elites(fitness, offset, random):
    shuffled = random.sample(fitness, len(fitness))
    one, other = compute_archive_metrics(fitness, 60, offset), compute_archive_metrics(shuffled, 60, offset)
    assert one[0] == other[0]
    assert one[1] == other[1] or (math.isnan(one[1]) and math.isnan(other[1]))
    assert one.coverage == len(fitness) / 60


@given(fitnesses, st.floats(-1e3, 1e3))
def test_an_elite_below_the_offset_counts_as_zero(fitness, offset):
    above = [one for one in fitness if one > offset]
    assert (
        compute_archive_metrics(fitness, 60, offset).qd_score
        == compute_archive_metrics(above, 60, offset).qd_score
        >= 0
    )


def test_a_small_archive_by_hand():
    metrics = compute_archive_metrics(np.array([1.0, -3.0, 5.0]), 4, -2.0)
    assert metrics == (3.0 + 0.0 + 7.0, 5.0, 0.75)


def test_metrics_of_an_empty_archive():
    metrics = compute_archive_metrics(np.array([]), 4, 0.0)
    assert metrics.qd_score == 0
    assert math.isnan(metrics.max_fitness)
    assert metrics.coverage == 0
