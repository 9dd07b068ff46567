"""Parts of compiled episodes that do not depend on the simulator.

A file whose compiled functions call these must name this file to its `Compiler`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elites.machine_code import Compiler

TERMINATED, TRUNCATED, INVALID, STOPPED = 0, 1, 2, 3  # elites.tasks.episode.Ending, and a run cut short

compiled = Compiler(__file__)


class Trace(NamedTuple):
    """The arrays in which an episode is recorded; of length 0 if it is not."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    step_descriptors: np.ndarray


def empty_trace(observation_size: int, action_size: int, step_descriptors: np.ndarray) -> Trace:
    """A trace that records nothing; `step_descriptors` has no rows."""
    return Trace(
        np.empty((1, observation_size), np.float32),
        np.empty((0, action_size), np.float32),
        np.empty(0),
        step_descriptors,
    )


@compiled
def fill(target: np.ndarray, values: np.ndarray) -> None:
    """`target[:] = values`, as a loop, because Numba takes two seconds to compile the assignment."""
    for i in range(len(values)):
        target[i] = values[i]


@compiled
def clear(target: np.ndarray) -> None:
    """`target[:] = 0`, as a loop for the same reason."""
    for i in range(len(target)):
        target[i] = 0


@compiled
def any_nan(values: np.ndarray) -> bool:
    for value in values:  # noqa: SIM110 - a loop is what Numba compiles fast
        if np.isnan(value):
            return True
    return False


@compiled
def widest(sizes: np.ndarray) -> int:
    """The largest of the sizes of layers."""
    most = 0
    for size in sizes:
        most = max(most, size)
    return most


@compiled
def add_noise(action: np.ndarray, noise: np.ndarray, step: int) -> None:
    """Adds row `step` of the noise to the action and clips the sum to ±1.

    Steps after the last row have no noise.
    """
    if step < len(noise):
        for i in range(len(action)):
            action[i] = min(max(action[i] + noise[step, i], -1), 1)


@compiled
def pairwise_sum(values: np.ndarray) -> float:
    """Adds up to 128 values in NumPy's order."""
    if len(values) < 8:
        total = values[0]
        for value in values[1:]:
            total += value
        return total  # type: ignore[no-any-return]
    lanes = values[:8].copy()
    whole = len(values) - len(values) % 8
    for i in range(8, whole):
        lanes[i % 8] += values[i]
    total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
    for value in values[whole:]:
        total += value
    return total  # type: ignore[no-any-return]
