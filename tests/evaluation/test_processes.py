import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from elites import ElitesError, Ending, Policy, ProcessEvaluator, gymnasium_task
from elites.evaluation import make_evaluator
from elites.evaluation.evaluation import blank_evaluation
from elites.tasks.gymnasium.simulator import _sum
from tests import outside
from tests.evaluation.own_task import DRIFT

HIDDEN = (8,)


def task(length=30, **options):
    known = {name: options.pop(name) for name in ("fresh", "patience", "descriptor") if name in options}
    return gymnasium_task(
        outside.push,
        **{"descriptor": outside.place, "qd_offset": 0.0, **known},
        descriptor_bounds=((0, 1),) if "descriptor" in known else outside.BOUNDS,
        step_descriptor=None if "descriptor" in known else outside.step_place,
        episode_length=length,
        environment_options=options,
    )


def controllers(count):
    policy = Policy.for_task(task(), HIDDEN)
    return np.asarray(jax.vmap(policy.init)(jax.random.split(jax.random.key(0), 24)))[:count]


@pytest.fixture(scope="module")
def evaluator():
    with ProcessEvaluator(task(), hidden=HIDDEN, processes=2) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(evaluator):
    return evaluator.evaluate(controllers(24), np.arange(24), transitions=True)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("processes", [1, 3])
def test_the_number_of_processes_changes_nothing(processes, undisturbed):
    with ProcessEvaluator(task(), hidden=HIDDEN, processes=processes) as evaluator:
        assert_same(evaluator.evaluate(controllers(24), np.arange(24), transitions=True), undisturbed)


def test_order_and_batch_change_nothing(evaluator, undisturbed):
    alone = evaluator.evaluate(controllers(24)[20:21], [20])
    assert alone.fitness[0] == undisturbed.fitness[20]
    np.testing.assert_array_equal(alone.descriptor[0], undisturbed.descriptor[20])


def test_each_controller_can_have_several_episodes(evaluator, undisturbed):
    some = evaluator.evaluate(controllers(3), np.array([[0, 7], [1, 8], [2, 9]]))
    assert some.fitness.shape == (3, 2)
    np.testing.assert_array_equal(some.fitness[:, 0], undisturbed.fitness[:3])


def test_transitions_describe_the_whole_episode(undisturbed):
    steps = undisturbed.transitions
    assert set(undisturbed.ending) == {Ending.TERMINATED, Ending.TRUNCATED}
    for index, length in enumerate(undisturbed.length):
        assert length == 30 or undisturbed.ending[index] == Ending.TERMINATED
        assert not steps.observations[index, length + 1 :].any()
        assert not steps.actions[index, length:].any()
        np.testing.assert_allclose(steps.rewards[index].sum(), undisturbed.fitness[index], rtol=1e-6)
        np.testing.assert_allclose(
            steps.step_descriptors[index, :length],
            np.clip(steps.observations[index, 1 : length + 1, :2], -3, 3),
        )
        moved = np.diff(steps.observations[index, : length + 1, :2], axis=0)
        pushed = 0.1 * steps.actions[index, :length] * [2, 0.25]  # as the bounds of the actions say
        np.testing.assert_allclose(moved, pushed, atol=0.06)


@pytest.mark.parametrize("options", [{}, {"descriptor": outside.up}], ids=["steps", "episodes"])
def test_a_blank_evaluation_has_the_same_form(options):
    """It is what a cluster's machines fill in, each with such workers."""
    described = task(**options)
    with ProcessEvaluator(described, hidden=HIDDEN, processes=1) as evaluator:
        evaluation = evaluator.evaluate(controllers(2), np.arange(2), transitions=True)
    blank = blank_evaluation(described, np.arange(2), transitions=True)
    forms = [[(array.dtype, array.shape) for array in jax.tree.leaves(made)] for made in (evaluation, blank)]
    assert forms[0] == forms[1]


@pytest.mark.parametrize("options", [{}, {"delay": 0.3, "patience": 1.0}], ids=["fast", "slow"])
def test_a_custom_task_needs_only_a_simulator(options):
    """Even if an episode takes longer than the patience, which is for a step."""
    own = DRIFT.with_parameters(options)
    parameters = np.array([[0, 0], [0, 9], [0, -9]], np.float32)  # stays, goes right, goes left
    with make_evaluator(own, (), threads=1) as evaluator:
        assert isinstance(evaluator, ProcessEvaluator)
        evaluation = evaluator.evaluate(parameters, [4, 4, 4], transitions=True)
    start, moved = own.make_simulator().begin(4), np.array([0, 0.5, -0.5])
    np.testing.assert_allclose(evaluation.descriptor[:, 0], np.clip(start + moved, -1, 1), rtol=1e-5)
    np.testing.assert_allclose(evaluation.fitness, 5 * start + 3 * moved, rtol=1e-5)
    np.testing.assert_array_equal(evaluation.transitions.observations[:, 0, 0], start.repeat(3))


