import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import Execution, RunConfig, make_algorithm, make_task
from elites.archives.archive import Status
from elites.experiments.run import make_replications
from elites.tasks.episode import Ending, Transitions
from elites.tasks.function import function_task
from elites.variation import evolution_strategy as es
from tests.algorithms.test_algorithms import chosen, evolve, last, small

GRID = make_task("qd-hopper", grid=(20,))
KEYS = 20_000


def test_exploit_and_explore_alternate_between_parents():
    algorithm = small("map-elites-es", steps=2)
    modes, parents = [], []
    for _, round, batch, _, _ in evolve(algorithm, generations=9):
        if round.name == "centre":
            modes.append(int(batch.operator[0]))
            parents.append(int(batch.parents[0, 0]))
    assert modes == [1, 1, 2, 2, 1, 1, 2, 2]
    assert parents[0] == parents[1]
    assert all(parent >= 0 for parent in parents)


def test_perturbations_are_mirrored_around_the_centre_and_never_enter():
    algorithm = small("map-elites-es")
    for state, round, batch, _, status in evolve(algorithm, generations=3):
        if round.name == "perturbations":
            up, down = np.split(np.asarray(batch.parameters), 2)
            np.testing.assert_allclose(
                (up + down) / 2, np.broadcast_to(state.search.centre, up.shape), atol=1e-6
            )
            assert 0.5 * 0.02 < (up - down).std() / 2 < 1.5 * 0.02
            assert (status == Status.REJECTED).all()


def test_adam_is_reset_with_each_parent():
    algorithm = small("map-elites-es", steps=2)
    counts = [
        int(state.search.optimiser[0].count)
        for state, round, *_ in evolve(algorithm, generations=6)
        if round.name == "centre"
    ]
    assert counts == [1, 2, 1, 2, 1]


def test_a_step_costs_its_pairs_and_the_samples_of_the_centre():
    algorithm = small("map-elites-es")
    spent = [
        int(state.progress.evaluations)
        for state, round, *_ in evolve(algorithm)
        if round.name != "perturbations"
    ]
    assert np.diff(spent).tolist() == [2 * 10 + 3] * 5
    assert spent[0] == 3


def test_novelty_is_the_mean_squared_distance_to_the_nearest_centres():
    algorithm = small("map-elites-es", neighbours=2)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    rows = state.centres.descriptor.at[:3, 0].set(jnp.array([0.0, 1.0, 3.0]))
    novelty = algorithm.select.compute_novelty(
        state.centres._replace(descriptor=rows), jnp.array([[0.0], [2.0], [jnp.nan]])
    )
    np.testing.assert_allclose(novelty, [(0 + 1) / 2, 1.0, np.nan])


def test_normalisation_is_folded_into_the_stored_controller():
    """What is evaluated sees raw observations and acts as the centre does on normalised ones."""
    algorithm = small("map-elites-es", normalise=True)
    state, _, batch, _, _ = last(evolve(algorithm, generations=4))
    moments, search = state.moments, state.search
    assert moments.weight > 100
    raw = np.random.default_rng(0).normal(size=(50, 15)).astype(np.float32)
    normalised = (raw - moments.mean) / moments.deviation()
    np.testing.assert_allclose(
        algorithm.policy.apply(batch.parameters[0], raw),
        algorithm.policy.apply(search.centre, normalised),
        atol=1e-4,
    )
    back = algorithm._unfold_normalisation(batch.parameters[0], moments)
    np.testing.assert_allclose(back, search.centre, atol=1e-4)


def test_moments_are_those_of_all_observations():
    algorithm = small("map-elites-es", normalise=True)
    state, seen = jax.jit(algorithm.init)(jax.random.key(0)), []
    for _, round, _, evaluation, _ in evolve(algorithm, generations=3):
        if round.name != "perturbations":
            continue
        assert isinstance(evaluation.transitions, Transitions)
        state = state._replace(moments=algorithm._update_moments(state, evaluation))
        for episode, length in enumerate(evaluation.length):
            if evaluation.ending[episode] <= Ending.TRUNCATED:
                seen.append(evaluation.transitions.observations[episode, :length])
    seen = np.concatenate(seen)
    assert state.moments.weight == len(seen)
    np.testing.assert_allclose(state.moments.mean, seen.mean(0), atol=1e-4)
    np.testing.assert_allclose(state.moments.deviation(), seen.std(0), rtol=1e-3)


def test_three_cells_are_enough():
    """Fewer than explore steps choose from."""
    algorithm = make_algorithm("map-elites-es", make_task("qd-hopper", cells=3), **chosen("map-elites-es"))
    assert not np.isnan(np.asarray(last(evolve(algorithm))[0].archive.elites.fitness)).any()


