import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.learning import critics, products
from elites.learning.critics import CriticConfig
from elites.learning.products import bfloat16_product
from elites.learning.replay_buffer import ReplayBuffer
from elites.policies import Policy
from tests.algorithms.test_algorithms import small

ROUNDING = 2.0**-8  # of one number to bfloat16, relative


def largest_error(actual, right, left, weights):
    """The largest error of a product, relative to the product of the absolute values."""
    return (np.abs(np.asarray(actual, np.float64) - right) / (np.abs(left) @ np.abs(weights))).max()


def shortened(values):
    return np.asarray(jnp.asarray(values).astype(jnp.bfloat16).astype(jnp.float32), np.float64)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(), (1,), (9,), (3, 17)]),
    st.sampled_from([1, 2, 23, 200]),
    st.sampled_from([1, 16, 40]),
    st.integers(-60, 30),
)
def test_a_product_and_its_gradient_err_by_the_rounding_of_their_inputs_only(seed, many, inner, outer, scale):
    random = np.random.default_rng(seed)
    left = (2.0**scale * random.normal(size=(*many, inner))).astype(np.float32)
    weights = random.normal(size=(inner, outer)).astype(np.float32)
    slope = random.normal(size=(*many, outer)).astype(np.float32)
    for bound, prepare in ((2.01 * ROUNDING, np.asarray), (inner * 2.0**-23, shortened)):
        given = [np.asarray(prepare(values), np.float32) for values in (left, weights, slope)]
        x, w, g = (values.astype(np.float64) for values in given)
        product, pull = jax.vjp(bfloat16_product, *given[:2])
        to_inputs, to_weights = pull(given[2])
        assert {array.dtype for array in (product, to_inputs, to_weights)} == {np.dtype(np.float32)}
        assert largest_error(product, x @ w, x, w) <= bound
        bound = max(bound, outer * 2.0**-23)
        assert largest_error(to_inputs, g @ w.T, g, w.T) <= bound
        rows, slopes = x.reshape(-1, inner), g.reshape(-1, outer)
        bound = max(bound, len(rows) * 2.0**-23)
        assert largest_error(to_weights, rows.T @ slopes, rows.T, slopes) <= bound


def test_products_of_several_actors_are_those_of_each():
    random = np.random.default_rng(0)
    left, weights = random.normal(size=(2, 5, 30)), random.normal(size=(4, 30, 7))
    together = jax.vmap(jax.vmap(bfloat16_product, (None, 0)), (0, None))(left, weights)
    each = [[bfloat16_product(jnp.float32(x), jnp.float32(w)) for w in weights] for x in left]
    np.testing.assert_allclose(together, each, atol=1e-4)


def kinds_of_products(algorithm, platform):
    """(inputs, weights, sums) of each matrix product of a generation's `ask`."""
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    ask = jax.jit(algorithm.ask, static_argnums=2)
    traced = ask.trace(state, jax.random.key(0), algorithm.generation[0])
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    kind = r"tensor<(?:\d+x)*(\w+)>"
    products = re.findall(rf"dot_general .*: \({kind}, {kind}\) -> {kind}", text)
    assert len(products) == text.count("dot_general ")
    return products


@pytest.mark.parametrize(
    ("name", "others", "platform"),
    [
        ("pga-map-elites", 0, "cpu"),
        ("pga-map-elites", 0, "cuda"),
        ("qd-pg", 0, "cpu"),
        ("td3", 2, "cpu"),  # its actor also acts in the environment
    ],
)
def test_all_products_of_training_have_the_precision(name, others, platform):
    plain, faster = (
        kinds_of_products(small(name, training_precision=precision), platform)
        for precision in ("float32", "bfloat16")
    )
    assert set(plain) == {("f32",) * 3}
    assert len(plain) >= 20
    assert faster.count(("f32",) * 3) == others
    assert faster.count(("bf16", "bf16", "f32")) == len(faster) - others
    assert len(faster) >= len(plain)


@pytest.mark.skipif(
    jax.default_backend() != "cpu" or not products.gains_speed(), reason="no bfloat16 products here"
)
@pytest.mark.parametrize("count", [1, 3])
def test_the_compiler_keeps_bfloat16_products(count):
    """XLA computes products of a transposed left side in float32."""

    def three(inputs, weights, slope):
        product, pull = jax.vjp(bfloat16_product, inputs, weights)
        return product, pull(slope)

    sizes = ((count, 256, 128), (count, 128, 64), (count, 256, 64))
    operands = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    text = jax.jit(jax.vmap(three)).lower(*operands).compile().as_text()
    types = dict(re.findall(r"(%\S+) = (\w+)\[", text))
    kinds = [[types[name] for name in pair] for pair in re.findall(r" dot\((%\S+), (%\S+)\)", text)]
    assert kinds == [["bf16", "bf16"]] * 3


def test_gradients_are_close_to_those_of_float32():
    """Relative error of all gradients of a step at the paper's sizes, from Adam's first moments.

    Most of it comes from the few units that rounding moves across zero: 8 % at most, where this was written.
    """
    policy, random = Policy((17, 128, 128, 6)), np.random.default_rng(0)
    rows = random.normal(size=(2000, 17 + 6 + 1 + 17 + 1)).astype(np.float32)
    rows[:, -1] = 0
    buffer = ReplayBuffer(jnp.array(rows), jnp.int32(0), jnp.int32(2000))
    gradients = []
    for precision in ("float32", "bfloat16"):
        config = CriticConfig(training_precision=precision, delay=1)
        td3 = critics.init(jax.random.key(0), config, policy)
        td3, _ = jax.jit(critics.train, static_argnums=(1, 2, 5))(
            td3, config, policy, buffer, jax.random.key(1), 1
        )
        assert not any(array.dtype == jnp.bfloat16 for array in jax.tree.leaves(td3))
        gradients.append((td3.critics_optimiser[0].mu, td3.actor_optimiser[0].mu))
    for exact, rounded in zip(*map(jax.tree.leaves, gradients), strict=True):
        assert np.linalg.norm(rounded - exact) < 0.12 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("features", "gains"),
    [("flags : fpu avx512f avx512_bf16", True), ("flags : fpu avx2", False), (None, True)],
)
def test_processors_with_bfloat16_products_are_known(features, gains, monkeypatch, tmp_path):
    if features is not None:
        (tmp_path / "cpuinfo").write_text(features)
    monkeypatch.setattr(products, "Path", lambda _: tmp_path / "cpuinfo")
    assert products.gains_speed() is gains