def test_rewards_that_have_no_sum_are_invalid():
    for rewards in ([np.inf, -np.inf], [1e308, 1e308]):
        assert not math.isfinite(_sum(np.array(rewards)))
    assert _sum(np.full(10, 0.1)) == 1.0


def test_episodes_beyond_the_limit_are_skipped(evaluator, undisturbed):
    lengths = []
    some = evaluator.evaluate(controllers(24), np.arange(24), limit=5, on_episode=lengths.append)
    assert sorted(lengths) == sorted(undisturbed.length[:5])
    assert (some.ending[5:] == Ending.SKIPPED).all()
    assert np.isnan(some.fitness[5:]).all()
    np.testing.assert_array_equal(some.fitness[:5], undisturbed.fitness[:5])


def test_workers_never_import_jax():
    with ProcessEvaluator(task(descriptor=outside.without_jax), hidden=HIDDEN, processes=1) as evaluator:
        assert evaluator.evaluate(controllers(1), [0]).descriptor[0, 0] == 1


def test_a_killed_worker_is_replaced_and_its_episodes_run_again(undisturbed):
    with ProcessEvaluator(task(), hidden=HIDDEN, processes=2) as evaluator:
        pids = [worker.process.pid for worker in evaluator._workers.values()]
        killed = []

        def kill(_):
            if len(killed) < 2:
                killed.append(os.kill(pids[len(killed)], signal.SIGKILL))

        assert_same(
            evaluator.evaluate(controllers(24), np.arange(24), transitions=True, on_episode=kill), undisturbed
        )
        assert len(killed) == 2
        assert not set(pids) & {worker.process.pid for worker in evaluator._workers.values()}


@pytest.mark.parametrize("trouble", ["die", "hang"])
def test_an_episode_that_fails_once_is_repeated_with_the_same_result(trouble, tmp_path, undisturbed):
    troubled = task(trouble=trouble, marker=str(tmp_path / "happened"), patience=1.0)
    with ProcessEvaluator(troubled, hidden=HIDDEN, processes=2) as evaluator:
        assert_same(evaluator.evaluate(controllers(24), np.arange(24), transitions=True), undisturbed)
    assert (tmp_path / "happened").exists()


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("die", "the episode with seed 3 failed: its worker died, 3 times"),
        ("hang", "the episode with seed 3 failed: its worker made no step for 0.3 s (patience), 3 times"),
        ("raise", "the episode with seed 3 failed: RuntimeError: out of paint"),
    ],
)
def test_an_episode_that_always_fails_is_reported(trouble, message):
    with ProcessEvaluator(task(trouble=trouble, patience=0.3), hidden=HIDDEN, processes=2) as evaluator:
        with pytest.raises(ElitesError) as error:
            evaluator.evaluate(controllers(5), np.arange(5))
        assert str(error.value) == f"gym:tests.outside:push: {message}"
        again = evaluator.evaluate(controllers(3), np.arange(3))  # the others are fine
        assert np.isfinite(again.fitness).all()


def test_nan_is_an_invalid_episode():
    with ProcessEvaluator(task(trouble="nan"), hidden=HIDDEN, processes=1) as evaluator:
        some = evaluator.evaluate(controllers(5), np.arange(5))
        broken = evaluator.evaluate(np.full_like(controllers(1), np.nan), [0])
    assert some.ending[3] == broken.ending[0] == Ending.INVALID
    assert np.isnan(some.fitness[3])
    assert np.isfinite(some.fitness[[0, 1, 2, 4]]).all()
    assert some.invalid == 1


def test_nan_in_an_observation_is_an_invalid_episode():
    """A step's descriptor is not blamed for it."""
    with ProcessEvaluator(task(trouble="unseen"), hidden=HIDDEN, processes=1) as evaluator:
        evaluation = evaluator.evaluate(controllers(8), np.arange(8), transitions=True)
    assert [index for index in range(8) if evaluation.ending[index] == Ending.INVALID] == [3]


