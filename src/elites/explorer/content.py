"""The data of a run in the page: a header of plain values, with arrays as blocks."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites.explorer.ancestors import Ancestors, empty_ancestors, find_ancestors
from elites.explorer.blocks import Blocks, quantise
from elites.metrics.metric import METRICS, find_metric
from elites.reports.colours import operator_colours
from elites.reports.corrections import find_correction
from elites.results.archive import SavedArchive, load_archive
from elites.results.corrected import CorrectedArchive
from elites.results.folder import RunFolder
from elites.results.schemas import RunRecord
from elites.results.tables import metric_names

MAX_ROWS = 400  # of a curve
MAX_SNAPSHOTS = 100
MAX_PARAMETERS = 41_000  # of the best elites, in the page: two controllers of the usual size
MAX_PAST_SOLUTIONS = 20_000  # solutions of snapshots that are not elites at the end
NO_SNAPSHOT = 255  # stands for no snapshot
MAX_SHOWN_REPLICATIONS = 80_000  # replications whose descriptors are stored in the page
MIN_REPLICATIONS_PER_ELITE = 8  # that are stored even beyond that limit
THIN = "\N{NARROW NO-BREAK SPACE}"  # separates thousands


@dataclass(frozen=True)
class Content:
    """The results of a run that the page shows. Everything but the archive may be missing."""

    path: Path
    archive: SavedArchive
    corrected: CorrectedArchive | None = None
    uncorrected_reason: str = ""  # why there is no correction, and how to get one
    snapshots: list[SavedArchive] = field(default_factory=list)
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    corrections: dict[str, np.ndarray] = field(default_factory=dict)
    record: RunRecord | None = None  # None for a separate archive file
    ancestors: Ancestors = field(default_factory=empty_ancestors)


def read_content(path: Path) -> Content:
    """Reads a run's folder, or a separate archive file."""
    if path.is_file():
        return Content(path, load_archive(path), uncorrected_reason="An archive in a file has no correction.")
    run = RunFolder(path)
    record, archive = run.read_record(), run.read_archive()
    corrected, problem = find_correction(run, archive)
    reason = "" if corrected else f"No elite has been evaluated again yet: use `elites correct {run}`."
    if problem:
        reason = f"Not corrected: {problem}."
    moments = [moment for moment in run.snapshots() if moment <= archive.about["evaluations"]]
    kept = np.unique(np.linspace(0, len(moments) - 1, min(len(moments), MAX_SNAPSHOTS)).round().astype(int))
    snapshots = [load_archive(run.snapshot_path(moments[index]), parameters=False) for index in kept]
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


def list_operators(contents: Sequence[Content]) -> list[str]:
    """The names of all operators, sorted."""
    archives = [archive for content in contents for archive in (content.archive, *content.snapshots)]
    names = [archive.operator for archive in archives] + [content.ancestors.operator for content in contents]
    return [str(name) for name in np.unique(np.concatenate(names))]


def assign_colours(operators: Sequence[str]) -> list[dict[str, str]]:
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
        "summary": summarise(content),
        "names": [str(name).replace("_", " ") for name in about["task"]["descriptor_names"]],
        "labels": _labels(about["task"]),
        "bounds": archive.bounds.tolist(),
        "grid": archive.grid.tolist(),
        "elites": _describe_elites(archive, operators, blocks),
        "has_parameters": archive.has_parameters,
        "parameters": _describe_parameters(archive, blocks),
        "centroids": blocks.add_quantised(archive.centroids),
        "ancestors": _describe_ancestors(content.ancestors, operators, blocks),
        "missing_parents_reason": content.ancestors.missing_reason,
        "past": _describe_history(content, operators, blocks),
        "corrected": None if content.corrected is None else _describe_correction(content.corrected, blocks),
        "uncorrected_reason": content.uncorrected_reason,
        "curves": _describe_curves(content, blocks),
    }


