"""The members of a deep grid: saved in a file, or drawn for the replications of a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elites.archives.deep_grid import DeepGridArchive, selection_weights
from elites.files import read_arrays, write_arrays
from elites.results import schemas


@dataclass(frozen=True)
class Members:
    """All members `[m]`, cell by cell."""

    cell: np.ndarray
    fitness: np.ndarray
    evaluations: int  # of the run at this state of its grid
    parameters: Callable[[np.ndarray], np.ndarray]  # of these members

    def draw(self, cells: np.ndarray, uniform_numbers: np.ndarray) -> np.ndarray:
        """Draws members of the cells `[n]` as parents are drawn, one for each number `[n, N]` below 1."""
        first, last = np.searchsorted(self.cell, cells), np.searchsorted(self.cell, cells, side="right")
        slots = np.arange((last - first).max(initial=1))
        filled = first[:, None] + slots < last[:, None]
        fitness = np.full(filled.shape, -np.inf, np.float32)
        fitness[filled] = self.fitness[(first[:, None] + slots)[filled]]
        weights = np.asarray(selection_weights(fitness), np.float64)  # type: ignore[arg-type]
        cumulative_weights = weights.cumsum(1)
        wanted = uniform_numbers * cumulative_weights[:, -1:]
        rows = zip(cumulative_weights, wanted, strict=True)
        drawn = np.array([row.searchsorted(at, side="right") for row, at in rows])
        chosen: np.ndarray = first[:, None] + drawn.reshape(wanted.shape)
        return np.minimum(chosen, last[:, None] - 1)  # type: ignore[no-any-return]


def make_members(grid: DeepGridArchive, evaluations: int) -> Members:
    """The members of a grid in memory; it must not change as long as they are used."""
    fitness = np.asarray(grid.members.fitness)
    cells, slots = np.nonzero(fitness > -np.inf)

    def parameters(rows: np.ndarray) -> np.ndarray:
        return np.asarray(grid.members.parameters[cells[rows], slots[rows]])

    return Members(cells.astype(np.int32), fitness[cells, slots], evaluations, parameters)


def save_members(path: Path, members: Members) -> None:
    """Writes a `members.npz`."""
    arrays = {
        "cell": members.cell,
        "fitness": members.fitness,
        "parameters": members.parameters(np.arange(len(members.cell))),
        "evaluations": np.array(members.evaluations),
    }
    write_arrays(path, arrays)


def load_members(path: Path) -> Members:
    """Reads a `members.npz`."""
    arrays = read_arrays(path, schemas.MEMBERS, "a file of members")
    schemas.check_members(path, arrays)
    parameters = arrays["parameters"]
    return Members(
        arrays["cell"], arrays["fitness"], int(arrays["evaluations"]), lambda rows: parameters[rows]
    )
