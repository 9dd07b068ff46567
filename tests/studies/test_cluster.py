"""Real Ray nodes on this machine: the same results as without, and nothing lost when one is killed."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from elites import (
    ElitesError,
    Execution,
    ProcessEvaluator,
    RunConfig,
    ThreadEvaluator,
    gymnasium_task,
    make_task,
    mujoco_task,
    run,
)
from elites.evaluation.cluster import ClusterEvaluator
from elites.paper.presets import make_study
from elites.studies.cluster import ClusterPool, write_files
from elites.studies.execution import execute
from elites.studies.resources import StudyExecution
from tests import robots
from tests.conftest import controllers
from tests.studies.test_execution import KEPT, results

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called")  # when a node is started
NOTICED = {  # how soon a node counts as dead: 30 s by default
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 2,
}


HELD = """
evaluations = 100
seeds = 2
correct = true
correct_replications = 2

[[tasks]]
task = "tests.slow_tasks:held"

[[algorithms]]
algorithm = "map-elites"
hyper_parameters = {initial = 10, batch = 20}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head and a second node, each with one core, as `ray start` makes them."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    os.environ["HELD_UNTIL"] = str(tmp_path_factory.mktemp("held") / "now")  # for runs on the nodes
    from ray.cluster_utils import Cluster

    made = Cluster()
    node = {"num_cpus": 1, "object_store_memory": 100_000_000, "memory": 4_000_000_000}
    made.add_node(include_dashboard=False, _system_config=NOTICED, **node)
    made.second = made.add_node(**node)
    made.node = node
    yield made
    ray.shutdown()
    made.shutdown()


def quiet(_):
    pass


@pytest.mark.slow
def test_a_custom_robot_with_a_function_of_a_notebook(cluster, tmp_path):
    (tmp_path / "cart.xml").write_text(robots.CART.format(more=""))
    task = mujoco_task(tmp_path / "cart.xml", reward=lambda state: state.qpos[2], episode_length=20)
    parameters, seeds = controllers(task, 6), np.arange(6)
    with ClusterEvaluator(task, cluster.address) as there, ThreadEvaluator(task, threads=1) as here:
        theirs, ours = (evaluator.evaluate(parameters, seeds) for evaluator in (there, here))
    np.testing.assert_array_equal(theirs.fitness, ours.fitness)
    np.testing.assert_array_equal(theirs.descriptor, ours.descriptor)


def test_episodes_are_those_of_the_local_evaluator(cluster):
    task = make_task("qd-hopper", episode_length=60)
    parameters, seeds = controllers(task, 12), np.arange(36).reshape(12, 3)
    lengths = []
    with (
        ClusterEvaluator(task, cluster.address) as remote,
        ThreadEvaluator(task, threads=2) as local,
    ):
        assert len(remote._actors) == 2
        for options in ({"transitions": True, "action_noise": 0.1}, {"limit": 31}):
            evaluation = remote.evaluate(parameters, seeds, on_episode=lengths.append, **options)
            expected = local.evaluate(parameters, seeds, **options)
            for one, other in zip(evaluation[:5], expected[:5], strict=True):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype
            for one, other in zip(evaluation.transitions or (), expected.transitions or (), strict=True):
                np.testing.assert_array_equal(one, other)
        assert len(lengths) == 36 + 31
        actor = next(iter(remote._actors.values()))
        wrong = actor.handle.evaluate.remote(parameters[:, :5], np.arange(1), np.arange(1), False)
        with pytest.raises(ElitesError, match=r"^parameters have shape \(1, 5\); qd-hopper with layers"):
            remote._await_result(wrong, actor)  # an error on another machine reads as one here
        with pytest.raises(ElitesError, match="parameters have shape"):
            remote.evaluate(parameters[:, :5], seeds)
    with pytest.raises(ElitesError, match="the evaluator is closed"):
        remote.evaluate(parameters, seeds)


def test_functions_in_memory_reach_every_machine(cluster):
    task = gymnasium_task(
        "Pendulum-v1",
        descriptor=lambda episode: abs(episode.observations[:, 0]).mean(),
        episode_length=5,
        qd_offset=0.0,
    )
    parameters, seeds = np.linspace(-1, 1, 24).reshape(6, 4), np.arange(6)
    with (
        ClusterEvaluator(task, cluster.address, hidden=()) as remote,
        ProcessEvaluator(task, hidden=(), processes=1) as local,
    ):
        evaluation, expected = (evaluator.evaluate(parameters, seeds) for evaluator in (remote, local))
    np.testing.assert_array_equal(evaluation.fitness, expected.fitness)
    np.testing.assert_array_equal(evaluation.descriptor, expected.descriptor)


