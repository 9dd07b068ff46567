"""Which elites are shown."""

from __future__ import annotations

import re

import numpy as np

from elites.errors import ElitesError
from elites.results.archive import SavedArchive

MOST = 64  # elites in one clip


def grid_of(text: str) -> tuple[int, int]:
    """Rows and columns of "3x3"."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found or not 1 <= int(found[1]) * int(found[2]) <= MOST:
        raise ElitesError(f"grid is {text!r}; it must be rows x columns, such as 3x3, at most {MOST} in all")
    return int(found[1]), int(found[2])


def in_cell(archive: SavedArchive, cell: int) -> int:
    """The elite of a cell."""
    cells = len(archive.centroids)
    if not 0 <= cell < cells:
        raise ElitesError(f"cell is {cell}; it must be from 0 to {cells - 1}")
    found = np.flatnonzero(archive.cell == cell)
    if not len(found):
        gap = _apart(archive, archive.centroids[cell])
        raise ElitesError(f"cell {cell} is empty; the nearest that is not is {archive.cell[gap.argmin()]}")
    return int(found[0])


def by_descriptor(archive: SavedArchive, descriptor: tuple[float, ...]) -> int:
    """The elite nearest to a descriptor."""
    size = archive.bounds.shape[0]
    if len(descriptor) != size:
        raise ElitesError(f"descriptor is {descriptor}; it must be {size} number{'s' * (size > 1)}")
    within = (archive.bounds[:, 0] <= descriptor) & (descriptor <= archive.bounds[:, 1])
    if not within.all():
        told = ", ".join(f"{low:g} to {high:g}" for low, high in archive.bounds)
        raise ElitesError(f"descriptor is {descriptor}; it must be within {told}")
    return int(_apart(archive, np.array(descriptor)).argmin())


def _apart(archive: SavedArchive, place: np.ndarray) -> np.ndarray:
    """How far each elite is from a place, in ranges of the bounds."""
    apart = (archive.descriptor - place) / np.diff(archive.bounds, axis=1)[:, 0]
    return (apart**2).sum(1)  # type: ignore[no-any-return]


def spread_out(archive: SavedArchive, shape: tuple[int, int]) -> list[int | None]:
    """The best elite of each part of descriptor space, row by row, the highest first; None where none is.

    The first dimension runs to the right and the second upwards; one alone runs on from row to row.
    """
    rows, columns = shape
    low, high = archive.bounds.T
    unit = np.clip((archive.descriptor - low) / (high - low), 0, 1 - 1e-9)
    if len(low) == 1:
        part = (unit[:, 0] * rows * columns).astype(int)
    else:
        row = rows - 1 - (unit[:, 1] * rows).astype(int)
        part = row * columns + (unit[:, 0] * columns).astype(int)
    best: list[int | None] = [None] * (rows * columns)
    for elite in reversed(range(len(part))):  # best first: the first of a part stays
        best[part[elite]] = elite
    return best
