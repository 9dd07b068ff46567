"""Episodes as machine code, against the same episodes under XLA; most on toy tasks."""

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import ElitesError, Execution, NativeEvaluator, RunConfig, correct, make_task, resume, run, tasks
from elites.cli import main
from elites.evaluation.device import DeviceEvaluator
from elites.evaluation.physics import choose_physics
from elites.experiments.config import load_config
from elites.native.compiled import detect_host
from elites.policies import parameter_count
from elites.tasks.brax import BraxTask
from elites.tasks.episode import Ending
from tests.evaluation.test_device import POLICY, FinalTask, MeanTask, made
from tests.toy import POINT, PointTask

COUNT = 3 * detect_host().lanes + 5  # lanes take further episodes
LONG = {"episode_length": 60}
THREE = {"descriptor_names": tuple("abc"), "descriptor_bounds": ((-9.0, 9.0),) * 3, "grid": (3, 3, 3)}


@functools.cache
def controllers(count=COUNT):
    return np.asarray(jax.vmap(POLICY.init)(jax.random.split(jax.random.key(1), count)))


class LastTask(PointTask):
    """Described by the last state alone."""

    step_descriptor_size = 0

    def step(self, state, action):
        return super().step(state, action)._replace(descriptor=jnp.zeros(0))

    def episode_descriptor(self, mean, state):
        return state


class OddTask(PointTask):
    """With an operation that is not known."""

    def step(self, state, action):
        after = super().step(state, action)
        return after._replace(reward=jax.lax.lgamma(after.state[0]))


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def assert_close(one, other, atol=1e-5):
    for name in ("seed", "length", "ending"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=atol), one, other)


@pytest.mark.parametrize(
    "task",
    [
        made(PointTask, **LONG),
        made(PointTask, noise=30.0),  # some start where the reward is NaN
        made(PointTask, episode_length=1),
        made(MeanTask, episode_length=40),
        made(FinalTask, episode_length=40, **THREE),
        made(LastTask),
    ],
    ids=["point", "nan", "one step", "mean", "final", "last"],
)
def test_episodes_are_those_of_xla(task):
    parameters, seeds = controllers(), np.arange(COUNT)
    theirs = DeviceEvaluator(task, hidden=(4,)).evaluate(parameters, seeds, transitions=True)
    with NativeEvaluator(task, hidden=(4,), threads=2) as evaluator:
        ours = evaluator.evaluate(parameters, seeds, transitions=True)
        plain = evaluator.evaluate(parameters, seeds)
    assert_close(ours, theirs)
    assert [array.dtype for array in ours[:5]] == [array.dtype for array in theirs[:5]]
    assert ours.transitions.step_descriptors.dtype == task.step_descriptor_dtype
    assert_same(plain, ours._replace(transitions=None))
    if task.episode_length > 12:
        assert len(set(ours.ending)) > 1
    assert (ours.invalid > 0) == (task.noise == 30 or isinstance(task, MeanTask | FinalTask))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_non_finite_weights_give_the_same_as_under_xla(bad):
    """Also those behind a rectified unit: 0 · ∞ is NaN."""
    evaluators = (make(POINT, hidden=(6, 5)) for make in (NativeEvaluator, DeviceEvaluator))
    random = np.random.default_rng(0)
    parameters = random.normal(size=(80, parameter_count((3, 6, 5, 2))))
    behind = 3 * 6 + 6 + random.integers(0, 6 * 5, 80)  # weights of the second layer
    parameters[np.arange(80), behind] = bad
    ours, theirs = (evaluator.evaluate(parameters, np.arange(80)) for evaluator in evaluators)
    assert 0 < ours.invalid <= 80
    assert_close(ours, theirs)


@pytest.mark.parametrize("hidden", [(), (20,), (7, 40, 3)])
def test_controllers_of_any_shape(hidden):
    evaluators = DeviceEvaluator(POINT, hidden=hidden), NativeEvaluator(POINT, hidden=hidden, threads=1)
    parameters = np.random.default_rng(0).normal(size=(20, evaluators[0].policy.parameter_count))
    assert_close(*(evaluator.evaluate(parameters, np.arange(20)) for evaluator in evaluators))


def test_results_do_not_depend_on_threads_order_or_batches():
    task, parameters = made(PointTask, **LONG), controllers()
    seeds = np.arange(COUNT) * 7919
    with NativeEvaluator(task, hidden=(4,), threads=1) as evaluator:
        whole = evaluator.evaluate(parameters, seeds, transitions=True, action_noise=0.1)
        order = np.random.default_rng(0).permutation(COUNT)
        shuffled = evaluator.evaluate(parameters[order], seeds[order], transitions=True, action_noise=0.1)
        few = evaluator.evaluate(parameters[40:43], seeds[40:43], transitions=True, action_noise=0.1)
    assert_same(jax.tree.map(lambda array: array[order], whole), shuffled)
    assert_same(jax.tree.map(lambda array: array[40:43], whole), few)
    for threads in (2, 5):
        with NativeEvaluator(task, hidden=(4,), threads=threads) as evaluator:
            assert_same(whole, evaluator.evaluate(parameters, seeds, transitions=True, action_noise=0.1))


