"""TD3's critics and greedy actor (Fujimoto, van Hoof and Meger, "Addressing Function Approximation Error in
Actor-Critic Methods", 2018), trained on a replay buffer.

Twin critics learn the smaller of their two targets, with smoothing noise on the target action; every second
step the greedy actor ascends the first critic, and all targets follow by Polyak averaging.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.learning.products import PRODUCTS, Precision, Product
from elites.learning.replay_buffer import Experience, ReplayBuffer, sample
from elites.options import Count, Range, Rate, Share, Spread, Widths, check_fields
from elites.policies import Layers, Policy, init_layers


class TD3State(NamedTuple):
    """The state of TD3. The two critics are stacked: each of their arrays is `[2, …]`."""

    critics: Layers
    target_critics: Layers
    actor: Layers
    target_actor: Layers
    critics_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    steps: jax.Array  # of critic training, since the start of the run


class TrainingSums(NamedTuple):
    """Measurements of a training phase of the critics: sums over its steps."""

    steps: jax.Array  # int32
    loss: jax.Array  # of both critics together
    value: jax.Array  # mean of both critics over the batch


def zero_training() -> TrainingSums:
    """The sums before the first step."""
    return TrainingSums(jnp.int32(0), jnp.float32(0), jnp.float32(0))


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """Training of the critics and the greedy actor."""

    critic_hidden: Widths = (256, 256)
    """Hidden units of the critics."""
    critic_init: Literal["fan-in", "xavier"] = "fan-in"
    """Initial weights of the critics: uniform within ±1/√inputs (fan-in), or Xavier's as for controllers."""
    training_batch: Count = 256
    """Transitions per gradient step (N)."""
    critic_learning_rate: Rate = 3e-4
    """Learning rate of the critics' Adam."""
    greedy_learning_rate: Rate = 3e-4
    """Learning rate of the greedy actor's Adam."""
    discount: Share = 0.99
    """Discount factor (γ)."""
    smoothing_noise: Spread = 0.2
    """Standard deviation of the noise on target actions (σ_p)."""
    smoothing_clip: Spread = 0.5
    """Bound of the noise on target actions (c)."""
    target_rate: Share = 0.005
    """Polyak rate of the targets (τ)."""
    delay: Count = 2
    """Critic steps per step of the greedy actor and the targets (d)."""
    buffer_size: Annotated[int, Range(1, 2**31 - 1)] = 1_000_000
    """Capacity of the replay buffer, in transitions."""
    training_precision: Precision = "float32"
    """Number format of the inputs of matrix products in training; sums and everything else are float32.
    bfloat16 is faster on processors that multiply it in hardware."""

    def __post_init__(self) -> None:
        check_fields(self)


def init(key: jax.Array, config: CriticConfig, policy: Policy) -> TD3State:
    """Random critics and greedy actor; their targets are copies."""
    first, second, actor_key = jax.random.split(key, 3)
    sizes = (policy.sizes[0] + policy.sizes[-1], *config.critic_hidden, 1)
    critics = jax.vmap(lambda one: init_layers(one, sizes, config.critic_init))(jnp.stack([first, second]))
    actor = init_layers(actor_key, policy.sizes)
    return TD3State(
        critics=critics,
        target_critics=jax.tree.map(jnp.copy, critics),
        actor=actor,
        target_actor=jax.tree.map(jnp.copy, actor),
        critics_optimiser=optax.adam(config.critic_learning_rate).init(critics),
        actor_optimiser=optax.adam(config.greedy_learning_rate).init(actor),
        steps=jnp.int32(0),
    )


def compute_q(
    critic: Layers, observation: jax.Array, action: jax.Array, product: Product = operator.matmul
) -> jax.Array:
    """Q(s, a) of one critic. Shapes broadcast: actions of many actors can share one batch of states."""
    (weights, biases), *others = critic
    split = observation.shape[-1]
    hidden = product(observation, weights[:split]) + product(action, weights[split:]) + biases
    for weights, biases in others:
        hidden = product(jax.nn.relu(hidden), weights) + biases
    return hidden[..., 0]


def first_critic(critics: Layers) -> Layers:
    """Q1, the critic that actors ascend."""
    return tuple((weights[0], biases[0]) for weights, biases in critics)


