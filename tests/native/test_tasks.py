"""Steps of tasks as machine code, against the same steps under XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import make_task
from elites.native import compile_function
from tests.toy import POINT

ROBOTS = [
    "brax-hopper",
    pytest.param("brax-walker2d", marks=pytest.mark.slow),
    pytest.param("brax-ant", marks=pytest.mark.slow),
    pytest.param("brax-halfcheetah", marks=pytest.mark.slow),
]
COUNT = 40  # not a multiple of any number of lanes


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


def jump(made, step, states, action, tolerance=1e-5):
    """The state after a step, and the number of lanes at a jump of Brax's.

    A contact that begins within rounding makes two different results of one state. Then ours is what Brax
    makes of the state with other last bits.
    """
    after, ours = step(states, action), made(states, action)
    wrong = differ(ours, after, tolerance)
    jumps, random = wrong.sum(), np.random.default_rng(0)
    for _ in range(10 if jumps else 0):
        near = jax.tree.map(
            lambda leaf: (
                (leaf * (1 + 6e-8 * random.integers(-1, 2, leaf.shape))).astype(leaf.dtype)
                if leaf.dtype == jnp.float32
                else leaf
            ),
            states,
        )
        wrong &= differ(ours, step(near, action), 3 * tolerance)
    assert not wrong.any()
    return after, jumps


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


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_steps_as_under_brax(name):
    """From its beginning, from states that it visits, and from states that are shaken."""
    task = make_task(name)
    states, example = start(task)
    made = compile_function(stepping(task), example, jnp.zeros(task.action_size), fused=True)
    step = jax.jit(jax.vmap(stepping(task)))
    tolerance = 5e-5 if name == "brax-halfcheetah" else 1e-5  # sixteen frames amplify rounding
    touched, ended, jumps = set(), set(), 0
    for action in actions(task, 60):
        after, more = jump(made, step, states, action, tolerance)
        states, jumps = after[0], jumps + more
        touched |= set(np.unique(after[2][1]))
        ended |= set(np.unique(after[2][0]))
    assert jumps <= 0.005 * 60 * COUNT
    assert len(touched) == 2  # feet on the floor, and in the air
    assert len(ended) == (2 if name == "brax-hopper" else 1)
    random = np.random.default_rng(1)
    shaken = jax.tree.map(
        lambda leaf: (leaf + 0.02 * random.normal(size=leaf.shape)).astype(leaf.dtype),
        states,
    )
    jump(made, step, shaken, actions(task, 1)[0], 10 * tolerance)


def test_a_robot_begins_as_under_brax():
    task = make_task("brax-hopper")
    seeds = np.arange(COUNT, dtype=np.uint32)
    ours = compile_function(task.reset, jnp.uint32(0))(seeds)
    theirs = jax.jit(jax.vmap(task.reset))(seeds)
    for mine, other in zip(ours, theirs, strict=True):
        for one, leaf in zip(mine, jax.tree.leaves(other), strict=True):
            assert error(one, leaf).max() < 1e-5


def test_nan_spreads_as_under_brax():
    task = make_task("brax-hopper")
    states, example = start(task)
    made = compile_function(stepping(task), example, jnp.zeros(task.action_size), fused=True)
    step = jax.jit(jax.vmap(stepping(task)))
    action = actions(task, 1)[0]
    leaves, tree = jax.tree.flatten(states)
    for lane, leaf in enumerate(leaves):
        if leaf.dtype == jnp.float32 and leaf[0].size:
            at = (lane % COUNT, *(0 for _ in leaf.shape[1:]))
            leaves[lane] = leaf.at[at].set([np.nan, np.inf][lane % 2])
    broken = jax.tree.unflatten(tree, leaves)
    ours, theirs = made(broken, action)[1], step(broken, action)[1]
    assert np.isnan(theirs[0]).any()
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.isfinite(mine), np.isfinite(other))


def test_a_state_without_what_no_step_needs():
    """It is smaller, can be replaced in place, and gives the same numbers."""
    task = make_task("brax-hopper")
    states, example = start(task)
    whole = compile_function(stepping(task), example, jnp.zeros(task.action_size))
    small = compile_function(stepping(task), example, jnp.zeros(task.action_size), state=True)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
    assert small.kept is not None
    assert len(small.kept) < sum(leaf[0].size for leaf in leaves)
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
