"""Compares runs: median curves with the range over seeds, and a table of final medians.

python examples/compare.py FIGURE.png RUN_FOLDER …

Runs that ended after different numbers of evaluations are compared at the largest number that all reached.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

import elites
from elites.experiments.config import load_config
from elites.reports import colours
from elites.results.folder import RunFolder

METRICS = {"qd_score": "QD-score", "max_fitness": "max-fitness", "coverage": "coverage"}

figure_path, *folders = map(Path, sys.argv[1:])
runs = defaultdict(lambda: defaultdict(list))
for folder in folders:
    config, _ = load_config(folder)
    table = elites.read_table(folder)
    seconds = RunFolder(folder).read_elapsed()
    table["minutes"] = seconds / 60 if len(seconds) else np.full(len(table["generation"]), np.nan)
    runs[config.task_name][config.algorithm].append(table)


def spread(values: Sequence[float]) -> str:
    if np.isnan(values).any():
        return ""
    middle, low, high = np.median(values), min(values), max(values)
    form = "{:,.0f}" if high > 10 else "{:.3f}" if high <= 1 else "{:.1f}"
    return f"{form.format(middle)} ({form.format(low)} to {form.format(high)})"


figure = Figure(figsize=(12, 3.4 * len(runs) + 0.5), layout="constrained")
panels = figure.subplots(len(runs), len(METRICS), squeeze=False)
columns = ["task", "algorithm", "seeds", "evaluations", *METRICS.values(), "minutes"]
print("| " + " | ".join(columns) + " |")
print("|---" * len(columns) + "|")
every = [table for tables in runs.values() for group in tables.values() for table in group]
budget = min(table["evaluations"][-1] for table in every)
for row, task in zip(panels, sorted(runs), strict=True):
    for algorithm in [name for name in colours.ALGORITHMS if name in runs[task]]:
        tables = runs[task][algorithm]
        steps = np.linspace(0, budget, 401)[1:]
        last = [np.searchsorted(table["evaluations"], steps, side="right") - 1 for table in tables]
        cells = [task, f"`{algorithm}`", str(len(tables)), f"{budget:,.0f}"]
        for axes, name in zip(row, METRICS, strict=True):
            values = np.array([table[name][rows] for table, rows in zip(tables, last, strict=True)])
            values[np.array(last) < 0] = np.nan  # before the first generation has ended
            colour = colours.ALGORITHMS[algorithm]
            axes.plot(steps, np.median(values, axis=0), label=algorithm, color=colour, lw=1.6)
            axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.15, lw=0)
            axes.set(title=f"{task}: {METRICS[name]}", xlabel="evaluations", xlim=(0, budget))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.yaxis.set_major_formatter(EngFormatter(sep="") if name == "qd_score" else "{x:g}")
            axes.grid(alpha=0.3)
            cells.append(spread(values[:, -1]))
        print(
            "| "
            + " | ".join(
                [
                    *cells,
                    spread([table["minutes"][rows[-1]] for table, rows in zip(tables, last, strict=True)]),
                ]
            )
            + " |"
        )
legends = [axes.get_legend_handles_labels() for axes in panels[:, 0]]
handles, labels = max(legends, key=lambda legend: len(legend[1]))
figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
figure.savefig(figure_path, dpi=120)
