"""What the page says of a run: a header of plain values, whose arrays are blocks."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elites.errors import ElitesError
from elites.explorer.ancestors import Ancestors, find_ancestors, no_ancestors
from elites.explorer.blocks import Blocks
from elites.metrics.metric import METRICS, metric_of
from elites.reports.colours import operator_colours
from elites.results.archive import SavedArchive, load_archive
from elites.results.corrected import CorrectedArchive
from elites.results.folder import RunFolder
from elites.results.schemas import RunRecord
from elites.results.tables import metric_names

MOST_ROWS = 400  # of a curve
MOST_SNAPSHOTS = 100
MOST_PARAMETERS = 500_000  # of all elites in the page
MOST_CLOUD = 300_000  # replications whose descriptors are in the page, but at least FEWEST per elite
FEWEST = 8
THIN = "\N{NARROW NO-BREAK SPACE}"  # separates thousands


@dataclass(frozen=True)
class Content:
    """What is read of a run. Everything but the archive may be missing."""

    path: Path
    archive: SavedArchive
    corrected: CorrectedArchive | None = None
    uncorrected: str = ""  # why there is no correction, and how to get one
    snapshots: list[SavedArchive] = field(default_factory=list)
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    corrections: dict[str, np.ndarray] = field(default_factory=dict)
    record: RunRecord | None = None  # None for an archive in a file of its own
    ancestors: Ancestors = field(default_factory=no_ancestors)


def read_content(path: Path) -> Content:
    """Reads a run's folder, or an archive in a file of its own."""
    if path.is_file():
        return Content(path, load_archive(path), uncorrected="An archive in a file has no correction.")
    run = RunFolder(path)
    record, archive = run.read_record(), run.read_archive()
    corrected, reason = _read_corrected(run, archive)
    moments = [moment for moment in run.snapshots() if moment <= archive.about["evaluations"]]
    kept = np.unique(np.linspace(0, len(moments) - 1, min(len(moments), MOST_SNAPSHOTS)).round().astype(int))
    snapshots = [load_archive(run.snapshot(moments[index]), parameters=False) for index in kept]
    return Content(
        path,
        archive,
        corrected,
        reason,
        snapshots,
        run.read_metrics() if run.metrics.exists() else {},
        run.read_corrections() or {},
        record,
        find_ancestors(run, archive, snapshots),
    )


def _read_corrected(run: RunFolder, archive: SavedArchive) -> tuple[CorrectedArchive | None, str]:
    command = f"elites correct {run}"
    if not run.is_corrected:
        return None, f"No elite was evaluated again yet. This does it: {command}"
    try:
        corrected = run.read_corrected()
    except ElitesError as error:
        return None, f"{error}. This makes it again: {command}"
    if corrected.is_correction_of(archive):
        return corrected, ""
    evaluations = corrected.about["evaluations"]
    return (
        None,
        f"Only the archive after {evaluations:,} evaluations was corrected. This corrects it: {command}",
    )


def operators_of(contents: Sequence[Content]) -> list[str]:
    """The names of all operators, sorted."""
    archives = [archive for content in contents for archive in (content.archive, *content.snapshots)]
    names = [archive.operator for archive in archives] + [content.ancestors.operator for content in contents]
    return [str(name) for name in np.unique(np.concatenate(names))]


def colours_of(operators: Sequence[str]) -> list[dict[str, str]]:
    """The name and the colour of each operator, for the header."""
    return [{"name": name, "colour": colour} for name, colour in operator_colours(operators).items()]


def describe_run(content: Content, operators: list[str], blocks: Blocks) -> dict[str, Any]:
    """The header of a run. Its arrays are added to the blocks; operators are numbered as in the list."""
    archive, about = content.archive, content.archive.about
    return {
        "path": str(content.path),
        "shell_path": shlex.quote(str(content.path)),
        "controller": bool(len(archive.policy_sizes)),
        "replayable": bool(len(archive.policy_sizes)) and content.path.is_dir(),
        "algorithm": about["algorithm"],
        "task": about["task"]["name"],
        "seed": about["seed"],
        "evaluations": about["evaluations"],
        "offset": float(about["task"]["qd_offset"]),
        "summary": summary(content),
        "names": [str(name).replace("_", " ") for name in about["task"]["descriptor_names"]],
        "labels": _labels(about["task"]),
        "bounds": archive.bounds.tolist(),
        "grid": archive.grid.tolist(),
        "metrics": _metrics(content),
        "elites": _elites(archive, operators, blocks),
        "parameters": _parameters(archive, blocks),
        "centroids": blocks.add(archive.centroids, "f4"),
        "polygons": _polygons(archive, blocks),
        "ancestors": _describe_ancestors(content.ancestors, operators, blocks),
        "unknown_parents": content.ancestors.unknown,
        "snapshots": [_snapshot(snapshot, operators, blocks) for snapshot in content.snapshots],
        "corrected": None if content.corrected is None else _corrected(content.corrected, blocks),
        "uncorrected": content.uncorrected,
        "curves": _curves(content, blocks),
    }