def test_several_episodes_of_a_controller_are_those_of_its_copies():
    parameters, seeds = controllers(9), np.arange(9 * 7).reshape(9, 7)
    with NativeEvaluator(POINT, hidden=(4,), threads=2) as evaluator:
        several = evaluator.evaluate(parameters, seeds, transitions=True)
        copies = evaluator.evaluate(np.repeat(parameters, 7, 0), seeds.ravel(), transitions=True)
    assert several.descriptor.shape == (9, 7, 2)
    assert_same(jax.tree.map(lambda array: array.reshape(63, *array.shape[2:]), several), copies)


@pytest.mark.parametrize("limit", [0, 3, 40, 1000])
def test_episodes_beyond_the_limit_are_skipped_and_all_are_reported(limit):
    lengths, seeds = [], np.arange(46).reshape(23, 2)
    with NativeEvaluator(POINT, hidden=(4,), threads=2) as evaluator:
        whole = evaluator.evaluate(controllers(23), seeds)
        part = evaluator.evaluate(controllers(23), seeds, limit=limit, on_episode=lengths.append)
    ran = np.arange(46).reshape(23, 2) < limit
    np.testing.assert_array_equal(part.ending != Ending.SKIPPED, ran)
    np.testing.assert_array_equal(part.fitness[ran], whole.fitness[ran])
    assert np.isnan(part.fitness[~ran]).all()
    assert not part.length[~ran].any()
    assert sorted(lengths) == sorted(part.length[ran])


def test_user_errors_are_reported():
    evaluator = NativeEvaluator(POINT, hidden=(4,), threads=1)
    with pytest.raises(ElitesError, match=r"parameters have shape \(2, 3\); point with layers \(3, 4, 2\)"):
        evaluator.evaluate(np.zeros((2, 3)), np.arange(2))
    evaluator.close()
    with pytest.raises(ElitesError, match="the evaluator is closed"):
        evaluator.evaluate(controllers(2), np.arange(2))
    with pytest.raises(ElitesError, match="threads is 0; it must be from 1 to"):
        NativeEvaluator(POINT, threads=0)


def test_ctrl_c_ends_a_long_evaluation():
    """Ten million steps of each lane take minutes."""
    task = dataclasses.replace(POINT, episode_length=10_000_000)
    parameters = np.zeros((50, POLICY.parameter_count))  # they never move
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with NativeEvaluator(task, hidden=(4,), threads=2) as evaluator:
            evaluator.evaluate(parameters, np.arange(50), limit=0)  # compiles
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            started = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):
                evaluator.evaluate(parameters, np.arange(50))
            assert time.perf_counter() - started < 5
            assert evaluator.evaluate(controllers(2), np.arange(2), limit=0).invalid == 0  # still of use
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_robot_agrees_with_xla_in_the_first_steps():
    """The physics amplifies rounding: the first steps agree, and the numbers of all of them nearly."""
    task = make_task("brax-hopper", episode_length=25)
    theirs = DeviceEvaluator(task, hidden=(8,))
    keys = jax.random.split(jax.random.key(0), 20)
    parameters = 2 * np.asarray(jax.vmap(theirs.policy.init)(keys))
    expected = theirs.evaluate(parameters, np.arange(20), transitions=True)
    with NativeEvaluator(task, hidden=(8,), threads=2) as evaluator:
        evaluation = evaluator.evaluate(parameters, np.arange(20), transitions=True)
    assert_close(evaluation, expected, atol=2e-2)
    np.testing.assert_allclose(
        evaluation.transitions.observations[:, :6], expected.transitions.observations[:, :6], atol=1e-4
    )
    assert 0 < evaluation.descriptor.mean() < 1


# Runs


def small(**changes):
    sizes = {"initial": 20, "batch": 20, "hidden": (8,)}
    given = {"algorithm": "map-elites", "task": "point", "evaluations": 110, "hyper_parameters": sizes}
    return RunConfig(**{**given, "physics": "native", **changes})


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    monkeypatch.setitem(tasks.TASKS, "odd", made(OddTask, name="odd"))


def quiet(_):
    pass


