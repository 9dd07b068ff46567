"""The controller in JAX, for learning, device tasks and saved archives."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import jax
import jax.numpy as jnp

from elites.policies.layout import HIDDEN, parameter_count, split_layers

Layers = tuple[tuple[jax.Array, jax.Array], ...]
"""(weights [in, out], biases) of each layer."""


class Controllable(Protocol):
    """The part of a task that a policy needs."""

    def controller_sizes(self, hidden: tuple[int, ...] = ...) -> tuple[int, ...]:
        """Layer sizes, observation and action included."""


def init_layers(
    key: jax.Array, sizes: tuple[int, ...], weights_within: Literal["xavier", "fan-in"] = "xavier"
) -> Layers:
    """Random layers: biases uniform within ±1/√inputs; weights within the same range, or Xavier-uniform."""
    layers = []
    for inputs, outputs in pairwise(sizes):
        key, weights, biases = jax.random.split(key, 3)
        shift = inputs**-0.5
        spread = (6 / (inputs + outputs)) ** 0.5 if weights_within == "xavier" else shift
        layers.append(
            (
                jax.random.uniform(weights, (inputs, outputs), minval=-spread, maxval=spread),
                jax.random.uniform(biases, (outputs,), minval=-shift, maxval=shift),
            )
        )
    return tuple(layers)


def normc_layers(key: jax.Array, sizes: tuple[int, ...], norm: float) -> Layers:
    """Random layers: the weights into each unit are Gaussian, scaled to this norm; biases are 0."""
    layers = []
    for inputs, outputs in pairwise(sizes):
        key, weights_key = jax.random.split(key)
        weights = jax.random.normal(weights_key, (inputs, outputs))
        layers.append((norm * weights / jnp.linalg.norm(weights, axis=0), jnp.zeros(outputs)))
    return tuple(layers)


@dataclass(frozen=True)
class Policy:
    """Controllers of one shape: `sizes` runs from the observation to the action."""

    sizes: tuple[int, ...]

    @classmethod
    def for_task(cls, task: Controllable, hidden: tuple[int, ...] = HIDDEN) -> Policy:
        """The controllers of a task."""
        return cls(task.controller_sizes(hidden))

    @property
    def parameter_count(self) -> int:
        return parameter_count(self.sizes)

    @property
    def tensors(self) -> tuple[int, ...]:
        """Length of each tensor in a flat controller: the weights and the biases of each layer."""
        return tuple(size for inputs, outputs in pairwise(self.sizes) for size in (inputs * outputs, outputs))

    def init(self, key: jax.Array) -> jax.Array:
        """A random controller, flat."""
        return self.flatten(init_layers(key, self.sizes))

    def unflatten(self, parameters: jax.Array) -> Layers:
        """The layers of a flat controller."""
        return split_layers(parameters, self.sizes)

    def flatten(self, layers: Layers) -> jax.Array:
        """The flat controller of these layers."""
        return jnp.concatenate([array.reshape(-1) for layer in layers for array in layer])

    def act(
        self,
        layers: Layers,
        observations: jax.Array,
        product: Callable[[jax.Array, jax.Array], jax.Array] = operator.matmul,
    ) -> jax.Array:
        """Actions on observations `[…, observation_size]`."""
        for weights, biases in layers[:-1]:
            observations = jax.nn.relu(product(observations, weights) + biases)
        weights, biases = layers[-1]
        return jnp.tanh(product(observations, weights) + biases)

    def apply(self, parameters: jax.Array, observations: jax.Array) -> jax.Array:
        """Actions of a flat controller. NumPy's and Numba's controllers round differently."""
        return self.act(self.unflatten(parameters), observations)
