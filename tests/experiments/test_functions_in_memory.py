"""Functions that no other process can import: sent to the workers, in no file, and needed again."""

import functools
import json
import re
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import elites
from elites import ElitesError, ProcessEvaluator, cli, gymnasium_task, imports
from elites.tasks import in_memory
from elites.tasks.gymnasium.simulator import GymnasiumSimulator
from tests import outside
from tests.experiments.test_gymnasium_runs import config
from tests.experiments.test_gymnasium_runs import task as importable

HIDDEN = (8,)


def quiet(_):
    pass


def unimportable(**changes):
    """The task of `importable`, by a class, an inner function and a lambda of this function."""
    limit = 3

    class Push(outside.Push):
        pass

    def describe(episode):
        return np.clip(outside.place(episode), -limit, limit)

    given = {"descriptor": describe, "descriptor_bounds": outside.BOUNDS, "qd_offset": -50.0}
    given["step_descriptor"] = lambda observation, action, info: np.clip(observation[:2], -limit, limit)
    return gymnasium_task(Push, **{**given, "episode_length": 12, "cells": 64, **changes})


@pytest.fixture
def another_process(monkeypatch):
    """Forgets what this one has in memory."""
    return SimpleNamespace(begins=lambda: monkeypatch.setattr(imports, "_pickles", {}))


def evaluated(task, count=6):
    sizes = task.controller_sizes(HIDDEN)
    parameters = np.random.default_rng(0).normal(size=(count, elites.Policy(sizes).parameter_count))
    with ProcessEvaluator(task, hidden=HIDDEN, processes=2) as evaluator:
        return evaluator.evaluate(parameters, np.arange(count), transitions=True)


def test_workers_compute_the_same_as_with_functions_of_a_module():
    task = unimportable()
    assert task.name.startswith("gym:in-memory:Push-")
    assert task.descriptor.startswith("in-memory:describe-")
    assert task.step_descriptor.startswith("in-memory:lambda-")
    evaluation, expected = evaluated(task), evaluated(importable())
    np.testing.assert_array_equal(evaluation.fitness, expected.fitness)
    np.testing.assert_array_equal(evaluation.descriptor, expected.descriptor)
    for one, other in zip(evaluation.transitions, expected.transitions, strict=True):
        np.testing.assert_array_equal(one, other)


def test_steps_in_a_separate_process_are_the_same():
    far, near = unimportable().make_stepper(), GymnasiumSimulator(importable())
    np.testing.assert_array_equal(far.begin(7), near.begin(7))
    action = np.array([0.3, -0.2], np.float32)
    np.testing.assert_array_equal(far.advance(action)[0], near.advance(action)[0])
    far.close()


def constant(value):
    """A descriptor that is an object."""

    class Constant:
        def __call__(self, episode):
            return value

        def method(self, episode):
            return value

    return Constant()


@pytest.mark.parametrize(
    "make",
    [
        lambda value: lambda episode: value,
        lambda value: functools.partial(lambda value, episode: value, value),
        constant,
        lambda value: constant(value).method,
    ],
    ids=["lambda", "partial", "object", "method"],
)
def test_functions_of_one_name_are_not_mixed_up(make):
    tasks = [
        gymnasium_task(outside.push, descriptor=make(value), episode_length=3, qd_offset=0.0)
        for value in (0.25, 0.75)
    ]
    assert tasks[0] != tasks[1]
    for task, value in zip(tasks, (0.25, 0.75), strict=True):
        assert (evaluated(task, 2).descriptor == value).all()


def test_a_task_keeps_the_function_that_it_was_made_with():
    values = [0.25]
    task = gymnasium_task(outside.push, descriptor=lambda episode: values[0], episode_length=3, qd_offset=0.0)
    values[0] = 0.75
    assert (evaluated(task, 2).descriptor == 0.25).all()