@pytest.mark.parametrize(("scale", "divisor"), [("ranks", 1.0), ("sigma", 2 * 0.02)])
def test_weight_decay_has_its_weight_beside_the_gradient(scale, divisor):
    """Adam forgets the scale of the sum, so that only the ratio of the two counts."""
    algorithm = small("map-elites-es", gradient_scale=scale)
    search = jax.jit(algorithm.init)(jax.random.key(0)).search
    size = len(search.centre)
    search = search._replace(
        centre=jnp.linspace(-3, 3, size),
        scores=jax.random.normal(jax.random.key(1), search.scores.shape),
    )
    key = jax.random.wrap_key_data(search.key)
    noise = np.concatenate([es.draw_noise(key, chunk, 5, size) for chunk in range(2)])
    ranks = np.asarray(search.scores).ravel().argsort().argsort().reshape(2, 2, 5) / 19 - 0.5
    upward = (ranks[:, 0] - ranks[:, 1]).ravel() @ noise / 10 / divisor
    moved = jax.jit(algorithm._move)(search)
    moment = np.asarray(moved.optimiser[0].mu)  # after one step: 0.1 of what Adam was given
    np.testing.assert_allclose(moment, 0.1 * (0.005 * search.centre - upward), rtol=1e-4, atol=1e-6)


@functools.cache
def chooser(parents):
    """The share of each cell among the parents of many keys, of a state."""
    algorithm = make_algorithm(
        "map-elites-es", GRID, **chosen("map-elites-es", archive="grid", parents=parents)
    )
    keys = jax.random.split(jax.random.key(0), KEYS)
    choose = jax.jit(
        lambda state, exploring: jax.vmap(
            lambda key: algorithm.select(state.archive, state.discoveries, state.centres, key, exploring)
        )(keys)
    )

    def shares(state, *, exploring):
        return np.bincount(choose(state, exploring), minlength=20) / KEYS

    return algorithm, shares


def filled_state(algorithm, cells, best=(), descriptors=()):
    """A state in which these cells were discovered in this order."""
    state, cells = jax.jit(algorithm.init)(jax.random.key(0)), np.array(cells)
    descriptors = np.array(descriptors or (cells + 0.5) / 20, np.float32)[:, None]
    best = np.array(best or np.zeros(len(cells)), np.float32)
    elites = state.archive.elites
    return state._replace(
        archive=state.archive._replace(
            elites=elites._replace(
                fitness=elites.fitness.at[cells].set(np.arange(len(cells)) - 3.0),
                descriptor=elites.descriptor.at[cells].set(descriptors),
            )
        ),
        discoveries=state.discoveries._replace(
            generation=state.discoveries.generation.at[cells].set(3 * np.arange(len(cells)) + 1),
            best=state.discoveries.best.at[cells].set(best),
        ),
        centres=state.centres._replace(descriptor=state.centres.descriptor.at[: len(cells)].set(descriptors)),
    )


@pytest.mark.parametrize(
    ("cells", "best", "expected"),
    [
        # Weights are differences to the worst, -9, plus 1: the best two of the last five have 6 and 3.
        (
            [4, 17, 2, 9, 11, 0, 8, 5, 13, 1],
            [-9, -7, 100, 50, 0, -8.5, -7, -4, -9, -8],
            {2: 1 / 2, 5: 6 / 18, 8: 3 / 18},
        ),
        # Two that are equal, one of which is the best of all.
        ([4, 17, 2, 9, 11, 0, 8, 5, 13, 1], [0] * 5 + [1, 0, 5, 5, 0], {5: 3 / 4, 13: 1 / 4}),
        # Of six cells, the last three.
        ([4, 17, 2, 9, 11, 0], [-3, 8, 9, 0, -3, 1], {2: 1 / 2, 0: 5 / 18, 9: 4 / 18}),
        # Of fewer than five, the best.
        ([4, 17, 2, 9], [-1, -2, -3, -4], {4: 1}),
        ([7], [2], {7: 1}),
    ],
)
def test_exploit_starts_from_the_best_or_from_one_of_the_best_two_of_the_last_five(cells, best, expected):
    algorithm, shares = chooser("recent")
    frequencies = shares(filled_state(algorithm, cells, best), exploring=False)
    np.testing.assert_allclose(frequencies, [expected.get(cell, 0) for cell in range(20)], atol=0.015)
    assert set(np.flatnonzero(frequencies)) == set(expected)


def test_explore_starts_in_proportion_to_novelty_among_the_five_most_novel():
    algorithm, shares = chooser("recent")
    cells, places = [3, 1, 0, 19, 12, 10, 8], [0.18, 0.06, 0.01, 0.96, 0.62, 0.53, 0.42]
    state = filled_state(algorithm, cells, descriptors=places)
    squared = np.sort((np.subtract.outer(places, places)) ** 2, axis=1)[:, :3].mean(1)  # k is 3
    most = np.argsort(squared)[2:]
    expected = np.zeros(20)
    expected[cells] += 0.1 / 7
    expected[np.array(cells)[most]] += 0.9 * squared[most] / squared[most].sum()
    np.testing.assert_allclose(shares(state, exploring=True), expected, atol=0.015)


def test_explore_starts_anywhere_where_nothing_is_novel():
    algorithm, shares = chooser("recent")
    state = filled_state(algorithm, [3, 1, 0], descriptors=[0.1, 0.1, 0.1])
    frequencies = shares(state, exploring=True)
    np.testing.assert_allclose(frequencies[[0, 1, 3]], 1 / 3, atol=0.015)


