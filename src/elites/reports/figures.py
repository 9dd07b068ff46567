"""Figures of one run. Drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from elites.errors import ElitesError
from elites.metrics.archive import archive_metrics, summary
from elites.metrics.contribution import added, rows_of, smoothed, window
from elites.metrics.metric import METRICS, Quantity, metric_of
from elites.reports.colours import OPERATORS, OTHERS
from elites.reports.maps import BINS, Map, draw_map, scale
from elites.reports.plain import legend_label, plain_text
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive
from elites.results.tables import metric_names
from elites.text import MOST_SHOWN, shortened

CORRECTED_COLOUR = "#d55e00"
DPI = 150


@plain_text()
def draw_archive(archive: SavedArchive, path: Path | str, limits: tuple[float, float] | None = None) -> None:
    """Fitness over descriptor space: bars in one dimension, a Voronoi map in two, a nested grid in more."""
    if not len(archive.fitness):
        raise ElitesError("the archive is empty: there is nothing to draw")
    drawn = Map(archive.fitness, archive.cell, archive.descriptor, archive, "fitness")
    norm = Normalize(*limits) if limits else scale(archive.fitness)
    figure = Figure(figsize=(9, 3.2) if drawn.dimensions == 1 else (6.4, 5.6), layout="constrained")
    axes = figure.add_subplot()
    draw_map(axes, drawn, norm)
    figure.colorbar(ScalarMappable(norm, drawn.colours), ax=axes, label="fitness", pad=0.02)
    bins = f"\n{BINS}" if drawn.binned else ""
    axes.set_title(f"{_title(archive)}\n{summary(archive.metrics)}{bins}", fontsize=10)
    figure.savefig(path, dpi=DPI)


@plain_text()
def draw_corrected(corrected: CorrectedArchive, path: Path) -> None:
    """The original archive and the corrected one side by side, on one colour scale."""
    _require_elites(corrected)
    kept, offset = np.flatnonzero(corrected.kept), corrected.about["task"]["qd_offset"]
    kept = kept[np.argsort(-corrected.mean_fitness[kept], kind="stable")]
    original = archive_metrics(corrected.original_fitness, len(corrected.centroids), offset)
    maps = [
        Map(corrected.original_fitness, corrected.cell, corrected.original_descriptor, corrected, "fitness"),
        Map(
            corrected.mean_fitness[kept],
            corrected.mean_cell[kept],
            corrected.mean_descriptor[kept],
            corrected,
            "mean fitness",
        ),
    ]
    norm = scale(np.concatenate([drawn.values for drawn in maps]))
    figure, panels = _panels(maps)
    titles = f"original: {summary(original)}", f"corrected: {summary(corrected.metrics)}"
    for axes, drawn, title in zip(panels, maps, titles, strict=True):
        draw_map(axes, drawn, norm)
        axes.set_title(title, fontsize=10)
    colours = ScalarMappable(norm, maps[0].colours)
    figure.colorbar(colours, ax=list(panels), label="fitness", pad=0.02, shrink=_shrink(maps[0]))
    losses = zip((metric.loss for metric in METRICS), corrected.losses, strict=True)
    figure.suptitle(
        f"{_title(corrected)}, {corrected.about['replications']} replications per elite\n"
        + ", ".join(f"{loss.label} {loss.text(value)}" for loss, value in losses),
        fontsize=11,
    )
    figure.savefig(path, dpi=DPI)


@plain_text()
def draw_spread(corrected: CorrectedArchive, path: Path) -> None:
    """Maps of the spread of each elite's replications; bright elites are reproducible."""
    _require_elites(corrected)
    spread, cell, descriptor = corrected.spread(), corrected.cell, corrected.original_descriptor
    maps = [
        Map(spread.own_cell, cell, descriptor, corrected, "share in own cell"),
        Map(spread.fitness, cell, descriptor, corrected, "deviation of fitness", "viridis_r"),
        Map(spread.descriptor, cell, descriptor, corrected, "deviation of descriptor", "viridis_r"),
    ]
    figure, panels = _panels(maps)
    for axes, drawn in zip(panels, maps, strict=True):
        norm = Normalize(0, 1) if drawn.values is spread.own_cell else scale(np.append(drawn.values, 0))
        draw_map(axes, drawn, norm)
        middle = np.nanmedian(drawn.values) if np.isfinite(drawn.values).any() else np.nan
        axes.set_title(f"{drawn.quantity}, median {middle:.3g}", fontsize=10)
        figure.colorbar(ScalarMappable(norm, drawn.colours), ax=axes, pad=0.02, shrink=_shrink(drawn))
    figure.suptitle(
        f"{_title(corrected)}: spread of {corrected.about['replications']} replications of each elite\n"
        "(bright: reproducible)",
        fontsize=11,
    )
    figure.savefig(path, dpi=DPI)


