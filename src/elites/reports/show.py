"""The summary and the figures of a run. Its folder is enough: no algorithm or task has to be installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from elites.errors import ElitesError
from elites.files import convert_os_errors
from elites.metrics.contribution import choose_window, count_added, count_rows, smooth
from elites.metrics.metric import METRICS, find_metric
from elites.options import convert_value
from elites.reports.colours import operator_colours
from elites.reports.corrections import find_correction
from elites.reports.figures import (
    CORRECTED_COLOUR,
    DPI,
    ORIGINAL_COLOUR,
    draw_archive,
    draw_corrected,
    draw_parallel,
    draw_profile,
    draw_spread,
    format_axis,
)
from elites.reports.plain import legend_label, plain_text
from elites.reports.style import CORRECTION_COLOURS, Colour, Format, Style
from elites.reports.tables import make_losses_table, make_reproducibility_tables
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive
from elites.results.folder import RunFolder
from elites.results.schemas import OPTIONAL, RunRecord
from elites.results.tables import metric_names
from elites.text import MAX_SHOWN_LENGTH, make_printable, shorten


def show(
    folder: Path | str,
    *,
    colour: Colour = "fitness",
    limits: tuple[float, float] | None = None,
    percentiles: tuple[float, float] | None = None,
    cmap: str | None = None,
    size: tuple[float, float] | None = None,
    format: Format = "png",
) -> str:
    """Draws the archive and the progress of a run into its folder. Returns the summary as text.

    In addition to its map, an archive has its profile (how many elites reach at least a fitness) and, with
    more than two dimensions, lines across parallel axes. If it was corrected, draws the corrected one and its
    spread too, and lists the most reproducible and the luckiest elites.

    Args:
        folder: folder of the run.
        colour: what gives an elite its colour; see `draw_archive`, also for the next four.
        limits: values at the ends of the colours.
        percentiles: percentiles at the ends of the colours, instead of limits.
        cmap: colour map of matplotlib.
        size: width and height of the archive's picture in inches.
        format: "png", "pdf" or "svg".
    """
    style = Style(colour=colour, limits=limits, percentiles=percentiles, cmap=cmap, size=size)
    convert_value(Format, "format", format)
    run = RunFolder(folder)
    record, archive, metrics, corrected, problem, drawn = draw_run(run, style, format)
    rows = {
        "evaluations": f"{archive.about['evaluations']:,} of {record.evaluations:,}",
        **_make_metric_rows(record, archive, metrics),
        "cells": f"{len(archive.fitness)} of {len(archive.centroids)} are filled",
    }
    if record.start is not None:
        rows["began with"] = f"{record.start.elites:,} elites of {shorten(record.start.archive)}"
    if len(archive.fitness):
        rows |= _make_elite_rows(archive)
    pictures = [drawn[name] for name in ("archive", "parallel", "profile") if name in drawn]
    rows["archive"] = f"{run.archive}, drawn in {_join_paths(pictures)}"
    rows["progress"] = f"{run.metrics}, drawn in {drawn['progress']}"
    if corrected is not None:
        rows["corrected"] = (
            f"{run.corrected_path()}, drawn in {_join_paths([drawn['corrected'], drawn['spread']])}"
        )
    elif problem:
        rows["corrected"] = problem
    tables = (
        []
        if corrected is None
        else [make_losses_table(corrected, record.metrics), make_reproducibility_tables(corrected)]
    )
    width = max(map(len, rows)) + 1
    lines = [record.title, *(f"  {name:<{width}} {text}" for name, text in rows.items())]
    return "\n".join([*map(make_printable, lines), *tables])


class DrawnRun(NamedTuple):
    """The contents of a run's folder that were drawn, and the paths of the figures by name."""

    record: RunRecord
    archive: SavedArchive
    metrics: dict[str, np.ndarray]
    corrected: CorrectedArchive | None
    problem: str  # why a corrected archive is not drawn; empty if there is none
    paths: dict[str, Path]


def draw_run(run: RunFolder, style: Style, format: Format = "png") -> DrawnRun:
    """Reads the metrics and the archive of a run and draws them into its folder."""
    record, archive, metrics = run.read_record(), run.read_archive(), run.read_metrics()
    corrected, problem = find_correction(run, archive)
    if style.colour in CORRECTION_COLOURS and corrected is None:
        raise ElitesError(
            f"colour {style.colour} needs a corrected archive: "
            + (problem or f"`elites correct {run}` makes it")
        )
    paths, fields = run.figure_paths(style.colour, format), vars(style)
    if archive.centroids.shape[1] <= 2:
        del paths["parallel"]
    with convert_os_errors(f"cannot draw into {run}"):
        draw_archive(archive, paths["archive"], corrected=corrected, **fields)
        if "parallel" in paths:
            draw_parallel(archive, paths["parallel"], corrected=corrected, **fields)
        draw_profile(archive, paths["profile"], corrected=corrected)
        draw_progress(metrics, paths["progress"], record.title, run.read_corrections(), record.metrics)
        if corrected is not None:
            scale = {name: fields[name] for name in ("limits", "percentiles", "cmap")}
            own_scale = scale if style.colour == "fitness" else {}
            draw_corrected(corrected, paths["corrected"], metric_paths=record.metrics, **own_scale)
            draw_spread(corrected, paths["spread"])
    return DrawnRun(record, archive, metrics, corrected, problem, paths)


