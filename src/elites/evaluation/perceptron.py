"""The controller of `elites.policies` in NumPy, for worker processes, which never import JAX."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


class Perceptron:
    """One controller at a time, one observation at a time. Its last bits differ from those of JAX."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self._weights = [np.empty(pair, np.float32) for pair in pairwise(sizes)]
        self._biases = [np.empty(size, np.float32) for size in sizes[1:]]
        self._outputs = [np.empty(size, np.float32) for size in sizes[1:]]

    def load(self, parameters: np.ndarray) -> None:
        """Takes on a flat controller."""
        start = 0
        for weights, biases in zip(self._weights, self._biases, strict=True):
            weights[:] = parameters[start : start + weights.size].reshape(weights.shape)
            start += weights.size
            biases[:] = parameters[start : start + biases.size]
            start += biases.size

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The action, within ±1; overwritten by the next call."""
        values = observation.astype(np.float32, copy=False)
        last = len(self._outputs) - 1
        for layer, outputs in enumerate(self._outputs):
            np.dot(values, self._weights[layer], out=outputs)
            outputs += self._biases[layer]
            values = np.maximum(outputs, 0, out=outputs) if layer < last else np.tanh(outputs, out=outputs)
        return values
