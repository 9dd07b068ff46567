"""A ring buffer of transitions: first in, first out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.evaluation.evaluation import Evaluation
from elites.tasks.episode import Ending


class Experience(NamedTuple):
    """Transitions `[n, …]`. `terminal` is 1 where the task ended the episode, and 0 for a truncation."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    next_observation: jax.Array
    terminal: jax.Array
    extra: jax.Array  # further data of the algorithm, [n, e]


class ReplayBuffer(NamedTuple):
    """`rows` [capacity, 2 observations + action + 2 + extra]: a transition is contiguous in memory."""

    rows: jax.Array
    next: jax.Array  # index of the next transition
    size: jax.Array  # number of filled rows


def empty_buffer(capacity: int, observation_size: int, action_size: int, extra: int = 0) -> ReplayBuffer:
    """An empty buffer."""
    width = 2 * observation_size + action_size + 2 + extra
    return ReplayBuffer(jnp.zeros((capacity, width)), jnp.int32(0), jnp.int32(0))


def add(
    buffer: ReplayBuffer, evaluation: Evaluation[jax.Array], extra: jax.Array | None = None
) -> ReplayBuffer:
    """Adds every transition of every episode, in order, with `extra` [n, T, e]; they replace the oldest.

    Invalid episodes are left out. With the buffer donated to `jit`, it is updated in place.
    """
    transitions = evaluation.recorded
    steps = jnp.arange(transitions.rewards.shape[-1])
    usable = evaluation.ending <= Ending.TRUNCATED
    happened = (steps < evaluation.length[..., None]) & usable[..., None]
    last = steps == evaluation.length[..., None] - 1
    terminal = last & (evaluation.ending == Ending.TERMINATED)[..., None]
    rows = jnp.concatenate(
        [
            transitions.observations[..., :-1, :],
            transitions.actions,
            jnp.asarray(transitions.rewards, jnp.float32)[..., None],
            transitions.observations[..., 1:, :],
            terminal[..., None].astype(jnp.float32),
            *([] if extra is None else [extra]),
        ],
        axis=-1,
    )
    rows = rows.reshape(-1, rows.shape[-1])
    happened = happened.reshape(-1)

    capacity = len(buffer.rows)
    rank = jnp.cumsum(happened) - 1
    total = rank[-1] + 1
    kept = happened & (rank >= total - capacity)  # if they exceed the capacity, the last ones are kept
    beyond = capacity + jnp.arange(len(kept))  # dropped; unique, so that the scatter may be unordered
    destination = jnp.where(kept, (buffer.next + rank) % capacity, beyond)
    return ReplayBuffer(
        rows=buffer.rows.at[destination].set(rows, mode="drop", unique_indices=True),
        next=(buffer.next + total) % capacity,
        size=jnp.minimum(buffer.size + total, capacity),
    )


def add_one(
    buffer: ReplayBuffer,
    observation: jax.Array,
    action: jax.Array,
    reward: jax.Array,
    next_observation: jax.Array,
    terminal: jax.Array,
    *,
    valid: jax.Array,
) -> ReplayBuffer:
    """Adds one transition if it is valid."""
    row = jnp.concatenate([observation, action, reward[None], next_observation, terminal[None]])
    capacity, one = len(buffer.rows), jnp.where(valid, 1, 0)
    return ReplayBuffer(
        rows=buffer.rows.at[jnp.where(valid, buffer.next, capacity)].set(row, mode="drop"),
        next=(buffer.next + one) % capacity,
        size=jnp.minimum(buffer.size + one, capacity),
    )


def sample(
    buffer: ReplayBuffer, key: jax.Array, count: int, observation_size: int, action_size: int
) -> Experience:
    """`count` transitions, sampled uniformly with replacement."""
    rows = buffer.rows[jax.random.randint(key, (count,), 0, jnp.maximum(buffer.size, 1))]
    reward = observation_size + action_size
    terminal = reward + 1 + observation_size
    return Experience(
        observation=rows[:, :observation_size],
        action=rows[:, observation_size:reward],
        reward=rows[:, reward],
        next_observation=rows[:, reward + 1 : terminal],
        terminal=rows[:, terminal],
        extra=rows[:, terminal + 1 :],
    )