@plain_text()
def draw_progress(
    metrics: Mapping[str, np.ndarray],
    path: Path,
    title: str,
    corrections: Mapping[str, np.ndarray] | None = None,
    metric_paths: Sequence[str] = (),
) -> None:
    """Every metric with a value, and the offspring added by each operator, against evaluations.

    `metrics` are the columns of the run's metrics, `corrections` those of its corrections, if there are any,
    and `metric_paths` the import paths of metrics that its record names.
    """
    if not len(metrics["evaluations"]):
        raise ElitesError("no generation has been logged: there is nothing to draw")
    names = metric_names(metrics)
    names += [name for name in OPTIONAL if name in metrics and np.isfinite(metrics[name]).any()]
    rows = len(names) // 2 + 1  # of two panels, one of them for the operators
    figure = Figure(figsize=(9, 3.2 * rows), layout="constrained")
    figure.suptitle(shorten(title, 2 * MAX_SHOWN_LENGTH), fontsize=11)
    panels = figure.subplots(rows, 2).ravel()
    evaluations = metrics["evaluations"]
    for axes, name in zip(panels, names, strict=False):
        axes.plot(evaluations, metrics[name], color=ORIGINAL_COLOUR, label="original")
        if corrections is not None and name in corrections and len(corrections["evaluations"]):
            style = {"color": CORRECTED_COLOUR, "linestyle": "--", "marker": ".", "label": "corrected"}
            axes.plot(corrections["evaluations"], corrections[name], **style)
            axes.legend(fontsize=8)
        metric = find_metric(name, metric_paths)
        axes.set(xlabel="evaluations", ylabel=shorten(metric.label))
        format_axis(axes, metric)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
    _draw_contribution(panels[len(names)], metrics)
    for axes in panels[len(names) + 1 :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=DPI)


def _draw_contribution(axes: Axes, metrics: Mapping[str, np.ndarray]) -> None:
    """Offspring added per generation, stacked and smoothed."""
    by_operator, window_size = count_added(metrics), choose_window(int(metrics["generation"][-1]))
    rows = count_rows(window_size, metrics["generation"])
    axes.stackplot(
        metrics["evaluations"],
        [smooth(row, rows) for row in by_operator.values()],
        labels=[legend_label(name) for name in by_operator],
        colors=list(operator_colours(by_operator).values()),
    )
    mean = f"\n(mean of {window_size} generations)" if window_size > 1 else ""
    axes.set(xlabel="evaluations", ylabel=f"added per generation{mean}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(loc="upper right", fontsize=8)


def _join_paths(paths: Sequence[Path]) -> str:
    *first, last = map(str, paths)
    return f"{', '.join(first)} and {last}"


def _make_metric_rows(
    record: RunRecord, archive: SavedArchive, logged: dict[str, np.ndarray]
) -> dict[str, str]:
    """Label and value of each metric; the run's own metrics as they were logged for this archive."""
    rows = {
        metric.label: metric.format_value(value)
        for metric, value in zip(METRICS, archive.metrics, strict=True)
    }
    at = np.flatnonzero(logged["evaluations"] == archive.about["evaluations"])
    for name in metric_names(logged):
        metric, values = find_metric(name, record.metrics), logged[name][at]
        if metric not in METRICS and len(values) and not np.isnan(values[-1]):
            rows[shorten(metric.label)] = metric.format_value(float(values[-1]))
    return rows


def _make_elite_rows(archive: SavedArchive) -> dict[str, str]:
    names = archive.about["task"]["descriptor_names"]
    descriptor = [
        f"{shorten(name)} {value:.2f}" for name, value in zip(names, archive.descriptor[0], strict=True)
    ]
    seeds = np.atleast_1d(archive.seed[0])
    episode = f"episode seed {seeds[0]}" if len(seeds) == 1 else f"the mean of {len(seeds)} episodes"
    operators = zip(*np.unique(archive.operator, return_counts=True), strict=True)
    return {
        "best elite": f"cell {archive.cell[0]} ({', '.join(descriptor)}), found by {archive.operator[0]} "
        f"in generation {archive.generation[0]}, {episode}",
        "elites found by": ", ".join(f"{name} {count}" for name, count in operators),
    }