def summarise(content: Content) -> str:
    """A description of the archive, in a sentence or two."""
    archive, about = content.archive, content.archive.about
    count = len(archive.fitness)
    text = (
        f"{_format_count(count)} elite{'s' * (count != 1)} of {about['task']['name']}, found by "
        f"{about['algorithm']} in {_format_count(about['evaluations'])} evaluations."
    )
    if content.corrected is None:
        return text
    replications = content.corrected.about["replications"]
    before, after, _ = content.corrected.compare_metric(METRICS[0])
    if not (before > 0 and math.isfinite(after)):
        return text
    return (
        f"{text} After {_format_count(replications)} new evaluation{'s' * (replications != 1)} of each "
        f"elite, {100 * after / before:.0f}{THIN}% of the QD-score remains."
    )


def _format_count(count: int) -> str:
    return f"{count:,}".replace(",", THIN) if count >= 10_000 else str(count)


def _labels(task: dict[str, Any]) -> list[str]:
    """The labels of the descriptor's dimensions; descriptors of archives without a phrase are contacts."""
    phrase = str(task.get("descriptor_phrase", "contact of {}"))
    return [phrase.replace("{}", str(name).replace("_", " ")) for name in task["descriptor_names"]]


def _describe_elites(archive: SavedArchive, operators: list[str], blocks: Blocks) -> dict[str, Any]:
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


