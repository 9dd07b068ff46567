"""The paper's policy-gradient operator: parents climb the first critic."""

from __future__ import annotations

import jax
import optax

from elites.learning.critics import value
from elites.learning.replay_buffer import ReplayBuffer, sample
from elites.policies import Layers, Policy


def vary(
    key: jax.Array,
    parents: jax.Array,
    critic: Layers,
    buffer: ReplayBuffer,
    policy: Policy,
    *,
    steps: int,
    batch: int,
    learning_rate: float,
) -> jax.Array:
    """Each parent `[n, P]` after `steps` of Adam, begun afresh, up the mean Q(s, π(s)).

    The states of a step are drawn once for all parents.
    """
    optimiser = optax.adam(learning_rate)
    drawn = jax.vmap(lambda one: sample(buffer, one, batch, policy.sizes[0], policy.sizes[-1]).observation)(
        jax.random.split(key, steps)
    )

    def one(
        carry: tuple[Layers, optax.OptState], observations: jax.Array
    ) -> tuple[tuple[Layers, optax.OptState], None]:
        actors, state = carry

        def loss(actors: Layers) -> jax.Array:
            actions = jax.vmap(policy.act, (0, None))(actors, observations)
            return -value(critic, observations, actions).mean(-1).sum()  # a sum: each actor climbs alone

        updates, state = optimiser.update(jax.grad(loss)(actors), state)
        return (optax.apply_updates(actors, updates), state), None

    actors = jax.vmap(policy.layers)(parents)
    (actors, _), _ = jax.lax.scan(one, (actors, optimiser.init(actors)), drawn)
    return jax.vmap(policy.flat)(actors)
