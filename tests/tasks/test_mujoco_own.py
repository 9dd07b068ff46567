"""Robots of one's own: `elites.mujoco_task`."""

import dataclasses
import json
import pickle
import re
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elites
from elites import ElitesError, ThreadEvaluator, cli, imports, make_task, mujoco_task
from elites.tasks import list_parameters
from elites.tasks.episode import Ending
from elites.tasks.in_memory import provide_functions
from elites.tasks.mujoco.library import model_path
from elites.tasks.mujoco.robot_state import RobotState
from tests import robots
from tests.conftest import controllers

FEET = {"front_foot": "front foot", "back_leg": "back foot"}
PLAN = {"feet": FEET, "reward": robots.reward, "ends": robots.ends, "episode_length": 60}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Models, by their names."""
    folder = tmp_path_factory.mktemp("models")
    texts = {
        "cart": robots.CART.format(more=""),
        "loose": re.sub("<keyframe>.*</keyframe>", "", robots.CART.format(more=robots.LOOSE)),
        "unlimited": robots.CART.format(more="").replace('ctrlrange="-2 3"', ""),
        "unnamed": robots.CART.format(more="").replace('name="box"', ""),
        "passive": "<mujoco><worldbody><body name='a'><joint/><geom size='1'/></body></worldbody></mujoco>",
        "broken": "<mujoco><worldbody>",
        "wrong": "<mujoco><wings/></mujoco>",
    }
    for name, text in texts.items():
        (folder / f"{name}.xml").write_text(text)
    return {name: folder / f"{name}.xml" for name in texts}


@pytest.fixture(scope="module")
def evaluator(files):
    with ThreadEvaluator(mujoco_task(files["loose"], **PLAN, noise=0.05), threads=2) as made:
        yield made


def replayed(task, path, seed, actions):
    """Rewards and ends of an episode, by MuJoCo's Python module and the functions uncompiled."""
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    generator = np.random.default_rng(seed)
    data.qpos[:] = model.qpos0 + generator.uniform(-task.noise, task.noise, model.nq)
    data.qvel[:] = generator.uniform(-task.noise, task.noise, model.nv)
    mujoco.mj_forward(model, data)
    low, high = model.actuator_ctrlrange.astype(np.float32).T
    geoms = [[model.geom("front_foot").id], np.flatnonzero(model.geom_bodyid == model.body("back_leg").id)]
    body, rewards, ended = model.body("box").id, [], []
    for action in actions:
        before = data.xpos[body, :2].copy()
        data.ctrl[:] = (low + high) / 2 + (high - low) / 2 * action
        for _ in range(task.frame_skip):
            mujoco.mj_step(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        touching = [{*pair} for pair in data.contact.geom.tolist()]
        floor = model.geom("floor").id
        state = RobotState(
            contacts=np.array([float(any({floor, geom} in touching for geom in foot)) for foot in geoms]),
            position=data.xpos[body, :2],
            velocity=(data.xpos[body, :2] - before) / (model.opt.timestep * task.frame_skip),
            **{name: getattr(data, name) for name in RobotState._fields[:-3]},
        )
        rewards.append(robots.reward(state))
        ended.append(bool(robots.ends(state)))
    return np.array(rewards), ended


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), strength=st.sampled_from([0.3, 1.0, 5.0]))
def test_episodes_are_those_of_mujocos_own_module(files, evaluator, seed, strength):
    task = evaluator.task
    result = evaluator.evaluate(strength * controllers(task, 1), [seed], transitions=True)
    steps = int(result.length[0])
    rewards, ended = replayed(task, files["loose"], seed, result.transitions.actions[0, :steps])
    np.testing.assert_allclose(result.transitions.rewards[0, :steps], rewards, rtol=1e-5, atol=1e-6)
    assert result.fitness[0] == pytest.approx(rewards.sum(), rel=1e-5)
    assert ended[:-1] == [False] * (steps - 1)
    assert ended[-1] == (result.ending[0] == Ending.TERMINATED)
    assert ended[-1] or steps == task.episode_length


def test_some_episodes_end_early_and_some_do_not(evaluator):
    result = evaluator.evaluate(3 * controllers(evaluator.task, 16), np.arange(16))
    assert {*result.ending.tolist()} == {Ending.TERMINATED, Ending.TRUNCATED}


def test_results_do_not_depend_on_order_or_threads(evaluator):
    """Activations of actuators, other bodies and hands begin anew."""
    parameters = 3 * controllers(evaluator.task, 6)
    there = evaluator.evaluate(parameters, np.arange(6))
    with ThreadEvaluator(evaluator.task, threads=1) as alone:
        back = alone.evaluate(parameters[::-1], np.arange(6)[::-1])
    np.testing.assert_array_equal(there.fitness, back.fitness[::-1])
    np.testing.assert_array_equal(there.descriptor, back.descriptor[::-1])


