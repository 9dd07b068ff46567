"""One suite for all algorithms; what is special to each follows below."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import (
    ALGORITHMS,
    TASKS,
    ElitesError,
    Execution,
    RunConfig,
    ThreadEvaluator,
    load_archive,
    make_algorithm,
    make_task,
    read_table,
    resume,
    run,
)
from elites.algorithms.base import average_episodes
from elites.archives.archive import Status
from elites.evaluation.evaluation import blank_evaluation
from elites.tasks.episode import Ending, Transitions
from tests.conftest import ROBOTS

SMALL = {
    "initial": 20, "batch": 20, "hidden": (8,), "critic_hidden": (16,), "training_batch": 16,
    "buffer_size": 500, "critic_steps": 4, "pg_steps": 3, "samples": 3, "depth": 4, "pairs": 10, "chunk": 5,
    "steps": 2, "centre_samples": 3, "neighbours": 3, "candidates": 20, "stored_descriptors": 50,
    "random_steps": 40, "emitter_batch": 4,
}  # fmt: skip
TASK = make_task("qd-hopper", episode_length=12)


def chosen(name, **changes):
    allowed = ALGORITHMS[name].Config.__dataclass_fields__
    return {**{key: value for key, value in SMALL.items() if key in allowed}, **changes}


def small(name, **changes):
    """A small algorithm; the same one for all tests that ask for it, so that it is compiled once."""
    return _made(ALGORITHMS[name], ALGORITHMS[name].Config(**chosen(name, **changes)))


@functools.cache
def _made(kind, config):
    return kind(TASK, config)


@functools.cache
def programs(algorithm):
    ask, tell = jax.jit(algorithm.ask, static_argnums=2), jax.jit(algorithm.tell, static_argnums=2)
    return jax.jit(algorithm.init), ask, tell


def pretend(algorithm, batch, round, turn, limit=None, broken=()):
    """An evaluation made up from the controllers alone: cheap, deterministic, and different for each."""
    parameters, task = np.asarray(batch.parameters, np.float64), algorithm.task
    shape = (len(parameters),) if round.episodes == 1 else (len(parameters), round.episodes)
    rng = np.random.default_rng(turn)
    blank = blank_evaluation(task, rng.integers(0, 2**32, shape, dtype=np.uint32), transitions=True)
    steps = task.episode_length
    ran = np.arange(blank.fitness.size).reshape(shape) < (blank.fitness.size if limit is None else limit)
    ending = np.where(ran, Ending.TERMINATED, Ending.SKIPPED).astype(np.uint8)
    fitness = np.sin(1e3 * parameters[:, :50].sum(1)).reshape(-1, *[1] * (len(shape) - 1))
    fitness = (fitness + rng.normal(0, 1e-3, shape)).astype(np.float32)
    descriptor = np.abs(
        np.sin(1e4 * parameters.sum(1, keepdims=True) * np.arange(1, task.descriptor_size + 1))
    )
    descriptor = np.broadcast_to(
        descriptor.reshape(len(parameters), *[1] * (len(shape) - 1), -1), (*shape, task.descriptor_size)
    ).astype(np.float32)
    for index in broken:
        if index < len(parameters):
            ending[index] = np.where(ran[index], Ending.INVALID, ending[index])
    bad = ending > Ending.TRUNCATED
    return blank._replace(
        fitness=np.where(bad, np.nan, fitness),
        descriptor=np.where(bad[..., None], np.nan, descriptor),
        length=np.where(ran, rng.integers(1, steps + 1, shape), 0).astype(np.int32),
        ending=ending,
        transitions=Transitions(
            rng.normal(size=(*shape, steps + 1, task.observation_size)).astype(np.float32),
            rng.uniform(-1, 1, (*shape, steps, task.action_size)).astype(np.float32),
            rng.normal(size=(*shape, steps)),
            rng.integers(0, 2, (*shape, steps, task.descriptor_size)).astype(np.uint8),
        )
        if round.transitions
        else None,
    )


def evolve(algorithm, generations=6, seed=0, **pretending):
    """Yields (state, round, batch, evaluation, status) after each round."""
    init, ask, tell = programs(algorithm)
    state = init(jax.random.key(seed))
    for generation in range(generations):
        opening = algorithm.opening
        rounds = opening[generation] if generation < len(opening) else algorithm.generation
        for index, round in enumerate(rounds):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), generation), index)
            state, batch = ask(state, key, round)
            evaluation = pretend(algorithm, batch, round, 100 * generation + index, **pretending)
            state, status = tell(state, key, round, batch, evaluation)
            yield state, round, batch, evaluation, np.asarray(status)


def last(iterator):
    return list(iterator)[-1]


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_result_depends_only_on_the_seed(name):
    algorithm = small(name)
    first, again, other = (last(evolve(algorithm, seed=seed))[0] for seed in (0, 0, 1))
    assert_same(first, again)
    fitness = [np.asarray(algorithm.archive(state).elites.fitness) for state in (first, other)]
    assert not np.array_equal(*fitness)


@pytest.mark.parametrize(
    ("name", "archive"),
    # Of those with one elite per cell, which all insert alike, one will do with a grid.
    [*((name, "cvt") for name in ALGORITHMS), *((name, "grid") for name in ("map-elites", "deep-grid"))],
)
def test_archive_invariants(name, archive):
    algorithm = small(name, archive=archive)
    best, evaluated, added = {}, 0, 0
    for state, _, batch, evaluation, status in evolve(algorithm):
        elites = algorithm.archive(state).elites
        filled = np.flatnonzero(np.asarray(elites.fitness) > -np.inf)
        # Every elite sits in the cell of its descriptor, never gets worse, and is one that was evaluated.
        np.testing.assert_array_equal(algorithm.cells.assign(elites.descriptor[filled]), filled)
        if name != "deep-grid":  # there chance may evict the best
            assert all(elites.fitness[cell] >= best.get(cell, -np.inf) for cell in filled)
        assert set(best) <= set(filled.tolist())
        best = {int(cell): float(elites.fitness[cell]) for cell in filled}
        evaluated += evaluation.fitness.size
        origin = jax.tree.map(lambda array, rows=filled: np.asarray(array)[rows], elites.origin)
        assert (origin.evaluation < evaluated).all()
        assert (origin.parents < origin.evaluation[:, None]).all()
        assert len(set(origin.evaluation.tolist())) == len(filled)
        assert set(origin.operator.tolist()) <= set(range(len(algorithm.operators)))
        new = np.isin(status, [Status.NEW, Status.IMPROVED])
        added += new.sum()
        assert np.isfinite(np.asarray(batch.parameters)).all()
    assert added >= len(best) > (3 if name == "map-elites-es" else 5)
    assert state.progress.evaluations == evaluated
    assert state.progress.generation == 6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nan_never_enters(name):
    algorithm = small(name)
    for state, _, _, _, status in evolve(algorithm, broken=(0, 3)):
        assert (status[[index for index in (0, 3) if index < len(status)]] == Status.REJECTED).all()
        assert not np.isnan(np.asarray(algorithm.archive(state).elites.fitness)).any()
        for part in ("learning", "quality", "diversity", "buffer"):
            for leaf in jax.tree.leaves(getattr(state, part, None)):
                assert np.isfinite(np.asarray(leaf)).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_skipped_offspring_have_no_effect(name):
    algorithm, total = small(name), 0
    for _state, round, batch, evaluation, status in evolve(algorithm, limit=7):
        ran = min(7, evaluation.fitness.size)
        total += ran
        whole = -(-ran // round.episodes)
        assert (status[whole:] == Status.SKIPPED).all()
        assert (status[:whole] != Status.SKIPPED).all()
        assert len(batch.operator) == round.policies
        state = _state
    assert state.progress.evaluations == total
    assert (np.asarray(algorithm.archive(state).elites.origin.evaluation) < total).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_run_vmapped_over_seeds(name):
    """Two replications in one program do what each does alone, training and all."""
    algorithm = small(name)
    init, ask, tell = programs(algorithm)
    keys = jax.random.split(jax.random.key(0), 2)
    states, alone = jax.jit(jax.vmap(algorithm.init))(keys), init(keys[1])
    opening = algorithm.opening[0] if algorithm.opening else ()
    for turn, round in enumerate((*opening, *algorithm.generation)):
        states, batches = jax.jit(jax.vmap(lambda s, k, r=round: algorithm.ask(s, k, r)))(states, keys)
        alone, batch = ask(alone, keys[1], round)
        np.testing.assert_allclose(batches.parameters[1], batch.parameters, atol=1e-4)
        evaluation = pretend(algorithm, batch, round, turn)
        vmapped_tell = jax.jit(
            jax.vmap(lambda s, k, b, e, r=round: algorithm.tell(s, k, r, b, e), (0, 0, 0, None))
        )
        states, statuses = vmapped_tell(states, keys, batches, evaluation)
        alone, status = tell(alone, keys[1], round, batch, evaluation)
        np.testing.assert_array_equal(statuses[1], status)
    fitness = [
        algorithm.archive(state).elites.fitness for state in (jax.tree.map(lambda x: x[1], states), alone)
    ]
    np.testing.assert_array_equal(*fitness)


@pytest.mark.parametrize("task", [task for task in TASKS if task.startswith("qd-")])
def test_algorithms_run_on_every_task(task, tmp_path):
    """Every algorithm runs on the walker below."""
    for name in ("map-elites", "pga-map-elites") if task == "qd-ant" else ("map-elites",):
        config = RunConfig(
            algorithm=name,
            task=task,
            evaluations=125,
            hyper_parameters=chosen(name),
            task_parameters={"episode_length": 20},
        )
        outcome = run(config, tmp_path / name, execution=Execution(log=lambda _: None))
        assert outcome.finished
        assert outcome.evaluations == 125
        assert outcome.metrics["coverage"] > 0
        assert outcome.metrics["invalid"] == 0


@pytest.mark.parametrize("archive", ["cvt", "grid"])
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_shapes_fit_every_task(name, robot, archive):
    task = make_task(f"qd-{robot}", episode_length=20)
    assert_shapes_fit(make_algorithm(name, task, **chosen(name, archive=archive)))


def assert_shapes_fit(algorithm):
    """Traces every round: the state keeps its shape, and archive and batch have those of the task."""
    task, key = algorithm.task, jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(algorithm.init, key)
    cells = (len(algorithm.cells.centroids), task.descriptor_size)
    for round in {round for rounds in (*algorithm.opening, algorithm.generation) for round in rounds}:
        ask, tell = (functools.partial(_swapped, part, round) for part in (algorithm.ask, algorithm.tell))
        asked, batch = jax.eval_shape(ask, state, key)
        seeds = np.zeros(round.shape, np.uint32)
        evaluation = blank_evaluation(task, seeds, transitions=round.transitions)
        after, status = jax.eval_shape(tell, asked, key, batch, evaluation)
        assert jax.tree.map(_kind, after) == jax.tree.map(_kind, state)
        assert batch.parameters.shape == (round.policies, algorithm.genome.parameter_count)
        assert status.shape == (round.policies,)
        assert jax.eval_shape(algorithm.archive, after).elites.descriptor.shape == cells


def _swapped(function, round, state, key, *others):
    return function(state, key, round, *others)


def _kind(array):
    return array.shape, array.dtype


@pytest.mark.parametrize("name", ["pga-map-elites", "map-elites-sampling", "map-elites-es", "td3"])
def test_an_interrupted_run_resumes_to_the_same_end(name, tmp_path):
    """All others do so in tests/experiments/test_group.py."""
    config = RunConfig(
        algorithm=name,
        task="qd-walker",
        evaluations=300,
        hyper_parameters=chosen(name),
        task_parameters={"episode_length": 30},
    )
    run(config, tmp_path / "undisturbed", execution=Execution(log=lambda _: None))
    reports = []

    def stop(report):
        reports.append(report)
        if len(reports) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            config,
            tmp_path / "run",
            execution=Execution(checkpoint_seconds=0, on_generation=stop, log=lambda _: None),
        )
    assert resume(tmp_path / "run", execution=Execution(log=lambda _: None)).finished
    for file in ("metrics.csv", "archive.npz"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "undisturbed" / file).read_bytes()
    archive, metrics = load_archive(tmp_path / "run"), read_table(tmp_path / "run" / "metrics.csv")
    assert metrics["evaluations"][-1] == 300
    made = sum(values for column, values in metrics.items() if column.startswith("made_"))
    assert made.sum() <= 300
    with ThreadEvaluator(make_task("qd-walker", episode_length=30), hidden=(8,), threads=2) as evaluator:
        fitness, descriptor = average_episodes(evaluator.evaluate(archive.parameters, archive.seed))
    exact = (
        {"rtol": 1e-5} if archive.seed.ndim > 1 else {"rtol": 0}
    )  # sums of other programs: other last bits
    np.testing.assert_allclose(fitness, archive.fitness, **exact)
    np.testing.assert_allclose(descriptor, archive.descriptor, **exact)


def test_p_evo_1_is_map_elites_and_trains_nothing():
    pga, plain = small("pga-map-elites", p_evo=1.0), small("map-elites")
    assert not any(round.transitions for rounds in (*pga.opening, pga.generation) for round in rounds)
    for (mine, _, batch, _, status), (theirs, _, their_batch, _, their_status) in zip(
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
    algorithm = small("pga-map-elites", p_evo=p_evo, batch=batch)

    @jax.jit  # of all that is made, only these two are computed
    def made(state, key):
        state, batch = algorithm.ask(state, key, *algorithm.generation)
        return batch.operator, algorithm.gradient_steps(state)

    key = jax.random.key(0)
    blank = jax.tree.map(
        lambda array: np.zeros(array.shape, array.dtype), jax.eval_shape(algorithm.init, key)
    )
    operator, steps = made(blank, key)
    assert tuple(np.bincount(operator, minlength=4)[1:]) == counts
    assert steps == (0 if p_evo == 1 else 4)


def test_the_greedy_offspring_is_the_greedy_actor():
    algorithm = small("pga-map-elites")
    state, _, batch, _, _ = last(evolve(algorithm))
    np.testing.assert_array_equal(batch.parameters[-1], algorithm.policy.flatten(state.learning.td3.actor))


def test_the_ga_draws_the_same_with_any_other_operators():
    plain, busier = small("pga-map-elites"), small("pga-map-elites", pg_steps=7, critic_steps=9)
    (one, _, first, *_), (_, _, second, *_) = (last(evolve(a, generations=2)) for a in (plain, busier))
    np.testing.assert_array_equal(first.parameters[:10], second.parameters[:10])
    assert not np.array_equal(first.parameters[10:], second.parameters[10:])
    assert one.progress.generation == 2


def test_every_transition_of_a_generation_is_in_the_buffer():
    """Also of random ones that are not a multiple of a generation."""
    algorithm = small("pga-map-elites", buffer_size=10_000, initial=30)
    assert [round.policies for (round,) in algorithm.opening] == [20, 10]
    steps = 0
    for state, _, _, evaluation, _ in evolve(algorithm):
        steps += int(evaluation.length.sum())
        assert state.learning.buffer.size == steps


def test_defaults_are_the_papers():
    config = ALGORITHMS["pga-map-elites"].Config()
    assert dataclasses.asdict(config) == {
        "initial": 500, "batch": 100, "sigma1": 0.005, "sigma2": 0.05, "hidden": (128, 128), "archive": "cvt",
        "cvt_version": 2, "line_draw": "offspring", "critic_init": "fan-in",
        "critic_hidden": (256, 256), "training_batch": 256, "critic_learning_rate": 3e-4,
        "greedy_learning_rate": 3e-4, "discount": 0.99, "smoothing_noise": 0.2, "smoothing_clip": 0.5,
        "target_rate": 0.005, "delay": 2, "buffer_size": 1_000_000, "p_evo": 0.5, "critic_steps": 300,
        "pg_steps": 50, "pg_learning_rate": 0.005, "training_precision": "float32",
    }  # fmt: skip


def test_the_baselines_begin_as_their_authors_did():
    sampling, td3 = make_algorithm("map-elites-sampling", TASK), make_algorithm("td3", TASK)
    assert [(round.policies, round.episodes) for (round,) in sampling.opening] == [(100, 10)]
    assert len(td3.opening) == 25_000 / (2 * td3.config.batch)
    assert all(td3.phases[round.name] == (200, 200) for (round,) in td3.opening)
    assert td3.phases[td3.generation[0].name] == (0, 0)
    qd_pg = ALGORITHMS["qd-pg"].Config()
    assert (qd_pg.pg_steps, qd_pg.pg_learning_rate, qd_pg.state_descriptor) == (100, 1e-3, "contacts")


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("hill-climber", {}, "unknown algorithm 'hill-climber'; the algorithms are pga-map-elites"),
        (
            "map-elites",
            {"p_evo": 0.5},
            "map-elites has no parameter 'p_evo'; it has hidden, archive, cvt_version, initial",
        ),
        ("pga-map-elites", {"p_evo": 1.5}, "p_evo is 1.5; it must be from 0 to 1"),
        ("pga-map-elites", {"p_evo": float("nan")}, "p_evo is nan"),
        ("map-elites", {"batch": 0}, "batch is 0; it must be from 1 to"),
        ("map-elites", {"batch": "10"}, "batch is '10'; it must be a whole number"),
        ("map-elites", {"batch": 10.5}, "batch is 10.5; it must be a whole number"),
        ("map-elites", {"hidden": 16}, "hidden is 16; it must be a list"),
        ("map-elites", {"archive": "tree"}, "archive is 'tree'; it must be one of cvt, grid"),
        ("map-elites", {"line_draw": "layer"}, "line_draw is 'layer'; it must be one of offspring, tensor"),
        ("map-elites-sampling", {"samples": 0}, "samples is 0"),
        (
            "td3",
            {"batch": 10**6, "evaluate_every": 10**6},
            "evaluate_every is 1000000; it must be at most 2,147",
        ),
        ("td3", {"buffer_size": 14, "repeat_transitions": True}, "buffer_size is 14; it must be at least 15"),
        ("deep-grid", {"depth": 0}, "depth is 0"),
        ("map-elites-es", {"pairs": 150}, "pairs is 150; it must be a multiple of chunk"),
        ("map-elites-es", {"normalise": 1}, "normalise is 1; it must be true or false"),
        ("qd-pg", {"state_descriptor": "pose"}, "state_descriptor is 'pose'"),
        ("map-elites", {"sigma1": -1.0}, "sigma1 is -1.0; it must be from 0 to"),
        ("map-elites", {"hidden": (0,)}, "hidden is"),
        ("pga-map-elites", {"buffer_size": 0}, "buffer_size is 0"),
        ("pga-map-elites", {"discount": 1.5}, "discount is 1.5"),
        ("pga-map-elites", {"delay": 0}, "delay is 0"),
    ],
)
def test_wrong_hyper_parameters_are_reported(name, parameters, message):
    with pytest.raises(ElitesError, match=message):
        make_algorithm(name, TASK, **parameters)


def test_a_deep_grid_that_cannot_fit_is_refused():
    with pytest.raises(
        ElitesError, match=r"depth 1000000 takes \d+\.\d GB, but only .* are free; depth \d+ fits"
    ):
        make_algorithm("deep-grid", make_task("qd-ant"), depth=1_000_000)


def test_a_mean_of_equal_numbers_is_that_number():
    algorithm = small("map-elites-sampling")
    *_, (_, round, batch, evaluation, _) = evolve(algorithm, generations=1)
    equal = evaluation._replace(fitness=np.full_like(evaluation.fitness, 0.1))
    fitness, _ = average_episodes(equal)
    assert (np.asarray(fitness) == np.float32(0.1)).all()
    mixed, _ = average_episodes(evaluation)
    np.testing.assert_allclose(mixed, evaluation.fitness.mean(1), atol=1e-6)
    assert evaluation.fitness.shape == (len(batch.operator), round.episodes) == (20, 3)


def test_random_controllers_follow_the_papers_initialisation():
    policy = make_algorithm("map-elites", make_task("qd-walker")).policy
    (first, first_biases), _, (third, _) = policy.unflatten(policy.init(jax.random.key(0)))
    assert abs(float(jnp.abs(first).max()) / np.sqrt(6 / (22 + 128)) - 1) < 0.02
    assert abs(float(jnp.abs(third).max()) / np.sqrt(6 / (128 + 6)) - 1) < 0.02
    assert 0.8 / np.sqrt(22) < float(jnp.abs(first_biases).max()) <= 1 / np.sqrt(22)