def files(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.csv", "archive.npz", "config.json")}


def test_a_run_its_group_and_its_continuation_end_with_the_same_bits(tmp_path):
    messages = []
    alone = run(small(seed=4), tmp_path / "one", execution=Execution(log=messages.append, threads=3))
    assert messages == ["physics: native code in 3 threads"]
    assert json.loads((tmp_path / "one" / "config.json").read_text())["physics"] == "native"
    group = run(small(seed=3), tmp_path / "two", 2, Execution(log=quiet, threads=1))
    assert files(group.runs[1].folder) == files(alone.folder)

    def stop(report):
        if report.metrics["generation"] == 3:
            raise KeyboardInterrupt

    cut = Execution(checkpoint_seconds=0, on_generation=stop, log=quiet)
    with pytest.raises(KeyboardInterrupt):
        run(small(seed=4), tmp_path / "cut", execution=cut)
    resume(tmp_path / "cut", Execution(log=quiet, threads=1))
    assert files(tmp_path / "cut") == files(alone.folder)


def test_a_correction_has_the_physics_of_its_run(tmp_path):
    folder = run(small(), tmp_path / "run", execution=Execution(log=quiet)).folder
    messages = []
    native = correct(folder, replications=3, threads=1, log=messages.append)
    again = correct(folder, replications=3, log=messages.append)
    assert len(messages) == 1
    assert "already exists" in messages[0]
    np.testing.assert_array_equal(native.fitness, again.fitness)
    xla = correct(folder, replications=3, physics="xla", log=messages.append)
    assert len(messages) == 1  # it was computed
    assert [native.about["physics"], xla.about["physics"]] == ["native", None]
    np.testing.assert_allclose(native.fitness, xla.fitness, rtol=1e-5, atol=1e-5)


def test_runs_without_recorded_physics_use_xla(tmp_path):
    for task, physics in (("point", "xla"), ("qd-hopper", None)):
        record = RunConfig(algorithm="map-elites", task=task).record()
        assert record.pop("physics") is None
        (tmp_path / "config.json").write_text(json.dumps(record))
        assert load_config(tmp_path)[0].physics == physics


def test_a_step_that_cannot_be_compiled_runs_under_xla_with_a_message(tmp_path, monkeypatch):
    messages = []
    config = small(task="odd", physics=None, evaluations=30)
    assert run(config, tmp_path / "run", execution=Execution(log=messages.append)).finished
    assert len(messages) == 1
    assert "XLA" in messages[0]
    assert "JAX's operation lgamma cannot be compiled" in messages[0]
    with pytest.raises(ElitesError, match=r"odd cannot use native physics: JAX's operation lgamma"):
        run(small(task="odd"), tmp_path / "other", execution=Execution(log=quiet))
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_physics(POINT, None, threads=2) == ("native", "physics: native code in 2 threads")
    assert choose_physics(POINT, None, seeds=20, threads=16)[0] == "native"
    physics, line = choose_physics(POINT, None, seeds=21, threads=16)
    assert physics == "xla"
    assert line.startswith("physics: XLA; a CUDA kernel is not possible: JAX has no GPU")
    assert choose_physics(POINT, "native", seeds=20, threads=2)[0] == "native"
    with pytest.raises(ElitesError, match="point cannot use cuda physics: JAX has no GPU"):
        choose_physics(POINT, "cuda")


def test_physics_is_for_tasks_in_jax(capsys):
    with pytest.raises(ElitesError, match=r"physics is native; it is for tasks in JAX, .* not qd-hopper"):
        RunConfig(algorithm="map-elites", task="qd-hopper", physics="native")
    with pytest.raises(ElitesError, match="physics is 'gpu'; it must be one of xla, native, cuda"):
        small(physics="gpu")
    assert main(["run", "map-elites", "qd-hopper", "--physics", "xla"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "physics is xla; it is for tasks in JAX" in line


def test_a_later_process_does_not_trace_a_robot_again():
    """Its machine code is in the cache, so Brax is not imported."""
    program = (
        "import sys, numpy as np, elites\n"
        "task = elites.make_task('brax-hopper', episode_length=3, noise=float(sys.argv[1]))\n"
        "evaluator = elites.NativeEvaluator(task, hidden=(4,), threads=1)\n"
        "fitness = evaluator.evaluate(np.ones((1, 63), np.float32), [3]).fitness\n"
        "print(fitness[0].tobytes().hex(), 'brax' in sys.modules)"
    )
    noise = str(time.time_ns() % 10**9 / 10**11)  # a robot that is not in the cache
    command = [sys.executable, "-c", program, noise]
    first, later = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)
    )
    assert (first[1], later[1]) == ("True", "False")
    assert first[0] == later[0]


def test_a_subclass_of_a_robot_is_traced():
    class Heavier(BraxTask):
        pass

    robot = make_task("brax-hopper")
    same = {field.name: getattr(robot, field.name) for field in dataclasses.fields(robot)}
    assert robot.code_version == dataclasses.replace(robot).code_version is not None
    assert robot.code_version != dataclasses.replace(robot, noise=0.5).code_version
    assert Heavier(**same).code_version is None