def test_the_default_reward_is_velocity_minus_a_cost_of_control(files):
    weights = {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3}
    task = mujoco_task(files["cart"], descriptor="velocity", **weights, episode_length=5, keyframe="low")
    simulator = task.make_simulator()
    simulator.begin(3)
    for control in np.float32([[2, 1], [-1, 0.5], [0, 0]]):
        _, reward, ended = simulator.step(control)
        velocity = simulator.step_descriptor
        assert reward == pytest.approx(2 * velocity[0] - 0.3 * (control**2).sum(), rel=1e-12)
        assert not ended
    assert simulator.data.qpos[2] < 0.35  # it began low
    assert task.describes_steps
    assert len(velocity) == 2


def test_missing_options_are_read_from_the_model(files):
    task = mujoco_task(files["cart"])
    assert (task.body, task.dimensions, task.hidden_positions) == ("box", 2, 2)
    assert (task.descriptor, task.descriptor_names, task.grid) == ("position", ("x", "y"), (32, 32))
    assert (task.observation_size, task.action_size) == (9 - 2 + 8, 2)
    assert task.descriptor_bounds == ((-30, 30), (-30, 30))
    for model, expected in {
        "walker2d_v5.xml": ("torso", 1, 1),
        "ant.xml": ("torso", 2, 2),
        "swimmer.xml": ("torso", 2, 2),
        "inverted_pendulum.xml": ("cart", 1, 1),
        "reacher.xml": ("body0", 1, 0),
    }.items():
        theirs = mujoco_task(model_path(model))
        assert (theirs.body, theirs.dimensions, theirs.hidden_positions) == expected, model


def test_a_record_makes_the_same_task_again(files, monkeypatch):
    monkeypatch.chdir(files["cart"].parent)
    task = mujoco_task("cart.xml", **PLAN, qd_offset=-3)
    assert task.name == "mujoco:cart.xml"
    recorded = json.loads(json.dumps(list_parameters(task)))
    assert recorded["reward"] == "tests.robots:reward"
    assert recorded["feet"] == [["front_foot", "front foot"], ["back_leg", "back foot"]]
    assert make_task(task.name, **recorded) == task
    assert hash(make_task(task.name, **recorded)) == hash(task)
    assert pickle.loads(pickle.dumps(task)) == task
    assert mujoco_task("cart.xml", feet=list(FEET)).descriptor_names == ("front foot", "back leg")


