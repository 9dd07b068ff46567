"""Controllers in NumPy, as somebody without Elites would write them: what is compared with."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

Layers = list[tuple[np.ndarray, np.ndarray]]


def layers(parameters: np.ndarray, sizes: tuple[int, ...]) -> Layers:
    """Weights and biases of each layer of a flat controller."""
    found, start = [], 0
    for inputs, outputs in pairwise(sizes):
        biases = start + inputs * outputs
        found.append((parameters[start:biases].reshape(inputs, outputs), parameters[biases:][:outputs]))
        start = biases + outputs
    return found


def random_controllers(sizes: tuple[int, ...], count: int) -> np.ndarray:
    """Always the same ones, flat, with the spread of `elites.policies`."""
    generator = np.random.default_rng(0)
    pieces = []
    for inputs, outputs in pairwise(sizes):
        for size, bound in ((inputs * outputs, (6 / (inputs + outputs)) ** 0.5), (outputs, inputs**-0.5)):
            pieces.append(generator.uniform(-bound, bound, (count, size)).astype(np.float32))
    return np.concatenate(pieces, axis=1)
