"""Steps of tasks as machine code, against the same steps under XLA."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import make_task
from elites.native import CompiledFunction, compile_function
from elites.tasks.brax import simulation
from elites.tasks.task import DeviceTask
from tests.toy import POINT

ROBOTS = [
    "brax-hopper",
    pytest.param("brax-walker2d", marks=pytest.mark.slow),
    pytest.param("brax-ant", marks=pytest.mark.slow),
    pytest.param("brax-halfcheetah", marks=pytest.mark.slow),
]
COUNT = 201  # states at once: not a multiple of any number of lanes
STEPS = 60
SHAKEN = 10  # batches of random states
FRAME_TOLERANCE = 1e-5


def stepping(task):
    """A step as a function that can be compiled: the state first."""

    def step(state, action):
        after = task.step(state, action)
        return after.state, (after.observation, after.reward), (after.terminated, after.descriptor)

    return step


def start(task, count=COUNT):
    """States at the beginning of episodes, and one of them as an example."""
    states, _ = jax.jit(jax.vmap(task.reset))(jnp.arange(count, dtype=jnp.uint32))
    return states, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states)


def actions(task, steps, count=COUNT):
    return np.random.default_rng(0).uniform(-1, 1, (steps, count, task.action_size)).astype(np.float32)


def error(ours, theirs):
    """The largest difference in each lane, relative to the size of the vector that a number belongs to."""
    ours, theirs = (np.asarray(array).reshape(len(array), -1) for array in (ours, theirs))
    if theirs.dtype.kind != "f":
        return np.where((ours == theirs).all(1), 0, np.inf)
    size = np.maximum(1, np.abs(theirs).max(1, keepdims=True, initial=0))
    return np.abs((ours - theirs) / size).max(1, initial=0)


def differ(ours, theirs, tolerance):
    """The lanes whose results differ.

    States may differ more than the rest: Brax makes 4e-5 of a change of their last bits in joint velocities.
    """
    worst = [
        error(mine, other) / (5 * tolerance if k == 0 else tolerance)
        for k, (group, others) in enumerate(zip(ours, theirs, strict=True))
        for mine, other in zip(group, jax.tree.leaves(others), strict=True)
    ]
    return ~(np.max(worst, axis=0) <= 1)


def jumps_of(made, step, states, action, after, tolerance):
    """The number of lanes at a jump of Brax's; all others agree with the results of a step.

    A contact that begins within rounding makes two different results of one state. Then ours is what Brax
    makes of the state with other last bits, up to 5e-7 of each number.
    """
    ours = made(states, action)
    jumps, random = np.flatnonzero(differ(ours, after, tolerance)), np.random.default_rng(0)

    def nearly(leaf):
        change = 1 + 5e-7 * random.uniform(-1, 1, leaf.shape)
        return (leaf * change).astype(leaf.dtype) if leaf.dtype == np.float32 else leaf

    for lane in jumps:
        results, near, same = jax.tree.map(
            lambda leaf, lane=lane: np.repeat(np.asarray(leaf)[lane : lane + 1], COUNT, axis=0),
            (ours, states, action),
        )
        assert not differ(results, step(jax.tree.map(nearly, near), same), 3 * tolerance).all()
    return len(jumps)


class Robot(NamedTuple):
    """A robot, its step under XLA and as machine code, and steps: states, actions, results."""

    task: DeviceTask
    step: Callable[..., Any]
    made: CompiledFunction
    steps: list[tuple[Any, Any, Any]]

    @property
    def tolerance(self):
        return 5e-5 if self.task.robot == "halfcheetah" else 1e-5  # sixteen frames amplify rounding

    def shaken(self):
        """Random states, with actions: visited ones with all numbers changed; a robot's parts do not fit."""
        random = np.random.default_rng(1)
        for states, action, _ in self.steps[:: STEPS // SHAKEN]:
            yield (
                jax.tree.map(
                    lambda leaf: (leaf + 0.02 * random.normal(size=leaf.shape)).astype(leaf.dtype), states
                ),
                action,
            )


@pytest.fixture(scope="module", params=ROBOTS)
def robot(request):
    task = make_task(request.param)
    states, example = start(task)
    step = jax.jit(jax.vmap(stepping(task)))
    steps = []
    for action in actions(task, STEPS):
        steps.append((states, action, step(states, action)))
        states = steps[-1][2][0]
    made = compile_function(stepping(task), example, jnp.zeros(task.action_size), fused=True)
    return Robot(task, step, made, steps)


def test_a_custom_task():
    task = POINT
    reset = compile_function(task.reset, jnp.uint32(0))
    seeds = np.arange(COUNT, dtype=np.uint32)
    for ours, theirs in zip(reset(seeds), jax.vmap(task.reset)(seeds), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-6, atol=1e-7)
    states, example = start(task)
    states = states.at[0].set(100.0)  # where the reward is NaN
    made = compile_function(stepping(task), example, jnp.zeros(2))
    step = jax.jit(jax.vmap(stepping(task)))
    after = step(states, actions(task, 1)[0])
    observation, reward = made(states, actions(task, 1)[0])[1]
    assert np.isnan(reward[0])
    np.testing.assert_allclose(observation, after[1][0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(reward, after[1][1], rtol=1e-6)


def test_a_robot_steps_as_under_brax(robot):
    """From the 12 000 states that it visits, and from 2000 random ones."""
    task, step, made, steps = robot
    terminated, touching = (np.stack(flags) for flags in zip(*(after[2] for *_, after in steps), strict=True))
    assert len(np.unique(touching)) == 2  # feet on the floor, and in the air
    assert len(np.unique(terminated)) == (2 if task.robot in ("hopper", "ant") else 1)
    random = [(states, action, step(states, action)) for states, action in robot.shaken()]
    jumps = sum(jumps_of(made, step, *batch, robot.tolerance) for batch in [*steps, *random])
    assert jumps <= 0.005 * (STEPS + SHAKEN) * COUNT


def test_a_frame_equals_that_of_brax(robot):
    """One frame of the physics, of 2000 states that the robot visits and of 2000 random ones."""
    task = robot.task
    system = simulation.make_environment(task).sys
    pipeline = importlib.import_module(f"brax.{task.backend}.pipeline")

    def frame(state, action):
        return action, pipeline.step(system, state, action)  # the state is not the first: no more may differ

    visited = [(states, action) for states, action, _ in robot.steps[:: STEPS // SHAKEN]]
    example = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), visited[0])
    made, step = compile_function(frame, *example, fused=True), jax.jit(jax.vmap(frame))
    batches = [*visited, *robot.shaken()]
    jumps = sum(jumps_of(made, step, *batch, step(*batch), FRAME_TOLERANCE) for batch in batches)
    assert jumps <= 0.005 * len(batches) * COUNT


def test_a_robot_begins_as_under_brax():
    task = make_task("brax-hopper")
    seeds = np.arange(COUNT, dtype=np.uint32)
    ours = compile_function(task.reset, jnp.uint32(0))(seeds)
    theirs = jax.jit(jax.vmap(task.reset))(seeds)
    for mine, other in zip(ours, theirs, strict=True):
        for one, leaf in zip(mine, jax.tree.leaves(other), strict=True):
            assert error(one, leaf).max() < 1e-5


def test_nan_spreads_as_under_brax(robot):
    """NaN and infinities in any array of a state, one in each lane.

    No mass is infinite: Brax would divide by a sum that is 0 or what rounding leaves of it.
    """
    broken = jax.tree.map(np.array, robot.steps[30][0])
    random, lane = np.random.default_rng(0), 0
    for leaf in jax.tree.leaves(broken):
        if leaf.dtype == np.float32 and leaf[0].size:
            for value in (np.nan,) if leaf is broken.mass else (np.nan, np.inf, -np.inf):
                leaf[lane].flat[random.integers(leaf[0].size)] = value
                lane += 1
    assert 30 < lane < COUNT
    action = actions(robot.task, 1)[0]
    ours, theirs = robot.made(broken, action), robot.step(broken, action)
    assert np.isnan(theirs[1][0][:lane]).any(1).sum() > lane / 4
    for group, others in zip(ours, theirs, strict=True):
        for mine, other in zip(group, jax.tree.leaves(others), strict=True):
            np.testing.assert_array_equal(np.isnan(mine), np.isnan(other))
            np.testing.assert_array_equal(np.isfinite(mine), np.isfinite(other))


def test_a_state_without_unneeded_numbers():
    """It is smaller, can be replaced in place, and gives the same numbers."""
    task = make_task("brax-hopper")
    states, example = start(task)
    whole = compile_function(stepping(task), example, jnp.zeros(task.action_size))
    small = compile_function(stepping(task), example, jnp.zeros(task.action_size), state=True)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
    assert small.stored_positions is not None
    assert len(small.stored_positions) < sum(leaf[0].size for leaf in leaves)
    assert small.operations < whole.operations
    memory = small.pack(0, leaves)
    _, results = small.buffers(len(memory))
    now = states
    for action in actions(task, 5):
        small.run([memory, small.pack(1, [action])], [memory, *results[1:]])
        after = whole(now, action)
        now = jax.tree.unflatten(jax.tree.structure(states), after[0])
        for k in (1, 2):
            for mine, other in zip(small.unpack(k, results[k], COUNT), after[k], strict=True):
                np.testing.assert_array_equal(mine, other)
