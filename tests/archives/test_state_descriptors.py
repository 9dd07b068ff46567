import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.archives.state_descriptors import add, compute_novelty, empty_state_descriptors

rows = st.lists(st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)), min_size=30, max_size=30)
add_jitted = jax.jit(add, static_argnums=2)


@given(rows)
@settings(max_examples=30)
def test_only_descriptors_far_from_all_stored_ones_are_added(rows):
    candidates = np.array(rows, np.float32)
    stored = add_jitted(empty_state_descriptors(12, 2), jnp.array(candidates), 0.2)
    expected = []
    for candidate in candidates:
        near = any(
            ((candidate - other) ** 2).sum(dtype=np.float32) <= np.float32(0.2**2) for other in expected
        )
        if not near and len(expected) < 12:
            expected.append(candidate)
    assert stored.size == len(expected)
    np.testing.assert_array_equal(stored.rows[: len(expected)], expected)


def test_nan_is_never_added():
    stored = add(empty_state_descriptors(5, 1), jnp.array([[jnp.nan], [0.5]]), 0.1)
    assert stored.size == 1


def test_novelty_is_the_mean_distance_to_the_nearest():
    stored = add(empty_state_descriptors(10, 1), jnp.array([[0.0], [1.0], [4.0]]), 0.1)
    values = compute_novelty(stored, jnp.array([[0.0], [3.0]]), neighbours=2)
    np.testing.assert_allclose(values, [(0 + 1) / 2, (1 + 2) / 2])
    np.testing.assert_allclose(compute_novelty(stored, jnp.array([[0.0]]), neighbours=5), [5 / 3])
    np.testing.assert_allclose(compute_novelty(empty_state_descriptors(10, 1), jnp.array([[0.0]]), 5), [0.0])
