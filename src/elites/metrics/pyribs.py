"""Archives of pyribs as plain arrays for the metrics. pyribs itself is not needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites.errors import ElitesError
from elites.files import ArraySpec, read_arrays

FIELDS = {
    "solution": ArraySpec("fi", ("elites", "*"), allowed="any"),
    "objective": ArraySpec("fi", ("elites",), allowed="any"),
    "measures": ArraySpec("fi", ("elites", "dimensions"), allowed="any"),
    "index": ArraySpec("i", ("elites",)),
}


class PyribsElites(NamedTuple):
    """The elites of an archive, `[n, …]`, in the order of the archive."""

    parameters: np.ndarray
    fitness: np.ndarray
    descriptor: np.ndarray
    cell: np.ndarray


def from_pyribs(source: Any) -> PyribsElites:
    """The elites of `archive.data()`: as a dictionary, as a data frame, or as an npz file of it.

    The centroids are not among them: `archive.centroids` has those of a `CVTArchive`, and a `GridArchive` is
    `elites.archives.cells.make_grid(archive.dims, bounds)`.
    """
    if isinstance(source, str | Path):
        source = read_arrays(Path(source), FIELDS, "an archive of pyribs")
    names = [str(name) for name in source]
    return PyribsElites(*(_field(source, names, field) for field in FIELDS))


def _field(source: Any, names: Sequence[str], field: str) -> np.ndarray:
    """A field; in a data frame, it may be a column for each of its dimensions."""
    if field in names:
        return np.asarray(source[field])
    columns = [name for name in names if re.fullmatch(rf"{field}_\d+", name)]
    if not columns:
        raise ElitesError(f"this is not an archive of pyribs: it has no {field}, only {', '.join(names)}")
    columns.sort(key=lambda name: int(name.rpartition("_")[2]))
    return np.stack([np.asarray(source[name]) for name in columns], axis=1)