def summary(content: Content) -> str:
    """What the archive is, in a sentence or two."""
    archive, about = content.archive, content.archive.about
    count = len(archive.fitness)
    text = (
        f"{_grouped(count)} elite{'s' * (count != 1)} of {about['task']['name']}, found by "
        f"{about['algorithm']} in {_grouped(about['evaluations'])} evaluations."
    )
    if content.corrected is None:
        return text
    replications = content.corrected.about["replications"]
    before, after, _ = content.corrected.change(METRICS[0])
    if not (before > 0 and math.isfinite(after)):
        return text
    return (
        f"{text} {100 * after / before:.0f}{THIN}% of the QD-score survives when each is evaluated "
        f"{_grouped(replications)} time{'s' * (replications != 1)} again."
    )


def _grouped(count: int) -> str:
    return f"{count:,}".replace(",", THIN) if count >= 10_000 else str(count)


def _labels(task: dict[str, Any]) -> list[str]:
    """The labels of the descriptor's dimensions; descriptors of archives without a phrase are contacts."""
    phrase = str(task.get("descriptor_phrase", "contact of {}"))
    return [phrase.replace("{}", str(name).replace("_", " ")) for name in task["descriptor_names"]]


def _metrics(content: Content) -> list[dict[str, Any]]:
    """The value of each metric, the corrected value, and the loss, as text."""
    rows = []
    for metric, value in zip(METRICS, content.archive.metrics, strict=True):
        row = {"label": metric.label, "found": metric.text(value)}
        if content.corrected is not None:
            _, after, loss = content.corrected.change(metric)
            row |= {"corrected": metric.text(after), "loss": metric.loss.text(loss)}
        rows.append(row)
    return rows


def _elites(archive: SavedArchive, operators: list[str], blocks: Blocks) -> dict[str, Any]:
    first_seed = archive.seed.reshape(len(archive.fitness), -1)[:, :1]
    return {
        "count": len(archive.fitness),
        "episodes": int(math.prod(archive.seed.shape[1:])),
        "cell": blocks.add(archive.cell, "i4"),
        "fitness": blocks.add(archive.fitness, "f4"),
        "descriptor": blocks.add(archive.descriptor, "f4"),
        "evaluation": blocks.add(archive.evaluation, "i4"),
        "seed": blocks.add(first_seed[:, 0], "u4"),
        "generation": blocks.add(archive.generation, "i4"),
        "operator": blocks.add(_codes(archive.operator, operators), "u1"),
        "parents": blocks.add(archive.parents.reshape(len(archive.fitness), -1), "i4"),
    }


def _parameters(archive: SavedArchive, blocks: Blocks) -> dict[str, Any] | None:
    """The parameters of all elites, if they are few enough for a page."""
    if not archive.parameters.size or archive.parameters.size > MOST_PARAMETERS:
        return None
    return blocks.add(archive.parameters, "f4")


def _codes(names: np.ndarray, operators: list[str]) -> np.ndarray:
    return np.searchsorted(np.array(operators), names) if len(names) else np.zeros(0, np.int64)


def _polygons(archive: SavedArchive, blocks: Blocks) -> dict[str, Any] | None:
    """The outline of each cell in two dimensions, in units of the bounds' ranges."""
    if archive.centroids.shape[1] != 2:
        return None
    low, high = archive.bounds.T
    if len(archive.grid):
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) / (2 * archive.grid)
        outlines = list((archive.centroids - low)[:, None] / (high - low) + corners)
    else:
        from elites.reports.maps import voronoi_polygons

        outlines = [
            (outline - low) / (high - low) for outline in voronoi_polygons(archive.centroids, archive.bounds)
        ]
    return {
        "sizes": blocks.add(np.array([len(outline) for outline in outlines]), "u1"),
        "corners": blocks.add_quantised(np.concatenate(outlines), "u2", 0.0, 1.0),
    }