def _describe_parameters(archive: SavedArchive, blocks: Blocks) -> dict[str, Any] | None:
    """The parameters of as many elites as there is room for in a page, the best first."""
    if not archive.parameters.size:
        return None
    count = min(len(archive.parameters), MAX_PARAMETERS // archive.parameters.shape[1])
    return blocks.add(archive.parameters[:count], "f4") if count else None


def _codes(names: np.ndarray, operators: list[str]) -> np.ndarray:
    return np.searchsorted(np.array(operators), names) if len(names) else np.zeros(0, np.int64)


def _describe_ancestors(ancestors: Ancestors, operators: list[str], blocks: Blocks) -> dict[str, Any]:
    return {
        "count": len(ancestors.fitness),
        "evaluation": blocks.add_rising(ancestors.evaluation),
        "generation": blocks.add_rising(ancestors.generation),
        "cell": blocks.add(ancestors.cell, "i4"),
        "parents": blocks.add(ancestors.parents, "i4"),
        "fitness": blocks.add_quantised(ancestors.fitness[:, None]),
        "operator": blocks.add(_codes(ancestors.operator, operators), "u1"),
    }


class _SnapshotSpan(NamedTuple):
    """A solution in consecutive snapshots."""

    snapshot: SavedArchive
    row: int
    first: int
    last: int


def _snapshot_spans(snapshots: list[SavedArchive]) -> list[_SnapshotSpan]:
    """All solutions of the snapshots; one that disappears and comes back has two entries."""
    done: list[_SnapshotSpan] = []
    now: dict[tuple[float, ...], _SnapshotSpan] = {}
    for number, snapshot in enumerate(snapshots):
        before, now = now, {}
        for row in range(len(snapshot.fitness)):
            key = _key(snapshot, row)
            span = before.pop(key, None) or _SnapshotSpan(snapshot, row, number, number)
            now[key] = span._replace(last=number)
        done += before.values()
    return done + list(now.values())


def _key(archive: SavedArchive, row: int) -> tuple[float, ...]:
    """A key that identifies a solution."""
    return int(archive.evaluation[row]), int(archive.cell[row]), float(archive.fitness[row])


def _describe_history(content: Content, operators: list[str], blocks: Blocks) -> dict[str, Any]:
    """The snapshots: each solution once, with the first and the last snapshot that has it.

    For final elites, `since` has the first snapshot from which on they are in all.
    """
    snapshots = content.snapshots
    spans = _snapshot_spans(snapshots)
    while len(spans) > MAX_PAST_SOLUTIONS and len(snapshots) > 1:
        snapshots = snapshots[::-2][::-1]
        spans = _snapshot_spans(snapshots)
    since = np.full(len(content.archive.fitness), NO_SNAPSHOT)
    elites = {_key(content.archive, elite): elite for elite in range(len(since))}
    rows = []
    for span in spans:
        elite = elites.get(_key(span.snapshot, span.row)) if span.last == len(snapshots) - 1 else None
        if elite is None:
            rows.append(span)
        else:
            since[elite] = span.first

    def column(name: str) -> np.ndarray:
        return np.array([getattr(span.snapshot, name)[span.row] for span in rows])

    descriptor = column("descriptor").reshape(len(rows), content.archive.descriptor.shape[1])
    return {
        "moments": [snapshot.about["evaluations"] for snapshot in snapshots],
        "since": blocks.add(since, "u1"),
        "first": blocks.add(np.array([span.first for span in rows]), "u1"),
        "last": blocks.add(np.array([span.last for span in rows]), "u1"),
        **{name: blocks.add(column(name), "i4") for name in ("cell", "evaluation", "generation")},
        "fitness": blocks.add(column("fitness"), "f4"),
        "descriptor": blocks.add_quantised(descriptor),
        "operator": blocks.add(_codes(column("operator"), operators), "u1"),
    }


def _describe_correction(corrected: CorrectedArchive, blocks: Blocks) -> dict[str, Any]:
    spread = corrected.compute_spread()
    count, replications = corrected.fitness.shape
    fitness = np.where(np.isfinite(corrected.fitness), corrected.fitness, np.nan).astype(np.float64)
    valid = np.isfinite(fitness).any(1)
    least, most = np.zeros(count), np.ones(count)
    least[valid], most[valid] = np.nanmin(fitness[valid], 1), np.nanmax(fitness[valid], 1)
    share = (fitness - least[:, None]) / np.where(most > least, most - least, 1)[:, None]
    clouds = min(replications, max(MIN_REPLICATIONS_PER_ELITE, MAX_SHOWN_REPLICATIONS // max(1, count)))
    return {
        "replications": replications,
        "clouds": clouds,
        "invalid": int(corrected.invalid),
        "mean": blocks.add(corrected.mean_fitness, "f4"),
        "descriptor": blocks.add_quantised(corrected.mean_descriptor),
        "cell": blocks.add(corrected.mean_cell, "i4"),
        "kept": blocks.add(corrected.kept, "u1"),
        "spread": blocks.add(spread.fitness, "f4"),
        "stays": blocks.add(spread.own_cell, "f4"),
        "least": blocks.add(least, "f4"),
        "most": blocks.add(most, "f4"),
        # Shares of the range from `least` to `most`.
        "samples": blocks.add(_encode_differences(quantise(share, "u1")[..., None]), "u1"),
        "cloud": blocks.add(_encode_differences(_quantise_descriptors(corrected, clouds)), "u1"),
    }


def _quantise_descriptors(corrected: CorrectedArchive, replications: int) -> np.ndarray:
    """The descriptors of the first replications, in units of the bounds' ranges, as bytes."""
    low, high = corrected.bounds.T
    return quantise((corrected.descriptor[:, :replications] - low) / (high - low), "u1")


def _encode_differences(codes: np.ndarray) -> np.ndarray:
    """Bytes `[elites, replications, d]` as `[d, replications, elites]`, made smaller.

    The order of an elite's replications has no meaning, so they are sorted by the first of the d bytes. The
    first replication is stored as it is. For the others, the first byte is the difference from the previous
    replication, and each other byte is the difference from the first replication. Similar numbers deflate
    well.
    """
    order = np.argsort(codes[..., :1], 1, kind="stable")
    ordered = np.take_along_axis(codes, order, 1)
    changes = ordered.copy()
    changes[:, 1:, 0] -= ordered[:, :-1, 0]
    changes[:, 1:, 1:] -= ordered[:, :1, 1:]
    return changes.T


def _describe_curves(content: Content, blocks: Blocks) -> list[dict[str, Any]]:
    """The progress of each metric, and of the corrected metric if it was measured during the run."""
    if not content.metrics or not len(content.metrics["evaluations"]):
        return []
    rows = len(content.metrics["evaluations"])
    kept = np.unique(np.linspace(0, rows - 1, min(rows, MAX_ROWS)).round().astype(int))
    evaluations = blocks.add(content.metrics["evaluations"][kept], "f4")
    further = content.record.metrics if content.record is not None else []
    curves = []
    for name in metric_names(content.metrics):
        quantity = find_metric(name, further)
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
