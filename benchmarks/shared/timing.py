"""Timing of a computation."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any


def timed(function: Callable[[], Any], repetitions: int) -> float:
    """Median time in seconds, without the first call, which compiles."""
    import jax

    jax.block_until_ready(function())
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - started)
    return median(seconds)
