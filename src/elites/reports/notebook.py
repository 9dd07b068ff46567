"""An archive on axes of pyplot, as a notebook shows them."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from elites.reports.figures import FLAT, SQUARE, draw_archive, require_elites
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive


def plot_archive(
    archive: SavedArchive | CorrectedArchive,
    ax: Axes | None = None,
    *,
    size: tuple[float, float] | None = None,
    **options: Any,
) -> Axes:
    """Draws an archive into axes, by default those of a new figure of pyplot. Returns them.

    The options are those of `draw_archive`.
    """
    require_elites(archive.cell)
    if ax is None:
        from matplotlib import pyplot

        usual = FLAT if archive.centroids.shape[1] == 1 else SQUARE
        ax = pyplot.figure(figsize=size or usual, layout="constrained").add_subplot()
    draw_archive(archive, ax=ax, **options)
    return ax