def test_other_parameters_have_another_archive(files):
    task = mujoco_task(files["cart"], **PLAN, descriptor_bounds=[(0, 0.5), (0, 1)])
    assert task.with_parameters({"noise": 0.5}).descriptor_bounds == ((0, 0.5), (0, 1))
    other = task.with_parameters({"descriptor": "velocity", "dimensions": 1})
    assert (other.grid, other.descriptor_bounds) == ((1000,), ((-5, 5),))
    with pytest.raises(ElitesError, match=r"descriptor is \{\}; it must be one of feet, position, velocity"):
        task.with_parameters({"descriptor": {}})
    three = task.with_parameters({"feet": ["front_foot", "back_leg", "hull"]})
    assert (three.descriptor_size, three.cells) == (3, 1000)


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("gone", {}, r"gone\.xml is not a file; mujoco:FILE names a model in MuJoCo's XML"),
        ("broken", {}, r"MuJoCo cannot read .*broken\.xml: "),
        ("wrong", {}, r"MuJoCo cannot read .*wrong\.xml: .*wings"),
        ("passive", {}, "has no actuators; it needs at least one"),
        ("unlimited", {}, "has no ctrlrange for the actuators front_motor; "),
        ("unnamed", {}, "has no name for its first body with a joint; .* world, front_leg, back_leg"),
        ("cart", {"feet": ["paw"]}, "no geom or body 'paw' that could be a foot; its geoms .* floor, hull, "),
        ("cart", {"feet": "hull"}, "feet is 'hull'; it must be names of geoms or bodies"),
        ("cart", {"feet": ["hull", "hull"]}, "it must be a list of unique names"),
        ("cart", {"feet": [3]}, "it must be names of geoms or bodies, or a table"),
        ("cart", {"descriptor": []}, r"descriptor is \[\]; it must be one of feet, position, velocity"),
        ("cart", {"descriptor_bounds": 3}, "it must be pairs of a lowest and a highest value"),
        ("cart", {"feet": [("hull", 1)]}, "it must be names of geoms or bodies, or a table"),
        ("cart", {"feet": ["world"]}, "it must be part of the robot"),
        ("cart", {"body": "head"}, "has no body 'head'; its bodies with names are world, box, "),
        ("cart", {"keyframe": "high"}, "has no key 'high'; its keys with names are low"),
        ("cart", {"hidden_positions": 10}, "hidden_positions is 10; it must be at most the 9 coordinates"),
        ("cart", {"descriptor": "feet"}, "descriptor is feet; this robot has none"),
        (
            "cart",
            {"descriptor": "wings"},
            "descriptor is 'wings'; it must be one of feet, position, velocity",
        ),
        ("cart", {"descriptor_bounds": [0, 1]}, "it must be pairs of a lowest and a highest value"),
        ("cart", {"descriptor_bounds": [(0, 1)]}, "it must be a pair for each of 2 dimensions"),
        ("cart", {"dimensions": 3}, "dimensions is 3; it must be one of 1, 2"),
        ("cart", {"wings": 2}, "has no parameter 'wings'; it has .*hidden_positions"),
        ("cart", {"xml_file": "a"}, "has no parameter 'xml_file'"),
        ("cart", {"reward": "robots"}, "reward is 'robots'; it must be module:function"),
        ("cart", {"reward": robots.reward, "ctrl_cost_weight": 1.0}, ".*_weight is 1.0; .* your own reward"),
    ],
)
def test_a_wrong_robot_is_refused_in_one_line(files, model, given, message):
    with pytest.raises(ElitesError, match=message) as refused:
        mujoco_task(files["cart"].with_stem(model), **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("tests.robots:flight", r"reward 'tests.robots:flight': .* has no function 'flight'"),
        (robots.beyond, "reward 'tests.robots:beyond' failed at the beginning of an episode: IndexError"),
        (robots.moved, "failed at the beginning of an episode: ValueError: assignment destination is read"),
        (robots.wordy, "returned 'far'; it must return a number, or true or false"),
        (robots.uncompiled, r"by Numba: Untyped global name 'plain': .* \(robots\.py, line \d+\)"),
        (lambda state: state.wings, "AttributeError: 'RobotState' object has no attribute 'wings'"),
    ],
)
def test_a_wrong_function_is_refused_in_one_line(files, function, message):
    task = mujoco_task(files["cart"], reward=function)
    with pytest.raises(ElitesError, match=message) as refused:
        task.make_simulator()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "steps"),
    [({"reward": robots.late}, 10), ({"reward": robots.unbounded}, 1), ({"ends": robots.ends_late}, 10)],
)
def test_a_function_that_fails_later_makes_the_episode_invalid(files, given, steps, capfd):
    task = mujoco_task(files["cart"], **given, episode_length=20)
    with ThreadEvaluator(task, threads=1) as evaluator:
        result = evaluator.evaluate(controllers(task, 1), [0])
    assert result.ending.tolist() == [Ending.INVALID]
    assert result.length.tolist() == [steps]
    assert np.isnan(result.fitness[0])
    assert capfd.readouterr() == ("", "")


def test_a_changed_robot_is_refused(tmp_path, files):
    path, part = tmp_path / "cart.xml", tmp_path / "part.xml"
    text = files["cart"].read_text()
    path.write_text(text.replace("<sensor>", '<include file="part.xml"/><sensor>'))
    part.write_text("<mujoco><option gravity='0 0 -9'/></mujoco>")
    task = mujoco_task(path, **PLAN)
    recorded = list_parameters(task)
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in (path, part):
        (moved / file.name).write_bytes(file.read_bytes())
    assert make_task(f"mujoco:{moved / 'cart.xml'}", **recorded).model_digest == task.model_digest
    (moved / "part.xml").write_text("<mujoco><option gravity='0 0 -8'/></mujoco>")
    (moved / "again.xml").write_bytes(path.read_bytes())
    with pytest.raises(
        ElitesError, match=r"again\.xml has changed since this task was recorded: .* begin a new"
    ):
        make_task(f"mujoco:{moved / 'again.xml'}", **recorded)
    path.write_text(path.read_text().replace('mass="2"', 'mass="3"'))
    for again in (lambda: make_task(task.name, **recorded), task.make_simulator):
        with pytest.raises(ElitesError, match=r"cart\.xml has changed since this task was recorded"):
            again()
    heavy = mujoco_task(path, **PLAN).make_simulator().model
    assert heavy.body("box").mass == 3
    path.unlink()
    with pytest.raises(ElitesError, match=r"cart\.xml is not a file; it must be the robot's model"):
        task.make_simulator()