def test_parents_may_be_uniform():
    algorithm, shares = chooser("uniform")
    cells, places = [3, 1, 0, 19, 12, 10, 8], [0.18, 0.06, 0.01, 0.96, 0.62, 0.53, 0.42]
    state = filled_state(algorithm, cells, descriptors=places)
    squared = np.sort((np.subtract.outer(places, places)) ** 2, axis=1)[:, :3].mean(1)
    exploit, explore = np.zeros(20), np.zeros(20)
    exploit[cells] = 0.5 / 7
    exploit[8] += 0.5  # the fittest
    explore[np.array(cells)[np.argsort(squared)[2:]]] = 1 / 5
    np.testing.assert_allclose(shares(state, exploring=False), exploit, atol=0.015)
    np.testing.assert_allclose(shares(state, exploring=True), explore, atol=0.015)


def test_cells_record_their_discovery_and_best_perturbation():
    algorithm = make_algorithm("map-elites-es", GRID, **chosen("map-elites-es", archive="grid", steps=3))
    discovered, best, owner = {}, {}, {}  # by cell; the owner is the evaluation of its elite
    current, seen = None, []  # the centre's evaluation, and the fitness of its perturbations
    evaluated, statuses = 0, set()
    for state, round, batch, evaluation, status in evolve(algorithm, generations=25, seed=4):
        if round.name == "perturbations":
            if not seen and int(state.search.step) % 3 == 0:
                current = int(batch.parents[0, 0])
            seen.extend(evaluation.fitness.tolist())
        else:
            for cell, elite in owner.items():
                if elite == current and seen:
                    best[cell] = max(seen)
            cell = int(algorithm.cells.assign(jnp.asarray(evaluation.descriptor.mean(1)))[0])
            if status[0] == Status.NEW:
                discovered[cell] = int(state.progress.generation)
            if status[0] in (Status.NEW, Status.IMPROVED):
                best[cell] = max(seen) if seen else float(evaluation.fitness.mean())
                owner[cell] = evaluated
            statuses.add(int(status[0]))
            current, seen = evaluated, []
            discoveries = state.discoveries
            np.testing.assert_array_equal(np.flatnonzero(discoveries.generation), sorted(discovered))
            assert {cell: int(discoveries.generation[cell]) for cell in discovered} == discovered
            np.testing.assert_allclose(
                [discoveries.best[cell] for cell in best], list(best.values()), rtol=1e-5
            )
        evaluated += evaluation.fitness.size
    assert statuses == {Status.NEW, Status.IMPROVED, Status.REJECTED}
    assert len(discovered) > 8


def test_only_perturbed_episodes_have_action_noise():
    algorithm = small("map-elites-es")
    assert [round.action_noise for round in algorithm.generation] == [0.01, 0.01, 0.0]
    assert [round.action_noise for rounds in algorithm.opening for round in rounds] == [0.0]


@pytest.mark.parametrize("task", ["qd-hopper", "tests.toy:POINT"])
def test_a_run_gives_the_noise_to_its_episodes(task):
    """Inside the program and outside: other noise, other ranks, another centre."""

    def centre(noise):
        config = RunConfig(
            algorithm="map-elites-es",
            task=task,
            evaluations=70,  # the last round is cut off
            hyper_parameters=chosen("map-elites-es", action_noise=noise),
            task_parameters={"episode_length": 12},
        )
        replications = make_replications([config], Execution(threads=1))
        try:
            while replications.evaluations < 70:
                replications.advance(70)
        finally:
            replications.evaluator.close()
        return np.asarray(replications.state[0].search.centre)

    assert not np.array_equal(centre(0.0), centre(1.0))


def test_the_first_controller_has_small_weights_by_default():
    algorithm = small("map-elites-es")
    *_, (_, _, batch, _, _) = evolve(algorithm, generations=1)
    for weights, biases in algorithm.policy.unflatten(batch.parameters[0]):
        np.testing.assert_allclose(np.linalg.norm(weights, axis=0), 0.01, rtol=1e-5)
        assert not biases.any()
    assert batch.operator.tolist() == [0]
    *_, (_, _, batch, _, _) = evolve(small("map-elites-es", initial_weights="xavier"), generations=1)
    (weights, biases), *_ = algorithm.policy.unflatten(batch.parameters[0])
    assert 0.5 < np.abs(weights).max() * np.sqrt((15 + 8) / 6) <= 1
    assert biases.any()


def test_the_first_vector_of_a_function_comes_from_the_task():
    task = function_task(
        lambda vectors: (-(vectors**2).sum(1), vectors[:, :1]),
        "sphere",
        parameters=50,
        descriptor_bounds=[(0, 10)],
        initial_bounds=(5.0, 6.0),
        cells=10,
    )
    algorithm = make_algorithm("map-elites-es", task, **chosen("map-elites-es"))
    _, batch = algorithm.ask(None, jax.random.key(0), algorithm.opening[0][0])
    assert batch.parameters.shape == (1, 50)
    assert (batch.parameters >= 5).all() & (batch.parameters <= 6).all()
