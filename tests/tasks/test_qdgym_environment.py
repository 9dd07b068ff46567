import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import elites
from elites import ElitesError, make_task
from elites.tasks.episode import Ending
from elites.tasks.qdgym.environment import QDGymEnv
from tests.conftest import ROBOTS, controllers

IDS = [
    f"elites/QD{variant}{robot}-v0"
    for variant in ("", "Deterministic")
    for robot in ("Walker", "HalfCheetah", "Ant", "Hopper")
]


@pytest.mark.parametrize("name", IDS)
def test_passes_gymnasiums_checker(name):
    environment = gymnasium.make(name)
    check_env(environment.unwrapped)
    environment.close()


def test_every_task_has_an_environment():
    assert sorted(name for name in gymnasium.registry if name.startswith("elites/QD")) == sorted(IDS)
    ours = {name for name in elites.TASKS if name.startswith("qd-")}
    assert {gymnasium.spec(name).kwargs["task"] for name in IDS} == ours


def test_gymnasium_limits_the_time():
    environment = gymnasium.make("elites/QDHalfCheetah-v0", max_episode_steps=5)
    environment.reset(seed=0)
    ends = [environment.step(environment.action_space.sample())[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    environment.close()


@pytest.mark.parametrize("robot", ROBOTS)
def test_steps_reproduce_an_evaluators_episode_bit_for_bit(robot, evaluators):
    task = make_task(f"qd-{robot}")
    evaluation = evaluators(task.name).evaluate(controllers(task, 2), [7, 8], transitions=True)
    environment = QDGymEnv(task)
    for episode, seed in enumerate((7, 8)):
        record = evaluation.transitions
        observation, info = environment.reset(seed=seed)
        total = 0.0
        for step in range(evaluation.length[episode]):
            np.testing.assert_array_equal(observation, record.observations[episode, step])
            observation, reward, terminated, _, info = environment.step(record.actions[episode, step])
            assert reward == record.rewards[episode, step]
            np.testing.assert_array_equal(info["contacts"], record.step_descriptors[episode, step])
            total += reward
        np.testing.assert_array_equal(observation, record.observations[episode, step + 1])
        assert np.float32(total) == evaluation.fitness[episode]
        np.testing.assert_array_equal(info["descriptor"].astype(np.float32), evaluation.descriptor[episode])
        assert terminated == (evaluation.ending[episode] == Ending.TERMINATED)
    environment.close()


def test_two_environments_do_not_disturb_each_other():
    first, second = QDGymEnv("qd-hopper"), QDGymEnv("qd-hopper")
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


def test_initial_angles_can_be_given():
    environment = QDGymEnv("qd-hopper")
    upright, _ = environment.reset(options={"angles": [0, 0, 0]})
    bent, _ = environment.reset(options={"angles": [0, 0, 0.2]})
    assert bent[12] - upright[12] == pytest.approx(0.2 * 4 / np.pi, abs=1e-6)
    environment.close()


@pytest.mark.parametrize("action", [[0.0, 0.0], [np.nan] * 3, [np.inf] * 3, 1.0])
def test_a_wrong_action_is_refused(action):
    environment = QDGymEnv("qd-hopper")
    environment.reset(seed=0)
    with pytest.raises(ElitesError, match="it must be 3 finite numbers"):
        environment.step(np.array(action))
    environment.close()


def test_a_closed_environment_is_refused():
    environment = QDGymEnv("qd-hopper")
    environment.reset(seed=0)
    environment.close()
    environment.close()
    with pytest.raises(ElitesError, match="this simulation of qd-hopper is closed"):
        environment.step(np.zeros(3))
    with pytest.raises(ElitesError, match="is closed"):
        environment.reset(seed=0)


def test_the_time_limit_is_gymnasiums():
    with pytest.raises(ElitesError, match="max_episode_steps"):
        QDGymEnv("qd-hopper", episode_length=5)


def test_wrong_angles_are_refused():
    environment = QDGymEnv("qd-hopper")
    with pytest.raises(ElitesError, match="must be 3 finite numbers"):
        environment.reset(options={"angles": [0.0]})
    environment.close()
