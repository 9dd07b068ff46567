"""Final archives side by side, the original above the corrected, on one colour scale for a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from elites.errors import ElitesError
from elites.reports.maps import BINS, Map, draw_map, scale
from elites.reports.study.data import Curves, Study
from elites.reports.study.figures import Picture, slug
from elites.results.archive import load_archive
from elites.results.corrected import CorrectedArchive, load_corrected

MOST = 5  # maps in a row


class _Shown(NamedTuple):
    title: str
    maps: list[Map]


def archives(study: Study) -> Iterator[Picture]:
    """A figure for each task: of each algorithm the replication whose QD-score is the median one."""
    for task in study.tasks:
        shown: list[_Shown] = []
        for variant in study.variants:
            of = [
                curves for curves in study.of(task, variant) if (curves.run.folder / "archive.npz").exists()
            ]
            if not of:
                continue
            try:
                shown.append(_maps(middle(of), study))
            except ElitesError as error:
                study.notes.append(f"An archive of {variant} on {task} is not shown: {error}")
        if not shown:
            continue
        yield Picture(
            f"archives-{slug(task)}",
            f"{task}: final archives, of each algorithm that of the replication with the median QD-score"
            + ("; originals above, corrected ones below" if any(len(one.maps) > 1 for one in shown) else "")
            + f". {_key(shown)}",
            _draw(shown),
        )


def _key(shown: list[_Shown]) -> str:
    """What a colour stands for."""
    binned = [one.maps[0].binned for one in shown]
    cells = "Each cell has the colour of its elite's fitness"
    if not any(binned):
        return f"{cells}; grey cells are empty."
    bins = BINS.capitalize() if all(binned) else f"{cells}; of archives without a grid, {BINS}"
    return f"{bins}; grey ones hold none."


def middle(of: list[Curves]) -> Curves:
    """The replication whose QD-score is the median, the lower one of two."""
    ranked = sorted(of, key=lambda curves: (float(curves.values["qd_score"][-1]), curves.run.seed))
    return ranked[(len(ranked) - 1) // 2]


def _maps(curves: Curves, study: Study) -> _Shown:
    """The final archive, and what was corrected if it is that."""
    archive = load_archive(curves.run.folder, parameters=False)
    maps = [Map(archive.fitness, archive.cell, archive.descriptor, archive, "fitness")]
    evaluations = archive.about.get("evaluations", curves.evaluations)
    path = curves.run.folder / "corrected.npz"
    if path.exists():
        corrected = load_corrected(path)
        at = corrected.about.get("evaluations", evaluations)
        if at == evaluations:
            maps.append(_corrected(corrected))
        elif study.corrected(curves):  # else a note has told it already
            study.notes.append(
                f"The corrected archive of {curves.run.name} is not shown: it was corrected at {at:,} "
                f"evaluations, and its archive is of {evaluations:,}; run `elites correct` again."
            )
    return _Shown(f"{curves.run.variant}\nseed {curves.run.seed}, {evaluations:,} evaluations", maps)


def _corrected(corrected: CorrectedArchive) -> Map:
    kept = np.flatnonzero(corrected.kept)
    kept = kept[np.argsort(-corrected.mean_fitness[kept], kind="stable")]
    return Map(
        corrected.mean_fitness[kept],
        corrected.mean_cell[kept],
        corrected.mean_descriptor[kept],
        corrected,
        "mean fitness",
    )


def _draw(shown: list[_Shown]) -> Figure:
    flat = shown[0].maps[0].dimensions == 1
    deep = max(len(one.maps) for one in shown)
    values = np.concatenate([drawn.values for one in shown for drawn in one.maps])
    norm = scale(values)
    columns = min(len(shown), 2 if flat else MOST)
    rows = -(-len(shown) // columns)
    size = (
        (5.6 * columns + 0.7, 1.9 * deep * rows + 0.4)
        if flat
        else (2.9 * columns + 0.8, 2.75 * deep * rows + 0.3)
    )
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(deep * rows, columns, squeeze=False)
    for axes in panels.ravel():
        axes.set_axis_off()
    for place, one in enumerate(shown):
        row, column = divmod(place, columns)
        for below, drawn in enumerate(one.maps):
            axes = panels[deep * row + below][column]
            axes.set_axis_on()
            draw_map(axes, drawn, norm)
            axes.tick_params(labelsize=7)
            lowest = below == len(one.maps) - 1 and place + columns >= len(shown)
            axes.set_xlabel(axes.get_xlabel().replace("; ", "\n") if lowest else "", fontsize=8)
            axes.set_ylabel(axes.get_ylabel().replace("; ", "\n") if column == 0 else "", fontsize=8)
            axes.set_title(one.title if not below else "corrected", fontsize=8.5)
    figure.colorbar(
        ScalarMappable(norm, "viridis"), ax=panels.ravel().tolist(), label="fitness", pad=0.01, aspect=30
    )
    return figure
