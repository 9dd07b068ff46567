"""The controller: a perceptron with rectified hidden units and tanh outputs, as one flat vector.

Layer after layer, a vector holds the weights `[in, out]` row by row, then the biases. One vector per
controller is what the archive stores, the operators vary and the evaluators run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp

from elites.tasks.task import Task, parameter_count


@dataclass(frozen=True)
class Policy:
    """Controllers of one shape: `sizes` runs from the observation to the action."""

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, task: Task, hidden: tuple[int, ...] = (128, 128)) -> Policy:
        """The controllers of a task."""
        return cls(task.controller(hidden))

    @property
    def parameter_count(self) -> int:
        return parameter_count(self.sizes)

    def layers(self, parameters: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """(weights `[in, out]`, biases) of each layer of one flat controller."""
        layers, start = [], 0
        for inputs, outputs in pairwise(self.sizes):
            biases = start + inputs * outputs
            layers.append((parameters[start:biases].reshape(inputs, outputs), parameters[biases:][:outputs]))
            start = biases + outputs
        return layers

    def init(self, key: jax.Array) -> jax.Array:
        """A random controller: Xavier-uniform weights, biases within ±1/√inputs."""
        pieces = []
        for inputs, outputs in pairwise(self.sizes):
            key, weights, biases = jax.random.split(key, 3)
            for kind, size, bound in (
                (weights, inputs * outputs, (6 / (inputs + outputs)) ** 0.5),
                (biases, outputs, inputs**-0.5),
            ):
                pieces.append(jax.random.uniform(kind, (size,), minval=-bound, maxval=bound))
        return jnp.concatenate(pieces)

    def apply(self, parameters: jax.Array, observations: jax.Array) -> jax.Array:
        """Actions of one controller on observations `[…, observation_size]`.

        PyBullet rollouts use the compiled twin of this function, whose last bits differ.
        """
        *hidden, (weights, biases) = self.layers(parameters)
        for inner_weights, inner_biases in hidden:
            observations = jax.nn.relu(observations @ inner_weights + inner_biases)
        return jnp.tanh(observations @ weights + biases)
