"""Figures of one run. Drawn without a display and without matplotlib's global state."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from elites.errors import ElitesError, require
from elites.metrics.metric import (
    Quantity,
    compute_archive_metrics,
    compute_archive_profile,
    format_metrics,
    load_archive_metrics,
)
from elites.reports.contents import make_corrected_map, make_correction_maps, select_content
from elites.reports.maps import (
    BINS,
    MARGIN,
    Map,
    add_colour_bar,
    draw_map,
    find_figure,
    make_category_patches,
    make_common_scale,
)
from elites.reports.parallel import draw_lines, select_shown_elites
from elites.reports.plain import plain_text
from elites.reports.scales import Scale, make_scale
from elites.reports.style import Colour, Style
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive
from elites.text import shorten

Place = Literal["best", "upper right"]  # of a legend
ORIGINAL_COLOUR, CORRECTED_COLOUR = "#0072b2", "#d55e00"
DPI = 150
FLAT, SQUARE, WIDE = (9.0, 4.2), (6.7, 5.6), (9.0, 4.8)  # inches
TITLE = 10  # points
LETTER = 0.7  # mean width of a letter, relative to the font size, with a margin beside the axes


@plain_text()
def draw_archive(
    archive: SavedArchive | CorrectedArchive,
    path: Path | str | None = None,
    *,
    ax: Axes | None = None,
    colour: Colour = "fitness",
    limits: tuple[float, float] | None = None,
    percentiles: tuple[float, float] | None = None,
    cmap: str | None = None,
    size: tuple[float, float] | None = None,
    corrected: CorrectedArchive | None = None,
) -> Figure:
    """Elites over descriptor space: a profile in one dimension, a Voronoi map in two, a nested grid in more.

    In one dimension the values are along the vertical axis: bars up to the highest of a bin of cells, with
    the quartiles and the median. Operators are shown by the number of their elites.

    Args:
        archive: the elites; of a corrected archive, by their mean fitness, those that it keeps.
        path: file to write: PNG, PDF, SVG or another format of matplotlib.
        ax: your own axes, instead of a new figure.
        colour: "fitness", or "operator" or "generation" that found an elite; with `corrected` also "spread"
            (standard deviation of fitness over replications), "loss" (of fitness) or "own-cell" (share of
            replications in the elite's own cell).
        limits: values at the ends of the colours; by default the lowest and the highest one or, where single
            values lie far beyond the others, percentiles 2 and 98. The colour bar says so.
        percentiles: percentiles at the ends of the colours, instead of limits.
        cmap: colour map of matplotlib.
        size: width and height of a new figure in inches.
        corrected: the corrected archive of these elites.
    """
    style = Style(colour=colour, limits=limits, percentiles=percentiles, cmap=cmap, size=size)
    content = select_content(archive, style, corrected)
    require_elites(content.values)
    figure, axes = _new_axes(path, ax, style.size or choose_size(content))
    scale = make_common_scale([content], style)
    draw_content(axes, archive, content, scale)
    add_key(axes, [content], scale)
    return _save_figure(figure, path)


def choose_size(content: Map) -> tuple[float, float]:
    """The size of a picture in inches, unless another is given."""
    return FLAT if content.dimensions == 1 else SQUARE


def draw_content(
    axes: Axes,
    archive: SavedArchive | CorrectedArchive,
    content: Map,
    scale: Scale,
    *,
    legend: Place = "best",
) -> None:
    """A map with its title. `legend` is the place of the legend that a profile has."""
    draw_map(axes, content, scale)
    bins = [BINS] if content.binned else []
    _set_title(axes, [archive.title, format_metrics(archive.metrics), *bins])
    _add_legend(axes, content, legend)


def _add_legend(axes: Axes, content: Map, place: Place = "best") -> None:
    if content.categories:
        axes.legend(
            handles=make_category_patches(content),
            title="elites found by",
            loc="upper left",
            bbox_to_anchor=(1.01, 1),
            borderaxespad=0,
            fontsize=9,
            frameon=False,
        )
    elif content.dimensions == 1 and axes.patches:
        axes.legend(loc=place, fontsize=8, framealpha=0.7)


def add_key(axes: Axes, contents: Sequence[Map], scale: Scale) -> None:
    """A colour bar for contents of one kind, where colours need one."""
    if contents[0].dimensions > 1 and not contents[0].categories:
        add_colour_bar(axes, contents, scale, pad=0.02)


@plain_text()
def draw_parallel(
    archive: SavedArchive,
    path: Path | str | None = None,
    *,
    ax: Axes | None = None,
    colour: Colour = "fitness",
    limits: tuple[float, float] | None = None,
    percentiles: tuple[float, float] | None = None,
    cmap: str | None = None,
    size: tuple[float, float] | None = None,
    corrected: CorrectedArchive | None = None,
) -> Figure:
    """Elites as lines across parallel axes: one for each dimension of the descriptor and one for fitness.

    The arguments are those of `draw_archive`.
    """
    style = Style(colour=colour, limits=limits, percentiles=percentiles, cmap=cmap, size=size)
    require_elites(archive.fitness)
    content = select_content(archive, style, corrected)
    figure, axes = _new_axes(path, ax, style.size or WIDE)
    scale = make_common_scale([content], style)
    heights = scale if style.colour == "fitness" else make_scale([archive.fitness])
    draw_lines(axes, content, scale, archive.fitness, heights)
    shown, count = len(select_shown_elites(len(archive.cell))), len(archive.cell)
    subset = f"{shown:,} of {count:,} elites, from the best to the worst at even steps"
    _set_title(axes, [archive.title, subset if shown < count else f"{count:,} elites"], pad=18)
    _add_legend(axes, content)
    add_key(axes, [content], scale)
    return _save_figure(figure, path)


@plain_text()
def draw_profile(
    archive: SavedArchive,
    path: Path | str | None = None,
    *,
    ax: Axes | None = None,
    corrected: CorrectedArchive | None = None,
) -> Figure:
    """The archive profile: how many elites reach at least a fitness; of a corrected archive too, if given."""
    require_elites(archive.fitness)
    curves = {"recorded": archive.fitness}
    if corrected is not None and corrected.kept.any():
        curves["corrected (means of replications)"] = corrected.mean_fitness[corrected.kept]
    figure, axes = _new_axes(path, ax, (6.4, 4.0))
    scale, cells = make_scale(list(curves.values())), len(archive.centroids)
    (low, high), note = scale.ends, scale.out_of_range(*curves.values()).note
    left, right = low - MARGIN * (high - low), high + MARGIN * (high - low)
    looks = ((ORIGINAL_COLOUR, "-"), (CORRECTED_COLOUR, "--"))
    for (label, fitness), (colour, line) in zip(curves.items(), looks, strict=False):
        levels, counts = compute_archive_profile(fitness)
        axes.plot(
            [min(left, levels[0]), *levels, levels[-1]],
            [counts[0], *counts, 0],
            drawstyle="steps-pre",
            color=colour,
            linestyle=line,
            label=label,
        )
    axes.set(
        xlim=(left, right),
        ylim=(0, 1.05 * len(archive.fitness)),
        xlabel=f"fitness ({note})" if note else "fitness",
        ylabel="elites with at least this fitness",
    )
    functions: Any = (lambda count: count / cells, lambda part: part * cells)
    share = axes.secondary_yaxis("right", functions=functions)
    share.set_ylabel(f"share of {cells:,} cells")
    share.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend(fontsize=8)
    _set_title(axes, [archive.title, format_metrics(archive.metrics)])
    return _save_figure(figure, path)


@plain_text()
def draw_corrected(
    corrected: CorrectedArchive,
    path: Path | str | None = None,
    *,
    limits: tuple[float, float] | None = None,
    percentiles: tuple[float, float] | None = None,
    cmap: str | None = None,
    metric_paths: Sequence[str] = (),
) -> Figure:
    """The original archive and the corrected one side by side, on one scale, with the losses.

    `metric_paths` are the import paths of metrics that the run's record names. The other arguments are those
    of `draw_archive`.
    """
    style = Style(limits=limits, percentiles=percentiles, cmap=cmap)
    require_elites(corrected.cell)
    original = compute_archive_metrics(
        corrected.original_fitness, len(corrected.centroids), corrected.about["task"]["qd_offset"]
    )
    maps = [
        Map(corrected.original_fitness, corrected.cell, corrected.original_descriptor, corrected, "fitness"),
        make_corrected_map(corrected),
    ]
    if cmap is not None:
        maps = [content._replace(colours=cmap) for content in maps]
    scale = make_common_scale(maps, style)
    figure, panels = _make_panels(maps)
    titles = f"original: {format_metrics(original)}", f"corrected: {format_metrics(corrected.metrics)}"
    for axes, content, title in zip(panels, maps, titles, strict=True):
        draw_map(axes, content, scale)
        axes.set_title(title, fontsize=TITLE)
        _add_legend(axes, content)
    if maps[0].dimensions > 1:
        add_colour_bar(panels, maps, scale, pad=0.02, shrink=_shrink(maps[0]))
    losses = (
        (metric.loss, corrected.compare_metric(metric)[2]) for metric in load_archive_metrics(metric_paths)
    )
    text = ", ".join(f"{shorten(loss.label)} {loss.format_value(value)}" for loss, value in losses)
    lines = [f"{corrected.title}, {corrected.about['replications']} replications per elite", text]
    widest = int(72 * figure.get_figwidth() / (LETTER * TITLE))
    figure.suptitle("\n".join(textwrap.fill(line, widest) for line in lines), fontsize=11)
    return _save_figure(figure, path)


@plain_text()
def draw_spread(corrected: CorrectedArchive, path: Path | str | None = None) -> Figure:
    """Maps of the spread of each elite's replications; bright elites are reproducible."""
    require_elites(corrected.cell)
    by_colour = make_correction_maps(corrected)
    maps = [by_colour[name] for name in ("own-cell", "spread", "descriptor-spread")]
    figure, panels = _make_panels(maps)
    for axes, content in zip(panels, maps, strict=True):
        scale = make_common_scale([content])
        draw_map(axes, content, scale)
        middle = np.nanmedian(content.values) if np.isfinite(content.values).any() else np.nan
        axes.set_title(f"{content.quantity}, median {middle:.3g}", fontsize=TITLE)
        _add_legend(axes, content)
        if content.dimensions > 1:
            add_colour_bar(axes, [content], scale, pad=0.02, shrink=_shrink(content))
    title = f"{corrected.title}: spread of {corrected.about['replications']} replications of each elite"
    bright = "\n(bright: reproducible)" if maps[0].dimensions > 1 else ""
    figure.suptitle(f"{title}{bright}", fontsize=11)
    return _save_figure(figure, path)


def _make_panels(maps: Sequence[Map]) -> tuple[Figure, Sequence[Axes]]:
    """A figure with the maps side by side, or one above the other if they are profiles, which are wide."""
    count = len(maps)
    if maps[0].dimensions == 1:
        figure = Figure(figsize=(9, 0.6 + 3.2 * count), layout="constrained")
        return figure, figure.subplots(count, 1).ravel()
    figure = Figure(figsize=(5.5 * count, 5.6), layout="constrained")
    return figure, figure.subplots(1, count).ravel()


def _shrink(content: Map) -> float:
    """The relative length of a colour bar; a map of two dimensions is square."""
    return 0.82 if content.dimensions == 2 else 1.0


def _new_axes(path: Path | str | None, ax: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Axes to draw in: those of the user, else of a new figure."""
    if ax is None:
        figure = Figure(figsize=size, layout="constrained")
        return figure, figure.add_subplot()
    if path is not None:
        raise ElitesError("path and ax cannot be combined; save the figure of your axes yourself")
    return find_figure(ax), ax


def _save_figure(figure: Figure, path: Path | str | None) -> Figure:
    """The figure, written to the path if there is one."""
    if path is not None:
        formats, ending = figure.canvas.get_supported_filetypes(), Path(path).suffix.lower().lstrip(".")
        require(ending in formats, "path", path, "a file that ends in .png, .pdf or .svg")
        figure.savefig(path, dpi=DPI)
    return figure


def _set_title(axes: Axes, lines: Sequence[str], pad: float | None = None) -> None:
    """The lines as a title, broken where they would be wider than the figure, or its column."""
    place = axes.get_subplotspec()
    columns = 1 if place is None else place.get_gridspec().ncols
    widest = int(72 * find_figure(axes).get_figwidth() / columns / (LETTER * TITLE))
    axes.set_title("\n".join(textwrap.fill(line, widest) for line in lines), fontsize=TITLE, pad=pad)


def require_elites(elites: np.ndarray) -> None:
    """Raises an error if there are none."""
    if not len(elites):
        raise ElitesError("the archive is empty: there is nothing to draw")


def format_axis(axes: Axes, quantity: Quantity) -> None:
    """Formats the y-axis for a quantity: shares in percent, large numbers with a prefix."""
    if quantity.format.endswith("%"):
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    elif quantity.format == ",.0f":
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
