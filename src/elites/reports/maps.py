"""Values over descriptor space: a profile in one dimension, a Voronoi map in two, a nested grid in more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy.spatial import Voronoi

from elites.reports.bins import Bins, bin_values, count_by_bin
from elites.reports.colours import operator_colours
from elites.reports.plain import legend_label
from elites.reports.scales import Fixed, Scale, make_scale
from elites.reports.style import Style
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive
from elites.text import shorten

EMPTY = "#e8e8e8"
NESTED = 6  # cells per dimension of a nested grid, unless the archive is a grid itself
STRIP = (0.0, 1.04, 1.0, 0.18)  # position of the numbers of elites above a profile, relative to its axes
MARGIN = 0.04  # of the range of an axis of values, at both ends
PLAIN = 0.5  # position of a profile's colour in the colour map


BINS = "squares are bins of descriptor space, each with its best elite"  # if they are not cells


class Map(NamedTuple):
    """Values of elites `[n]`, best first, and their cells. NaN is drawn as an empty cell.

    Values of `categories` are their indices.
    """

    values: np.ndarray
    cell: np.ndarray
    descriptor: np.ndarray
    archive: SavedArchive | CorrectedArchive
    quantity: str
    colours: str = "viridis"
    fixed: Fixed = (None, None)
    categories: tuple[str, ...] = ()

    @property
    def dimensions(self) -> int:
        return int(self.archive.centroids.shape[1])

    @property
    def binned(self) -> bool:
        """Whether its squares are bins, which may hold several cells' elites."""
        return self.dimensions > 2 and len(self.archive.grid) != min(self.dimensions, 4)

    @property
    def cmap(self) -> Colormap:
        """Colours of the values."""
        if self.categories:
            return ListedColormap(list(operator_colours(self.categories).values()))
        return colormaps[self.colours]

    def by_cell(self) -> np.ndarray:
        """The value of each cell, NaN where there is none."""
        values = np.full(len(self.archive.centroids), np.nan)
        values[self.cell] = self.values
        return values

    def bins(self) -> Bins:
        """The values along the only dimension."""
        return bin_values(self.archive.centroids[:, 0], self.archive.bounds[0], self.cell, self.values)

    def name(self, dimension: int) -> str:
        names = self.archive.about["task"]["descriptor_names"]
        return shorten(str(names[dimension]).replace("_", " "))

    def label(self, dimension: int) -> str:
        """The label of an axis; descriptors of archives without a phrase are contacts."""
        phrase: str = self.archive.about["task"].get("descriptor_phrase", "contact of {}")
        return phrase.replace("{}", self.name(dimension))


def make_common_scale(maps: Sequence[Map], style: Style | None = None) -> Scale:
    """The scale of all maps."""
    first = maps[0]
    if first.categories:
        count = len(first.categories)
        return Scale(BoundaryNorm(np.arange(count + 1) - 0.5, count))
    return make_scale([content.values for content in maps], style, first.fixed)


def draw_map(axes: Axes, content: Map, scale: Scale) -> None:
    """Draws a map without a colour bar or legend."""
    one = _draw_stacked_bars if content.categories else _draw_profile
    draw = {1: one, 2: _draw_voronoi}.get(content.dimensions, _draw_nested_grid)
    draw(axes, content, scale)


def add_colour_bar(axes: Axes | Sequence[Axes], maps: Sequence[Map], scale: Scale, **options: Any) -> None:
    """A colour bar of maps on one scale, with a note on values beyond its ends."""
    first = axes if isinstance(axes, Axes) else axes[0]
    sides, note = scale.out_of_range(*(content.values for content in maps))
    label = f"{maps[0].quantity}\n({note})" if note else maps[0].quantity
    find_figure(first).colorbar(
        ScalarMappable(scale.norm, maps[0].cmap), ax=axes, label=label, extend=sides, **options
    )


def find_figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def make_category_patches(content: Map) -> list[Patch]:
    """Entries of a legend: categories and how many elites each has."""
    counts = np.bincount(content.values.astype(int), minlength=len(content.categories))
    colours = operator_colours(content.categories)
    return [
        Patch(color=colours[name], label=f"{legend_label(name)}: {count:,}")
        for name, count in zip(content.categories, counts, strict=True)
    ]


