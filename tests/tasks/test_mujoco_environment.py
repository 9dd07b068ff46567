"""MuJoCo's robots as Gymnasium environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import elites
from elites import ElitesError, make_task, mujoco_task
from elites.tasks.episode import Ending
from elites.tasks.mujoco.environment import MujocoEnv
from tests import robots
from tests.conftest import controllers

IDS = [
    f"elites/Mujoco{variant}{robot}-v0"
    for variant in ("", "Deterministic")
    for robot in (
        *("Walker2d", "HalfCheetah", "Ant", "Hopper", "Humanoid", "Swimmer"),
        *("AntOmni", "AntTrap"),
    )
]


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # Gymnasium's own have the same spaces
@pytest.mark.filterwarnings("ignore:.*observation space m.*imum value is -?infinity")
@pytest.mark.parametrize("name", IDS[:8])
def test_passes_gymnasiums_checker(name):
    environment = gymnasium.make(name)
    check_env(environment.unwrapped)
    environment.close()


def test_every_task_has_an_environment():
    assert sorted(name for name in gymnasium.registry if name.startswith("elites/Mujoco")) == sorted(IDS)
    ours = {name for name in elites.TASKS if name.startswith("mujoco-")}
    assert {gymnasium.spec(name).kwargs["task"] for name in IDS} == ours


@pytest.mark.parametrize("name", ["Walker2d", "Ant", "Swimmer"])
def test_spaces_are_those_of_gymnasiums_own_environment(name):
    ours, theirs = gymnasium.make(f"elites/Mujoco{name}-v0"), gymnasium.make(f"{name}-v5")
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
    for environment in (ours, theirs):
        environment.close()


@pytest.mark.parametrize(
    ("name", "parameters"), [("walker2d", {}), ("ant-omni", {}), ("hopper", {"descriptor": "velocity"})]
)
def test_steps_reproduce_an_evaluators_episode_bit_for_bit(name, parameters):
    task = make_task(f"mujoco-{name}", episode_length=40, **parameters)
    with elites.ThreadEvaluator(task, threads=2) as evaluator:
        evaluation = evaluator.evaluate(controllers(task, 2), [7, 8], transitions=True)
    environment = MujocoEnv(task)
    low, high = environment.action_space.low, environment.action_space.high
    for episode, seed in enumerate((7, 8)):
        record = evaluation.transitions
        observation, info = environment.reset(seed=seed)
        assert observation.dtype == np.float64
        total = 0.0
        for step in range(evaluation.length[episode]):
            np.testing.assert_array_equal(np.float32(observation), record.observations[episode, step])
            control = (low + high) / 2 + (high - low) / 2 * record.actions[episode, step]
            observation, reward, terminated, truncated, info = environment.step(control)
            assert reward == record.rewards[episode, step]
            assert not truncated
            total += reward
        assert np.float32(total) == evaluation.fitness[episode]
        np.testing.assert_array_equal(np.float32(info["descriptor"]), evaluation.descriptor[episode])
        assert terminated == (evaluation.ending[episode] == Ending.TERMINATED)
        assert info["contacts"].shape == (len(task.robot.feet),)
    environment.close()


def test_two_environments_do_not_disturb_each_other():
    first, second = MujocoEnv("mujoco-hopper"), MujocoEnv("mujoco-hopper")
    action = np.full(3, 0.5, np.float32)
    first.reset(seed=1)
    alone = [first.step(action)[1] for _ in range(10)]
    first.reset(seed=1)
    beside = []
    for _ in range(10):
        second.reset(seed=2)
        second.step(-action)
        beside.append(first.step(action)[1])
    assert alone == beside
    first.close()
    second.close()


def test_the_initial_state_can_be_given():
    environment = MujocoEnv("mujoco-hopper", healthy_reward=0.0)
    assert environment.task.healthy_reward == 0
    qpos = np.array([0, 1.25, 0, 0, 0, 0.2])
    observation, _ = environment.reset(options={"qpos": qpos, "qvel": np.arange(6)})
    np.testing.assert_array_equal(observation, [*qpos[1:], *range(6)])
    other, _ = environment.reset(seed=3, options={"qvel": np.zeros(6)})
    assert 0 < np.abs(other[:5] - [1.25, 0, 0, 0, 0]).max() < 0.01
    np.testing.assert_array_equal(other[5:], 0)
    for given in ({"qpos": [0.0]}, {"qvel": [np.nan] * 6}):
        with pytest.raises(ElitesError, match="must be 6 finite numbers"):
            environment.reset(options=given)
    environment.close()


@pytest.mark.parametrize("action", [[0.0, 0.0], [np.nan] * 3, 1.0])
def test_a_wrong_action_is_refused(action):
    environment = MujocoEnv("mujoco-hopper")
    environment.reset(seed=0)
    with pytest.raises(ElitesError, match="it must be 3 finite numbers"):
        environment.step(np.array(action))
    environment.close()


def test_a_closed_environment_is_refused():
    environment = MujocoEnv("mujoco-hopper")
    environment.close()
    environment.close()
    with pytest.raises(ElitesError, match="this simulation of mujoco-hopper is closed"):
        environment.reset(seed=0)


@pytest.mark.parametrize(
    ("task", "parameters", "message"),
    [
        ("mujoco-hopper", {"episode_length": 5}, "max_episode_steps"),
        ("mujoco-hopper", {"wings": 5}, "mujoco-hopper has no parameter 'wings'"),
        ("brax-hopper", {}, "task is brax-hopper; it must be a mujoco task"),
        (make_task("mujoco-hopper"), {"noise": 1}, "they can only be set if task is a name"),
    ],
)
def test_wrong_arguments_are_refused(task, parameters, message):
    with pytest.raises(ElitesError, match=message):
        MujocoEnv(task, **parameters)


def test_a_custom_robot_is_an_environment(tmp_path):
    (tmp_path / "cart.xml").write_text(robots.CART.format(more=""))
    environment = MujocoEnv(mujoco_task(tmp_path / "cart.xml", feet=["front_foot", "back_leg"]))
    np.testing.assert_array_equal(environment.action_space.low, [-2, -1])
    environment.reset(seed=0)
    contacts = [environment.step(environment.action_space.sample())[4]["contacts"] for _ in range(30)]
    assert np.max(contacts) == 1
    assert np.min(contacts) == 0
    environment.close()
