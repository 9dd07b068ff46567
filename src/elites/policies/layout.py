"""The layout of a controller: one flat vector.

Layer after layer, the vector holds the weights `[in, out]` row by row, then the biases. An archive stores
such vectors, operators vary them and evaluators run them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import jax
    import numpy as np

HIDDEN = (128, 128)  # units of the hidden layers, as in the paper
Array = TypeVar("Array", "np.ndarray", "jax.Array")
"""`np.ndarray` on the host, `jax.Array` inside a program."""


def parameter_count(sizes: tuple[int, ...]) -> int:
    """Weights and biases of a perceptron with these layer sizes."""
    return sum(math.prod(pair) + pair[1] for pair in pairwise(sizes))


def split_layers(parameters: Array, sizes: tuple[int, ...]) -> tuple[tuple[Array, Array], ...]:
    """(weights [in, out], biases) of each layer of a flat controller."""
    layers, start = [], 0
    for inputs, outputs in pairwise(sizes):
        biases = start + inputs * outputs
        layers.append((parameters[start:biases].reshape(inputs, outputs), parameters[biases:][:outputs]))
        start = biases + outputs
    return tuple(layers)
