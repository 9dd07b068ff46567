"""Brax tasks: feet that touch the floor when Brax says so, descriptors that say something, honest ends."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import ElitesError, Execution, RunConfig, make_task, read_table, replay, run
from elites.evaluation.device import DeviceEvaluator
from elites.results.archive import SavedArchive, save_archive
from elites.tasks import brax, describe_task
from elites.tasks.brax import simulation
from elites.tasks.episode import Ending
from tests.algorithms.test_algorithms import chosen
from tests.clips import frames, reddish

ROBOTS = ("walker2d", "halfcheetah", "ant", "hopper")
COUNT = 20


@functools.cache
def make_evaluator(robot):
    return DeviceEvaluator(make_task(f"brax-{robot}", episode_length=100), hidden=(8,))


@functools.cache
def evaluated(robot):
    """Random controllers with transitions; and again, in another order."""
    evaluator = make_evaluator(robot)
    task = evaluator.task
    parameters = np.asarray(jax.vmap(evaluator.policy.init)(jax.random.split(jax.random.key(0), COUNT)))
    again = evaluator.evaluate(parameters[::-1], np.arange(COUNT)[::-1], transitions=True)
    return task, parameters, evaluator.evaluate(parameters, np.arange(COUNT), transitions=True), again


@pytest.mark.parametrize("robot", ROBOTS)
def test_episodes_of_random_controllers(robot):
    task, _, evaluation, again = evaluated(robot)
    assert evaluation.invalid == 0
    assert evaluation.transitions.observations.shape == (COUNT, 101, task.observation_size)
    np.testing.assert_allclose(
        evaluation.transitions.rewards.sum(1), evaluation.fitness, rtol=1e-4, atol=1e-2
    )
    contacts = evaluation.transitions.step_descriptors.sum(1) / evaluation.length[:, None]
    np.testing.assert_allclose(contacts, evaluation.descriptor, atol=1e-6)
    # No descriptor is empty or constant: every foot touches the floor more in some gaits than in others.
    assert evaluation.descriptor.shape[1] == len(task.feet)
    assert (evaluation.descriptor.max(0) - evaluation.descriptor.min(0) > 0.2).all()
    assert ((evaluation.descriptor > 0.02) & (evaluation.descriptor < 0.98)).any(0).all()
    if robot == "halfcheetah":
        assert (evaluation.ending == Ending.TRUNCATED).all()
    else:
        assert Ending.TERMINATED in evaluation.ending
        assert Ending.INVALID not in evaluation.ending
    # A controller's episode does not depend on its neighbours.
    np.testing.assert_array_equal(evaluation.fitness, again.fitness[::-1])


@functools.cache
def begun(name):
    """The task, and the states and observations at the beginning of five episodes."""
    task = make_task(name)
    return task, *jax.jit(jax.vmap(task.reset))(jnp.arange(5, dtype=jnp.uint32))


@pytest.mark.parametrize("robot", ROBOTS)
def test_the_height_of_a_foot_equals_that_of_brax(robot):
    from brax import contact

    task, states, _ = begun(f"brax-{robot}")
    environment = simulation.make_environment(task)
    model = environment.sys.mj_model

    @jax.jit
    @jax.vmap
    def heights(state):
        contacts = contact.get(environment.sys, state.x)
        geoms = jnp.stack([contacts.geom1, contacts.geom2], axis=1)
        return simulation.find_feet(task).height(state), contacts.dist, geoms

    ours, theirs, geoms = heights(states)
    geoms = np.asarray(geoms[0])
    for foot, name in enumerate(task.feet):
        rows = (geoms == model.geom(name).id).any(1)
        assert rows.any()
        np.testing.assert_allclose(ours[:, foot], theirs[:, rows].min(1), atol=1e-5)


@pytest.mark.parametrize("robot", ROBOTS)
def test_only_uncertain_tasks_start_at_random(robot):
    uncertain, certain = (begun(f"brax-{variant}{robot}") for variant in ("", "deterministic-"))
    assert uncertain[0].noise > certain[0].noise == 0
    for (task, _, observations), same in ((uncertain, False), (certain, True)):
        first, second, *_ = np.asarray(observations)
        assert first.shape == (task.observation_size,)
        assert np.array_equal(first, second) is same


def test_a_group_of_runs_on_brax(tmp_path):
    """TD3 also steps through the environment by itself."""
    config = RunConfig(
        algorithm="td3",
        task="brax-hopper",
        evaluations=70,
        hyper_parameters=chosen("td3", random_steps=0),
        task_parameters={"episode_length": 20},
        physics="native",
    )
    outcomes = run(config, tmp_path / "group", seeds=2, execution=Execution(log=lambda _: None)).runs
    for outcome in outcomes:
        table = read_table(outcome.folder / "metrics.csv")
        assert table["evaluations"].tolist() == [20, 40, 60, 70]
        assert table["gradient_steps"][-1] == 160
        assert outcome.metrics["coverage"] > 0
    _, (shown,) = replay(outcomes[1].folder, size=(64, 48), steps=2)
    assert shown.fitness == shown.recorded_fitness  # to the bit: native code rounds in one way
    np.testing.assert_array_equal(shown.descriptor, shown.recorded_descriptor)


def test_wrong_parameters_are_reported():
    with pytest.raises(ElitesError, match="backend is 'bullet'; it must be one of spring, positional"):
        make_task("brax-ant", backend="bullet")
    with pytest.raises(ElitesError, match=r"noise is -1.0; it must be from 0 to"):
        make_task("brax-ant", noise=-1.0)
    with pytest.raises(ElitesError, match="brax-ant has no parameter 'ends_on_fall'"):
        make_task("brax-ant", ends_on_fall=True)


def test_without_brax_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(brax, "find_spec", lambda name: None)
    task = dataclasses.replace(brax.TASKS[0], noise=0.123)  # one that is not made yet
    message = r"brax tasks need brax, .* install elites\[brax\]"
    with pytest.raises(ElitesError, match=message):
        task.reset(jnp.uint32(0))
    config = RunConfig(algorithm="map-elites", task="brax-hopper", task_parameters={"noise": 0.123})
    with pytest.raises(ElitesError, match=message):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the same command works once Brax is there


@pytest.mark.parametrize("robot", ["ant", "hopper"])
def test_a_step_equals_that_of_brax(robot):
    """Forces are summed in another way than Brax does, and physics is unrolled: the same state comes out."""
    from brax import envs

    task, _, evaluation, _ = evaluated(robot)
    longest = np.argsort(evaluation.length)[-3:]
    assert evaluation.length[longest].min() >= 12  # long enough to fall onto the floor
    observations, actions, rewards, _ = (array[longest] for array in evaluation.transitions)
    with simulation._quiet():
        theirs = envs.get_environment(task.robot, backend=task.backend, reset_noise_scale=task.noise)

    def step(state, action):
        state = theirs.step(state, action)
        return state, (state.obs, state.reward)

    @jax.jit
    @jax.vmap
    def episode(seed, actions):
        first = theirs.reset(jax.random.key(seed))
        return first.obs, jax.lax.scan(step, first, actions)[1]

    first, (observed, rewarded) = episode(evaluation.seed[longest], actions[:, :12])
    np.testing.assert_allclose(observations[:, 0], first, atol=1e-6)
    np.testing.assert_allclose(observations[:, 1:13], observed, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(rewards[:, :12], rewarded, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("robot", ["walker2d", "ant"])
def test_robots_are_drawn(robot, tmp_path):
    """The first steps of an episode that was evaluated, as the only elite of a run."""
    task, parameters, evaluation, _ = evaluated(robot)
    best = np.argsort(evaluation.length)[-1:]
    _, _, rewards, contacts = (array[best, :10] for array in evaluation.transitions)
    config = RunConfig(
        algorithm="map-elites",
        task=task.name,
        evaluations=COUNT,
        hyper_parameters={"hidden": (8,)},
        task_parameters={"episode_length": 10},
    )
    cells, none = config.make_algorithm().cells, np.zeros(1, int)
    descriptor = contacts.mean(1, dtype=np.float32)
    about = {"algorithm": "map-elites", "task": describe_task(config.make_task()), "seed": 0}
    archive = SavedArchive(
        parameters=parameters[best],
        fitness=rewards.sum(1),
        descriptor=descriptor,
        cell=np.asarray(cells.assign(descriptor)),
        evaluation=none,
        seed=evaluation.seed[best],
        generation=none + 1,
        operator=np.array(["random"]),
        parents=np.full((1, 2), -1),
        centroids=cells.centroids,
        bounds=cells.bounds,
        grid=np.array(cells.grid, np.int32),
        policy_sizes=np.array(make_evaluator(robot).policy.sizes),
        about={**about, "format": 1, "evaluations": COUNT},
    )
    save_archive(tmp_path / "archive.npz", archive)
    (tmp_path / "config.json").write_text(json.dumps(config.record()))
    path, (shown,) = replay(tmp_path, size=(160, 120))
    assert shown.fitness == pytest.approx(shown.recorded_fitness, rel=1e-3)
    np.testing.assert_allclose(shown.descriptor, shown.recorded_descriptor, atol=0.11)
    pictures, _ = frames(path)
    assert len(pictures) > 1
    assert all(50 < reddish(picture).sum() < 6000 for picture in pictures)


def test_segment_sum_is_that_of_jax():
    data = jax.random.normal(jax.random.key(0), (6, 2, 3))
    places = jnp.array([0, 2, 2, -1, 4, 2])
    ours, theirs = (f(data, places, 4) for f in (simulation.segment_sum, jax.ops.segment_sum))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(
        simulation.segment_sum(data[:, 0, 0], places, 4), jax.ops.segment_sum(data[:, 0, 0], places, 4)
    )
