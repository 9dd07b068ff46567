"""Figures of a study. Drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from elites.errors import ElitesError
from elites.metrics.metric import Quantity
from elites.paper.presets import DEEP_GRID
from elites.reports.colours import ALGORITHMS, operator_colours
from elites.reports.contents import make_corrected_map
from elites.reports.figures import format_axis
from elites.reports.maps import BINS, Map, add_colour_bar, draw_map, make_common_scale
from elites.reports.plain import legend_label
from elites.reports.study.line_styles import LineStyle, choose_line_styles, is_sweep
from elites.results.archive import load_archive
from elites.results.names import ReportFigure, report_part
from elites.results.study import ReportFolder
from elites.studies.results.study_results import Curves, StudyResults
from elites.text import make_file_name, shorten

DPI = 110
ROWS = 4  # tasks in one figure
AXES = {"evaluations": "evaluations", "environment-steps": "environment steps", "wall-time": "wall time"}
MAX_COLUMNS = 5  # archives in a row
UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


Captions = dict[str, list[tuple[str, str]]]
"""The name and the caption of each figure, by section of the report."""


class Picture(NamedTuple):
    """A figure with the name of its file and its caption."""

    name: str
    caption: str
    figure: Figure


def draw_figures(study: StudyResults, report: ReportFolder) -> tuple[Captions, list[str]]:
    """Draws all figures into the report's folder. Also returns which archives are not shown, and why."""
    panels, notes = read_panels(study)
    sections: dict[str, Iterable[Picture]] = {
        **{f"progress-{x}": draw_progress(study, x) for x in AXES},
        "archives": draw_archives(panels),
        "corrected": draw_corrected_progress(study),
        "losses": chain(draw_losses(study), draw_losses(study, without=DEEP_GRID.name)),
        "contribution": draw_contribution(study),
    }
    captions: Captions = {}
    for section, pictures in sections.items():
        captions[section] = []
        for picture in pictures:  # one at a time: figures are large
            save(picture, report)
            captions[section].append((picture.name, picture.caption))
    return captions, notes


def save(picture: Picture, report: ReportFolder) -> None:
    """Writes a picture as PNG and PDF. The same figure gives the same bytes."""
    fix_layout(picture.figure)
    picture.figure.savefig(report.figure_path(picture.name), dpi=DPI, metadata={"Software": None})
    picture.figure.savefig(
        report.figure_path(picture.name, "pdf"),
        metadata={"CreationDate": None, "Producer": None, "Creator": None},
    )


def fix_layout(figure: Figure) -> None:
    """Lays a figure out. This takes two passes: labels may move the layout of the first."""
    for axes in figure.axes:  # artists within axes do not change the layout, but take long to measure
        for artist in (*axes.collections, *axes.lines, *axes.patches, *axes.images):
            artist.set_in_layout(False)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        engine.execute(figure)
        figure.set_layout_engine("none")