def train(
    td3: TD3State,
    config: CriticConfig,
    policy: Policy,
    buffer: ReplayBuffer,
    key: jax.Array,
    steps: int,
    reward: Callable[[Experience], jax.Array] | None = None,
) -> tuple[TD3State, TrainingSums]:
    """`steps` critic steps, and a step of the greedy actor and the targets after every `delay`-th.

    A TD3 state must always be trained with the same number of steps. `reward` replaces the task's reward.
    Returns the new state and the measurements.
    """
    keys = jax.vmap(jax.random.split)(jax.random.split(key, steps))
    # All samples at once: on a GPU, a kernel per sample would cost more than the training itself.
    batches = jax.vmap(
        lambda sample_key: sample(
            buffer, sample_key, config.training_batch, policy.sizes[0], policy.sizes[-1]
        )
    )(keys[:, 0])
    shape = batches.action.shape[1:]
    noise = jax.vmap(lambda noise_key: jax.random.normal(noise_key, shape))(keys[:, 1])
    noise = jnp.clip(config.smoothing_noise * noise, -config.smoothing_clip, config.smoothing_clip)

    def critic_step(state: TD3State, inputs: tuple[Experience, jax.Array]) -> tuple[TD3State, jax.Array]:
        batch, noise = inputs
        if reward is not None:
            batch = batch._replace(reward=reward(batch))
        return _train_critics(state, config, policy, batch, noise)

    def actor_step(state: TD3State, batch: Experience) -> TD3State:
        return _train_actor(state, config, policy, batch)

    def single(state: TD3State, inputs: tuple[Experience, jax.Array]) -> tuple[TD3State, jax.Array]:
        state, measured = critic_step(state, inputs)
        due = state.steps % config.delay == 0
        return jax.lax.cond(due, actor_step, lambda state, _: state, state, inputs[0]), measured

    def block(state: TD3State, inputs: tuple[Experience, jax.Array]) -> tuple[TD3State, jax.Array]:
        state, measured = jax.lax.scan(critic_step, state, inputs, unroll=min(config.delay, 4))
        return actor_step(state, jax.tree.map(lambda array: array[-1], inputs[0])), measured

    inputs = (batches, noise)
    if steps % config.delay:
        td3, measured = jax.lax.scan(single, td3, inputs, unroll=steps == 1)  # a loop of one step is costly
    else:  # training always starts at a multiple of the delay, so actor steps need no condition
        blocks = (steps // config.delay, config.delay)
        inputs = jax.tree.map(lambda array: array.reshape(*blocks, *array.shape[1:]), inputs)
        td3, measured = jax.lax.scan(block, td3, inputs)
    loss, values = measured.reshape(steps, 2, 2).sum(0)  # of each critic
    return td3, TrainingSums(jnp.int32(steps), loss.sum(), values.mean())


def _train_critics(
    state: TD3State, config: CriticConfig, policy: Policy, batch: Experience, noise: jax.Array
) -> tuple[TD3State, jax.Array]:
    """One step of both critics towards r + γ min Q'(s', π'(s') + ε), with ε the noise.

    Also returns the loss of each critic and its mean value over the batch, `[2, 2]`.
    """
    product = PRODUCTS[config.training_precision]
    both_values = jax.vmap(functools.partial(compute_q, product=product), (0, None, None))
    next_action = jnp.clip(policy.act(state.target_actor, batch.next_observation, product) + noise, -1, 1)
    next_values = both_values(state.target_critics, batch.next_observation, next_action)
    target = batch.reward + config.discount * (1 - batch.terminal) * next_values.min(0)

    def loss(critics: Layers) -> tuple[jax.Array, jax.Array]:
        values = both_values(critics, batch.observation, batch.action)
        errors = ((values - target) ** 2).mean(1)
        return errors.sum(), jnp.stack([errors, values.mean(1)])

    gradient, measured = jax.grad(loss, has_aux=True)(state.critics)
    updates, optimiser = optax.adam(config.critic_learning_rate).update(gradient, state.critics_optimiser)
    critics = optax.apply_updates(state.critics, updates)
    return state._replace(critics=critics, critics_optimiser=optimiser, steps=state.steps + 1), measured


def _train_actor(state: TD3State, config: CriticConfig, policy: Policy, batch: Experience) -> TD3State:
    """One ascent step of the greedy actor on Q1, then an update of all targets."""
    critic, product = first_critic(state.critics), PRODUCTS[config.training_precision]

    def loss(actor: Layers) -> jax.Array:
        action = policy.act(actor, batch.observation, product)
        return -compute_q(critic, batch.observation, action, product).mean()

    updates, optimiser = optax.adam(config.greedy_learning_rate).update(
        jax.grad(loss)(state.actor), state.actor_optimiser
    )
    actor = optax.apply_updates(state.actor, updates)
    return state._replace(
        actor=actor,
        actor_optimiser=optimiser,
        target_actor=optax.incremental_update(actor, state.target_actor, config.target_rate),
        target_critics=optax.incremental_update(state.critics, state.target_critics, config.target_rate),
    )
