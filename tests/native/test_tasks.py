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


def assert_close(ours, theirs, tolerance):
    """Relative to the size of the vector that a number belongs to."""
    theirs = np.asarray(theirs)
    if theirs.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs)
        return
    size = np.maximum(1, np.abs(theirs).max(tuple(range(1, theirs.ndim)), keepdims=True, initial=0))
    assert np.abs((ours - theirs) / size).max(initial=0) < tolerance


def agree(made, step, states, action, tolerance=1e-5):
    """The state may differ more: Brax makes 4e-5 of a change of its last bits in joint velocities."""
    after = step(states, action)
    for k, (ours, theirs) in enumerate(zip(made(states, action), after, strict=True)):
        for mine, other in zip(ours, jax.tree.leaves(theirs), strict=True):
            assert_close(mine, other, 5 * tolerance if k == 0 else tolerance)
    return after


def test_a_task_of_ones_own():
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
    made = compile_function(stepping(task), example, jnp.zeros(task.action_size))
    step = jax.jit(jax.vmap(stepping(task)))
    tolerance = 5e-5 if name == "brax-halfcheetah" else 1e-5  # sixteen frames amplify rounding
    touched, ended = set(), set()
    for action in actions(task, 60):
        after = agree(made, step, states, action, tolerance)
        states = after[0]
        touched |= set(np.unique(after[2][1]))
        ended |= set(np.unique(after[2][0]))
    assert len(touched) == 2  # feet on the floor, and in the air
    assert len(ended) == (2 if name == "brax-hopper" else 1)
    random = np.random.default_rng(1)
    shaken = jax.tree.map(
        lambda leaf: (leaf + 0.02 * random.normal(size=leaf.shape)).astype(leaf.dtype),
        states,
    )
    agree(made, step, shaken, actions(task, 1)[0], 10 * tolerance)


def test_a_robot_begins_as_under_brax():
    task = make_task("brax-hopper")
    seeds = np.arange(COUNT, dtype=np.uint32)
    ours = compile_function(task.reset, jnp.uint32(0))(seeds)
    theirs = jax.jit(jax.vmap(task.reset))(seeds)
    for mine, other in zip(ours, theirs, strict=True):
        for one, leaf in zip(mine, jax.tree.leaves(other), strict=True):
            assert_close(one, leaf, 1e-5)


def test_nan_spreads_as_under_brax():
    task = make_task("brax-hopper")
    states, example = start(task)
    made = compile_function(stepping(task), example, jnp.zeros(task.action_size))
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
