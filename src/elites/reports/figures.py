"""Figures of one run. Drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from scipy.spatial import Voronoi

from elites.archives.saved import SavedArchive
from elites.errors import ElitesError

# Okabe and Ito's colours, told apart by colour-blind readers too.
OPERATOR_COLOURS = {"random": "#999999", "ga": "#0072b2", "pg": "#e69f00", "greedy": "#009e73"}
OTHER_COLOURS = ("#cc79a7", "#d55e00", "#56b4e9", "#f0e442")
EMPTY = "#e8e8e8"
COLOURS = "viridis"
NESTED = 6  # cells per dimension of a nested grid, unless the archive is a grid itself
DPI = 150


def draw_archive(archive: SavedArchive, path: Path, limits: tuple[float, float] | None = None) -> None:
    """Fitness over descriptor space: bars in one dimension, a Voronoi map in two, a nested grid in more."""
    dimensions = archive.centroids.shape[1]
    if not len(archive.fitness):
        raise ElitesError("the archive is empty: there is nothing to draw")
    low, high = limits or (float(archive.fitness.min()), float(archive.fitness.max()))
    norm = Normalize(low, max(high, low + 1e-9))
    figure = Figure(figsize=(9, 3.2) if dimensions == 1 else (6.4, 5.6), layout="constrained")
    axes = figure.add_subplot()
    if dimensions == 1:
        _bars(axes, archive, norm)
    elif dimensions == 2:
        _voronoi(axes, archive, norm)
    else:
        _nested(axes, archive, norm)
    colours = ScalarMappable(norm, COLOURS)
    figure.colorbar(colours, ax=axes, label="fitness", pad=0.02)
    task, metrics = archive.about["task"]["name"], archive.metrics
    axes.set_title(
        f"{archive.about['algorithm']} on {task}, {archive.about['evaluations']:,} evaluations\n"
        f"QD-score {metrics.qd_score:,.0f}, max-fitness {metrics.max_fitness:.0f}, "
        f"coverage {metrics.coverage:.1%}",
        fontsize=10,
    )
    figure.savefig(path, dpi=DPI)


def _by_cell(archive: SavedArchive) -> np.ndarray:
    """Fitness of each cell, NaN where it is empty."""
    fitness = np.full(len(archive.centroids), np.nan)
    fitness[archive.cell] = archive.fitness
    return fitness


def _label(archive: SavedArchive, dimension: int) -> str:
    return str(archive.about["task"]["descriptor_names"][dimension]).replace("_", " ")


def _bars(axes: Axes, archive: SavedArchive, norm: Normalize) -> None:
    """A bar per cell, as wide as the cell; grey below marks empty ones."""
    order = np.argsort(archive.centroids[:, 0])
    centroids, fitness = archive.centroids[order, 0], _by_cell(archive)[order]
    low, high = archive.bounds[0]
    edges = np.concatenate([[low], (centroids[1:] + centroids[:-1]) / 2, [high]])
    bottom = min(0.0, norm.vmin or 0.0)
    top = norm.vmax or 1.0
    filled = ~np.isnan(fitness)
    heights = np.where(filled, fitness, top) - bottom
    colours = ScalarMappable(norm, COLOURS).to_rgba(fitness)
    colours[~filled] = to_rgba(EMPTY)
    left, widths = edges[:-1], np.diff(edges)
    axes.bar(left, heights, widths, bottom, align="edge", color=colours, linewidth=0, antialiased=False)
    axes.set(
        xlim=(low, high), ylim=(bottom, top), xlabel=f"contact of {_label(archive, 0)}", ylabel="fitness"
    )


def voronoi_polygons(centroids: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
    """The cell of each centroid within the bounds: mirrored in each side, they close their own cells."""
    mirrored = [centroids]
    for axis in (0, 1):
        for side in bounds[axis]:
            reflection = centroids.copy()
            reflection[:, axis] = 2 * side - reflection[:, axis]
            mirrored.append(reflection)
    diagram = Voronoi(np.concatenate(mirrored))
    return [diagram.vertices[diagram.regions[diagram.point_region[index]]] for index in range(len(centroids))]


def _voronoi(axes: Axes, archive: SavedArchive, norm: Normalize) -> None:
    fitness = _by_cell(archive)
    colours = ScalarMappable(norm, COLOURS).to_rgba(fitness)
    colours[np.isnan(fitness)] = to_rgba(EMPTY)
    polygons = voronoi_polygons(archive.centroids, archive.bounds)
    axes.add_collection(PolyCollection(polygons, facecolors=colours, edgecolors="white", linewidths=0.2))
    (x_low, x_high), (y_low, y_high) = archive.bounds
    axes.set(
        xlim=(x_low, x_high),
        ylim=(y_low, y_high),
        xlabel=f"contact of {_label(archive, 0)}",
        ylabel=f"contact of {_label(archive, 1)}",
    )
    axes.set_aspect((x_high - x_low) / (y_high - y_low))


def _nested(axes: Axes, archive: SavedArchive, norm: Normalize) -> None:
    """Dimensions 1 and 2 place a block, 3 and 4 a square in it; each square shows the best elite in it."""
    dimensions = min(archive.centroids.shape[1], 4)
    shape = [NESTED] * dimensions
    if len(archive.grid) == dimensions:
        shape = [int(count) for count in archive.grid]
    low, high = archive.bounds[:dimensions].T
    places = ((archive.descriptor[:, :dimensions] - low) / (high - low) * shape).astype(int)
    places = np.clip(places, 0, np.array(shape) - 1)
    best = np.full(shape, np.nan)
    for place, fitness in zip(places, archive.fitness, strict=True):
        best[tuple(place)] = np.nanmax([best[tuple(place)], fitness])
    if dimensions == 3:
        best, shape = best[..., None], [*shape, 1]
    outer_x, outer_y, inner_x, inner_y = shape
    image = best.transpose(1, 3, 0, 2).reshape(outer_y * inner_y, outer_x * inner_x)
    axes.set_facecolor(EMPTY)
    axes.imshow(image, origin="lower", cmap=COLOURS, norm=norm, interpolation="nearest", aspect="auto")
    for block in range(1, outer_x):
        axes.axvline(block * inner_x - 0.5, color="white", linewidth=2)
    for block in range(1, outer_y):
        axes.axhline(block * inner_y - 0.5, color="white", linewidth=2)
    axes.set_xticks(
        (np.arange(outer_x) + 0.5) * inner_x - 0.5, [f"{(i + 0.5) / outer_x:.2f}" for i in range(outer_x)]
    )
    axes.set_yticks(
        (np.arange(outer_y) + 0.5) * inner_y - 0.5, [f"{(i + 0.5) / outer_y:.2f}" for i in range(outer_y)]
    )
    inner = [_label(archive, dimension) for dimension in range(2, dimensions)]
    axes.set_xlabel(f"contact of {_label(archive, 0)}; within a block: {inner[0]}")
    axes.set_ylabel(
        f"contact of {_label(archive, 1)}" + (f"; within a block: {inner[1]}" if len(inner) > 1 else "")
    )


def draw_progress(metrics: Mapping[str, np.ndarray], path: Path, title: str) -> None:
    """QD-score, max-fitness, coverage, and offspring added by operator, against evaluations."""
    if not len(metrics["evaluations"]):
        raise ElitesError("no generation has been logged: there is nothing to draw")
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels = figure.subplots(2, 2).ravel()
    evaluations = metrics["evaluations"]
    for axes, name in zip(panels, ("qd_score", "max_fitness", "coverage"), strict=False):
        axes.plot(evaluations, metrics[name], color="#0072b2")
        axes.set(xlabel="evaluations", ylabel=name.replace("_", "-").replace("qd", "QD"))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
    _contribution(panels[3], metrics)
    figure.savefig(path, dpi=DPI)


def _contribution(axes: Axes, metrics: Mapping[str, np.ndarray]) -> None:
    """Offspring added per generation, stacked, averaged over as many generations as keep it legible."""
    operators = [name.removeprefix("made_") for name in metrics if name.startswith("made_")]
    added = np.array([metrics[f"new_{name}"] + metrics[f"improved_{name}"] for name in operators])
    window = max(1, min(200, added.shape[1] // 20))
    smooth = [np.convolve(row, np.ones(window), "same") for row in added]
    smooth = np.array(smooth) / np.convolve(np.ones(added.shape[1]), np.ones(window), "same")
    others = iter(OTHER_COLOURS)
    colours = [OPERATOR_COLOURS.get(name) or next(others) for name in operators]
    axes.stackplot(metrics["evaluations"], smooth, labels=operators, colors=colours)
    mean = f"\n(mean of {window} generations)" if window > 1 else ""
    axes.set(xlabel="evaluations", ylabel=f"added per generation{mean}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(loc="upper right", fontsize=8)
