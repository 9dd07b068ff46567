"""The paper's policy-gradient operator: parents ascend the first critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from elites.archives.archive import Archive
from elites.learning.critics import TD3State, compute_q, first_critic
from elites.learning.products import PRODUCTS, Precision
from elites.learning.replay_buffer import ReplayBuffer, sample
from elites.policies import Layers, Policy
from elites.variation.offspring import Offspring, with_one_parent
from elites.variation.selection import select_uniformly

GROUPS: tuple[int, ...] = (8, 7, 9, 6, 10, 5, 11, 4, 12)
"""Sizes of the groups of actors that ascend together on a CPU: more would not fit into its cache."""


@dataclass(frozen=True)
class PolicyGradient:
    """Each parent takes `steps` with a new Adam optimiser, up the mean Q(s, π(s)) of `batch` states."""

    policy: Policy
    steps: int
    batch: int
    learning_rate: float
    precision: Precision = "float32"

    @classmethod
    def from_config(cls, policy: Policy, config: Any) -> PolicyGradient:
        """The operator of an algorithm, with the hyper-parameters in its `config`."""
        training = config.training_batch, config.pg_learning_rate, config.training_precision
        return cls(policy, config.pg_steps, *training)

    def __call__(
        self, archive: Archive, td3: TD3State, buffer: ReplayBuffer, key: jax.Array, count: int
    ) -> Offspring:
        """Offspring of `count` elites, sampled uniformly."""
        selection_key, ascent_key = jax.random.split(key)
        parents = select_uniformly(archive, selection_key, count)
        parameters = self.vary(ascent_key, parents.parameters, first_critic(td3.critics), buffer)
        return with_one_parent(parameters, parents.evaluation)

    def working_bytes(self, count: int) -> int:
        """Lower bound for the memory of the transitions of all steps and the units of `count` actors."""
        observation, *units = self.policy.sizes
        transition = 2 * observation + units[-1] + 2
        return 4 * self.batch * (self.steps * transition + _group_size(count) * sum(units))

    def vary(self, key: jax.Array, parents: jax.Array, critic: Layers, buffer: ReplayBuffer) -> jax.Array:
        """The parents `[n, P]` after their gradient steps. In each step all share one batch of states."""
        policy, optimiser = self.policy, optax.adam(self.learning_rate)
        sizes, product = (policy.sizes[0], policy.sizes[-1]), PRODUCTS[self.precision]
        batches = jax.vmap(lambda step: sample(buffer, step, self.batch, *sizes).observation)(
            jax.random.split(key, self.steps)
        )

        def step(
            carry: tuple[Layers, optax.OptState], observations: jax.Array
        ) -> tuple[tuple[Layers, optax.OptState], None]:
            actors, state = carry

            def loss(actors: Layers) -> jax.Array:
                actions = jax.vmap(lambda actor: policy.act(actor, observations, product))(actors)
                values = compute_q(critic, observations, actions, product)
                return -values.mean(-1).sum()  # a sum: actors are independent

            updates, state = optimiser.update(jax.grad(loss)(actors), state)
            return (optax.apply_updates(actors, updates), state), None

        def ascend(parents: jax.Array) -> jax.Array:
            actors = jax.vmap(policy.unflatten)(parents)
            (actors, _), _ = jax.lax.scan(step, (actors, optimiser.init(actors)), batches)
            return jax.vmap(policy.flatten)(actors)

        count, together = len(parents), _group_size(len(parents))
        if together == count:
            return ascend(parents)
        groups = jnp.resize(parents, (-(-count // together), together, parents.shape[1]))
        offspring: jax.Array = jax.lax.map(ascend, groups)
        return offspring.reshape(-1, parents.shape[1])[:count]


def _group_size(count: int) -> int:
    """The number of actors, of `count`, that take a step at once: all, or on a CPU a group of equal size."""
    if jax.default_backend() != "cpu" or count <= max(GROUPS):
        return count
    return min(GROUPS, key=lambda size: -count % size)
