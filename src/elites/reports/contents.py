"""The values of an archive that are drawn: they give its elites their colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from elites.errors import ElitesError
from elites.reports.colours import OPERATORS
from elites.reports.maps import Map
from elites.reports.style import CORRECTION_COLOURS, Style
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive

MAX_OPERATORS = 9  # with a colour of their own
OTHERS = "others"
BRIGHT_IS_LOW = "viridis_r"  # low values are the reproducible ones
_PLACES = {name: place for place, name in enumerate(OPERATORS)}


def select_content(
    archive: SavedArchive | CorrectedArchive,
    style: Style,
    corrected: CorrectedArchive | None = None,
    operators: Sequence[str] | None = None,
) -> Map:
    """The elites with the values that the style colours; `operators` are those that have a colour."""
    colour = style.colour
    if isinstance(archive, CorrectedArchive):
        content = _select_corrected_content(archive, style)
    elif colour in CORRECTION_COLOURS:
        if corrected is None:
            raise ElitesError(f"colour {colour} needs replications of the elites: correct the archive")
        if not np.array_equal(corrected.cell, archive.cell):
            raise ElitesError(f"colour is {colour}, but the corrected archive has other elites")
        content = make_correction_maps(corrected)[colour]
    elif colour == "operator":
        names = list_operators([archive]) if operators is None else tuple(operators)
        places = {name: place for place, name in enumerate(names)}
        values = np.array([places.get(str(name), len(names) - 1) for name in archive.operator], np.float64)
        content = Map(values, archive.cell, archive.descriptor, archive, "operator", categories=names)
    else:
        values = archive.fitness if colour == "fitness" else archive.generation.astype(np.float64)
        content = Map(values, archive.cell, archive.descriptor, archive, colour)
    return content if style.cmap is None else content._replace(colours=style.cmap)


def _select_corrected_content(archive: CorrectedArchive, style: Style) -> Map:
    if style.colour == "fitness":
        return make_corrected_map(archive)
    if style.colour in CORRECTION_COLOURS:
        return make_correction_maps(archive)[style.colour]
    raise ElitesError(f"colour is {style.colour}, which only the original archive has")


def list_operators(archives: Iterable[SavedArchive]) -> tuple[str, ...]:
    """The operators of all elites. If there are many, the rarest ones are combined into the last entry."""
    operators, counts = np.unique(
        np.concatenate([archive.operator for archive in archives]), return_counts=True
    )
    names = [str(name) for name in operators[np.argsort(-counts, kind="stable")]]
    kept = sorted(names[:MAX_OPERATORS], key=lambda name: (_PLACES.get(name, len(_PLACES)), name))
    return tuple(kept) if len(names) <= MAX_OPERATORS else (*kept, OTHERS)


def make_correction_maps(corrected: CorrectedArchive) -> dict[str, Map]:
    """Maps of the statistics of each elite's replications, by the name of the colour."""
    spread, cell, descriptor = corrected.compute_spread(), corrected.cell, corrected.original_descriptor
    loss = corrected.original_fitness.astype(np.float64) - corrected.mean_fitness

    def make_map(values: np.ndarray, quantity: str, low: float | None) -> Map:
        return Map(values, cell, descriptor, corrected, quantity, BRIGHT_IS_LOW, (low, None))

    own_cell = spread.own_cell
    return {
        "own-cell": Map(own_cell, cell, descriptor, corrected, "share in own cell", fixed=(0.0, 1.0)),
        "spread": make_map(spread.fitness, "deviation of fitness", 0.0),
        "descriptor-spread": make_map(spread.descriptor, "deviation of descriptor", 0.0),
        "loss": make_map(loss, "loss of fitness (recorded - mean)", None),
    }


def make_corrected_map(corrected: CorrectedArchive) -> Map:
    """The elites of the corrected archive, the best mean first."""
    kept = np.flatnonzero(corrected.kept)
    kept = kept[np.argsort(-corrected.mean_fitness[kept], kind="stable")]
    return Map(
        corrected.mean_fitness[kept],
        corrected.mean_cell[kept],
        corrected.mean_descriptor[kept],
        corrected,
        "mean fitness",
    )
