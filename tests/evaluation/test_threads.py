import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import ElitesError, Policy, ThreadEvaluator, make_task
from elites.evaluation.evaluation import blank_evaluation
from elites.tasks.episode import Ending
from tests.conftest import ROBOTS, controllers


def assert_same(one, other):
    for name in ("fitness", "descriptor", "length", "ending"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    if one.transitions is not None:
        for first, second in zip(one.transitions, other.transitions, strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("robot", ROBOTS)
def test_results_are_the_same_bits_on_1_2_and_4_threads(robot, evaluators):
    task = make_task(f"qd-{robot}")
    parameters, seeds = controllers(task, 12), np.arange(12)
    one = evaluators(task.name, 1).evaluate(parameters, seeds, transitions=True)
    for threads in (2, 4):
        assert_same(one, evaluators(task.name, threads).evaluate(parameters, seeds, transitions=True))


@given(order=st.permutations(range(8)), threads=st.sampled_from([1, 2, 4]))
@settings(max_examples=10)
def test_the_order_of_episodes_does_not_matter(order, threads, evaluators):
    task = make_task("qd-hopper")
    parameters, seeds = controllers(task, 8), np.arange(8)
    straight = evaluators(task.name, 1).evaluate(parameters, seeds)
    permuted = evaluators(task.name, threads).evaluate(parameters[order], seeds[order])
    np.testing.assert_array_equal(permuted.fitness, straight.fitness[order])
    np.testing.assert_array_equal(permuted.descriptor, straight.descriptor[order])


def test_the_thousandth_episode_is_like_the_first():
    task = make_task("qd-walker")
    parameters = controllers(task, 1)
    with ThreadEvaluator(task, threads=1) as evaluator:
        first = evaluator.evaluate(parameters, [5], transitions=True)
        evaluator.evaluate(controllers(task, 100, seed=9), np.arange(1000).reshape(100, 10))
        assert_same(first, evaluator.evaluate(parameters, [5], transitions=True))


def test_each_seed_of_a_controller_is_an_episode(evaluators):
    task = make_task("qd-hopper")
    parameters, seeds = controllers(task, 3), np.arange(12).reshape(3, 4)
    evaluator = evaluators(task.name)
    together = evaluator.evaluate(parameters, seeds, transitions=True)
    assert together.descriptor.shape == (3, 4, 1)
    apart = evaluator.evaluate(np.repeat(parameters, 4, axis=0), seeds.ravel(), transitions=True)
    np.testing.assert_array_equal(together.fitness.ravel(), apart.fitness)
    np.testing.assert_array_equal(together.transitions.rewards.reshape(12, -1), apart.transitions.rewards)


@pytest.mark.parametrize("robot", ROBOTS)
def test_transitions_add_up_to_the_episode(robot, evaluators):
    task = make_task(f"qd-{robot}")
    parameters = controllers(task, 6)
    evaluation = evaluators(task.name).evaluate(parameters, range(6), transitions=True)
    record = evaluation.transitions
    assert_allclose = np.testing.assert_allclose
    for episode, length in enumerate(evaluation.length):
        assert_allclose(record.rewards[episode].sum(), evaluation.fitness[episode], rtol=1e-5)
        touched = record.step_descriptors[episode, :length].mean(axis=0)
        assert_allclose(touched, evaluation.descriptor[episode], rtol=1e-6)
        assert not record.rewards[episode, length:].any()
        assert not record.observations[episode, length + 1 :].any()
        actions = Policy.for_task(task).apply(parameters[episode], record.observations[episode, :length])
        assert_allclose(record.actions[episode, :length], actions, atol=1e-5)
    assert (record.step_descriptors <= 1).all()
    assert (evaluation.length[evaluation.ending == Ending.TRUNCATED] == 1000).all()
    assert_same(evaluation._replace(transitions=None), evaluators(task.name).evaluate(parameters, range(6)))


def test_other_hidden_layers():
    task = make_task("qd-hopper", episode_length=50)
    policy = Policy.for_task(task, hidden=(7, 300, 5))
    parameters = np.linspace(-0.3, 0.3, 2 * policy.parameter_count).reshape(2, -1)
    with ThreadEvaluator(task, hidden=(7, 300, 5), threads=1) as evaluator:
        evaluation = evaluator.evaluate(parameters, [0, 1], transitions=True)
    length = evaluation.length[0]
    expected = policy.apply(parameters[0], evaluation.transitions.observations[0, :length])
    np.testing.assert_allclose(evaluation.transitions.actions[0, :length], expected, atol=1e-5)


def test_nan_controllers_are_counted_and_do_not_affect_others(evaluators):
    task = make_task("qd-walker")
    parameters = controllers(task, 6).copy()
    healthy = evaluators(task.name).evaluate(parameters, range(6))
    parameters[1] = np.nan
    parameters[4, -1] = np.nan
    evaluation = evaluators(task.name).evaluate(parameters, range(6))
    assert evaluation.invalid == 2
    assert np.flatnonzero(np.isnan(evaluation.fitness)).tolist() == [1, 4]
    assert np.isnan(evaluation.descriptor[[1, 4]]).all()
    others = [0, 2, 3, 5]
    np.testing.assert_array_equal(evaluation.fitness[others], healthy.fitness[others])
    assert_same(healthy, evaluators(task.name).evaluate(controllers(task, 6), range(6)))


def test_infinite_weights_do_not_hang(evaluators):
    task = make_task("qd-hopper")
    parameters = np.full((1, Policy.for_task(task).parameter_count), np.inf, np.float32)
    healthy = controllers(task, 1)
    before = evaluators(task.name, 1).evaluate(healthy, [1])
    assert evaluators(task.name, 1).evaluate(parameters, [0]).invalid == 1  # inf - inf is NaN
    assert_same(before, evaluators(task.name, 1).evaluate(healthy, [1]))


def test_episodes_beyond_the_limit_are_skipped(evaluators):
    task = make_task("qd-hopper")
    parameters, seeds = controllers(task, 3), np.arange(6).reshape(3, 2)
    whole = evaluators(task.name).evaluate(parameters, seeds, transitions=True)
    part = evaluators(task.name).evaluate(parameters, seeds, transitions=True, limit=3)
    assert (part.ending.ravel()[3:] == Ending.SKIPPED).all()
    assert np.isnan(part.fitness.ravel()[3:]).all()
    assert not part.transitions.rewards.reshape(6, -1)[3:].any()
    np.testing.assert_array_equal(part.fitness.ravel()[:3], whole.fitness.ravel()[:3])


def test_the_caller_is_notified_of_each_episode(evaluators):
    task = make_task("qd-hopper")
    lengths = []
    evaluation = evaluators(task.name).evaluate(controllers(task, 5), range(5), on_episode=lengths.append)
    assert sorted(lengths) == sorted(evaluation.length.tolist())


def test_an_exception_in_the_callback_leaves_the_evaluator_usable(evaluators):
    task = make_task("qd-hopper")
    evaluator = evaluators(task.name)

    def fail(_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        evaluator.evaluate(controllers(task, 5), range(5), on_episode=fail)
    assert (evaluator.evaluate(controllers(task, 5), range(5)).length > 0).all()


def test_an_episode_that_raises_is_reported_with_its_seed():
    task = make_task("qd-hopper")
    with ThreadEvaluator(task, threads=2) as evaluator:
        evaluator._simulators[0].run = evaluator._simulators[1].run = _raise
        with pytest.raises(ElitesError, match="qd-hopper: the episode with seed 3 failed: no floor"):
            evaluator.evaluate(controllers(task, 1), [3])


def _raise(*_):
    raise ValueError("no floor")


@pytest.mark.parametrize(
    ("parameters", "seeds", "message"),
    [
        (np.zeros((2, 5)), [0, 1], r"parameters have shape \(2, 5\); .* takes \(n, 18947\)"),
        (np.zeros(18947), [0], r"parameters have shape \(18947,\)"),
        (
            np.zeros((2, 18947)),
            [0],
            r"seeds have shape \(1,\); with 2 rows of parameters it must be \(2,\) or",
        ),
        (np.zeros((2, 18947)), [0, -1], "must be whole numbers from 0"),
        (np.zeros((2, 18947)), [0.0, 1.0], "must be whole numbers from 0"),
    ],
)
def test_wrong_input_is_refused_before_compiled_code_sees_it(parameters, seeds, message, evaluators):
    with pytest.raises(ElitesError, match=message):
        evaluators("qd-hopper").evaluate(parameters, seeds)


def test_no_threads_and_a_closed_evaluator_are_refused():
    task = make_task("qd-hopper")
    with pytest.raises(ElitesError, match="threads is 0; it must be from 1 to"):
        ThreadEvaluator(task, threads=0)
    evaluator = ThreadEvaluator(task, threads=1)
    evaluator.close()
    with pytest.raises(ElitesError, match="closed"):
        evaluator.evaluate(controllers(task, 1), [0])


def test_an_empty_batch_is_an_empty_result(evaluators):
    evaluation = evaluators("qd-hopper").evaluate(np.zeros((0, 18947)), np.zeros(0, int))
    assert evaluation.fitness.shape == (0,)


@pytest.mark.parametrize("task", ["qd-halfcheetah", "mujoco-halfcheetah"])
def test_ctrl_c_ends_a_long_evaluation(task):
    """A million steps of HalfCheetah take minutes; an interrupt must end them at the next step."""
    program = """
        import numpy as np, signal, sys
        from elites import ThreadEvaluator, make_task
        from elites.policies import parameter_count
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background is without
        evaluator = ThreadEvaluator(make_task(sys.argv[1], episode_length=1_000_000), threads=2)
        zeros = np.zeros((50, parameter_count(evaluator.sizes)), np.float32)
        try:
            print("ready", flush=True)
            evaluator.evaluate(zeros, range(50))
        except KeyboardInterrupt:
            evaluator.close()
            sys.exit(7)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), task], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)  # into the evaluation
    os.kill(process.pid, signal.SIGINT)
    try:
        assert process.wait(timeout=30) == 7
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.parametrize("task", ["qd-ant", "mujoco-humanoid"])
def test_a_hundred_full_episodes_fit_in_300_mib(task):
    evaluation = blank_evaluation(make_task(task), np.arange(100), transitions=True)
    total = sum(array.nbytes for array in (*evaluation[:5], *evaluation.transitions))
    assert total < 300 * 2**20


def test_contacts_do_not_carry_over_to_the_next_episode():
    """Two controllers of which the first changed the second when Bullet's state was merely restored."""
    with np.load(Path(__file__).parent / "stale_contacts.npz") as file:
        parameters, seeds = file["parameters"], file["seeds"]
    with ThreadEvaluator(make_task("qd-walker", episode_length=30), hidden=(8,), threads=1) as evaluator:
        alone = evaluator.evaluate(parameters[1:], seeds[1:])
        after = evaluator.evaluate(parameters, seeds)
    assert alone.fitness[0] == after.fitness[1]
