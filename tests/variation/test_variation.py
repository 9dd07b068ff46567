import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from elites.learning import critics
from elites.learning.critics import CriticConfig
from elites.learning.replay_buffer import ReplayBuffer
from elites.policies import Policy
from elites.variation import policy_gradient
from elites.variation.isoline import IsoLine
from elites.variation.policy_gradient import PolicyGradient

POLICY = Policy((2, 8, 1))


def test_isoline_has_the_spread_of_its_formula():
    first, second = np.zeros((4000, 50), np.float32), np.full((4000, 50), 2.0, np.float32)
    offspring = np.asarray(IsoLine(0.1, 0.5).vary(jax.random.key(0), first, second))
    along = offspring.mean(1)  # the line's draw times σ2 (y - x): one number per offspring
    assert abs(along.std() / np.sqrt(1.0 + 0.01 / 50) - 1) < 0.05
    across = offspring - along[:, None]
    assert abs(across.std() / (0.1 * np.sqrt(49 / 50)) - 1) < 0.02


def test_isoline_can_draw_a_number_for_each_tensor():
    tensors = POLICY.tensors
    assert tensors == (16, 8, 8, 1)
    first, second = np.zeros((2000, 33), np.float32), np.full((2000, 33), 2.0, np.float32)
    offspring = np.asarray(IsoLine(0.0, 0.5, tensors).vary(jax.random.key(0), first, second))
    parts = np.split(offspring, np.cumsum(tensors)[:-1], axis=1)
    for part in parts:
        np.testing.assert_array_equal(part, np.broadcast_to(part[:, :1], part.shape))
        assert abs(part[:, 0].std() - 1) < 0.05
    correlation = np.corrcoef([part[:, 0] for part in parts])
    assert np.abs(correlation - np.eye(4)).max() < 0.1


def test_isoline_without_spread_returns_the_first_parent():
    first, second = np.eye(3, dtype=np.float32), np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(IsoLine(0.0, 0.0).vary(jax.random.key(0), first, second), first)


def climb(parents, steps, precision="float32"):
    states = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)
    buffer = ReplayBuffer(jnp.concatenate([states, np.zeros((500, 5))], axis=1), jnp.int32(0), jnp.int32(500))
    td3 = critics.init(jax.random.key(5), CriticConfig(critic_hidden=(16,), critic_init="xavier"), POLICY)
    critic = critics.first_critic(td3.critics)
    operator = PolicyGradient(POLICY, steps, batch=64, learning_rate=0.01, precision=precision)
    offspring = operator.vary(jax.random.key(1), parents, critic, buffer)
    return offspring, critic, buffer, jnp.array(states)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_policy_gradient_increases_the_value_of_the_critic(precision):
    parents = jax.vmap(POLICY.init)(jax.random.split(jax.random.key(2), 4))
    offspring, critic, _, states = climb(parents, 50, precision)

    def mean_value(parameters):
        return critics.compute_q(critic, states, POLICY.apply(parameters, states)).mean()

    gains = jax.vmap(mean_value)(offspring) - jax.vmap(mean_value)(parents)
    assert (np.asarray(gains) > 0.01).all()


def test_each_parent_has_its_own_adam():
    parents = jax.vmap(POLICY.init)(jax.random.split(jax.random.key(2), 4))
    together, critic, buffer, _ = climb(parents, 3)
    alone, _, _, _ = climb(parents[2:3], 3)
    np.testing.assert_allclose(together[2], alone[0], atol=1e-6)
    # And by hand, step by step.
    actor, adam = parents[2], optax.adam(0.01)
    state = adam.init(actor)
    for key in jax.random.split(jax.random.key(1), 3):
        states = buffer.rows[jax.random.randint(key, (64,), 0, 500), :2]
        gradient = jax.grad(lambda p, s=states: -critics.compute_q(critic, s, POLICY.apply(p, s)).mean())(
            actor
        )
        updates, state = adam.update(gradient, state)
        actor = optax.apply_updates(actor, updates)
    np.testing.assert_allclose(together[2], actor, atol=1e-5)


@pytest.mark.parametrize("count", [13, 49])
def test_groups_of_parents_give_the_same_as_all_at_once(count, monkeypatch):
    parents = jax.vmap(POLICY.init)(jax.random.split(jax.random.key(2), count))
    grouped = climb(parents, 3)[0]
    monkeypatch.setattr(policy_gradient, "GROUPS", (count,))
    np.testing.assert_allclose(grouped, climb(parents, 3)[0], atol=1e-6)
