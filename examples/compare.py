"""Compares runs: median curves with the range over seeds, and a table of final medians.

python examples/compare.py FIGURE.png RUN_FOLDER …
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

import elites
from elites.experiments.config import load_config

COLOURS = {"pga-map-elites": "#d55e00", "map-elites": "#0072b2"}
METRICS = {"qd_score": "QD-score", "max_fitness": "max-fitness", "coverage": "coverage"}

figure_path, *folders = map(Path, sys.argv[1:])
runs = defaultdict(list)
for folder in folders:
    config, _ = load_config(folder)
    runs[config.task, config.algorithm].append(elites.read_table(folder / "metrics.csv"))

tasks = list(dict.fromkeys(task for task, _ in runs))
figure = Figure(figsize=(11, 3.2 * len(tasks)), layout="constrained")
panels = figure.subplots(len(tasks), len(METRICS), squeeze=False)
print("| task | algorithm | seeds | evaluations | " + " | ".join(METRICS.values()) + " |")
print("|---" * (4 + len(METRICS)) + "|")
for (task, algorithm), tables in sorted(runs.items()):
    common = min(len(table["evaluations"]) for table in tables)
    evaluations = tables[0]["evaluations"][:common]
    cells = []
    for axes, name in zip(panels[tasks.index(task)], METRICS, strict=True):
        values = np.array([table[name][:common] for table in tables])
        middle = np.median(values, axis=0)
        axes.plot(evaluations, middle, label=algorithm, color=COLOURS[algorithm])
        axes.fill_between(evaluations, values.min(0), values.max(0), color=COLOURS[algorithm], alpha=0.2)
        axes.set(title=f"{task}: {METRICS[name]}", xlabel="evaluations")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
        low, high = values[:, -1].min(), values[:, -1].max()
        form = "{:,.0f}" if high > 10 else "{:.3f}"
        cells.append(f"{form.format(middle[-1])} ({form.format(low)} to {form.format(high)})")
    print(f"| {task} | {algorithm} | {len(tables)} | {evaluations[-1]:,.0f} | {' | '.join(cells)} |")
panels[0, 0].legend()
figure.savefig(figure_path, dpi=120)
