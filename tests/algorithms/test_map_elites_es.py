import jax
import jax.numpy as jnp
import numpy as np

from elites import make_algorithm, make_task
from elites.archives.archive import Status
from elites.tasks.episode import Ending, Transitions
from tests.algorithms.test_algorithms import chosen, evolve, last, small


def test_exploit_and_explore_take_turns_from_parent_to_parent():
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


def test_adam_starts_afresh_with_each_parent():
    algorithm = small("map-elites-es", steps=2)
    counts = [
        int(state.search.optimiser[0].count)
        for state, round, *_ in evolve(algorithm, generations=6)
        if round.name == "centre"
    ]
    assert counts == [1, 2, 1, 2, 1]


def test_a_step_costs_its_pairs_and_the_centres_samples():
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
    found = algorithm.novelty(state.centres._replace(descriptor=rows), jnp.array([[0.0], [2.0], [jnp.nan]]))
    np.testing.assert_allclose(found, [(0 + 1) / 2, 1.0, np.nan])


def test_a_normalising_controller_is_stored_as_a_plain_one():
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


def test_few_cells_will_do():
    """Fewer than explore steps choose from."""
    algorithm = make_algorithm("map-elites-es", make_task("qd-hopper", cells=3), **chosen("map-elites-es"))
    assert not np.isnan(np.asarray(last(evolve(algorithm))[0].archive.elites.fitness)).any()
