"""Noise on actions: the same rules for episodes in Numba, in worker processes, in JAX and in native code."""

import functools

import jax
import numpy as np
import pytest

from elites import ElitesError, Policy, ProcessEvaluator, ThreadEvaluator, gymnasium_task, make_task
from elites.evaluation.device import DeviceEvaluator
from elites.evaluation.function import FunctionEvaluator
from elites.evaluation.native import NativeEvaluator
from elites.tasks.function import function_task
from tests import outside
from tests.toy import POINT

HIDDEN = (8,)
EPISODES = 40
PUSH = gymnasium_task(
    outside.push,
    descriptor=outside.place,
    descriptor_bounds=outside.BOUNDS,
    qd_offset=0.0,
    episode_length=15,
)
TASKS = {
    "bullet": make_task("qd-hopper", episode_length=15),
    "gymnasium": PUSH,
    "device": POINT,
    "native": POINT,
}
MAKE = {
    "bullet": lambda threads: ThreadEvaluator(TASKS["bullet"], hidden=HIDDEN, threads=threads),
    "gymnasium": lambda threads: ProcessEvaluator(PUSH, hidden=HIDDEN, processes=threads),
    "native": lambda threads: NativeEvaluator(POINT, hidden=HIDDEN, threads=threads),
    # A task inside one program has no threads: with so many controllers in a call instead.
    "device": lambda threads: DeviceEvaluator(POINT, hidden=HIDDEN, chunk=EPISODES // threads),
}


@functools.cache
def controllers(kind):
    policy = Policy.for_task(TASKS[kind], HIDDEN)
    keys = jax.random.split(jax.random.key(0), EPISODES)
    return 0.3 * np.asarray(jax.vmap(policy.init)(keys))  # far from the bounds of the actions


@pytest.fixture(scope="module", params=TASKS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def evaluate(kind):
    with MAKE[kind](2) as evaluator:
        yield functools.partial(evaluator.evaluate, transitions=True)


@pytest.fixture(scope="module")
def plain(kind, evaluate):
    return evaluate(controllers(kind), np.arange(EPISODES))


@pytest.fixture(scope="module")
def noisy(kind, evaluate):
    return evaluate(controllers(kind), np.arange(EPISODES), action_noise=0.01)


def added(kind, parameters, evaluation):
    """The noise of each episode: recorded actions less those of its controller, [length, action_size]."""
    policy, steps = Policy.for_task(TASKS[kind], HIDDEN), evaluation.transitions
    wanted = jax.vmap(policy.apply)(parameters, steps.observations[:, :-1])
    return [(steps.actions[index] - wanted[index])[:length] for index, length in enumerate(evaluation.length)]


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_without_noise_an_action_is_the_controllers(kind, plain, evaluate):
    difference = np.concatenate(added(kind, controllers(kind), plain))
    np.testing.assert_allclose(difference, 0, atol=2e-5)
    assert_same(plain, evaluate(controllers(kind), np.arange(EPISODES), action_noise=0.0))


def test_recorded_actions_have_noise_of_the_given_deviation(kind, noisy, plain):
    noise = np.concatenate(added(kind, controllers(kind), noisy))
    assert len(noise) > 300
    assert abs(noise.std() / 0.01 - 1) < 0.1
    assert abs(noise.mean()) < 0.001
    assert (np.abs(np.corrcoef(noise.T) - np.eye(noise.shape[1])) < 0.2).all()  # each action has its own
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.2  # and each step
    assert not np.array_equal(noisy.fitness, plain.fitness)  # what was recorded was applied


def test_noise_depends_only_on_the_seed(kind, evaluate, noisy):
    shifted = evaluate(np.roll(controllers(kind), 1, axis=0), np.arange(EPISODES), action_noise=0.01)
    ours, theirs = (
        added(kind, parameters, evaluation)
        for parameters, evaluation in (
            (controllers(kind), noisy),
            (np.roll(controllers(kind), 1, axis=0), shifted),
        )
    )
    for one, other in zip(ours, theirs, strict=True):
        common = min(len(one), len(other))
        np.testing.assert_allclose(one[:common], other[:common], atol=5e-5)
    firsts = np.array([noise[0] for noise in ours])
    assert (np.abs(np.diff(firsts, axis=0)).max(1) > 1e-4).all()  # another seed: other noise


def test_threads_and_chunks_change_nothing(kind, noisy):
    with MAKE[kind](1) as evaluator:
        alone = evaluator.evaluate(
            controllers(kind), np.arange(EPISODES), transitions=True, action_noise=0.01
        )
    close = {"rtol": 1e-5, "atol": 1e-5} if kind == "device" else {"rtol": 0}
    jax.tree.map(functools.partial(np.testing.assert_allclose, **close), alone, noisy)


def test_native_noise_equals_that_of_xla():
    parameters, seeds = controllers("native"), np.arange(EPISODES)
    ours, theirs = (
        MAKE[kind](1).evaluate(parameters, seeds, transitions=True, action_noise=0.3)
        for kind in ("native", "device")
    )
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), ours, theirs)


def test_actions_stay_within_their_bounds(kind, evaluate):
    actions = evaluate(controllers(kind), np.arange(EPISODES), action_noise=3.0).transitions.actions
    assert np.abs(actions).max() == 1
    assert 0.3 < (np.abs(actions[:, 0]) == 1).mean() < 0.95


def test_a_negative_deviation_is_refused(kind, evaluate):
    with pytest.raises(ElitesError, match="action_noise is -1; it must be from 0 to"):
        evaluate(controllers(kind), np.arange(EPISODES), action_noise=-1)


def test_a_function_has_no_actions():
    task = function_task(
        lambda vectors: (-(vectors**2).sum(1), vectors[:, :1]),
        "sphere",
        parameters=3,
        descriptor_bounds=[(-1, 1)],
    )
    vectors = np.linspace(-1, 1, 12).reshape(4, 3)
    evaluator = FunctionEvaluator(task)
    assert_same(
        evaluator.evaluate(vectors, np.arange(4)),
        evaluator.evaluate(vectors, np.arange(4), action_noise=0.5),
    )
