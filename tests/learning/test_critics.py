import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from elites.learning import critics
from elites.learning.critics import CriticConfig
from elites.learning.replay_buffer import ReplayBuffer
from elites.policies import Policy

POLICY = Policy((2, 8, 1))
CONFIG = CriticConfig(critic_hidden=(16, 16), training_batch=64)


def buffer_of(observation, action, reward, next_observation, terminal):
    rows = np.concatenate(
        [observation, action, reward[:, None], next_observation, terminal[:, None]], axis=1
    ).astype(np.float32)
    return ReplayBuffer(jnp.array(rows), jnp.int32(0), jnp.int32(len(rows)))


@pytest.fixture(scope="module")
def quadratic():
    """One-step episodes that reward the action 0.5 x0: the best action and its value are known."""
    generator = np.random.default_rng(0)
    observation = generator.uniform(-1, 1, (2000, 2))
    action = generator.uniform(-1, 1, (2000, 1))
    reward = 1 - (action[:, 0] - 0.5 * observation[:, 0]) ** 2
    return buffer_of(observation, action, reward, observation, np.ones(2000))


@pytest.mark.parametrize(("kind", "spread"), [("fan-in", 256**-0.5), ("xavier", (6 / 512) ** 0.5)])
def test_critics_start_within_their_range_and_actors_are_xaviers(kind, spread):
    td3 = critics.init(jax.random.key(0), CriticConfig(critic_init=kind), Policy((15, 128, 128, 3)))
    for inputs, (weights, biases) in zip((18, 256, 256), td3.critics, strict=True):
        assert np.abs(biases).max() <= inputs**-0.5
        if kind == "fan-in":
            assert np.abs(weights).max() <= inputs**-0.5
    assert 0.99 * spread < np.abs(td3.critics[1][0]).max() <= spread
    assert 0.99 * (6 / 256) ** 0.5 < np.abs(td3.actor[1][0]).max() <= (6 / 256) ** 0.5


train = jax.jit(critics.train, static_argnums=(1, 2, 5))


def test_the_greedy_actor_finds_the_best_action(quadratic):
    config = CriticConfig(
        critic_hidden=(32, 32), training_batch=64, greedy_learning_rate=1e-3, critic_learning_rate=3e-3
    )
    td3 = critics.init(jax.random.key(0), config, POLICY)
    td3, _ = train(td3, config, POLICY, quadratic, jax.random.key(1), 4000)
    states = np.random.default_rng(1).uniform(-0.9, 0.9, (200, 2)).astype(np.float32)
    actions = np.asarray(POLICY.act(td3.actor, states))[:, 0]
    assert np.abs(actions - 0.5 * states[:, 0]).mean() < 0.1
    values = critics.compute_q(
        critics.first_critic(td3.critics), jnp.array(states), jnp.array(0.5 * states[:, :1])
    )
    assert abs(float(values.mean()) - 1) < 0.1


@pytest.mark.parametrize(("terminal", "expected"), [(1.0, 1.0), (0.0, 1 / (1 - 0.9))])
def test_only_a_terminal_step_ends_the_return(terminal, expected):
    """A reward of 1 for ever is worth 1 / (1 - γ), unless each step ends its episode."""
    zeros, actions = np.zeros((200, 2)), np.linspace(-1, 1, 200)[:, None]
    buffer = buffer_of(zeros, actions, np.ones(200), zeros, np.full(200, terminal))
    config = CriticConfig(
        critic_hidden=(16,), training_batch=32, discount=0.9, target_rate=0.05, critic_learning_rate=0.01
    )
    td3, _ = train(
        critics.init(jax.random.key(0), config, POLICY), config, POLICY, buffer, jax.random.key(1), 3000
    )
    value = critics.compute_q(critics.first_critic(td3.critics), jnp.zeros(2), jnp.zeros(1))
    assert abs(float(value) / expected - 1) < 0.1


def test_the_actor_and_the_targets_move_on_every_second_step(quadratic):
    start = critics.init(jax.random.key(0), CONFIG, POLICY)
    one, _ = train(start, CONFIG, POLICY, quadratic, jax.random.key(1), 1)
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, one.actor, start.actor)))
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, one.target_critics, start.target_critics)))
    two, _ = train(one, CONFIG, POLICY, quadratic, jax.random.key(2), 1)  # the counter lives on between calls
    assert not any(jax.tree.leaves(jax.tree.map(jnp.array_equal, two.actor, one.actor)))
    for followed, before, after in (
        (two.critics, one.target_critics, two.target_critics),
        (two.actor, one.target_actor, two.target_actor),
    ):
        expected = jax.tree.map(lambda new, old: 0.005 * new + 0.995 * old, followed, before)
        jax.tree.map(
            lambda actual, right: np.testing.assert_allclose(actual, right, atol=1e-7), after, expected
        )
    assert two.steps == 2


def test_a_critic_step_is_adam_on_the_clipped_double_q_loss(quadratic):
    """The first step, written out again with one critic at a time."""
    config = CriticConfig(critic_hidden=(16,), training_batch=len(quadratic.rows), smoothing_noise=0.0)
    start = critics.init(jax.random.key(0), config, POLICY)
    key = jax.random.key(3)
    after, training = train(start, config, POLICY, quadratic, key, 1)
    drawing, _ = jax.random.split(jax.random.split(key, 1)[0])
    rows = quadratic.rows[jax.random.randint(drawing, (len(quadratic.rows),), 0, len(quadratic.rows))]
    state, action, reward, following, terminal = (
        rows[:, :2],
        rows[:, 2:3],
        rows[:, 3],
        rows[:, 4:6],
        rows[:, 6],
    )
    pair = [tuple((w[i], b[i]) for w, b in start.critics) for i in (0, 1)]
    best = POLICY.act(start.actor, following)
    target = reward + 0.99 * (1 - terminal) * jnp.minimum(
        *(critics.compute_q(q, following, best) for q in pair)
    )
    for index, critic in enumerate(pair):
        gradient = jax.grad(lambda q: ((critics.compute_q(q, state, action) - target) ** 2).mean())(critic)
        adam = optax.adam(3e-4)
        updates, _ = adam.update(gradient, adam.init(critic))
        expected = optax.apply_updates(critic, updates)
        actual = tuple((w[index], b[index]) for w, b in after.critics)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), actual, expected)
    values = jnp.stack([critics.compute_q(critic, state, action) for critic in pair])
    assert training.steps == 1
    np.testing.assert_allclose(training.loss, ((values - target) ** 2).mean(1).sum(), rtol=1e-5)
    np.testing.assert_allclose(training.value, values.mean(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", [3, 4])
def test_training_statistics_are_sums_over_its_steps(steps):
    """Steps one by one against all at once: with a condition, and in blocks of two. All batches are alike."""
    buffer = buffer_of(np.full((1, 2), 0.3), np.full((1, 1), 0.5), np.ones(1), np.zeros((1, 2)), np.zeros(1))
    config = CriticConfig(critic_hidden=(16,), training_batch=8, smoothing_noise=0.0)
    td3 = start = critics.init(jax.random.key(0), config, POLICY)
    sums = critics.zero_training()
    for _ in range(steps):
        td3, training = train(td3, config, POLICY, buffer, jax.random.key(1), 1)
        sums = jax.tree.map(jnp.add, sums, training)
    _, together = train(start, config, POLICY, buffer, jax.random.key(2), steps)
    assert together.steps == sums.steps == steps
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), together, sums)
    assert together.loss > 0
