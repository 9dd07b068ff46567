"""Values over descriptor space: bars in one dimension, a Voronoi map in two, a nested grid in more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize, to_rgba
from scipy.spatial import Voronoi

from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive
from elites.text import shortened

EMPTY = "#e8e8e8"
NESTED = 6  # cells per dimension of a nested grid, unless the archive is a grid itself


BINS = "squares are bins of descriptor space, each with its best elite"  # if they are not cells


class Map(NamedTuple):
    """Values of elites `[n]`, best first, and their cells. NaN is drawn as an empty cell."""

    values: np.ndarray
    cell: np.ndarray
    descriptor: np.ndarray
    archive: SavedArchive | CorrectedArchive
    quantity: str
    colours: str = "viridis"

    @property
    def dimensions(self) -> int:
        return int(self.archive.centroids.shape[1])

    @property
    def binned(self) -> bool:
        """Whether its squares are bins, which may hold several cells' elites."""
        return self.dimensions > 2 and len(self.archive.grid) != min(self.dimensions, 4)

    def by_cell(self) -> np.ndarray:
        """The value of each cell, NaN where there is none."""
        values = np.full(len(self.archive.centroids), np.nan)
        values[self.cell] = self.values
        return values

    def name(self, dimension: int) -> str:
        names = self.archive.about["task"]["descriptor_names"]
        return shortened(str(names[dimension]).replace("_", " "))

    def label(self, dimension: int) -> str:
        """The label of an axis; descriptors of archives without a phrase are contacts."""
        phrase: str = self.archive.about["task"].get("descriptor_phrase", "contact of {}")
        return phrase.replace("{}", self.name(dimension))


def scale(values: np.ndarray) -> Normalize:
    """A colour scale from the least to the greatest finite value."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return Normalize(low, max(high, low + 1e-9))


def draw_map(axes: Axes, content: Map, norm: Normalize) -> None:
    """Draws a map without a colour bar."""
    draw = {1: _bars, 2: _voronoi}.get(content.dimensions, _nested)
    draw(axes, content, norm)


def _bars(axes: Axes, content: Map, norm: Normalize) -> None:
    """A bar per cell, as wide as the cell; grey marks empty ones."""
    order = np.argsort(content.archive.centroids[:, 0])
    centroids, values = content.archive.centroids[order, 0], content.by_cell()[order]
    low, high = content.archive.bounds[0]
    edges = np.concatenate([[low], (centroids[1:] + centroids[:-1]) / 2, [high]])
    bottom = min(0.0, norm.vmin or 0.0)
    top = norm.vmax or 1.0
    filled = ~np.isnan(values)
    tops = np.where(filled, values, top)
    colours = ScalarMappable(norm, content.colours).to_rgba(values)
    colours[~filled] = to_rgba(EMPTY)
    left, right, ground = edges[:-1], edges[1:], np.full(len(tops), bottom)
    corners = np.array([[left, ground], [left, tops], [right, tops], [right, ground]]).transpose(2, 0, 1)
    bars = PolyCollection(list(corners), facecolors=colours, linewidths=0, antialiaseds=False)
    axes.add_collection(bars)  # many times faster than `axes.bar`
    axes.set(xlim=(low, high), ylim=(bottom, top), xlabel=content.label(0), ylabel=content.quantity)


def voronoi_polygons(centroids: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
    """The cell of each centroid within the bounds: mirrored in each side, they close their own cells.

    Distances are measured in the ranges of the bounds, as the archive does.
    """
    low, high = bounds.T
    unit = (centroids - low) / (high - low)
    mirrored = [unit]
    for axis in (0, 1):
        for side in (0, 1):
            reflection = unit.copy()
            reflection[:, axis] = 2 * side - reflection[:, axis]
            mirrored.append(reflection)
    diagram = Voronoi(np.concatenate(mirrored))
    regions = [diagram.regions[diagram.point_region[index]] for index in range(len(unit))]
    return [low + (high - low) * diagram.vertices[region] for region in regions]


def _voronoi(axes: Axes, content: Map, norm: Normalize) -> None:
    values = content.by_cell()
    colours = ScalarMappable(norm, content.colours).to_rgba(values)
    colours[np.isnan(values)] = to_rgba(EMPTY)
    polygons = voronoi_polygons(content.archive.centroids, content.archive.bounds)
    axes.add_collection(PolyCollection(polygons, facecolors=colours, edgecolors="white", linewidths=0.2))
    (x_low, x_high), (y_low, y_high) = content.archive.bounds
    axes.set(
        xlim=(x_low, x_high),
        ylim=(y_low, y_high),
        xlabel=content.label(0),
        ylabel=content.label(1),
    )
    axes.set_aspect((x_high - x_low) / (y_high - y_low))


def _nested(axes: Axes, content: Map, norm: Normalize) -> None:
    """Dimensions 1 and 2 place a block, 3 and 4 a square in it; each square shows the first elite in it."""
    dimensions = min(content.dimensions, 4)
    shape = [NESTED] * dimensions
    if not content.binned:
        shape = [int(count) for count in content.archive.grid]
    low, high = content.archive.bounds[:dimensions].T
    there = np.isfinite(content.values)
    places = ((content.descriptor[there, :dimensions] - low) / (high - low) * shape).astype(int)
    places = np.clip(places, 0, np.array(shape) - 1)
    first = np.full(shape, np.nan)
    first[tuple(places[::-1].T)] = content.values[there][::-1]  # of several, the last one written stays
    if dimensions == 3:
        first, shape = first[..., None], [*shape, 1]
    outer_x, outer_y, inner_x, inner_y = shape
    image = first.transpose(1, 3, 0, 2).reshape(outer_y * inner_y, outer_x * inner_x)
    axes.set_facecolor(EMPTY)
    axes.imshow(
        image, origin="lower", cmap=content.colours, norm=norm, interpolation="nearest", aspect="auto"
    )
    for block in range(1, outer_x):
        axes.axvline(block * inner_x - 0.5, color="white", linewidth=2)
    for block in range(1, outer_y):
        axes.axhline(block * inner_y - 0.5, color="white", linewidth=2)
    ticks = [
        [f"{low[axis] + (high[axis] - low[axis]) * (i + 0.5) / count:.2f}" for i in range(count)]
        for axis, count in enumerate((outer_x, outer_y))
    ]
    axes.set_xticks((np.arange(outer_x) + 0.5) * inner_x - 0.5, ticks[0])
    axes.set_yticks((np.arange(outer_y) + 0.5) * inner_y - 0.5, ticks[1])
    inner = [content.name(dimension) for dimension in range(2, dimensions)]
    axes.set_xlabel(f"{content.label(0)}; within a block: {inner[0]}")
    axes.set_ylabel(content.label(1) + (f"; within a block: {inner[1]}" if len(inner) > 1 else ""))
