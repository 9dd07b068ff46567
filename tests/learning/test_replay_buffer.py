from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.evaluation.evaluation import Evaluation
from elites.learning.replay_buffer import add, empty_buffer, sample
from elites.tasks.episode import Ending, Transitions

EPISODES, STEPS, OBSERVATION, ACTION = 3, 5, 2, 1
episodes = st.lists(
    st.tuples(st.integers(0, STEPS), st.sampled_from(list(Ending))), min_size=EPISODES, max_size=EPISODES
)
add_jitted = jax.jit(add, donate_argnums=0)


def evaluation(batch, first):
    """Episodes whose rewards number all their steps, so that all transitions differ."""
    lengths = np.array([length for length, _ in batch], np.int32)
    numbers = first + np.arange(EPISODES * STEPS, dtype=float).reshape(EPISODES, STEPS)
    observations = np.zeros((EPISODES, STEPS + 1, OBSERVATION), np.float32)
    observations[..., 0] = np.arange(STEPS + 1)
    return Evaluation(
        seed=np.zeros(EPISODES, np.uint32),
        fitness=np.zeros(EPISODES, np.float32),
        descriptor=np.zeros((EPISODES, 1), np.float32),
        length=lengths,
        ending=np.array([ending for _, ending in batch], np.uint8),
        transitions=Transitions(
            observations,
            numbers[..., None].astype(np.float32),
            numbers,
            np.zeros((EPISODES, STEPS, 1), np.uint8),
        ),
    )


@given(st.lists(episodes, min_size=1, max_size=6), st.integers(1, 20))
@settings(max_examples=100)
def test_the_buffer_holds_the_last_transitions_in_order(batches, capacity):
    capacity = [3, 7, 20][capacity % 3]  # few shapes to compile: smaller than a batch, about one, larger
    buffer, expected = empty_buffer(capacity, OBSERVATION, ACTION), deque(maxlen=capacity)
    for index, batch in enumerate(batches):
        first = 100 * index
        buffer = add_jitted(buffer, evaluation(batch, first))
        for episode, (length, ending) in enumerate(batch):
            if ending > Ending.TRUNCATED:
                continue
            for step in range(length):
                terminal = ending == Ending.TERMINATED and step == length - 1
                expected.append((first + episode * STEPS + step, step, float(terminal)))
    assert buffer.size == len(expected)
    rows = np.asarray(buffer.rows)
    oldest_first = np.roll(rows, -int(buffer.next), axis=0) if len(expected) == capacity else rows
    held = [(row[3], row[0], row[-1]) for row in oldest_first[: len(expected)]]
    assert held == list(expected)
    for row in oldest_first[: len(expected)]:
        assert row[4] == row[0] + 1  # the next observation
        assert row[2] == row[3]  # the action, numbered like the reward


def test_samples_are_uniform_over_what_is_filled():
    buffer = empty_buffer(10, OBSERVATION, ACTION)
    buffer = add(
        buffer, evaluation([(2, Ending.TRUNCATED), (1, Ending.TERMINATED), (0, Ending.TRUNCATED)], 1)
    )
    batch = sample(buffer, jax.random.key(0), 30_000, OBSERVATION, ACTION)
    numbers, counts = np.unique(np.asarray(batch.reward), return_counts=True)
    assert numbers.tolist() == [1, 2, 6]
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(30_000 * 2 / 9)
    assert (np.asarray(batch.terminal) == (np.asarray(batch.reward) == 6)).all()
    np.testing.assert_array_equal(batch.action[:, 0], batch.reward)
    np.testing.assert_array_equal(batch.next_observation[:, 0], batch.observation[:, 0] + 1)


def test_adding_writes_into_the_donated_buffer():
    buffer = jax.block_until_ready(jax.jit(lambda: empty_buffer(100_000, OBSERVATION, ACTION))())
    address = buffer.rows.unsafe_buffer_pointer()
    batch = evaluation([(5, Ending.TRUNCATED)] * 3, 0)
    added = add_jitted(buffer, batch)
    assert added.rows.unsafe_buffer_pointer() == address
    assert buffer.rows.is_deleted()
    assert jnp.isfinite(added.rows).all()