def _draw_profile(axes: Axes, content: Map, scale: Scale) -> None:
    """Bars up to the highest value of a bin, its quartiles and its median; above, its number of elites."""
    bins, (low, high) = content.bins(), scale.ends
    margin = MARGIN * (high - low)
    bottom, top = low - margin, high + margin
    colour = content.cmap(PLAIN)
    if bins.elites.any():
        highest, upper, median, lower = np.clip(
            (bins.highest, bins.upper, bins.median, bins.lower), bottom, top
        )
        style: dict[str, Any] = {"edges": bins.edges, "color": colour, "fill": True}
        axes.stairs(highest, baseline=bottom, alpha=0.3, label="highest", **style)
        axes.stairs(upper, baseline=lower, alpha=0.7, label="quartiles", **style)
        axes.stairs(median, bins.edges, baseline=None, color="#222222", linewidth=1.2, label="median")
    axes.set(
        xlim=content.archive.bounds[0],
        ylim=(bottom, top),
        xlabel=content.label(0),
        ylabel=content.quantity,
    )
    if note := scale.out_of_range(content.values).note:
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
        axes.text(0.01, 0.96, note, transform=axes.transAxes, fontsize=7, va="top", bbox=box)
    strip = axes.inset_axes(STRIP)
    strip.stairs(bins.cells, bins.edges, color=EMPTY, fill=True)
    strip.stairs(bins.elites, bins.edges, color=colour, fill=True)
    most = int(bins.cells.max())
    strip.set(xlim=content.archive.bounds[0], ylim=(0, most), yticks=[0, most])
    strip.tick_params(bottom=False, labelbottom=False, labelsize=8)
    strip.set_ylabel(f"elites in\n{bins.size}", fontsize=8, rotation=0, ha="right", va="center")


def _draw_stacked_bars(axes: Axes, content: Map, scale: Scale) -> None:
    """Elites of each category in a bin, stacked."""
    bins, archive = content.bins(), content.archive
    counts = count_by_bin(
        archive.centroids[:, 0],
        archive.bounds[0],
        content.cell,
        content.values.astype(int),
        len(content.categories),
    )
    axes.stairs(bins.cells, bins.edges, color=EMPTY, fill=True)
    below = np.zeros(len(bins.cells), int)
    for row, colour in zip(counts, operator_colours(content.categories).values(), strict=True):
        axes.stairs(below + row, bins.edges, baseline=below, color=colour, fill=True)
        below = below + row
    axes.set(
        xlim=archive.bounds[0],
        ylim=(0, int(bins.cells.max())),
        xlabel=content.label(0),
        ylabel=f"elites in {bins.size}",
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def compute_voronoi_polygons(centroids: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
    """The Voronoi cell of each centroid. Centroids mirrored at each bound close the cells there.

    Distances are relative to the ranges of the bounds, as in the archive.
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


def _draw_voronoi(axes: Axes, content: Map, scale: Scale) -> None:
    values = content.by_cell()
    colours = ScalarMappable(scale.norm, content.cmap).to_rgba(values)
    colours[np.isnan(values)] = to_rgba(EMPTY)
    polygons = compute_voronoi_polygons(content.archive.centroids, content.archive.bounds)
    axes.add_collection(PolyCollection(polygons, facecolors=colours, edgecolors="white", linewidths=0.2))
    (x_low, x_high), (y_low, y_high) = content.archive.bounds
    axes.set(
        xlim=(x_low, x_high),
        ylim=(y_low, y_high),
        xlabel=content.label(0),
        ylabel=content.label(1),
    )
    axes.set_aspect((x_high - x_low) / (y_high - y_low))


def _draw_nested_grid(axes: Axes, content: Map, scale: Scale) -> None:
    """Dimensions 1 and 2 place a block, 3 and 4 a square in it; each square shows the first elite in it."""
    dimensions = min(content.dimensions, 4)
    shape = [NESTED] * dimensions
    if not content.binned:
        shape = [int(count) for count in content.archive.grid]
    low, high = content.archive.bounds[:dimensions].T
    finite = np.isfinite(content.values)
    places = ((content.descriptor[finite, :dimensions] - low) / (high - low) * shape).astype(int)
    places = np.clip(places, 0, np.array(shape) - 1)
    first = np.full(shape, np.nan)
    first[tuple(places[::-1].T)] = content.values[finite][::-1]  # if there are several, the first elite stays
    if dimensions == 3:
        first, shape = first[..., None], [*shape, 1]
    outer_x, outer_y, inner_x, inner_y = shape
    image = first.transpose(1, 3, 0, 2).reshape(outer_y * inner_y, outer_x * inner_x)
    axes.set_facecolor(EMPTY)
    axes.imshow(
        image, origin="lower", cmap=content.cmap, norm=scale.norm, interpolation="nearest", aspect="auto"
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
