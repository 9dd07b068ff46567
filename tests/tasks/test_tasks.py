import math

import numpy as np
import pytest

from elites import TASKS, ElitesError, ThreadEvaluator, make_task
from elites.memory import available_bytes, free_in_cgroups
from elites.tasks.episode import Ending
from tests.conftest import ROBOTS, controllers
from tests.toy import POINT

NAMES = [f"qd-{variant}{robot}" for variant in ("", "deterministic-") for robot in ROBOTS]


def test_there_are_the_eight_tasks_of_the_paper():
    assert [name for name in TASKS if name.startswith("qd-")] == NAMES
    assert [TASKS[name].cells for name in NAMES[:4]] == [1024, 1024, 1296, 1000]
    assert [int(np.prod(TASKS[name].grid)) for name in NAMES] == [TASKS[name].cells for name in NAMES]


def test_only_descriptors_of_feet_are_labelled_as_contacts():
    for name, task in TASKS.items():
        feet = all("foot" in dimension for dimension in task.descriptor_names)
        assert (task.descriptor_phrase == "contact of {}") == feet, name
    assert POINT.descriptor_phrase == "{}"


@pytest.mark.parametrize(
    ("robots", "names"),
    [
        (("qd-walker", "brax-walker2d"), ("right foot", "left foot")),
        (("qd-halfcheetah", "brax-halfcheetah"), ("front foot", "back foot")),
        (
            ("qd-ant", "brax-ant"),
            ("front left foot", "front right foot", "back left foot", "back right foot"),
        ),
        (("qd-hopper", "brax-hopper"), ("foot",)),
    ],
)
def test_feet_have_readable_names(robots, names):
    assert [make_task(robot).descriptor_names for robot in robots] == [names, names]


@pytest.mark.parametrize("name", TASKS)
def test_equal_tasks_have_equal_hashes(name):
    """So that their runs share programs."""
    one, other = (make_task(name, episode_length=length) for length in (10, 11))
    assert hash(one) == hash(make_task(name, episode_length=10))
    assert {one, other, make_task(name, episode_length=10)} == {one, other}


@pytest.mark.parametrize("robot", ROBOTS)
def test_only_uncertain_tasks_depend_on_the_seed(robot, evaluators):
    for name, differ in ((f"qd-{robot}", True), (f"qd-deterministic-{robot}", False)):
        task = make_task(name)
        parameters = np.repeat(controllers(task, 1, seed=1), 3, axis=0)
        fitness = evaluators(name).evaluate(parameters, [1, 2, 3]).fitness
        assert (len(set(fitness.tolist())) > 1) == differ


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_noise_scales_the_initial_joints(distribution):
    task = make_task("qd-hopper", noise=0.05, noise_distribution=distribution, episode_length=1)
    with ThreadEvaluator(task, threads=1) as evaluator:
        parameters = np.repeat(controllers(task, 1), 400, axis=0)
        start = evaluator.evaluate(parameters, np.arange(400), transitions=True).transitions.observations[
            :, 0
        ]
    angle = (start[:, 12] + 1) / 2 * np.pi / 2 - np.pi / 4  # the foot's joint, within ±π/4
    width = 0.05 / np.sqrt(3) if distribution == "uniform" else 0.05
    assert abs(angle.std() / width - 1) < 0.15
    assert (np.abs(angle).max() <= 0.05 + 1e-6) == (distribution == "uniform")


def test_episode_length_truncates():
    task = make_task("qd-halfcheetah", episode_length=7)
    with ThreadEvaluator(task, threads=1) as evaluator:
        evaluation = evaluator.evaluate(controllers(task, 3), [0, 1, 2])
    assert evaluation.length.tolist() == [7, 7, 7]
    assert evaluation.ending.tolist() == [Ending.TRUNCATED] * 3


def test_halfcheetah_ends_early_only_when_asked_to():
    parameters = controllers(make_task("qd-halfcheetah"), 4)
    lengths = {}
    for ends in (False, True):
        task = make_task("qd-halfcheetah", ends_on_fall=ends, episode_length=300)
        with ThreadEvaluator(task, threads=2) as evaluator:
            evaluation = evaluator.evaluate(parameters, range(4))
            lengths[ends] = evaluation.length
            assert (evaluation.ending == Ending.TERMINATED).tolist() == (evaluation.length < 300).tolist()
    assert (lengths[False] == 300).all()
    assert (lengths[True] < 300).any()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("qd-worm", {}, "unknown task 'qd-worm'; the tasks are qd-walker"),
        ("qd-ant", {"gravity": 1}, "no parameter 'gravity'; it has"),
        ("qd-ant", {"robot": None}, "no parameter 'robot'"),
        ("qd-ant", {"noise": -0.1}, "noise is -0.1; it must be from 0 to 3.14159"),
        ("qd-ant", {"noise": float("nan")}, "noise is nan"),
        (
            "qd-ant",
            {"noise_distribution": "cauchy"},
            "noise_distribution is 'cauchy'; it must be one of uniform, normal",
        ),
        ("qd-ant", {"episode_length": 0}, "episode_length is 0; it must be from 1 to"),
        ("qd-ant", {"episode_length": 1.5}, "episode_length is 1.5; it must be a whole number"),
        ("qd-ant", {"cells": 0}, "cells is 0; it must be from 1 to"),
        ("qd-ant", {"grid": (6, 6)}, "grid is .* it must be a whole number for each descriptor dimension"),
        ("qd-ant", {"ends_on_fall": "no"}, "ends_on_fall is 'no'; it must be true or false"),
    ],
)
def test_wrong_parameters_are_named(name, parameters, message):
    with pytest.raises(ElitesError, match=message):
        make_task(name, **parameters)


def test_limits_on_groups_of_processes_are_respected(tmp_path):
    """Of both kinds of cgroups, at the process's own group or above it."""
    for name, files in {
        "new/job/memory": {"max": 1000, "current": 300},
        "new/memory": {"max": "max", "current": 700},
        "old/memory/job/memory": {"limit_in_bytes": 5000, "usage_in_bytes": 1000},
    }.items():
        folder = tmp_path / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            folder.with_name(f"memory.{file}").write_text(f"{content}\n")
        folder.with_name("memory.stat").write_text("anon 5\ninactive_file 20\nactive_file 7\n")
    table = tmp_path / "cgroup"
    table.write_text("0::/job/step\n")
    assert list(free_in_cgroups(table, tmp_path / "new")) == [720]
    table.write_text("5:cpu:/\n4:memory,x:/job\n")
    assert list(free_in_cgroups(table, tmp_path / "old")) == [4020]
    assert list(free_in_cgroups(tmp_path / "none")) == []
    assert 0 < available_bytes() < 2**60


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_qd_offset_is_finite(value):
    with pytest.raises(ElitesError, match=r"qd_offset is -?(nan|inf); it must be from"):
        make_task("qd-hopper", qd_offset=value)
    with pytest.raises(ElitesError, match=r"noise is -?(nan|inf); it must be from 0 to"):
        make_task("brax-hopper", noise=value)
