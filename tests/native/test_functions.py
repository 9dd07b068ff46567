"""Elementary functions: their stated accuracy, and JAX's results for special values."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import special

from elites.native import compile_function
from tests.native.test_primitives import FLOATS

EXACT = {  # within one unit in the last place
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
ROUGH = {"atan": np.arctan, "asin": np.arcsin, "acos": np.arccos}  # within three


def sample(count=20_000):
    """Floats of every size and sign, subnormal ones too, and many of moderate size."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = random.normal(size=count) * random.choice([1e-4, 0.1, 1, 10, 100, 1e6], count)
    close_to_one = 1 + random.uniform(-1, 1, count) * random.choice([1e-6, 1e-3, 1], count)
    return np.concatenate([bits[np.isfinite(bits)], near.astype(np.float32), close_to_one.astype(np.float32)])


def units(ours, exact):
    """The error in units in the last place."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    good = np.isfinite(rounded)
    np.testing.assert_array_equal(ours[~good], rounded[~good])
    return np.max(
        np.abs(ours[good].astype(float) - exact[good]) / np.spacing(np.abs(rounded[good])).astype(float)
    )


def compiled(names):
    return compile_function(lambda x: ([getattr(lax, name)(x) for name in names],), jnp.float32(0))


def test_stated_accuracy():
    x = sample()
    x = x[np.abs(x) <= 2**45]
    names = (*EXACT, *ROUGH)
    with np.errstate(all="ignore"):
        for name, ours in zip(names, compiled(names)(x)[0], strict=True):
            exact = {**EXACT, **ROUGH}[name](x.astype(float))
            assert units(ours, exact) <= (1 if name in EXACT else 3), name


def test_two_arguments():
    random = np.random.default_rng(1)
    x, y = sample(), random.permutation(sample())
    made = compile_function(lambda x, y: ([lax.atan2(x, y), lax.pow(x, y)],), jnp.float32(0), jnp.float32(0))
    with np.errstate(all="ignore"):
        angle, power = made(x, y)[0]
        assert units(angle, np.arctan2(x.astype(float), y.astype(float))) <= 3
        x, y = np.abs(x), np.clip(y, -9, 9)
        power = made(x, y)[0][1]
        assert units(power, np.power(x.astype(float), y.astype(float))) <= 1


def test_the_inverse_error_function():
    x = np.concatenate([np.linspace(-1, 1, 4001), [1 - 2**-24, -1 + 2**-24, 1e-30]]).astype(np.float32)
    np.testing.assert_allclose(compiled(["erf_inv"])(x)[0][0], special.erfinv(x.astype(float)), rtol=1e-6)


def test_special_values_equal_those_of_jax():
    names = [*EXACT, *ROUGH, "erf_inv"]
    x = FLOATS[~((np.abs(FLOATS) > 2**45) & np.isfinite(FLOATS))]
    theirs = jax.vmap(lambda x: [getattr(lax, name)(x) for name in names])(x)
    for name, ours, other in zip(names, compiled(names)(x)[0], theirs, strict=True):
        np.testing.assert_allclose(ours, other, rtol=2e-5, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(np.signbit(ours[:2]), np.signbit(other[:2]), name)  # of 0 and -0


def test_special_pairs_equal_those_of_jax():
    x, y = (np.array(column, np.float32) for column in zip(*itertools.product(FLOATS, FLOATS), strict=True))
    made = compile_function(lambda x, y: ([lax.atan2(x, y), lax.pow(x, y)],), jnp.float32(0), jnp.float32(0))
    for ours, theirs in zip(made(x, y)[0], (jnp.arctan2(x, y), jax.jit(lax.pow)(x, y)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_results_of_huge_angles_stay_in_range(name):
    huge = np.float32([1e20, -1e30, 3e38])
    ours = compiled([name])(huge)[0][0]
    assert np.isfinite(ours).all()
    assert name == "tan" or (np.abs(ours) <= 1).all()


def test_constants_are_folded_as_they_would_be_computed():
    names = (*EXACT, *ROUGH)
    x = np.float32([0.3, 0.9])
    ours = compiled(names)(x)[0]
    folded = compile_function(lambda _: ([getattr(lax, n)(jnp.asarray(x)) for n in names],), jnp.float32(0))
    for name, computed, constant in zip(names, ours, folded(np.zeros(1, np.float32))[0], strict=True):
        np.testing.assert_allclose(constant[0], computed, rtol=1.2e-7, err_msg=name)
    assert folded.operations == 0
