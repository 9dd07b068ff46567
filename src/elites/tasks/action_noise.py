"""Noise on the actions of an episode that is simulated outside JAX."""

from __future__ import annotations

import numpy as np

STREAM = 1  # combined with the episode's seed; the initial state is drawn from the seed alone


def draw_noise(seed: int, spread: float, steps: int, size: int) -> np.ndarray:
    """Gaussian noise for the actions of the episode with this seed, float32 `[steps, size]`.

    If `spread` is 0 it has no rows.
    """
    if spread == 0:
        return np.zeros((0, size), np.float32)
    generator = np.random.default_rng((seed, STREAM))
    return generator.standard_normal((steps, size), np.float32) * np.float32(spread)
