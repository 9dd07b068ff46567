"""Selects the elites to show."""

from __future__ import annotations

import re

import numpy as np

from elites.errors import ElitesError
from elites.results.archive import SavedArchive

MAX_ELITES = 64  # elites in one clip


def parse_grid(text: str) -> tuple[int, int]:
    """Rows and columns of "3x3"."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match or not 1 <= int(match[1]) * int(match[2]) <= MAX_ELITES:
        raise ElitesError(
            f"grid is {text!r}; it must be rows x columns, such as 3x3, at most {MAX_ELITES} in all"
        )
    return int(match[1]), int(match[2])


def select_best_per_region(archive: SavedArchive, shape: tuple[int, int]) -> list[int | None]:
    """The best elite of each region of descriptor space, row by row from the top; None where there is none.

    The first dimension runs to the right and the second upwards; a single one continues from row to row.
    """
    rows, columns = shape
    low, high = archive.bounds.T
    unit = np.clip((archive.descriptor - low) / (high - low), 0, 1 - 1e-9)
    if len(low) == 1:
        region = (unit[:, 0] * rows * columns).astype(int)
    else:
        row = rows - 1 - (unit[:, 1] * rows).astype(int)
        region = row * columns + (unit[:, 0] * columns).astype(int)
    best: list[int | None] = [None] * (rows * columns)
    for elite in reversed(range(len(region))):  # elites are sorted, the best first
        best[region[elite]] = elite
    return best
