"""The summary of a run. Its folder is enough: neither the algorithm nor the task has to be installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elites.metrics.metric import METRICS, find_metric
from elites.options import converted
from elites.reports.style import Colour, Format, Style
from elites.reports.tables import losses_table, reproducibility_tables
from elites.results.archive import SavedArchive
from elites.results.folder import RunFolder
from elites.results.schemas import RunRecord
from elites.results.tables import metric_names
from elites.text import printable, shortened


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

    Beside its map, an archive has its profile (how many elites reach at least a fitness) and, with more than
    two dimensions, lines across parallel axes. If it was corrected, draws the corrected one and its spread
    too, and lists the most reproducible and the luckiest elites.

    Args:
        folder: folder of the run.
        colour: what gives an elite its colour; see `draw_archive`, also for the next four.
        limits: values at the ends of the colours.
        percentiles: percentiles at the ends of the colours, instead of limits.
        cmap: colour map of matplotlib.
        size: width and height of the archive's picture in inches.
        format: "png", "pdf" or "svg".
    """
    from elites.reports.figures import draw_run

    style = Style(colour=colour, limits=limits, percentiles=percentiles, cmap=cmap, size=size)
    converted(Format, "format", format)
    run = RunFolder(folder)
    record, archive, metrics, corrected, problem, drawn = draw_run(run, style, format)
    rows = {
        "evaluations": f"{archive.about['evaluations']:,} of {record.evaluations:,}",
        **_metric_rows(record, archive, metrics),
        "cells": f"{len(archive.fitness)} of {len(archive.centroids)} are filled",
    }
    if record.start is not None:
        rows["began with"] = f"{record.start.elites:,} elites of {shortened(record.start.archive)}"
    if len(archive.fitness):
        rows |= _elite_rows(archive)
    pictures = [drawn[name] for name in ("archive", "parallel", "profile") if name in drawn]
    rows["archive"] = f"{run.archive}, drawn in {_listed(pictures)}"
    rows["progress"] = f"{run.metrics}, drawn in {drawn['progress']}"
    if corrected is not None:
        rows["corrected"] = f"{run.corrected()}, drawn in {_listed([drawn['corrected'], drawn['spread']])}"
    elif problem:
        rows["corrected"] = problem
    tables = (
        []
        if corrected is None
        else [losses_table(corrected, record.metrics), reproducibility_tables(corrected)]
    )
    width = max(map(len, rows)) + 1
    lines = [record.title, *(f"  {name:<{width}} {text}" for name, text in rows.items())]
    return "\n".join([*map(printable, lines), *tables])


def _listed(paths: Sequence[Path]) -> str:
    *first, last = map(str, paths)
    return f"{', '.join(first)} and {last}"


def _metric_rows(record: RunRecord, archive: SavedArchive, logged: dict[str, np.ndarray]) -> dict[str, str]:
    """Label and value of each metric; the run's own metrics as they were logged for this archive."""
    rows = {metric.label: metric.text(value) for metric, value in zip(METRICS, archive.metrics, strict=True)}
    at = np.flatnonzero(logged["evaluations"] == archive.about["evaluations"])
    for name in metric_names(logged):
        metric, values = find_metric(name, record.metrics), logged[name][at]
        if metric not in METRICS and len(values) and not np.isnan(values[-1]):
            rows[shortened(metric.label)] = metric.text(float(values[-1]))
    return rows


def _elite_rows(archive: SavedArchive) -> dict[str, str]:
    names = archive.about["task"]["descriptor_names"]
    descriptor = [
        f"{shortened(name)} {value:.2f}" for name, value in zip(names, archive.descriptor[0], strict=True)
    ]
    seeds = np.atleast_1d(archive.seed[0])
    episode = f"episode seed {seeds[0]}" if len(seeds) == 1 else f"the mean of {len(seeds)} episodes"
    operators = zip(*np.unique(archive.operator, return_counts=True), strict=True)
    return {
        "best elite": f"cell {archive.cell[0]} ({', '.join(descriptor)}), found by {archive.operator[0]} "
        f"in generation {archive.generation[0]}, {episode}",
        "elites found by": ", ".join(f"{name} {count}" for name, count in operators),
    }