def test_nan_in_any_output_is_an_invalid_episode(evaluator):
    parameters = controllers(4).copy()
    parameters[2, -1] = np.nan  # the last bias
    evaluation = evaluator.evaluate(parameters, np.arange(4))
    assert (evaluation.ending == Ending.INVALID).tolist() == [False, False, True, False]


def test_an_observation_of_another_shape_is_reported():
    message = r"seed 3: an observation has the shape \[1\]; its space says \[3\]"
    with (
        ProcessEvaluator(task(trouble="shape", descriptor=outside.up), hidden=HIDDEN, processes=1) as made,
        pytest.raises(ElitesError, match=message),
    ):
        made.evaluate(controllers(8), np.arange(8))


def test_workers_outlive_the_thread_that_started_them(undisturbed):
    made = []
    thread = threading.Thread(
        target=lambda: made.append(ProcessEvaluator(task(), hidden=HIDDEN, processes=2))
    )
    thread.start()
    thread.join()
    (evaluator,) = made
    before = {worker.process.pid for worker in evaluator._workers.values()}
    with evaluator:
        assert_same(evaluator.evaluate(controllers(24), np.arange(24), transitions=True), undisturbed)
        assert {worker.process.pid for worker in evaluator._workers.values()} == before


def test_an_environment_may_truncate_its_episodes():
    with ProcessEvaluator(task(trouble="cut"), hidden=HIDDEN, processes=1) as evaluator:
        some = evaluator.evaluate(controllers(2), np.arange(2))
    assert some.length.tolist() == [7, 7]
    assert (some.ending == Ending.TRUNCATED).all()


def test_a_stateful_environment_is_made_again_for_each_episode_unless_it_is_kept():
    with (
        ProcessEvaluator(task(keeps=True, fresh=False), hidden=HIDDEN, processes=1) as evaluator,
        pytest.warns(UserWarning, match="the same episode run twice differs .*cannot be repeated exactly"),
    ):
        evaluator.evaluate(controllers(1), [0])
    with ProcessEvaluator(task(keeps=True), hidden=HIDDEN, processes=2) as evaluator:
        one, other = (evaluator.evaluate(controllers(6), np.arange(6)) for _ in range(2))
    assert_same(one.fitness, other.fitness)


def test_a_callback_that_raises_leaves_the_evaluator_usable(evaluator, undisturbed):
    class EnoughError(Exception):
        pass

    def stop(_):
        raise EnoughError

    with pytest.raises(EnoughError):
        evaluator.evaluate(controllers(24), np.arange(24), on_episode=stop)
    assert_same(evaluator.evaluate(controllers(24), np.arange(24), transitions=True), undisturbed)


def test_closing_leaves_nothing_behind():
    before = _held()
    with ProcessEvaluator(task(), hidden=HIDDEN, processes=2) as evaluator:
        workers = list(evaluator._workers.values())
        evaluation = evaluator.evaluate(controllers(3), np.arange(3), transitions=True)
    assert all(worker.process.returncode == 0 for worker in workers)
    assert evaluation.transitions.rewards.any()  # stays readable
    assert _held() > before
    evaluator.close()
    with pytest.raises(ElitesError, match="the evaluator is closed"):
        evaluator.evaluate(controllers(1), [0])
    del evaluator, evaluation
    assert _held() == before


def _held():
    """How much shared memory this process holds open."""
    gc.collect()
    links = (os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return sum("memfd:elites" in link for link in links)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_parent(end, tmp_path):
    """Not even one in the middle of an episode that hangs."""
    program = f"""
import signal
import numpy as np
from elites import ProcessEvaluator, gymnasium_task
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in whatever a script starts with &
options = {{"trouble": "hang", "marker": {str(tmp_path / "hangs")!r}}}
task = gymnasium_task("tests.outside:push", descriptor="tests.outside:up", environment_options=options)
evaluator = ProcessEvaluator(task, hidden=(), processes=2)
print(*(worker.process.pid for worker in evaluator._workers.values()), flush=True)
evaluator.evaluate(np.zeros((2, 8)), [0, 3])
"""
    root = str(Path(__file__).parent.parent.parent)
    arguments = [sys.executable, "-c", program]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(arguments, **streams, text=True, cwd=root) as parent:
        try:
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(pids) == 2
            _until((tmp_path / "hangs").exists)
            parent.send_signal(end)
            parent.wait(20)
        finally:
            parent.kill()
    _until(lambda: not any(_running(pid) for pid in pids))


def _until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
