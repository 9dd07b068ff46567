"""Poses are those of the exact replay."""

import numpy as np
import pytest

import elites
from elites.replays.bullet import BulletCamera
from elites.replays.poses import no_poses_reason, read_robot, record


def rotate(quaternions, vectors):
    w, u = quaternions[..., :1], quaternions[..., 1:]
    across = np.cross(u, vectors)
    return vectors + 2 * (w * across + np.cross(u, across))


def controllers(task, count):
    size = elites.Policy.for_task(task, (8,)).parameter_count
    return np.random.default_rng(0).normal(0, 0.4, (count, size)).astype(np.float32)


@pytest.mark.parametrize("name", ["qd-ant", "qd-walker", "qd-halfcheetah", "qd-hopper"])
def test_poses_are_those_of_the_simulation_that_is_filmed(name):
    task = elites.make_task(name, episode_length=30)
    parameters, seeds = controllers(task, 2), [5, 6]
    movements = list(record(task, (8,), parameters, seeds, steps=20, every=2, physics=None))
    with elites.ThreadEvaluator(task, hidden=(8,), threads=1) as evaluator:
        evaluation = evaluator.evaluate(parameters, seeds, transitions=True)
    robot = read_robot(task)
    for index, movement in enumerate(movements):
        simulator = task.make_simulator()
        camera = BulletCamera(simulator, (32, 32))
        simulator.begin(seeds[index])
        steps = min(20, evaluation.length[index])
        assert movement.length == steps
        assert len(movement.positions) == steps // 2 + 1
        for step in range(steps + 1):
            if step:
                *_, contacts = simulator.step(evaluation.transitions.actions[index, step - 1])
            if step % 2 == 0:
                np.testing.assert_array_equal(movement.positions[step // 2, 0], camera.torso())
                if step:
                    np.testing.assert_array_equal(movement.contacts[step // 2], contacts > 0)
        simulator.close()
        assert_feet_touch_the_floor_when_they_say_so(robot, movement)


def assert_feet_touch_the_floor_when_they_say_so(robot, movement):
    for limb in robot.limbs:
        if limb.foot < 0:
            continue
        place, turn = movement.positions[1:, limb.body], movement.rotations[1:, limb.body]
        ends = [place + rotate(turn, np.broadcast_to(end, place.shape)) for end in (limb.start, limb.end)]
        height = np.minimum(ends[0][:, 2], ends[1][:, 2]) - limb.radius
        touches = movement.contacts[1:, limb.foot]
        assert (np.abs(height[touches]) < 0.012).all()
        assert (height[~touches] > 0).all()


def test_limbs_are_connected():
    """The model's capsules meet at the joints, at the start of an episode."""
    task = elites.make_task("qd-walker", episode_length=5)
    (movement,) = record(task, (8,), controllers(task, 1), [1], steps=1, every=1, physics=None)
    ends = [
        movement.positions[0, limb.body] + rotate(movement.rotations[0, limb.body], end)
        for limb in read_robot(task).limbs
        for end in (limb.start, limb.end)
    ]
    torso, thigh, leg, foot = (ends[2 * limb : 2 * limb + 2] for limb in range(4))
    for above, below in ((torso, thigh), (thigh, leg), (leg, foot)):
        np.testing.assert_allclose(above[1], below[0], atol=1e-6)


def test_a_task_without_a_robot_is_reported():
    from tests.toy import POINT

    assert "no robot" in no_poses_reason(POINT)
    assert no_poses_reason(elites.make_task("qd-walker")) == ""
