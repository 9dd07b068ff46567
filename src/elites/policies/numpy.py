"""The controller in NumPy, for worker processes, which never import JAX."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from elites.policies.layout import split_layers


class NumpyPolicy:
    """A policy that holds one controller and takes one observation at a time."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        weights = [np.empty(pair, np.float32) for pair in pairwise(sizes)]
        biases, outputs, zeros = ([np.zeros(size, np.float32) for size in sizes[1:]] for _ in range(3))
        *self._hidden, self._last = zip(weights, biases, outputs, zeros, strict=True)

    def load(self, parameters: np.ndarray) -> None:
        """Copies the parameters of a flat controller."""
        loaded = split_layers(parameters, self.sizes)
        for (weights, biases, *_), layer in zip((*self._hidden, self._last), loaded, strict=True):
            weights[:], biases[:] = layer

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The action, within ±1; overwritten by the next call."""
        values = observation.astype(np.float32, copy=False)
        for weights, biases, outputs, zeros in self._hidden:
            values.dot(weights, outputs)
            np.add(outputs, biases, out=outputs)
            values = np.maximum(outputs, zeros, out=outputs)
        weights, biases, outputs, _ = self._last
        values.dot(weights, outputs)
        np.add(outputs, biases, out=outputs)
        return np.tanh(outputs, out=outputs)
