"""Matrix products of training: in float32, or of bfloat16 numbers with float32 sums."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

Precision = Literal["float32", "bfloat16"]
Product = Callable[[jax.Array, jax.Array], jax.Array]
"""A function that multiplies inputs `[…, k]` by weights `[k, n]`."""


@jax.custom_vjp
def bfloat16_product(inputs: jax.Array, weights: jax.Array) -> jax.Array:
    """The product of inputs and weights that are rounded to bfloat16, with float32 sums.

    Its gradient is computed in the same way.
    """
    return _forward(inputs, weights)[0]


def _forward(inputs: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    rounded = inputs.astype(jnp.bfloat16), weights.astype(jnp.bfloat16)
    return _sums(*rounded, (inputs.ndim - 1, 0)), rounded


def _backward(rounded: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    inputs, weights = rounded
    slope = slope.astype(jnp.bfloat16)
    rows = (array.reshape(-1, array.shape[-1]) for array in (inputs, slope))
    to_weights = jax.lax.platform_dependent(
        *rows, cpu=_transposed_product, default=lambda inputs, slope: _sums(inputs, slope, (0, 0))
    )
    return _sums(slope, weights, (slope.ndim - 1, 1)), to_weights


bfloat16_product.defvjp(_forward, _backward)


def _transposed_product(left: jax.Array, right: jax.Array) -> jax.Array:
    """`left.T @ right` for XLA on CPUs, where it has bfloat16 products only without a transposed left side.

    It computes others in float32, so the left side is transposed in memory. The barrier keeps XLA from using
    a transposed view instead.
    """
    transposed = jax.lax.optimization_barrier(left.T.reshape(-1)).reshape(left.T.shape)
    return _sums(transposed, right, (1, 0))


def _sums(left: jax.Array, right: jax.Array, over: tuple[int, int]) -> jax.Array:
    """The product over a dimension of each side, summed in float32."""
    dimensions = (((over[0],), (over[1],)), ((), ()))
    return jax.lax.dot_general(left, right, dimensions, preferred_element_type=jnp.float32)


PRODUCTS: dict[Precision, Product] = {"float32": operator.matmul, "bfloat16": bfloat16_product}


def gains_speed() -> bool:
    """Whether bfloat16 products are faster on this machine; true if that is not known."""
    if jax.default_backend() != "cpu":
        return True
    try:
        features = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return True
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(features)