def test_a_run_spreads_its_episodes(cluster, tmp_path):
    config = RunConfig(
        algorithm="map-elites",
        task="qd-hopper",
        evaluations=100,
        correct_every=60,
        correct_replications=2,
        hyper_parameters={"initial": 40, "batch": 20, "hidden": [8]},
        task_parameters={"episode_length": 25},
    )
    run(config, tmp_path / "far", execution=Execution(cluster=cluster.address, log=quiet))
    run(config, tmp_path / "near", execution=Execution(log=quiet))
    for name in KEPT:
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()


@pytest.mark.slow
def test_no_episode_or_run_is_lost_with_a_killed_node(cluster, tmp_path):
    """One is killed under an evaluation, then another under a study."""
    task = make_task("qd-hopper", ends_on_fall=False)  # every episode takes its time
    parameters, seeds = controllers(task, 12), np.arange(48).reshape(12, 4)
    with ClusterEvaluator(task, cluster.address) as remote:
        remote.evaluate(parameters[:1], seeds[:1])
        limit = time.monotonic() + 60
        while not all(actor.started for actor in remote._actors.values()) and time.monotonic() < limit:
            remote.evaluate(parameters[:1], seeds[:1])
        assert len(remote._actors) == 2
        ended = []

        def kill(length):
            ended.append(length)
            if len(ended) == 10:
                cluster.remove_node(cluster.second, allow_graceful=False)

        evaluation = remote.evaluate(parameters, seeds, on_episode=kill)
        assert len(remote._actors) == 1, "the node was killed before its episodes were done"
    assert len(ended) == 48
    with ThreadEvaluator(task, threads=2) as local:
        np.testing.assert_array_equal(evaluation.fitness, local.evaluate(parameters, seeds).fitness)

    second = cluster.add_node(**cluster.node)
    path = tmp_path / "mine.toml"
    path.write_text(HELD)
    jobs = make_study(str(path)).jobs()
    needs = {job.folder: 10**8 for job in jobs}
    pool = ClusterPool(tmp_path / "far", StudyExecution(cluster=cluster.address, checkpoint_seconds=0), needs)
    assert "2 machines with 2 cores" in pool.describe()
    killed, lost, take = [], [], pool._next

    def seen(stream):
        message = take(stream)
        if message["kind"] == "lost":
            lost.append(message["error"])
            Path(os.environ["HELD_UNTIL"]).touch()  # a run may outlive its node for a moment: it must not end
        return message

    def kill_once(states):
        back = [state for state in states if (tmp_path / "far" / state.job.folder / "checkpoints").exists()]
        if not killed and len(back) == 2:  # both have sent what they can be resumed from
            killed.append(second)
            cluster.remove_node(second, allow_graceful=False)

    pool._next = seen
    states = execute(jobs, pool, kill_once, quiet)
    assert killed, "the study ended before a node was killed"
    assert len(lost) == 1, "one run was on the node that was killed"
    assert [state.stage for state in states] == ["finished", "finished"]
    assert all(state.where for state in states)
    for job in jobs:
        run(job.configs[0], tmp_path / "near" / job.folder, execution=Execution(log=quiet))
    near, far = results(tmp_path / "near"), results(tmp_path / "far")
    assert far.items() >= near.items()
    assert len(far) == 2 * len(KEPT)
    assert not list((tmp_path / "far").rglob("checkpoints"))


def test_runs_that_do_not_fit_the_cluster_are_reported(cluster, tmp_path):
    with pytest.raises(ElitesError, match=r"no machine of the cluster offers 64 cores and .* GB to a run"):
        ClusterPool(tmp_path, StudyExecution(cluster=cluster.address, threads=64), {"one": 10**8})
    with pytest.raises(ElitesError, match=r"episodes of brax-hopper: .* `elites study run"):
        run(
            RunConfig(algorithm="map-elites", task="brax-hopper"),
            tmp_path / "run",
            execution=Execution(cluster=cluster.address),
        )
    assert not (tmp_path / "run").exists()
    with pytest.raises(ElitesError, match="sent a file that is not the run's"):
        write_files(tmp_path / "run", {"changed": {"../other": b""}, "removed": []})


def test_an_address_without_a_cluster_is_reported():
    from elites.cluster import _require_answer

    with pytest.raises(ElitesError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        _require_answer("127.0.0.1:1")
    with pytest.raises(ElitesError, match="it must be HOST:PORT"):
        _require_answer("nowhere")
