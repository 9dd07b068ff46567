"""Our tasks against PyBullet's own environments, as `pybullet_envs_gymnasium` ports them."""

import gymnasium
import numpy as np
import pytest

from elites import Policy, make_task
from elites.tasks.qdgym import bullet, robots, simulator
from elites.tasks.qdgym.environment import QDGymEnv
from tests.conftest import ROBOTS, controllers

pybullet = pytest.importorskip(
    "pybullet", reason="the oracle needs the module pybullet: Python 3.11 alone has it"
)
pytest.importorskip("pybullet_envs_gymnasium")
STOCK = {
    "walker": "Walker2DBulletEnv-v0",
    "halfcheetah": "HalfCheetahBulletEnv-v0",
    "ant": "AntBulletEnv-v0",
    "hopper": "HopperBulletEnv-v0",
}
TOLERANCE = 1e-9


@pytest.fixture(scope="module", params=ROBOTS)
def pair(request):
    """The stock environment, past its first reset (its floor joins the robot's parts only then), and ours."""
    stock = gymnasium.make(STOCK[request.param], disable_env_checker=True).unwrapped
    stock.reset(seed=0)
    ours = QDGymEnv(f"qd-{request.param}")
    yield stock, ours
    ours.close()
    stock.close()


def act(policy, parameters, observation):
    """A controller in NumPy, fed the stock environment's observations."""
    layers = policy.unflatten(parameters)
    for weights, biases in layers[:-1]:
        observation = np.maximum(observation @ weights + biases, 0)
    weights, biases = layers[-1]
    return np.tanh(observation @ weights + biases)


def compare_episode(stock, ours, parameters, seed, steps=1000, past_the_end=False):
    policy = Policy.for_task(ours.task)
    expected, _ = stock.reset(seed=seed)
    observation, info = ours.reset(seed=seed)
    np.testing.assert_allclose(observation, expected, rtol=0, atol=TOLERANCE)
    assert not info["contacts"].any()
    feet = [stock.robot.foot_list.index(foot) for foot in ours.task.robot.feet]
    touched = np.zeros(len(feet))
    for step in range(1, steps + 1):
        action = act(policy, parameters, expected)
        expected, stock_reward, stock_done, _, _ = stock.step(action)
        observation, reward, done, truncated, info = ours.step(action)
        np.testing.assert_allclose(observation, expected, rtol=0, atol=TOLERANCE)
        assert abs(reward - stock_reward) < TOLERANCE
        assert done == stock_done
        assert not truncated
        np.testing.assert_array_equal(info["contacts"], stock.robot.feet_contact[feet])
        touched += info["contacts"]
        np.testing.assert_array_equal(info["descriptor"], touched / step)
        if done and not past_the_end:
            break
    return step


def test_whole_episodes_agree_at_every_step(pair):
    stock, ours = pair
    lengths = [
        compare_episode(stock, ours, parameters, seed)
        for seed, parameters in enumerate(controllers(ours.task, 10, seed=3))
    ]
    assert sum(lengths) > 100


def test_episodes_agree_after_a_fall(pair):
    stock, ours = pair
    (parameters,) = controllers(ours.task, 1, seed=4)
    assert compare_episode(stock, ours, parameters, 11, steps=600, past_the_end=True) == 600


def test_actions_beyond_the_limits_are_clipped_and_rewarded_the_same(pair):
    stock, ours = pair
    stock.reset(seed=5)
    ours.reset(seed=5)
    for action in 3 * np.random.default_rng(0).standard_normal((20, ours.task.action_size)).astype(
        np.float32
    ):
        assert abs(ours.step(action)[1] - stock.step(action)[1]) < TOLERANCE


def test_the_model_is_read_as_pybullet_reads_it(pair):
    stock, ours = pair
    body = stock.robot.objects[0]
    joints = bullet.read_joints(str(simulator.ASSETS / "mjcf" / ours.task.robot.model), simulator.FLAGS)
    assert len(joints) == stock._p.getNumJoints(body)
    for joint in joints:
        info = stock._p.getJointInfo(body, joint.link)
        assert joint.link_name == info[12]
        if joint.position_index >= 0:  # Bullet numbers the names of fixed joints anew at each load
            assert joint.joint_name == info[1]
        assert (joint.position_index, joint.velocity_index) == (info[3], info[4])
        assert (joint.low, joint.high) == (info[8], info[9])


def test_sizes_are_those_of_the_stock_environment(pair):
    stock, ours = pair
    assert (ours.task.observation_size,) == stock.observation_space.shape
    assert (ours.task.action_size,) == stock.action_space.shape
    assert len(ours._simulator.anatomy.joint) == ours.task.robot.motors


@pytest.mark.parametrize(
    ("robot", "torques"),
    [
        (robots.WALKER, [40, 40, 12, 40, 40, 12]),
        (robots.HALF_CHEETAH, [108, 81, 54, 126, 54, 27]),
        (robots.ANT, [250] * 8),
        (robots.HOPPER, [75] * 3),
    ],
)
def test_motor_torques_equal_those_of_the_tasks(robot, torques):
    np.testing.assert_allclose(simulator.read_anatomy(robot).torque, torques, rtol=1e-15)


def test_constants_equal_those_of_pybullet():
    assert bullet.USE_SELF_COLLISION == pybullet.URDF_USE_SELF_COLLISION
    assert bullet.EXCLUDE_ALL_PARENTS == pybullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS
    assert bullet.TORQUE_CONTROL == pybullet.TORQUE_CONTROL
    assert bullet.POSITION_CONTROL == pybullet.POSITION_CONTROL


def test_controllers_have_the_papers_sizes():
    counts = [Policy.for_task(make_task(f"qd-{robot}")).parameter_count for robot in ROBOTS]
    assert counts == [20230, 20742, 21256, 18947]
