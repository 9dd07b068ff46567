"""Operator contribution: offspring added to the archive, by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

WINDOW = 200  # generations; the paper's smoothing window
MADE, NEW, IMPROVED = "made_", "new_", "improved_"
BY_OPERATOR = (MADE, NEW, IMPROVED)  # begin the names of an operator's columns in `metrics.csv`


def find_operators(columns: Iterable[str]) -> list[str]:
    """The operators that have columns among these."""
    return [name.removeprefix(MADE) for name in columns if name.startswith(MADE)]


def count_made(metrics: Mapping[str, Any], operator: str) -> Any:
    """Offspring that an operator made. `metrics` is a row of `metrics.csv`, or has its columns."""
    return metrics[f"{MADE}{operator}"]


def count_kept(metrics: Mapping[str, Any], operator: str) -> Any:
    """Those that entered the archive, in a new cell or in place of a worse elite."""
    return metrics[f"{NEW}{operator}"] + metrics[f"{IMPROVED}{operator}"]


def count_added(metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Offspring that entered the archive per generation, by operator.

    `metrics` are the columns of a run's `metrics.csv`, as `read_table` returns them. A row may cover
    several generations.
    """
    generations = np.maximum(1, np.diff(metrics["generation"], prepend=0))
    return {name: count_kept(metrics, name) / generations for name in find_operators(metrics)}


def choose_window(generations: int) -> int:
    """The number of generations to smooth over: 200, fewer in a short run."""
    return max(1, min(WINDOW, generations // 20))


def count_rows(window: int, generations: np.ndarray) -> int:
    """The number of rows of a log that cover `window` generations; `generations` is its column."""
    return max(1, round(window * len(generations) / max(1, int(generations[-1]))))


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """The mean over a window around each value; the window is cut at the ends."""
    before, after = (window - 1) // 2, window // 2
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    places = np.arange(len(values))
    first, last = np.maximum(places - before, 0), np.minimum(places + after + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)  # type: ignore[no-any-return]