def test_functions_of_a_notebook(files, monkeypatch, tmp_path):
    task = mujoco_task(files["cart"], reward=lambda state: state.qpos[2])
    (path,) = task.pickled_functions()
    assert path == task.reward
    assert task.make_simulator().step(np.zeros(2, np.float32))[1] == pytest.approx(0.4, abs=0.05)
    recorded = json.loads(json.dumps(list_parameters(task)))
    again = mujoco_task(files["cart"], reward=lambda state: 0 + state.qpos[2])
    monkeypatch.delitem(imports._pickles, path)
    with pytest.raises(ElitesError, match=r"no file has it; pass the task with that function again"):
        make_task(task.name, **recorded)
    with pytest.raises(ElitesError, match=r"noise is 0\.5; it must be 0\.01, as in the run"):
        provide_functions(tmp_path, task.name, recorded, dataclasses.replace(again, noise=0.5))
    provide_functions(tmp_path, task.name, recorded, again)
    assert make_task(task.name, **recorded).reward == path


def test_a_run_of_a_robot_in_a_module(files, tmp_path, monkeypatch, capsys):
    """Run and resumed; the record says how the offset was measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    Path("cart.xml").write_bytes(files["cart"].read_bytes())
    Path("own_cart.py").write_text(
        "import elites\n\n\ndef reward(state):\n    return state.velocity[0]\n\n\n"
        "robot = elites.mujoco_task('cart.xml', feet=['front_foot'], reward=reward, episode_length=20)\n"
    )
    monkeypatch.setattr("elites.evaluation.offset.CONTROLLERS", 16)
    config = elites.RunConfig(
        algorithm="map-elites",
        task="own_cart:robot",
        evaluations=40,
        hyper_parameters={"initial": 20, "batch": 20, "hidden": (8,)},
        task_parameters={"cells": 16},
    )
    elites.run(config, "a", progress=False)
    elites.resume("a", evaluations=60, progress=False)
    record = json.loads(Path("a/config.json").read_text())
    assert record["task"] == "own_cart:robot"
    assert record["task_parameters"]["reward"] == "own_cart:reward"
    assert record["task_parameters"]["qd_offset_from"].startswith("measured: the worst fitness of 16 random")
    assert np.isfinite(record["task_parameters"]["qd_offset"])
    assert elites.load_archive("a").about["evaluations"] == 60
    Path("cart.xml").write_text(Path("cart.xml").read_text().replace('mass="2"', 'mass="3"'))
    capsys.readouterr()
    assert cli.main(["resume", "a", "--evaluations", "80"]) == 2
    assert "cart.xml has changed since this task was recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--environment-options", "{"], "which is not JSON"),
        (["--environment-options", "3"], "environment_options is 3; it must be a table"),
        (["--environment-options", '{"wings": 2}'], "mujoco-hopper has no parameter 'wings'; it has "),
        (["--environment-options", '{"healthy_reward": "x"}'], "healthy_reward is 'x'; it must be a number"),
        (
            ["--environment-options", '{"healthy_z_range": [1]}'],
            "healthy_z_range is [1]; it must be 2 values",
        ),
        (["--environment-options", '{"robot": 1}'], "mujoco-hopper has no parameter 'robot'"),
        (
            ["--environment-options", '{"noise": 1}', "--noise", "2"],
            "noise is given twice: as a parameter and in environment_options",
        ),
        (
            ["--environment-options", '{"descriptor": []}'],
            "descriptor is []; it must be one of feet, position",
        ),
        (["--descriptor", "wings"], "descriptor is 'wings'; it must be one of feet, position, velocity"),
        (["--noise", "-1"], "noise is -1.0; it must be from 0 to 1,000"),
    ],
)
def test_wrong_options_of_the_command(arguments, message, capsys):
    assert cli.main(["random", "mujoco-hopper", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_options_of_the_command(capsys):
    options = ["--environment-options", '{"healthy_reward": 0, "healthy_z_range": [0, 9]}']
    command = cli.parse(
        ["run", "map-elites", "mujoco-hopper", *options, "--descriptor", "velocity", "--noise", "0.5"]
    )
    task = make_task("mujoco-hopper", **command.make_task_parameters())
    assert (task.healthy_reward, task.healthy_z_range, task.noise) == (0, (0, 9), 0.5)
    assert (task.descriptor, task.descriptor_names, task.grid) == ("velocity", ("x",), (1000,))
    with pytest.raises(ElitesError, match="this robot has none"):
        make_task("mujoco-swimmer", descriptor="feet")
    assert cli.main(["tasks"]) == 0
    assert "mujoco:FILE" in capsys.readouterr().out
