"""One suite for all algorithms; what is special to each follows below."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import ALGORITHMS, TASKS, ElitesError, RunConfig, make_algorithm, make_task, run
from elites.archives.archive import Status
from elites.evaluation.evaluation import Ending, Evaluation, Transitions

SMALL = {"initial": 30, "batch": 20, "hidden": (8,)}
SMALL_LEARNING = {
    "critic_hidden": (16,),
    "training_batch": 16,
    "buffer_size": 500,
    "critic_steps": 4,
    "pg_steps": 3,
}
TASK = make_task("qd-hopper", episode_length=12)


def small(name, task=TASK, **changes):
    allowed = ALGORITHMS[name].config.__dataclass_fields__
    chosen = {key: value for key, value in {**SMALL, **SMALL_LEARNING}.items() if key in allowed}
    return make_algorithm(name, task, **{**chosen, **changes})


def pretend(algorithm, batch, generation, count=None, broken=()):
    """An evaluation made up from the controllers alone: cheap, deterministic, and different for each."""
    parameters, task = np.asarray(batch.parameters, np.float64), algorithm.task
    n, steps = len(parameters), task.episode_length
    rng = np.random.default_rng(generation)
    fitness = np.sin(1e3 * parameters[:, :50].sum(1)).astype(np.float32)
    descriptor = np.abs(np.sin(1e3 * parameters[:, 50 : 50 + task.descriptor_size])).astype(np.float32)
    ending = np.zeros(n, np.uint8)
    for index in broken:
        fitness[index], descriptor[index], ending[index] = np.nan, np.nan, Ending.INVALID
    ending[n if count is None else count :] = Ending.SKIPPED
    fitness[ending == Ending.SKIPPED] = np.nan
    return Evaluation(
        seed=rng.integers(0, 2**32, n, dtype=np.uint32),
        fitness=fitness,
        descriptor=descriptor,
        length=np.where(ending == Ending.SKIPPED, 0, rng.integers(1, steps + 1, n)).astype(np.int32),
        ending=ending,
        transitions=Transitions(
            rng.normal(size=(n, steps + 1, task.observation_size)).astype(np.float32),
            rng.uniform(-1, 1, (n, steps, task.action_size)).astype(np.float32),
            rng.normal(size=(n, steps)),
            rng.integers(0, 2, (n, steps, task.descriptor_size)).astype(np.uint8),
        ),
    )


def evolve(algorithm, generations=6, seed=0, **pretending):
    """Yields (state, batch, evaluation, status) after each generation."""
    ask = jax.jit(algorithm.ask, static_argnums=2)
    tell = jax.jit(algorithm.tell, static_argnums=2)
    state = algorithm.init(jax.random.key(seed))
    for generation in range(generations):
        opening = algorithm.opening
        rounds = opening[generation] if generation < len(opening) else algorithm.generation
        key = jax.random.fold_in(jax.random.key(seed), generation)
        for round in rounds:
            state, batch = ask(state, key, round)
            evaluation = pretend(algorithm, batch, generation, **pretending)
            state, status = tell(state, key, round, batch, evaluation)
            yield state, batch, evaluation, np.asarray(status)


def last(iterator):
    return list(iterator)[-1]


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_deterministic_given_the_seed(name):
    assert_same(last(evolve(small(name))), last(evolve(small(name))))
    different = last(evolve(small(name), seed=1))[0]
    assert not np.array_equal(
        small(name).archive(last(evolve(small(name)))[0]).elites.fitness,
        small(name).archive(different).elites.fitness,
    )


@pytest.mark.parametrize("archive", ["cvt", "grid"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_archive_invariants(name, archive):
    algorithm = small(name, archive=archive)
    best, evaluated = {}, 0
    for state, batch, evaluation, status in evolve(algorithm):
        elites = algorithm.archive(state).elites
        filled = np.flatnonzero(np.asarray(elites.fitness) > -np.inf)
        # Every elite sits in the cell of its descriptor, never gets worse, and is one that was evaluated.
        np.testing.assert_array_equal(algorithm.cells.of(elites.descriptor[filled]), filled)
        for cell in filled:
            assert elites.fitness[cell] >= best.get(cell, -np.inf)
            best[cell] = float(elites.fitness[cell])
        evaluated += len(status)
        assert (np.asarray(elites.origin.evaluation)[filled] < evaluated).all()
        parents = np.asarray(elites.origin.parents)[filled]
        assert (parents < np.asarray(elites.origin.evaluation)[filled, None]).all()
        added = np.isin(status, [Status.NEW, Status.IMPROVED])
        assert added.any()
        for index in np.flatnonzero(added):
            assert (
                best[int(algorithm.cells.of(evaluation.descriptor[index : index + 1])[0])]
                >= evaluation.fitness[index]
            )
        assert np.isfinite(np.asarray(batch.parameters)).all()
    assert len(best) > 5


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nan_never_enters(name):
    algorithm = small(name)
    for state, _, _, status in evolve(algorithm, broken=(0, 3)):
        assert (status[[0, 3]] == Status.REJECTED).all()
        elites = algorithm.archive(state).elites
        assert not np.isnan(np.asarray(elites.fitness)).any()
        assert all(
            np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(getattr(state, "learning", None))
        )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_the_budget_skipped_leaves_no_trace(name):
    algorithm = small(name)
    state, _, _, status = last(evolve(algorithm, count=7))
    assert (status[7:] == Status.SKIPPED).all()
    assert (status[:7] != Status.SKIPPED).all()
    assert state.progress.evaluations == 7 * 6
    assert set(np.asarray(algorithm.archive(state).elites.origin.evaluation).tolist()) <= {-1, *range(42)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_runs_vmapped_over_seeds(name):
    """Two replications in one program give what each gives alone."""
    algorithm = small(name)
    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.vmap(algorithm.init)(keys)
    round = algorithm.opening[0][0]
    states, batches = jax.vmap(lambda s, k: algorithm.ask(s, k, round))(states, keys)
    evaluation = pretend(algorithm, jax.tree.map(lambda x: x[0], batches), 0)
    told = jax.vmap(lambda s, k, b: algorithm.tell(s, k, round, b, evaluation))(states, keys, batches)
    state, batch = algorithm.ask(algorithm.init(keys[1]), keys[1], round)
    alone = algorithm.tell(state, keys[1], round, batch, evaluation)
    jax.tree.map(lambda many, one: np.testing.assert_allclose(many[1], one, atol=1e-6), told, alone)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_runs_on_every_task(name, task, tmp_path):
    allowed = ALGORITHMS[name].config.__dataclass_fields__
    chosen = {key: value for key, value in {**SMALL, **SMALL_LEARNING}.items() if key in allowed}
    config = RunConfig(
        algorithm=name,
        task=task,
        evaluations=65,
        hyper_parameters=chosen,
        task_parameters={"episode_length": 20},
    )
    outcome = run(config, tmp_path / "run", tell=lambda _: None)
    assert outcome.finished
    assert outcome.evaluations == 65
    assert outcome.metrics["coverage"] > 0
    assert outcome.metrics["invalid"] == 0


def test_p_evo_1_is_map_elites_and_trains_nothing():
    pga, plain = small("pga-map-elites", p_evo=1.0), small("map-elites")
    assert not any(round.transitions for rounds in (*pga.opening, pga.generation) for round in rounds)
    for (mine, batch, _, status), (theirs, their_batch, _, their_status) in zip(
        evolve(pga, seed=3), evolve(plain, seed=3), strict=True
    ):
        assert_same(batch, their_batch)
        assert_same(status, their_status)
        assert_same(mine.archive, theirs.archive)
        assert mine.learning is None
        assert pga.gradient_steps(mine) == 0


@pytest.mark.parametrize(
    ("p_evo", "batch", "counts"),
    [
        (0.5, 100, (50, 49, 1)),
        (0.29, 100, (29, 70, 1)),
        (0.57, 100, (57, 42, 1)),
        (0.0, 10, (0, 9, 1)),
        (0.99, 100, (99, 0, 1)),
        (0.995, 100, (99, 0, 1)),
        (1.0, 10, (10, 0, 0)),
        (0.25, 7, (1, 5, 1)),
    ],
)
def test_offspring_by_operator(p_evo, batch, counts):
    algorithm = small("pga-map-elites", p_evo=p_evo, batch=batch, initial=10)
    *_, (state, made, _, _) = evolve(algorithm, generations=len(algorithm.opening) + 1)
    assert tuple(np.bincount(made.operator, minlength=4)[1:]) == counts
    assert algorithm.gradient_steps(state) == (0 if p_evo == 1 else 4)


def test_the_greedy_offspring_is_the_greedy_actor():
    algorithm = small("pga-map-elites")
    state, batch, _, _ = last(evolve(algorithm))
    np.testing.assert_array_equal(batch.parameters[-1], algorithm.policy.flat(state.learning.td3.actor))


def test_the_ga_draws_the_same_whatever_else_is_there():
    half, most = (small("pga-map-elites", p_evo=p, batch=20) for p in (0.5, 0.5))
    most = small("pga-map-elites", p_evo=0.5, pg_steps=7, critic_steps=9)
    (one, first, *_), (_, second, *_) = (list(evolve(a, generations=3))[-1] for a in (half, most))
    np.testing.assert_array_equal(first.parameters[:10], second.parameters[:10])
    assert not np.array_equal(first.parameters[10:], second.parameters[10:])
    assert one.progress.generation == 3


def test_every_transition_of_a_generation_is_in_the_buffer():
    algorithm = small("pga-map-elites", buffer_size=10_000)
    steps = 0
    for state, _, evaluation, _ in evolve(algorithm):
        steps += int(evaluation.length.sum())
        assert state.learning.buffer.size == steps


def test_defaults_are_the_papers():
    config = ALGORITHMS["pga-map-elites"].config()
    assert dataclasses.asdict(config) == {
        "initial": 500, "batch": 100, "sigma1": 0.005, "sigma2": 0.05, "hidden": (128, 128), "archive": "cvt",
        "critic_hidden": (256, 256), "training_batch": 256, "critic_learning_rate": 3e-4,
        "greedy_learning_rate": 3e-4, "discount": 0.99, "smoothing_noise": 0.2, "smoothing_clip": 0.5,
        "target_rate": 0.005, "delay": 2, "buffer_size": 1_000_000, "p_evo": 0.5, "critic_steps": 300,
        "pg_steps": 50, "pg_learning_rate": 0.005,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("hill-climber", {}, "unknown algorithm 'hill-climber'; the algorithms are pga-map-elites"),
        ("map-elites", {"p_evo": 0.5}, "map-elites has no hyper-parameter 'p_evo'; it has initial"),
        ("pga-map-elites", {"p_evo": 1.5}, "p_evo is 1.5; it must be from 0 to 1"),
        ("pga-map-elites", {"p_evo": float("nan")}, "p_evo is nan"),
        ("map-elites", {"batch": 0}, "batch is 0; it must be at least 1"),
        ("map-elites", {"sigma1": -1.0}, "sigma1 is -1.0; it must be at least 0"),
        ("map-elites", {"hidden": (0,)}, "hidden is"),
        ("pga-map-elites", {"buffer_size": 0}, "buffer_size is 0"),
        ("pga-map-elites", {"discount": 1.5}, "discount is 1.5"),
        ("pga-map-elites", {"delay": 0}, "delay is 0"),
    ],
)
def test_wrong_hyper_parameters_are_named(name, parameters, told):
    with pytest.raises(ElitesError, match=told):
        make_algorithm(name, TASK, **parameters)


def test_random_controllers_follow_the_papers_initialisation():
    policy = make_algorithm("map-elites", make_task("qd-walker")).policy
    (first, first_biases), _, (third, _) = policy.layers(policy.init(jax.random.key(0)))
    assert abs(float(jnp.abs(first).max()) / np.sqrt(6 / (22 + 128)) - 1) < 0.02
    assert abs(float(jnp.abs(third).max()) / np.sqrt(6 / (128 + 6)) - 1) < 0.02
    assert 0.8 / np.sqrt(22) < float(jnp.abs(first_biases).max()) <= 1 / np.sqrt(22)