def _describe_ancestors(ancestors: Ancestors, operators: list[str], blocks: Blocks) -> dict[str, Any]:
    fitness = ancestors.fitness
    low, high = (float(fitness.min()), float(fitness.max())) if len(fitness) else (0.0, 1.0)
    return {
        "count": len(fitness),
        "evaluation": blocks.add_rising(ancestors.evaluation),
        "generation": blocks.add_rising(ancestors.generation),
        "cell": blocks.add(ancestors.cell, "i4"),
        "parents": blocks.add(ancestors.parents, "i4"),
        "fitness": blocks.add_quantised(fitness, "u2", low, high),
        "operator": blocks.add(_codes(ancestors.operator, operators), "u1"),
    }


def _snapshot(snapshot: SavedArchive, operators: list[str], blocks: Blocks) -> dict[str, Any]:
    return {
        "evaluations": snapshot.about["evaluations"],
        "cell": blocks.add(snapshot.cell, "i4"),
        "fitness": blocks.add(snapshot.fitness, "f4"),
        "descriptor": blocks.add(snapshot.descriptor, "f4"),
        "operator": blocks.add(_codes(snapshot.operator, operators), "u1"),
        "generation": blocks.add(snapshot.generation, "i4"),
        "evaluation": blocks.add(snapshot.evaluation, "i4"),
    }


def _corrected(corrected: CorrectedArchive, blocks: Blocks) -> dict[str, Any]:
    spread = corrected.spread()
    count, replications = corrected.fitness.shape
    fitness = np.where(np.isfinite(corrected.fitness), corrected.fitness, np.nan).astype(np.float64)
    valid = np.isfinite(fitness).any(1)
    least, most = np.zeros(count), np.ones(count)
    least[valid], most[valid] = np.nanmin(fitness[valid], 1), np.nanmax(fitness[valid], 1)
    share = (fitness - least[:, None]) / np.where(most > least, most - least, 1)[:, None]
    clouds = min(replications, max(FEWEST, MOST_CLOUD // max(1, count)))
    low, high = corrected.bounds.T
    return {
        "replications": replications,
        "clouds": clouds,
        "invalid": int(corrected.invalid),
        "mean": blocks.add(corrected.mean_fitness, "f4"),
        "descriptor": blocks.add(corrected.mean_descriptor, "f4"),
        "cell": blocks.add(corrected.mean_cell, "i4"),
        "kept": blocks.add(corrected.kept, "u1"),
        "spread": blocks.add(spread.fitness, "f4"),
        "scatter": blocks.add(spread.descriptor, "f4"),
        "stays": blocks.add(spread.own_cell, "f4"),
        "least": blocks.add(least, "f4"),
        "most": blocks.add(most, "f4"),
        "samples": blocks.add_quantised(share, "u1", 0.0, 1.0),  # from the least to the most
        "cloud": blocks.add_quantised(
            (corrected.descriptor[:, :clouds] - low) / (high - low), "u1", 0.0, 1.0
        ),
    }


def _curves(content: Content, blocks: Blocks) -> list[dict[str, Any]]:
    """The progress of each metric, and of the corrected one where it was measured on the way."""
    if not content.metrics or not len(content.metrics["evaluations"]):
        return []
    rows = len(content.metrics["evaluations"])
    kept = np.unique(np.linspace(0, rows - 1, min(rows, MOST_ROWS)).round().astype(int))
    evaluations = blocks.add(content.metrics["evaluations"][kept], "f4")
    further = content.record.metrics if content.record is not None else []
    curves = []
    for name in metric_names(content.metrics):
        quantity = metric_of(name, further)
        curve = {
            "label": quantity.label,
            "percent": quantity.format.endswith("%"),
            "evaluations": evaluations,
            "values": blocks.add(content.metrics[name][kept], "f4"),
        }
        if name in content.corrections:
            curve["corrected"] = {
                "evaluations": blocks.add(content.corrections["evaluations"], "f4"),
                "values": blocks.add(content.corrections[name], "f4"),
            }
        curves.append(curve)
    return curves
