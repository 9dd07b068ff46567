import jax
import numpy as np
import pytest

from elites.learning.replay_buffer import sample
from tests.algorithms.test_algorithms import evolve, last, small


def test_half_of_the_offspring_improve_quality_and_half_diversity():
    algorithm = small("qd-pg", batch=7)
    state, _, batch, _, _ = last(evolve(algorithm, generations=7))
    assert np.bincount(batch.operator, minlength=3).tolist() == [0, 3, 4]
    assert state.quality.steps == state.diversity.steps == 4 * (7 - len(algorithm.opening))
    assert not np.array_equal(state.quality.critics[0][0], state.diversity.critics[0][0])


@pytest.mark.parametrize("kind", ["mean", "contacts"])
def test_the_buffer_holds_the_descriptor_of_each_steps_state(kind):
    algorithm = small("qd-pg", state_descriptor=kind, buffer_size=5000)
    expected, history = [], list(evolve(algorithm, generations=2))
    for _, _, _, evaluation, _ in history:
        for contacts, length in zip(evaluation.transitions.step_descriptors, evaluation.length, strict=True):
            steps = contacts[:length].astype(float)
            expected.append(
                np.cumsum(steps, 0) / np.arange(1, length + 1)[:, None] if kind == "mean" else steps
            )
    expected, state = np.concatenate(expected), history[-1][0]
    assert state.buffer.size == len(expected)
    np.testing.assert_allclose(state.buffer.rows[: len(expected), -1:], expected, atol=1e-6)
    batch = sample(state.buffer, jax.random.key(0), 10, 15, 3)
    assert batch.extra.shape == (10, 1)
    assert np.isin(np.round(batch.terminal, 6), [0, 1]).all()


def test_stored_descriptors_keep_a_distance():
    algorithm = small("qd-pg", candidates=200, state_descriptor="mean")
    state = last(evolve(algorithm))[0]
    rows = np.sort(np.asarray(state.visited.rows)[: int(state.visited.size), 0])
    assert 3 < len(rows) <= 11  # in [0, 1], farther than 0.1 from each other
    assert (np.diff(rows) > 0.1).all()