def test_functions_that_cannot_be_pickled_get_one_line():
    lock = threading.Lock()
    with pytest.raises(ElitesError) as error:
        gymnasium_task(outside.push, descriptor=lambda episode: lock.locked())
    assert "cannot be sent to other processes: TypeError: cannot pickle" in str(error.value)
    assert str(error.value).endswith("define it in a module")
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    elites.run(config("map-elites"), folder, execution=elites.Execution(log=quiet))
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped, with its functions in memory, and the lines that it printed."""
    lines = []
    execution = elites.Execution(threads=1, max_hours=1e-9, log=lines.append)
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    assert not elites.run(config("map-elites", task=unimportable()), folder, execution=execution).finished
    return folder, lines


@pytest.fixture
def part(stopped, tmp_path):
    """The same for each test, in a folder of its own."""
    folder, lines = stopped
    return shutil.copytree(folder, tmp_path / "part"), lines


def metrics(folder):
    return (folder / "metrics.csv").read_bytes()


def test_a_run_reports_the_task_that_it_needs_again_and_does_not_save_it(part):
    folder, lines = part
    (line,) = [line for line in lines if "memory" in line]
    record = json.loads((folder / "config.json").read_text())
    for path in (record["task"].removeprefix("gym:"), record["task_parameters"]["descriptor"]):
        assert path.startswith("in-memory:")
        assert path in line
        pickle = imports._pickles[path]
        assert not any(pickle[10:60] in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert "elites.resume(folder, task=…)" in line


def test_this_process_continues_without_the_task(part, whole):
    folder, _ = part
    assert elites.resume(folder, execution=elites.Execution(threads=1, log=quiet)).finished
    assert metrics(folder) == metrics(whole)
    shown = elites.replay(folder, out=folder / "clip.gif", size=(60, 40), steps=2)
    assert shown.replayed[0].fitness == shown.replayed[0].recorded_fitness


def test_another_process_needs_the_task_again(part, whole, another_process, capsys):
    folder, _ = part
    another_process.begins()
    for command in ("resume", "correct", "replay"):
        assert cli.main([command, str(folder)]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert "environment 'in-memory:Push-" in message
        assert "elites.resume(folder, task=…)" in message
    assert cli.main(["show", str(folder)]) == 0
    again = unimportable(qd_offset=None)  # it is not measured again
    assert elites.resume(folder, execution=elites.Execution(threads=1, log=quiet), task=again).finished
    assert metrics(folder) == metrics(whole)
    another_process.begins()
    elites.correct(folder, replications=1, task=unimportable(), log=quiet)
    another_process.begins()
    elites.replay(folder, out=folder / "clip.gif", size=(60, 40), steps=2, task=unimportable())


def test_functions_can_be_moved_into_a_module(part, whole, another_process):
    folder, _ = part
    another_process.begins()
    assert elites.resume(folder, elites.Execution(log=quiet), task=importable()).finished
    assert metrics(folder) == metrics(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": 32}, "cells is 32; it must be 64, as in the run"),
        ({"episode_length": 13}, "episode_length is 13; it must be 12, as in the run"),
        ({"step_descriptor": None}, "step_descriptor is None; it must be in-memory:lambda-"),
    ],
)
def test_another_task_is_refused(changes, message, part):
    with pytest.raises(ElitesError, match=message):
        elites.resume(part[0], task=unimportable(**changes))


def test_a_task_of_another_kind_is_refused(part, whole):
    with pytest.raises(
        ElitesError, match=r"task is qd-hopper; it must be gym:in-memory:Push-.*, as in the run"
    ):
        elites.resume(part[0], task=elites.make_task("qd-hopper"))
    with pytest.raises(
        ElitesError, match=r"environment is in-memory:Push-\w+; it must be tests\.outside:push"
    ):
        elites.resume(whole, task=unimportable())


BOUNDS = [(-1, 1), (-1, 1)]


def sphere():
    """A function to be optimised that is inside another one."""
    return lambda vectors: (-np.square(vectors).sum(axis=1), np.tanh(vectors[:, :2]))


def sphere_task(**changes):
    return elites.task(**{"parameters": 4, "descriptor_bounds": BOUNDS, "cells": np.int64(64), **changes})(
        sphere()
    )


@pytest.fixture
def optimised(tmp_path):
    """A stopped run of such a function that this process does not know, and the lines that it printed."""
    lines = []
    elites.optimise(
        sphere(),
        parameters=4,
        descriptor_bounds=BOUNDS,
        cells=64,
        evaluations=300,
        folder=tmp_path / "run",
        execution=elites.Execution(max_hours=1e-9, log=lines.append),
    )
    in_memory.forget_function(tmp_path / "run")
    return tmp_path / "run", lines


def test_a_kept_run_reports_the_function_that_it_needs_again(optimised):
    message = "only in the memory of this process: function:<lambda>. Another process"
    assert [line for line in optimised[1] if line.startswith(message)]
    lines = []
    facts = {"parameters": 4, "descriptor_bounds": BOUNDS, "evaluations": 100}
    elites.optimise(sphere(), **facts, execution=elites.Execution(log=lines.append))
    assert not [line for line in lines if "memory" in line]


def test_another_process_needs_a_function_again(optimised, tmp_path, capsys):
    folder, _ = optimised
    for command in ("resume", "correct"):
        assert cli.main([command, str(folder)]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert re.search(
            "function:<lambda> was only in the memory .* pass it again in Python: elites.res", message
        )
    with pytest.raises(ElitesError, match="cells is 32; it must be 64, as in the run"):
        elites.resume(folder, task=sphere_task(cells=32))
    with pytest.raises(ElitesError, match="task is qd-hopper; it must be function:<lambda>, as in the run"):
        elites.resume(folder, task=elites.make_task("qd-hopper"))
    assert elites.resume(folder, elites.Execution(log=quiet), task=sphere_task()).finished
    whole = elites.RunConfig(algorithm="map-elites", task=sphere_task(), evaluations=300)
    elites.run(whole, tmp_path / "whole", execution=elites.Execution(log=quiet))
    assert metrics(folder) == metrics(tmp_path / "whole")
    in_memory.forget_function(folder)
    corrected = elites.correct(folder, replications=2, task=sphere_task(), log=quiet)
    assert corrected.losses.qd_score == pytest.approx(0, abs=1e-6)


def test_a_group_is_resumed_with_its_task(tmp_path, another_process):
    folder = tmp_path / "group"
    execution = elites.Execution(threads=1, max_hours=1e-9, log=quiet)
    elites.run(config("map-elites", task=unimportable()), folder, seeds=2, execution=execution)
    another_process.begins()
    with pytest.raises(ElitesError, match="no file has it"):
        elites.resume(folder)
    again = elites.resume(folder, elites.Execution(threads=1, log=quiet), task=unimportable())
    assert again.finished
    assert len(again.runs) == 2


@pytest.mark.parametrize("knows", [True, False])
def test_a_group_that_optimises_a_function_in_memory_is_resumed(tmp_path, knows):
    """By the process that began it, and by another one, which gets the function again."""
    stopped = elites.Execution(max_hours=1e-9, log=quiet)
    group = elites.RunConfig(algorithm="map-elites", task=sphere_task(), evaluations=300)
    folder = tmp_path / "group"
    elites.run(group, folder, seeds=2, execution=stopped)
    if not knows:
        for seed in range(2):
            in_memory.forget_function(folder / f"seed-{seed}")
        with pytest.raises(ElitesError, match="no file has it"):
            elites.resume(folder)
    given = {} if knows else {"task": sphere_task()}
    one = elites.resume(folder / "seed-1", elites.Execution(log=quiet), **given)  # resumes all
    assert one.finished
    assert elites.resume(folder, elites.Execution(log=quiet)).finished
    whole = elites.RunConfig(algorithm="map-elites", task=sphere_task(), evaluations=300, seed=1)
    elites.run(whole, tmp_path / "whole", execution=elites.Execution(log=quiet))
    assert metrics(folder / "seed-1") == metrics(tmp_path / "whole")


def shifted(by):
    """A function with the name of another one."""
    return elites.task(parameters=4, descriptor_bounds=BOUNDS, cells=64)(
        lambda v: (v[:, 0] * 0 + by, v[:, :2])
    )


def test_functions_of_the_same_name_are_not_confused(tmp_path):
    settings = {"algorithm": "map-elites", "evaluations": 300}
    configs = [elites.RunConfig(task=shifted(by), **settings) for by in (1, 2)]
    for by, config_of_function in zip((1, 2), configs, strict=True):
        elites.run(config_of_function, tmp_path / str(by), execution=elites.Execution(log=quiet))
    for by in (1, 2):
        folder = tmp_path / str(by)
        assert json.loads((folder / "config.json").read_text())["task"] == "function:<lambda>"
        elites.resume(folder, elites.Execution(log=quiet), evaluations=600)
        assert (elites.load_archive(folder).fitness == by).all()
        assert (elites.correct(folder, replications=2, log=quiet).fitness == by).all()
