import dataclasses
import math
import typing

import pytest

from elites import ALGORITHMS, ElitesError
from elites.algorithms import make_config
from elites.experiments.config import RunConfig
from elites.experiments.execution import Execution
from elites.options import Range, Threads, convert_value, read_types
from elites.tasks import TASKS, make_task

CONFIGS = {name: algorithm.Config for name, algorithm in ALGORITHMS.items()}


def range_of(expected):
    """The range of a number, or of the numbers in a tuple."""
    limits = None
    for part in (expected, *typing.get_args(expected)):
        for one in getattr(part, "__metadata__", ()):
            if typing.get_origin(part.__origin__) is not tuple:
                limits = one
        if typing.get_origin(part) is tuple or (limits is None and typing.get_args(part)):
            limits = limits or range_of(typing.get_args(part)[0])
    return limits


NUMBERS = [
    (name, field, expected)
    for name, config in CONFIGS.items()
    for field, expected in read_types(config).items()
    if expected is not bool and typing.get_origin(expected) is not typing.Literal
]


def test_every_number_of_every_algorithm_has_a_range():
    assert len(NUMBERS) > 80
    assert [(name, field) for name, field, expected in NUMBERS if range_of(expected) is None] == []
    for name, config in CONFIGS.items():
        assert list(read_types(config)) == [field.name for field in dataclasses.fields(config)], name


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308, -1, 10**30])
def test_absurd_hyper_parameters_are_refused(value):
    for name, field, expected in NUMBERS:
        given = (value,) if typing.get_origin(typing.get_args(expected)[0]) is tuple else value
        with pytest.raises(ElitesError, match=f"^{field} is .*; it must be"):
            make_config(name, **{field: given})
        with pytest.raises(ElitesError, match=f"^{field} is"):
            CONFIGS[name](**{field: given})


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308, -1e300])
def test_absurd_parameters_of_tasks_are_refused(value):
    for task in (TASKS["qd-ant"], TASKS["brax-ant"]):
        for field in ("noise", "qd_offset", "cells", "episode_length"):
            with pytest.raises(ElitesError, match=f"^{field} is"):
                make_task(task.name, **{field: value})
        with pytest.raises(ElitesError, match=r"^grid is"):
            make_task(task.name, grid=(value,) * 4)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("qd-pg", {"neighbours": 20_000}, "neighbours is 20000; it must be at most the number of stored"),
        ("map-elites-es", {"neighbours": 10_001}, "neighbours is 10001; it must be from 1 to 10,000"),
        ("map-elites-es", {"pairs": 10_000, "chunk": 1}, "pairs is 10000; it must be at most 1000 times"),
        ("map-elites", {"hidden": (8,) * 17}, "hidden is 17 values; it must be from 0 to 16 values"),
        ("qd-pg", {"training_precision": "half"}, "is 'half'; it must be one of float32, bfloat16"),
        ("map-elites", {"hidden": 8}, "hidden is 8; it must be a list"),
        ("map-elites", {"batch": True}, "batch is True; it must be a whole number"),
        ("map-elites", {"sigma1": "x" * 500}, "sigma1 is 'x+…; it must be a number"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(name, given, message):
    with pytest.raises(ElitesError, match=message):
        make_config(name, **given)


@pytest.mark.parametrize(
    "field", ["evaluations", "seed", "snapshots", "correct_every", "correct_replications"]
)
@pytest.mark.parametrize("value", [-1, 10**12, 1.5, "1", True, None])
def test_numbers_of_a_run_are_checked(field, value):
    with pytest.raises(ElitesError, match=f"^{field} is "):
        RunConfig(algorithm="map-elites", task="qd-ant", **{field: value})


def test_the_number_of_threads_is_limited():
    (allowed,) = Threads.__metadata__
    assert allowed.high >= 64
    for given in (0, -1, 1_000_000, math.nan):
        with pytest.raises(ElitesError, match=r"^threads is"):
            Execution(threads=given)
    assert Execution(threads=200, cluster="auto").threads == 200  # elsewhere


def test_types_that_only_a_type_checker_knows_are_not_checked():
    @dataclasses.dataclass
    class Some:
        known: "int"
        unknown: "OnlyForTypeCheckers"  # noqa: F821

    assert read_types(Some) == {"known": int}


def test_ranges_are_described_in_words():
    assert str(Range(1, 1000)) == "from 1 to 1,000"
    assert str(Range(0, 1, above=True)) == "above 0, at most 1"
    assert math.nan not in Range(-math.inf, math.inf)
    assert convert_value(float | None, "x", None) is None