def split_tasks(study: StudyResults) -> Iterator[tuple[str, list[str]]]:
    """The tasks, a few to a figure, with the ending of the figure's name."""
    count = -(-len(study.tasks) // ROWS)
    for place in range(count):
        yield f"{place + 1}" if count > 1 else "", study.tasks[ROWS * place : ROWS * (place + 1)]


def draw_progress(study: StudyResults, x_axis: str) -> Iterator[Picture]:
    """Median and quartiles over replications of all metrics, a row for each task."""
    for ending, tasks in split_tasks(study):
        figure, panels = _make_axes(len(tasks), len(study.metrics))
        unequal = set(tasks) & set(study.tasks_without_common_budget)
        for row, task in zip(panels, tasks, strict=True):
            for axes, metric in zip(row, study.metrics, strict=True):
                for variant, style in choose_line_styles(study).items():
                    replications = study.replications(task, variant)
                    if replications:
                        _draw_curve(axes, *_make_curve(study, task, replications, metric.name, x_axis), style)
                label = AXES[x_axis] if x_axis != "wall-time" else f"wall time, {_choose_unit(study)[0]}"
                _format_axes(axes, metric, task, label)
                if x_axis == "evaluations":
                    axes.set_xlim(0, study.limits[task])
        _add_legend(figure, study)
        yield Picture(
            report_part(ReportFigure.PROGRESS, x_axis, ending),
            f"{_list_labels(study.metrics)} against {AXES[x_axis]}. Lines are medians over replications, "
            "shaded areas extend from the first to the third quartile"
            + (
                "; each curve ends with its shortest replication."
                if x_axis != "evaluations" or unequal
                else "."
            )
            + (
                " Replications that train together have the time of all of them."
                if x_axis == "wall-time"
                else ""
            ),
            figure,
        )


def _make_curve(
    study: StudyResults, task: str, replications: Sequence[Curves], metric: str, x_axis: str
) -> tuple[np.ndarray, np.ndarray]:
    """The x-axis, and a row of values for each replication that has the metric."""
    replications = [curves for curves in replications if _has_metric(curves, metric)]
    values = np.array([curves.values[metric] for curves in replications])
    if x_axis == "evaluations":
        return study.grid(task), values
    steps = x_axis == "environment-steps"
    name, unit = ("environment_steps", 1.0) if steps else ("elapsed_s", _choose_unit(study)[1])
    if not len(values):
        return np.empty(0), values
    places = np.array([curves.values[name] for curves in replications]) / unit
    has_values = ~np.isnan(places).all(1)
    places, values = places[has_values], values[has_values]
    if not len(places):
        return np.empty(0), np.empty((0, 0))
    grid = np.linspace(0, np.nanmax(places, axis=1).min(), len(values[0]) + 1)[1:]
    rows = []
    for place, row in zip(places, values, strict=True):
        logged = ~np.isnan(place)
        at = np.searchsorted(place[logged], grid, side="right") - 1
        rows.append(np.where(at < 0, np.nan, row[logged][np.maximum(at, 0)]))
    return grid, np.array(rows)


def _has_metric(curves: Curves, metric: str) -> bool:
    """Whether a run that has begun within the budget has values of a metric."""
    begun = ~np.isnan(curves.values["environment_steps"])
    return not begun.any() or not np.isnan(curves.values[metric][begun]).all()


def _choose_unit(study: StudyResults) -> tuple[str, float]:
    """The largest unit of time in which the longest run takes at least ten units."""
    longest = max((float(np.nan_to_num(c.values["elapsed_s"]).max()) for c in study.runs), default=0.0)
    return next((unit for unit in UNITS if longest >= 10 * unit[1]), UNITS[-1])


def _draw_curve(
    axes: Axes, x: np.ndarray, values: np.ndarray, style: LineStyle, marker: str | None = None
) -> None:
    if not values.size:
        return
    has_values = ~np.isnan(values).any(0)  # where all replications have begun
    if not has_values.any():
        return
    low, middle, high = np.quantile(values[:, has_values], (0.25, 0.5, 0.75), axis=0)
    axes.fill_between(x[has_values], low, high, color=style.colour, alpha=0.18, lw=0)
    axes.plot(x[has_values], middle, color=style.colour, linestyle=style.line, lw=1.7, marker=marker, ms=3)


def draw_corrected_progress(study: StudyResults) -> Iterator[Picture]:
    """Original and corrected metrics of a task, one above the other, for runs with several corrections."""
    for task in study.tasks:
        drawn = {variant: _make_corrected_curve(study, task, variant) for variant in study.variants}
        if not any(len(x) > 1 for x, _ in drawn.values()):
            continue
        figure, panels = _make_axes(2, len(study.reevaluated))
        for column, metric in enumerate(study.reevaluated):
            above, below = panels[0][column], panels[1][column]
            for variant, style in choose_line_styles(study).items():
                replications = study.replications(task, variant)
                if replications:
                    _draw_curve(
                        above, *_make_curve(study, task, replications, metric.name, "evaluations"), style
                    )
                    x, rows = drawn[variant]
                    if len(x):
                        _draw_curve(below, x, rows[metric.corrected.name], style, ".")
            _format_axes(above, metric, task, "evaluations")
            _format_axes(below, metric.corrected, task, "evaluations")
            limits = [
                f(*pair)
                for f, pair in zip(
                    (min, max), zip(above.get_ylim(), below.get_ylim(), strict=True), strict=True
                )
            ]
            for axes in (above, below):
                axes.set(ylim=limits, xlim=(0, study.limits[task]))
        _add_legend(figure, study)
        yield Picture(
            report_part(ReportFigure.CORRECTED, make_file_name(task)),
            f"{shorten(task)}: original metrics above, corrected ones below, on the same scales.",
            figure,
        )


def _make_corrected_curve(
    study: StudyResults, task: str, variant: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Evaluations and values of the corrections that all replications have."""
    tables = [curves.corrections for curves in study.replications(task, variant)]
    tables = [table for table in tables if len(table["evaluations"])]
    if not tables:
        return np.empty(0), {}
    count = min(len(table["evaluations"]) for table in tables)
    x = np.median([table["evaluations"][:count] for table in tables], axis=0)
    names = [metric.name for metric in study.corrected_metrics]
    return x, {name: np.array([table[name][:count] for table in tables]) for name in names}


def draw_losses(study: StudyResults, without: str = "") -> Iterator[Picture]:
    """Box plots of the losses to re-evaluation; `without` leaves an algorithm out, as the paper does."""
    left_out = {c.run.variant for c in study.runs if c.run.algorithm == without}
    if not study.has_corrections or (without and not left_out):
        return
    variants = [variant for variant in study.variants if variant not in left_out]
    styles = choose_line_styles(study)
    sweep = is_sweep(sum(styles[variant].colour not in ALGORITHMS.values() for variant in variants))
    for ending, tasks in split_tasks(study):
        figure, panels = _make_axes(len(tasks), len(study.losses))
        drawn = False
        for row, task in zip(panels, tasks, strict=True):
            for axes, metric in zip(row, study.losses, strict=True):
                for place, variant in enumerate(variants):
                    values = study.finals(task, variant, metric.name)
                    values = values[np.isfinite(values)]
                    if not len(values):
                        continue
                    drawn = True
                    colour = styles[variant].colour
                    box = axes.boxplot(
                        values, positions=[place], widths=0.62, patch_artist=True, showfliers=False
                    )
                    box["boxes"][0].set(facecolor=colour, alpha=0.45)
                    box["medians"][0].set(color="black", lw=1.4)
                    axes.plot(
                        np.full(len(values), place), values, "o", color=colour, ms=3.5, mec="black", mew=0.4
                    )
                axes.set_title(f"{shorten(task)}: {shorten(metric.label)}", fontsize=10)
                axes.set_xticks([])
                if sweep and task == tasks[-1]:  # the colours of a sweep are too similar
                    shown = [shorten(variant) for variant in variants]
                    axes.set_xticks(range(len(variants)), shown, rotation=90, fontsize=7)
                axes.set_xlim(-0.6, len(variants) - 0.4)
                axes.yaxis.set_major_formatter(PercentFormatter(1))
                axes.grid(axis="y", alpha=0.3)
        if not drawn:
            continue
        _add_legend(figure, study, variants, boxes=True)
        exception = f", without {without}" if without else ""
        yield Picture(
            report_part(ReportFigure.LOSSES, f"without-{without}" if without else "", ending),
            f"Losses to re-evaluation{exception}: the share of each metric that was luck. Lower is better; "
            "points are replications.",
            figure,
        )


def draw_contribution(study: StudyResults) -> Iterator[Picture]:
    """Offspring added per generation by each operator, stacked; medians over replications.

    A figure for each algorithm that has several operators, with a panel for each task and variant.
    """
    for algorithm in dict.fromkeys(c.run.algorithm for c in sorted(study.runs, key=lambda c: c.run.order)):
        runs = [curves for curves in study.runs if curves.run.algorithm == algorithm]
        operators = list(runs[0].added)
        if len(operators) < 2:
            continue
        variants = [name for name in study.variants if any(c.run.variant == name for c in runs)]
        cells = [(name, task) for name in variants for task in study.tasks if study.replications(task, name)]
        columns = 3 if len(cells) in (5, 6, 9) else min(len(cells), ROWS)
        rows = -(-len(cells) // columns)
        figure = Figure(figsize=(3.1 * columns + 0.8, 2.7 * rows + 0.9), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        colours = operator_colours(operators)
        for axes, (variant, task) in zip(panels, cells, strict=False):
            replications = study.replications(task, variant)
            medians = [_compute_median([curves.added[name] for curves in replications]) for name in operators]
            has_values = ~np.isnan(np.array(medians)).any(0)
            axes.stackplot(
                study.grid(task)[has_values],
                [row[has_values] for row in medians],
                colors=[colours[name] for name in operators],
            )
            named = (task, variant) if len(variants) > 1 else (task,)
            axes.set_title(", ".join(map(shorten, named)), fontsize=10)
            axes.set(xlabel="evaluations", ylabel="added per generation", xlim=(0, study.limits[task]))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.xaxis.set_major_locator(MaxNLocator(5))
        for axes in panels[len(cells) :]:
            axes.set_axis_off()
        handles = [Patch(color=colours[name], label=legend_label(name)) for name in operators]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
        windows = sorted({curves.window for curves in runs})
        over = f"{windows[0]}" if len(windows) == 1 else f"{windows[0]} to {windows[-1]}"
        smoothing = "not smoothed" if over == "1" else f"smoothed over {over} generations"
        yield Picture(
            report_part(ReportFigure.CONTRIBUTION, make_file_name(algorithm)),
            f"{shorten(algorithm)}: offspring added to the archive per generation by each operator, "
            f"stacked; medians over replications, {smoothing}.",
            figure,
        )


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
            replications = [c for c in study.replications(task, variant) if c.run.folder.has_archive]
            if not replications:
                continue
            try:
                panel, note = _read_panel(select_median_run(replications), study)
            except ElitesError as error:
                notes.append(f"An archive of {variant} on {task} is not shown: {error}")
                continue
            panels.setdefault(task, []).append(panel)
            notes += [note] if note else []
    return panels, notes


def draw_archives(panels: Mapping[str, list[Panel]]) -> Iterator[Picture]:
    """A figure for each task."""
    for task, task_panels in panels.items():
        corrected = any(len(panel.maps) > 1 for panel in task_panels)
        yield Picture(
            report_part(ReportFigure.ARCHIVES, make_file_name(task)),
            f"{shorten(task)}: final archives, for each algorithm that of the replication with the median "
            "QD-score"
            + ("; originals above, corrected ones below" if corrected else "")
            + f". {_describe_legend(task_panels)}",
            _draw_panels(task_panels),
        )


def _describe_legend(panels: list[Panel]) -> str:
    """The meaning of colours and bars, for the caption."""
    if panels[0].maps[0].dimensions == 1:
        return (
            "Bars end at the highest fitness in a bin of cells, darker parts at its quartiles; lines are "
            "medians. Above, how many cells of a bin have an elite."
        )
    binned = [panel.maps[0].binned for panel in panels]
    cells = "Each cell has the colour of its elite's fitness"
    if not any(binned):
        return f"{cells}; grey cells are empty."
    bins = BINS.capitalize() if all(binned) else f"{cells}; of archives without a grid, {BINS}"
    return f"{bins}; grey ones hold none."


def select_median_run(replications: list[Curves]) -> Curves:
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
            maps.append(make_corrected_map(corrected))
        elif study.correction(curves):  # otherwise the study already has a note about it
            note = (
                f"The corrected archive of {curves.run.name} is not shown: it was corrected at {at:,} "
                f"evaluations, and its archive is of {evaluations:,}; run `elites correct` again."
            )
    title = f"{shorten(curves.run.variant, 30)}\nseed {curves.run.seed}, {evaluations:,} evaluations"
    return Panel(title, maps), note


def _draw_panels(panels: list[Panel]) -> Figure:
    flat = panels[0].maps[0].dimensions == 1
    deep = max(len(one.maps) for one in panels)
    maps = [drawn for one in panels for drawn in one.maps]
    scale = make_common_scale(maps)
    columns = min(len(panels), 2 if flat else MAX_COLUMNS)
    rows = -(-len(panels) // columns)
    size = (
        (5.6 * columns + 0.4, 2.3 * deep * rows + 0.4)
        if flat
        else (2.9 * columns + 0.8, 2.75 * deep * rows + 0.3)
    )
    figure = Figure(figsize=size, layout="constrained")
    axes_grid = figure.subplots(deep * rows, columns, squeeze=False)
    for axes in axes_grid.ravel():
        axes.set_axis_off()
    for place, one in enumerate(panels):
        row, column = divmod(place, columns)
        for below, drawn in enumerate(one.maps):
            axes = axes_grid[deep * row + below][column]
            axes.set_axis_on()
            draw_map(axes, drawn, scale)
            axes.tick_params(labelsize=7)
            lowest = below == len(one.maps) - 1 and place + columns >= len(panels)
            axes.set_xlabel(axes.get_xlabel().replace("; ", "\n") if lowest else "", fontsize=8)
            axes.set_ylabel(axes.get_ylabel().replace("; ", "\n") if column == 0 else "", fontsize=8)
            axes.set_title(one.title if not below else "corrected", fontsize=8.5)
    if not flat:
        add_colour_bar(axes_grid.ravel().tolist(), maps, scale, pad=0.01, aspect=30)
    return figure


def _compute_median(rows: Sequence[np.ndarray]) -> np.ndarray:
    """The median over replications, where all have begun."""
    return np.median(np.array(rows), axis=0)  # type: ignore[no-any-return]


def _make_axes(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    width = 11 * max(1.0, columns / 3)
    figure = Figure(figsize=(width, 2.6 * rows + 0.9), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _format_axes(axes: Axes, metric: Quantity, task: str, x: str) -> None:
    axes.set_title(f"{shorten(task)}: {shorten(metric.label)}", fontsize=10)
    axes.set_xlabel(x)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:g}" if x.startswith("wall time") else EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    format_axis(axes, metric)
    axes.grid(alpha=0.3)


def _add_legend(
    figure: Figure, study: StudyResults, variants: Sequence[str] | None = None, *, boxes: bool = False
) -> None:
    styles, shown = choose_line_styles(study), study.variants if variants is None else variants
    handles = [
        Patch(facecolor=styles[name].colour, alpha=0.6, label=legend_label(name))
        if boxes
        else Line2D(
            [], [], color=styles[name].colour, linestyle=styles[name].line, lw=2.2, label=legend_label(name)
        )
        for name in shown
    ]
    columns = max(1, min(len(handles), 120 // (6 + max(len(shorten(name)) for name in shown))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def _list_labels(metrics: Sequence[Quantity]) -> str:
    *first, last = (shorten(metric.label) for metric in metrics)
    text = f"{', '.join(first)} and {last}"
    return text[0].upper() + text[1:]
