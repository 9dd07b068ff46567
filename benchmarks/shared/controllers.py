"""Random controllers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


def random_controllers(sizes: tuple[int, ...], count: int) -> np.ndarray:
    """Flat random controllers with the distribution of `elites.policies`; the same in every call."""
    generator = np.random.default_rng(0)
    pieces = []
    for inputs, outputs in pairwise(sizes):
        for size, bound in ((inputs * outputs, (6 / (inputs + outputs)) ** 0.5), (outputs, inputs**-0.5)):
            pieces.append(generator.uniform(-bound, bound, (count, size)).astype(np.float32))
    return np.concatenate(pieces, axis=1)
