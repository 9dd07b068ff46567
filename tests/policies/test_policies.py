"""The controller in JAX, NumPy and Numba: one layout, the same actions."""

import subprocess
import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites.policies import Policy, normc_layers, parameter_count, split_layers
from elites.policies.numba import perceptron
from elites.policies.numpy import NumpyPolicy

SIZES = [(1, 1), (3, 1), (3, 2), (5, 8, 2), (1, 1, 1), (24, 128, 128, 4), (1, 40, 7, 3)]
TOLERANCE = 2e-5  # of actions: float32 rounding, in any order of the sums


def jax_action(sizes, parameters, observation):
    return np.asarray(Policy(sizes).apply(jnp.asarray(parameters), jnp.asarray(observation)))


def numpy_action(sizes, parameters, observation):
    policy = NumpyPolicy(sizes)
    policy.load(np.full(len(parameters), np.nan, np.float32))  # nothing of an earlier controller remains
    policy.load(parameters)
    with np.errstate(invalid="ignore"):
        return policy(observation).copy()


def numba_action(sizes, parameters, observation):
    inputs, outputs, action = (np.empty(size, np.float32) for size in (max(sizes), max(sizes), sizes[-1]))
    inputs[: len(observation)] = observation
    parameters = parameters.view()
    parameters.flags.writeable = False
    perceptron(parameters, np.array(sizes), inputs, outputs, action)
    return action


every_policy = pytest.mark.parametrize("act", [jax_action, numpy_action, numba_action])


def reference_action(sizes, parameters, observation):
    """In float64, weight by weight, as the layout says."""
    rest, values = iter(parameters.astype(np.float64)), observation.astype(np.float64)
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights = np.array([[next(rest) for _ in range(outputs)] for _ in range(inputs)])
        biases = np.array([next(rest) for _ in range(outputs)])
        with np.errstate(invalid="ignore"):
            values = (values[:, None] * weights).sum(0) + biases
        if layer < len(sizes) - 2:
            values = np.maximum(values, 0)
    assert next(rest, None) is None
    return np.tanh(values)


def draw(sizes, seed=0, spread=0.5):
    rng = np.random.default_rng(seed)
    parameters = rng.normal(0, spread, parameter_count(sizes)).astype(np.float32)
    return parameters, rng.normal(size=sizes[0]).astype(np.float32)


@every_policy
@given(sizes=st.sampled_from(SIZES), seed=st.integers(0, 100))
def test_actions_are_those_of_the_layout(act, sizes, seed):
    parameters, observation = draw(sizes, seed)
    before = observation.copy()
    action = act(sizes, parameters, observation)
    assert action.dtype == np.float32
    np.testing.assert_allclose(action, reference_action(sizes, parameters, observation), atol=TOLERANCE)
    np.testing.assert_array_equal(observation, before)


@every_policy
@pytest.mark.parametrize("sizes", [(3, 2), (3, 4, 2), (3, 16, 16, 2)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["observation", "first weight", "last bias"])
def test_nan_and_infinities_reach_the_same_actions(act, sizes, value, place):
    """NaN is never rectified away: an episode with NaN actions is invalid."""
    parameters, observation = draw(sizes, seed=3)
    if place == "observation":
        observation[0] = value
    else:
        parameters[0 if place == "first weight" else -1] = value
    expected = reference_action(sizes, parameters, observation)
    np.testing.assert_allclose(act(sizes, parameters, observation), expected, atol=TOLERANCE)
    if np.isnan(value):
        assert np.isnan(expected).any()


@every_policy
def test_large_weights_saturate_within_one(act):
    parameters, observation = draw((5, 8, 2), spread=1e6)
    assert (np.abs(act((5, 8, 2), parameters, observation)) == 1).all()


def test_workers_observations_may_be_float64():
    parameters, observation = draw((5, 8, 2))
    policy = NumpyPolicy((5, 8, 2))
    policy.load(parameters)
    expected = policy(observation).copy()
    np.testing.assert_array_equal(policy(observation.astype(np.float64)), expected)


@pytest.mark.parametrize("sizes", SIZES)
def test_layers_are_split_and_flattened_without_change(sizes):
    parameters, _ = draw(sizes)
    layers = split_layers(parameters, sizes)
    assert [weights.shape for weights, _ in layers] == list(pairwise(sizes))
    assert [biases.shape for _, biases in layers] == [(size,) for size in sizes[1:]]
    np.testing.assert_array_equal(Policy(sizes).flatten(Policy(sizes).unflatten(parameters)), parameters)
    assert Policy(sizes).parameter_count == len(parameters)


def test_normc_weights_have_their_norm_into_each_unit():
    layers = normc_layers(jax.random.key(0), (24, 128, 128, 4), 0.01)
    assert [weights.shape for weights, _ in layers] == [(24, 128), (128, 128), (128, 4)]
    for weights, biases in layers:
        np.testing.assert_allclose(np.linalg.norm(weights, axis=0), 0.01, rtol=1e-5)
        assert abs(float(weights.mean())) < 0.1 * float(weights.std())
        assert not biases.any()
    assert not np.array_equal(layers[1][0][:24], layers[0][0])


def test_only_the_policy_in_jax_imports_jax():
    program = (
        "import sys, elites.policies.numpy, elites.policies.numba; assert 'jax' not in sys.modules; "
        "from elites.policies import Policy, Layers, init_layers; assert 'jax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(ImportError, match="cannot import name 'Polity'"):
        exec("from elites.policies import Polity")
