"""Tables of one run, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from elites.metrics.corrected import select_luckiest, select_most_reproducible
from elites.metrics.metric import installed_metrics, load_archive_metrics
from elites.results.corrected import ROUNDING, CorrectedArchive
from elites.text import shorten


def make_losses_table(corrected: CorrectedArchive, metric_paths: Iterable[str] = ()) -> str:
    """The metrics of an archive, those of the corrected one, and the losses.

    `metric_paths` are the import paths of the run's further metrics.
    """
    about = corrected.about
    title = f"corrected by {about['replications']} replications of each of {len(corrected.cell)} elites"
    if about["redraw"]:
        title += ", each of a member drawn from its cell"
    metric_paths = list(metric_paths)
    _, problems = installed_metrics(metric_paths)
    rows = [
        ("", "original", "corrected", "loss"),
        *(
            (
                shorten(metric.label),
                metric.format_value(before),
                metric.format_value(after),
                metric.loss.format_value(loss),
            )
            for metric in load_archive_metrics(metric_paths)
            for before, after, loss in [corrected.compare_metric(metric)]
        ),
    ]
    if corrected.invalid:
        count = int(corrected.invalid)
        title += f"; {count} elite{'s' * (count != 1)} left out because an episode gave NaN"
    notes = [f"  left out: {problem}" for problem in problems]
    if corrected.shows_rounding:
        notes.append(
            f"  this task has no noise: the loss comes from {ROUNDING}; native physics repeats every bit"
        )
    return "\n".join([title, *align_rows(rows), *notes])


def make_reproducibility_tables(corrected: CorrectedArchive) -> str:
    """The ten most reproducible elites and the ten luckiest."""
    spread = corrected.compute_spread()
    described = corrected.about["task"]["descriptor_names"]
    names = [shorten(str(name).replace("_", " ")) for name in described]

    def make_table(elites: np.ndarray) -> list[str]:
        rows = [("cell", *names, "fitness", "mean", "deviation", "in own cell")]
        rows += [
            (
                str(corrected.cell[elite]),
                *(f"{value:.2f}" for value in corrected.original_descriptor[elite]),
                f"{corrected.original_fitness[elite]:.1f}",
                f"{corrected.mean_fitness[elite]:.1f}",
                f"{spread.fitness[elite]:.1f}",
                f"{spread.own_cell[elite]:.0%}",
            )
            for elite in elites
        ]
        return align_rows(rows)

    lucky = select_luckiest(corrected.original_fitness, corrected.mean_fitness)
    return "\n".join(
        [
            "the most reproducible elites: most often in their own cell, then least variation in fitness",
            *make_table(select_most_reproducible(spread)),
            "the luckiest elites: fitness farthest above the mean of their replications",
            *make_table(lucky),
        ]
    )


def align_rows(rows: Sequence[Iterable[str]]) -> list[str]:
    """Rows as lines, the first column to the left and numbers to the right."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in cells
    ]