def _panels(maps: Sequence[Map]) -> tuple[Figure, Sequence[Axes]]:
    """Side by side; bars, which are wide, one above the other."""
    count = len(maps)
    if maps[0].dimensions == 1:
        figure = Figure(figsize=(9, 0.6 + 2.6 * count), layout="constrained")
        return figure, figure.subplots(count, 1).ravel()
    figure = Figure(figsize=(5.5 * count, 5.6), layout="constrained")
    return figure, figure.subplots(1, count).ravel()


def _shrink(drawn: Map) -> float:
    """The relative length of a colour bar; a map of two dimensions is square."""
    return 0.82 if drawn.dimensions == 2 else 1.0


def _require_elites(corrected: CorrectedArchive) -> None:
    if not len(corrected.cell):
        raise ElitesError("the archive is empty: there is nothing to draw")


def _title(archive: SavedArchive | CorrectedArchive) -> str:
    about = archive.about
    algorithm, task = shortened(about["algorithm"]), shortened(about["task"]["name"])
    return f"{algorithm} on {task}, {about['evaluations']:,} evaluations"


def format_axis(axes: Axes, quantity: Quantity) -> None:
    """Formats the y-axis as the quantity is: shares in percent, large numbers with a prefix."""
    if quantity.format.endswith("%"):
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    elif quantity.format == ",.0f":
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


@plain_text()
def draw_progress(
    metrics: Mapping[str, np.ndarray],
    path: Path,
    title: str,
    corrections: Mapping[str, np.ndarray] | None = None,
    metric_paths: Sequence[str] = (),
) -> None:
    """Every metric, and the offspring added by each operator, against evaluations.

    `metrics` are the columns of the run's metrics, `corrections` those of its corrections, if there are any,
    and `metric_paths` the import paths of metrics that its record names.
    """
    if not len(metrics["evaluations"]):
        raise ElitesError("no generation has been logged: there is nothing to draw")
    names = metric_names(metrics)
    rows = len(names) // 2 + 1  # of two panels, one of them for the operators
    figure = Figure(figsize=(9, 3.2 * rows), layout="constrained")
    figure.suptitle(shortened(title, 2 * MOST_SHOWN), fontsize=11)
    panels = figure.subplots(rows, 2).ravel()
    evaluations = metrics["evaluations"]
    for axes, name in zip(panels, names, strict=False):
        axes.plot(evaluations, metrics[name], color="#0072b2", label="original")
        if corrections is not None and name in corrections and len(corrections["evaluations"]):
            style = {"color": CORRECTED_COLOUR, "linestyle": "--", "marker": ".", "label": "corrected"}
            axes.plot(corrections["evaluations"], corrections[name], **style)
            axes.legend(fontsize=8)
        metric = metric_of(name, metric_paths)
        axes.set(xlabel="evaluations", ylabel=shortened(metric.label))
        format_axis(axes, metric)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
    _contribution(panels[len(names)], metrics)
    for axes in panels[len(names) + 1 :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=DPI)


def _contribution(axes: Axes, metrics: Mapping[str, np.ndarray]) -> None:
    """Offspring added per generation, stacked and smoothed."""
    by_operator, over = added(metrics), window(int(metrics["generation"][-1]))
    rows = rows_of(over, metrics["generation"])
    others = cycle(OTHERS)
    axes.stackplot(
        metrics["evaluations"],
        [smoothed(row, rows) for row in by_operator.values()],
        labels=[legend_label(name) for name in by_operator],
        colors=[OPERATORS.get(name) or next(others) for name in by_operator],
    )
    mean = f"\n(mean of {over} generations)" if over > 1 else ""
    axes.set(xlabel="evaluations", ylabel=f"added per generation{mean}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(loc="upper right", fontsize=8)
