"""An archive on axes of one's own, or of pyplot, as a notebook shows them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from elites.errors import ElitesError
from elites.metrics.archive import summary
from elites.reports.maps import Map, draw_map, scale
from elites.reports.plain import plain_text
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive


@plain_text()
def plot_archive(
    archive: SavedArchive | CorrectedArchive,
    ax: Axes | None = None,
    *,
    limits: tuple[float, float] | None = None,
    colours: str = "viridis",
) -> Axes:
    """Draws fitness over descriptor space: bars in one dimension, a Voronoi map in two, a nested grid above.

    Args:
        archive: an archive; of a corrected one, the mean fitness of the elites that are kept.
        ax: axes to draw into; by default those of a new figure of pyplot.
        limits: lowest and highest fitness of the colour scale; by default those of the archive.
        colours: matplotlib's name of a colour map.
    """
    content = _content(archive)._replace(colours=colours)
    if not len(content.values):
        raise ElitesError("the archive is empty: there is nothing to draw")
    if ax is None:
        from matplotlib import pyplot

        size = (8.0, 3.0) if content.dimensions == 1 else (6.0, 5.0)
        ax = pyplot.figure(figsize=size, layout="constrained").add_subplot()
    norm = Normalize(*limits) if limits else scale(content.values)
    draw_map(ax, content, norm)
    ax.figure.colorbar(ScalarMappable(norm, colours), ax=ax, label=content.quantity, pad=0.02)
    ax.set_title(summary(archive.metrics), fontsize=10)
    return ax


def _content(archive: SavedArchive | CorrectedArchive) -> Map:
    if isinstance(archive, SavedArchive):
        return Map(archive.fitness, archive.cell, archive.descriptor, archive, "fitness")
    kept = np.flatnonzero(archive.kept)
    kept = kept[np.argsort(-archive.mean_fitness[kept], kind="stable")]
    descriptor = archive.mean_descriptor[kept]
    return Map(archive.mean_fitness[kept], archive.mean_cell[kept], descriptor, archive, "mean fitness")
