import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from elites.variation import evolution_strategy as es


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=20))
def test_ranks_are_centred_and_equal_for_equal_scores(scores):
    ranks = es.centred_ranks(jnp.array(scores, jnp.float32))
    np.testing.assert_allclose(ranks, (rankdata(scores) - 1) / (len(scores) - 1) - 0.5, atol=1e-6)


def test_nan_ranks_last():
    ranks = es.centred_ranks(jnp.array([1.0, jnp.nan, -1e30, 3.0]))
    assert ranks.argmin() == 1


def scores_of(function, centre, key, chunks, pairs, sigma):
    """[chunks, 2, pairs], as an algorithm gathers them."""
    scores = []
    for chunk in range(chunks):
        controllers = es.mirror(centre, es.draw_noise(key, chunk, pairs, len(centre)), sigma)
        scores.append(jax.vmap(function)(controllers).reshape(2, pairs))
    return jnp.stack(scores)


def test_the_gradient_points_up_a_quadratic():
    target = jnp.linspace(-1, 1, 20)

    def fitness(x):
        return -((x - target) ** 2).sum()

    centre, key = jnp.zeros(20), jax.random.key(0)
    scores = scores_of(fitness, centre, key, chunks=5, pairs=200, sigma=0.05)
    gradient = es.estimate_gradient(key, scores, 20)
    cosine = gradient @ target / jnp.linalg.norm(gradient) / jnp.linalg.norm(target)
    assert cosine > 0.97


def test_following_the_gradient_finds_the_top_of_a_quadratic():
    target = jnp.linspace(-1, 1, 20)

    def fitness(x):
        return -((x - target) ** 2).sum()

    @jax.jit
    def step(centre, key):
        scores = scores_of(fitness, centre, key, chunks=1, pairs=50, sigma=0.05)
        return centre + 0.04 * es.estimate_gradient(key, scores, 20)

    centre = jnp.zeros(20)
    for number in range(300):
        centre = step(centre, jax.random.key(number))
    assert fitness(centre) > 0.05 * fitness(jnp.zeros(20))


@pytest.mark.parametrize("divisor", [1, 0.2])
def test_chunks_give_the_same_sum_as_one_batch(divisor):
    key = jax.random.key(3)
    scores = jax.random.normal(jax.random.key(4), (3, 2, 4))
    ranks = np.asarray(es.centred_ranks(scores.reshape(-1))).reshape(3, 2, 4)
    perturbations = np.concatenate([es.draw_noise(key, chunk, 4, 7) for chunk in range(3)])
    weights = (ranks[:, 0] - ranks[:, 1]).reshape(-1)
    np.testing.assert_allclose(
        es.estimate_gradient(key, scores, 7, divisor),
        weights @ perturbations / 12 / divisor,
        rtol=1e-4,
        atol=1e-6,
    )
