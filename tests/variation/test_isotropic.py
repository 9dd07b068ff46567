"""The isotropic strategies against pyribs' CMA-ES, which adapts a full covariance."""

import functools

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ribs.emitters.opt import CMAEvolutionStrategy

from elites.variation.isotropic import IsotropicStrategies, Ranking

SIGMA = 0.5


def full(dimensions, batch):
    """pyribs' own, at the origin."""
    strategy = CMAEvolutionStrategy(sigma0=SIGMA, solution_dim=dimensions, batch_size=batch)
    strategy.reset(np.zeros(dimensions))
    return strategy


@functools.cache
def isotropic(dimensions, batch):
    """Two strategies, so that a mix-up of them would show."""
    strategies = IsotropicStrategies(2, batch, dimensions, SIGMA)
    return strategies, jax.jit(strategies.ask), jax.jit(strategies.tell)


def distance(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def test_isotropic_agrees_with_full_covariance_in_high_dimensions():
    """With the same samples and ranks: to rounding until pyribs first uses its covariance, then to 0.5 %."""
    dimensions, batch = 400, 20
    strategies, ask, tell = isotropic(dimensions, batch)
    arrays, references = strategies.start(), [full(dimensions, batch) for _ in range(2)]
    rng, exact, sigmas = np.random.default_rng(0), 0, []
    for generation in range(100):
        arrays, samples = ask(arrays, jax.random.key(generation))
        scaled = (samples - arrays["mean"][:, None]) / arrays["sigma"][:, None, None]
        assert np.allclose(np.square(scaled).mean((1, 2)), 1, atol=0.1)
        values = -np.square(np.asarray(samples) - 0.2).sum(2)
        order, parents = np.argsort(-values, 1), rng.integers(1, batch + 1, 2)
        arrays = tell(arrays, samples, Ranking(order, values[..., None], parents, np.zeros((2, dimensions))))
        for index, reference in enumerate(references):
            reference.cov.update_eigensystem(reference.current_eval, reference.lazy_gap_evals)
            reference._solutions = np.asarray(samples[index], np.float64)
            reference.tell(order[index], values[index, :, None], parents[index])
            mine = {name: np.asarray(array[index], np.float64) for name, array in arrays.items()}
            exact += not reference.cov.updated_eval
            tolerance = 5e-3 if reference.cov.updated_eval else 1e-5
            assert distance(mine["mean"], reference.mean) < 1e-5
            assert distance(mine["ps"], reference.ps) < tolerance
            assert abs(mine["sigma"] / reference.sigma - 1) < tolerance
            sigmas.append(reference.sigma)
    assert 20 < exact < 100
    assert max(sigmas) > 1.5 * min(sigmas)


@given(
    seed=st.integers(0, 2**32 - 1),
    sigma=st.sampled_from([5e-12, 2e-11, SIGMA, 1e6]),
    reach=st.sampled_from([0.1, 1.0, 30.0]),
    values=st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([-3e38, 0, 1e-13, 1e-11, 5])),
                    min_size=16, max_size=16) | st.tuples(st.just(1), st.just(7)).map(lambda one: [one] * 16),
    parents=st.integers(0, 16),
    broken=st.booleans(),
)  # fmt: skip
def test_a_generation_equals_that_of_pyribs_with_stops_and_restarts(
    seed, sigma, reach, values, parents, broken
):
    """With few dimensions, so that the damping and the limit of the growth take part."""
    dimensions, batch = 2, 16
    strategies, _, tell = isotropic(dimensions, batch)
    rng = np.random.default_rng(seed)
    mean, ps, fresh = np.float32(rng.normal(size=(3, dimensions)) * [[sigma], [1], [1]])
    samples = (mean + reach * sigma * rng.normal(size=(batch, dimensions))).astype(np.float32)
    values = np.array(values, np.float32)
    order = np.lexsort(values.T[::-1])[::-1]
    if broken:
        samples[order[parents:]] = np.nan  # what is no parent does not matter

    reference = full(dimensions, batch)
    reference.mean, reference.ps, reference.sigma = mean.astype(float), ps.astype(float), sigma
    reference._solutions = samples.astype(float)
    reference.tell(order, values, parents)
    if parents == 0 or reference.check_stop(values[order].astype(float)):
        reference.reset(fresh)

    other = strategies.start()
    arrays = {
        name: np.stack([other[name][0], value])
        for name, value in (("mean", mean), ("sigma", np.float32(sigma)), ("ps", ps))
    }
    both, *ranks = (np.stack([part] * 2) for part in (samples, order, values, np.array(parents), fresh))
    after = jax.tree.map(lambda array: array[1], tell(arrays, both, Ranking(*ranks)))
    for name in ("mean", "ps", "sigma"):
        expected = getattr(reference, name)
        np.testing.assert_allclose(after[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
