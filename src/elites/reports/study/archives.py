"""Final archives side by side, the original above the corrected one, on one colour scale for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from elites.errors import ElitesError
from elites.reports.contents import corrected_map
from elites.reports.maps import BINS, Map, add_colour_bar, common_scale, draw_map
from elites.reports.study.figures import Picture
from elites.results.archive import load_archive
from elites.results.names import ReportFigure, report_part
from elites.studies.merge.results import Curves, StudyResults
from elites.text import file_name, shortened

MOST = 5  # maps in a row


class Panel(NamedTuple):
    """The archive of one run: its map, and that of the corrected one if there is one."""

    title: str
    maps: list[Map]


def read_panels(study: StudyResults) -> tuple[dict[str, list[Panel]], list[str]]:
    """The archives to draw for each task: of each algorithm the replication with the median QD-score.

    The second result says which archives cannot be shown, and why.
    """
    panels: dict[str, list[Panel]] = {}
    notes: list[str] = []
    for task in study.tasks:
        for variant in study.variants:
            replications = [c for c in study.of(task, variant) if c.run.folder.has_archive]
            if not replications:
                continue
            try:
                panel, note = _read_panel(median_run(replications), study)
            except ElitesError as error:
                notes.append(f"An archive of {variant} on {task} is not shown: {error}")
                continue
            panels.setdefault(task, []).append(panel)
            notes += [note] if note else []
    return panels, notes


def draw_archives(panels: Mapping[str, list[Panel]]) -> Iterator[Picture]:
    """A figure for each task."""
    for task, shown in panels.items():
        corrected = any(len(panel.maps) > 1 for panel in shown)
        yield Picture(
            report_part(ReportFigure.ARCHIVES, file_name(task)),
            f"{shortened(task)}: final archives, for each algorithm that of the replication with the median "
            "QD-score"
            + ("; originals above, corrected ones below" if corrected else "")
            + f". {_legend(shown)}",
            _draw(shown),
        )


def _legend(shown: list[Panel]) -> str:
    """The meaning of colours and bars, for the caption."""
    if shown[0].maps[0].dimensions == 1:
        return (
            "Bars end at the highest fitness in a bin of cells, darker parts at its quartiles; lines are "
            "medians. Above, how many cells of a bin have an elite."
        )
    binned = [panel.maps[0].binned for panel in shown]
    cells = "Each cell has the colour of its elite's fitness"
    if not any(binned):
        return f"{cells}; grey cells are empty."
    bins = BINS.capitalize() if all(binned) else f"{cells}; of archives without a grid, {BINS}"
    return f"{bins}; grey ones hold none."


def median_run(replications: list[Curves]) -> Curves:
    """The replication with the median QD-score, the lower one of two."""
    ranked = sorted(replications, key=lambda curves: (curves.end.values["qd_score"], curves.run.seed))
    return ranked[(len(ranked) - 1) // 2]


def _read_panel(curves: Curves, study: StudyResults) -> tuple[Panel, str]:
    """The final archive, with its correction if there is one; and a note if that is of another archive."""
    folder, note = curves.run.folder, ""
    archive = load_archive(folder.archive, parameters=False)
    maps = [Map(archive.fitness, archive.cell, archive.descriptor, archive, "fitness")]
    evaluations = archive.about.get("evaluations", curves.evaluations)
    if folder.is_corrected:
        corrected = folder.read_corrected()
        at = corrected.about.get("evaluations", evaluations)
        if at == evaluations:
            maps.append(corrected_map(corrected))
        elif study.correction(curves):  # otherwise the study already has a note about it
            note = (
                f"The corrected archive of {curves.run.name} is not shown: it was corrected at {at:,} "
                f"evaluations, and its archive is of {evaluations:,}; run `elites correct` again."
            )
    title = f"{shortened(curves.run.variant, 30)}\nseed {curves.run.seed}, {evaluations:,} evaluations"
    return Panel(title, maps), note


def _draw(shown: list[Panel]) -> Figure:
    flat = shown[0].maps[0].dimensions == 1
    deep = max(len(one.maps) for one in shown)
    maps = [drawn for one in shown for drawn in one.maps]
    scale = common_scale(maps)
    columns = min(len(shown), 2 if flat else MOST)
    rows = -(-len(shown) // columns)
    size = (
        (5.6 * columns + 0.4, 2.3 * deep * rows + 0.4)
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
            draw_map(axes, drawn, scale)
            axes.tick_params(labelsize=7)
            lowest = below == len(one.maps) - 1 and place + columns >= len(shown)
            axes.set_xlabel(axes.get_xlabel().replace("; ", "\n") if lowest else "", fontsize=8)
            axes.set_ylabel(axes.get_ylabel().replace("; ", "\n") if column == 0 else "", fontsize=8)
            axes.set_title(one.title if not below else "corrected", fontsize=8.5)
    if not flat:
        add_colour_bar(panels.ravel().tolist(), maps, scale, pad=0.01, aspect=30)
    return figure
