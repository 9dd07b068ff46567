"""Brax tasks: feet that touch the floor when Brax says so, descriptors that say something, honest ends."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import ElitesError, Execution, RunConfig, load_archive, make_task, read_table, run
from elites.evaluation.device import DeviceEvaluator
from elites.tasks import brax
from elites.tasks.brax import simulation
from elites.tasks.episode import Ending
from tests.algorithms.test_algorithms import chosen

ROBOTS = ("walker2d", "halfcheetah", "ant", "hopper")
COUNT = 20


@functools.cache
def evaluated(robot):
    """Random controllers with transitions; and again, in another order."""
    task = make_task(f"brax-{robot}", episode_length=100)
    evaluator = DeviceEvaluator(task, hidden=(8,))
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


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_foot_is_as_high_as_brax_says(robot):
    from brax import contact

    task = make_task(f"brax-{robot}")
    environment = simulation._environment(task.robot, task.backend, task.noise)
    model = environment.sys.mj_model

    @jax.jit
    @jax.vmap
    def heights(seed):
        state, _ = task.reset(seed)
        contacts = contact.get(environment.sys, state.x)
        geoms = jnp.stack([contacts.geom1, contacts.geom2], axis=1)
        return simulation.feet_of(task).height(state), contacts.dist, geoms

    ours, theirs, geoms = heights(jnp.arange(5, dtype=jnp.uint32))
    geoms = np.asarray(geoms[0])
    for foot, name in enumerate(task.feet):
        rows = (geoms == model.geom(name).id).any(1)
        assert rows.any()
        np.testing.assert_allclose(ours[:, foot], theirs[:, rows].min(1), atol=1e-5)


@pytest.mark.parametrize("robot", ROBOTS)
def test_only_uncertain_tasks_start_at_random(robot):
    uncertain, certain = (make_task(f"brax-{variant}{robot}") for variant in ("", "deterministic-"))
    assert uncertain.noise > certain.noise == 0
    for task, same in ((uncertain, False), (certain, True)):
        first, second = np.asarray(jax.jit(jax.vmap(task.reset))(jnp.arange(2, dtype=jnp.uint32))[1])
        assert first.shape == (task.observation_size,)
        assert np.array_equal(first, second) is same


def test_a_group_of_runs_on_brax(tmp_path):
    config = RunConfig(
        algorithm="pga-map-elites",
        task="brax-hopper",
        evaluations=70,
        hyper_parameters=chosen("pga-map-elites", initial=20),
        task_parameters={"episode_length": 20},
    )
    outcomes = run(config, tmp_path / "group", seeds=2, execution=Execution(log=lambda _: None)).runs
    for outcome in outcomes:
        table = read_table(outcome.folder / "metrics.csv")
        assert table["evaluations"].tolist() == [20, 40, 60, 70]
        assert table["gradient_steps"][-1] == 12
    archive = load_archive(outcomes[1].folder)
    with DeviceEvaluator(config.make_task(), hidden=(8,)) as evaluator:
        evaluation = evaluator.evaluate(archive.parameters, archive.seed)
    assert np.mean(np.abs(evaluation.fitness - archive.fitness) < 0.1) > 0.8  # physics is chaotic


def test_td3_and_cma_of_pyribs_on_brax(tmp_path):
    """One steps through the environment by itself, the other cannot be part of a program."""
    for name, changes in (("td3", {}), ("cma-map-elites", {"es": "separable"})):
        config = RunConfig(
            algorithm=name,
            task="brax-hopper",
            evaluations=20,
            hyper_parameters=chosen(name, **changes),
            task_parameters={"episode_length": 20},
        )
        outcome = run(config, tmp_path / name, execution=Execution(log=lambda _: None))
        assert outcome.finished
        assert outcome.metrics["coverage"] > 0


def test_wrong_parameters_are_reported():
    with pytest.raises(ElitesError, match="backend is 'bullet'; it must be one of spring, positional"):
        make_task("brax-ant", backend="bullet")
    with pytest.raises(ElitesError, match=r"noise is -1.0; it must be from 0 to"):
        make_task("brax-ant", noise=-1.0)
    with pytest.raises(ElitesError, match="brax-ant has no parameter 'ends_on_fall'"):
        make_task("brax-ant", ends_on_fall=True)


def test_without_brax_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(simulation, "find_spec", lambda name: None)
    task = dataclasses.replace(brax.TASKS[0], noise=0.123)  # one that is not made yet
    message = r"brax tasks need brax, .* install elites\[brax\]"
    with pytest.raises(ElitesError, match=message):
        task.reset(jnp.uint32(0))
    config = RunConfig(algorithm="map-elites", task="brax-hopper", task_parameters={"noise": 0.123})
    with pytest.raises(ElitesError, match=message):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the same command works once Brax is there


@pytest.mark.parametrize("robot", ["ant", "hopper"])
def test_a_step_is_brax_own(robot):
    """Forces are summed in another way than Brax does, and physics is unrolled: the same state comes out."""
    from brax import envs

    task = make_task(f"brax-{robot}")
    with simulation._quiet():
        theirs = envs.get_environment(task.robot, backend=task.backend, reset_noise_scale=task.noise)
    action = jnp.linspace(-0.8, 0.9, task.action_size)
    state, observation = jax.jit(task.reset)(jnp.uint32(3))
    stock = jax.jit(theirs.reset)(jax.random.key(3))
    np.testing.assert_allclose(observation, stock.obs, atol=1e-6)
    ours, stepped = jax.jit(task.step), jax.jit(theirs.step)
    for _ in range(12):  # long enough to fall onto the floor
        after, stock = ours(state, action), stepped(stock, action)
        state = after.state
    np.testing.assert_allclose(after.observation, stock.obs, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(after.reward, stock.reward, rtol=1e-3, atol=1e-3)


def test_segment_sum_is_that_of_jax():
    data = jax.random.normal(jax.random.key(0), (6, 2, 3))
    places = jnp.array([0, 2, 2, -1, 4, 2])
    ours, theirs = (f(data, places, 4) for f in (simulation.segment_sum, jax.ops.segment_sum))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(
        simulation.segment_sum(data[:, 0, 0], places, 4), jax.ops.segment_sum(data[:, 0, 0], places, 4)
    )
