"""Compares the losses of archives after re-evaluation: box plots as in the paper, and a table of medians.

python examples/losses.py FIGURE.png LOSSES.csv [RUN_FOLDER …]

Each run must have been corrected with `elites correct`. The losses are written to LOSSES.csv; without folders
they are read from it.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import elites
from elites.experiments.config import load_config
from elites.reports import colours

LOSSES = {"qd_score": "QD-score loss", "max_fitness": "max-fitness loss", "coverage": "coverage loss"}
COLUMNS = ("task", "algorithm", "seed", "evaluations", "elites", *LOSSES)

figure_path, table_path, *folders = map(Path, sys.argv[1:])
if folders:
    rows = []
    for folder in folders:
        config, _ = load_config(folder)
        corrected = elites.load_corrected(folder)
        about, losses = corrected.about, corrected.losses._asdict()
        known = (config.task_name, config.algorithm, config.seed, about["evaluations"], len(corrected.cell))
        rows.append((*known, *(losses[name] for name in LOSSES)))
    with table_path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])

losses_of_seeds = defaultdict(list)
with table_path.open() as file:
    for row in csv.DictReader(file):
        losses_of_seeds[row["task"], row["algorithm"]].append([float(row[name]) for name in LOSSES])
tasks = sorted({task for task, _ in losses_of_seeds})
algorithms = [name for name in colours.ALGORITHMS if any(name == other for _, other in losses_of_seeds)]

figure = Figure(figsize=(12, 3.2 * len(tasks)), layout="constrained")
panels = figure.subplots(len(tasks), len(LOSSES), squeeze=False)
print("| task | algorithm | seeds | " + " | ".join(LOSSES.values()) + " |")
print("|---" * (3 + len(LOSSES)) + "|")
for row, task in zip(panels, tasks, strict=True):
    for place, algorithm in enumerate(algorithms):
        values = np.array(losses_of_seeds.get((task, algorithm), [])).reshape(-1, len(LOSSES))
        if not len(values):
            continue
        cells = [f"{np.median(v):.1%} ({v.min():.1%} to {v.max():.1%})" for v in values.T]
        print(f"| {task} | `{algorithm}` | {len(values)} | {' | '.join(cells)} |")
        for axes, losses in zip(row, values.T, strict=True):
            colour = colours.ALGORITHMS[algorithm]
            box = axes.boxplot(losses, positions=[place], widths=0.6, patch_artist=True, showfliers=False)
            box["boxes"][0].set(facecolor=colour, alpha=0.5)
            box["medians"][0].set(color="black")
            axes.plot(np.full(len(losses), place), losses, "o", color=colour, ms=4, mec="black", mew=0.5)
    for axes, title in zip(row, LOSSES.values(), strict=True):
        axes.set_title(f"{task}: {title}", fontsize=10)
        axes.set_xticks(range(len(algorithms)), algorithms, rotation=25, ha="right", fontsize=8)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="y", alpha=0.3)
figure.savefig(figure_path, dpi=120)
