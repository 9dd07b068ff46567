"""Draws the curves of PGA-MAP-Elites against the published medians: python docs/fidelity/curves.py [PNG]"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from elites.metrics.statistics import quartiles
from elites.reports.colours import ALGORITHMS

HERE = Path(__file__).parent
EVALUATIONS = 1e6  # of a published run
# Medians of 20 runs at 10^6 evaluations in the earlier study of PGA-MAP-Elites.
PUBLISHED = {
    "qd-walker": {"qd_score": 1.540e6, "max_fitness": 2730},
    "qd-hopper": {"qd_score": 2.089e6, "max_fitness": 2885},
}
LABELS = {"qd_score": "QD-score", "max_fitness": "max-fitness"}


def main() -> None:
    """Draws the figure from `pga.csv`, and prints the medians."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "pga.png"
    values: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (HERE / "pga.csv").open() as file:
        for row in csv.DictReader(file):
            for metric in LABELS:
                values[row["task"], metric][int(row["evaluations"])].append(float(row[metric]))
    figure = Figure(figsize=(9, 6), layout="constrained")
    all_axes = figure.subplots(2, 2, sharex=True, squeeze=False)
    for column, (task, published) in enumerate(PUBLISHED.items()):
        for row, (metric, label) in enumerate(LABELS.items()):
            axes, curve = all_axes[row][column], values[task, metric]
            evaluations = np.array(sorted(curve))
            median, low, high = np.array([quartiles(curve[n]) for n in evaluations]).T
            runs = len(curve[evaluations[-1]])
            colour = ALGORITHMS["pga-map-elites"]
            axes.fill_between(evaluations, low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot(evaluations, median, color=colour, label=f"Elites, {runs} runs: median, quartiles")
            axes.plot(
                EVALUATIONS, published[metric], "k*", ms=12, clip_on=False, label="published median of 20"
            )
            axes.axhline(published[metric], color="k", linestyle=":", linewidth=1)
            axes.set_xscale("log")
            axes.set_xlim(1000, EVALUATIONS)
            axes.set_ylim(0)
            axes.set_ylabel(label)
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
            axes.grid(alpha=0.3)
            print(
                f"| {task} | {label} | {evaluations[-1]:,} | {median[-1]:,.0f} ({low[-1]:,.0f} to "
                f"{high[-1]:,.0f}) | {published[metric]:,.0f} |"
            )
        all_axes[0][column].set_title(task)
        all_axes[1][column].set_xlabel("evaluations")
    all_axes[0][0].legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
