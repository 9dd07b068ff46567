"""Compares final values of an uncertain task with those of its deterministic counterpart.

python docs/reproduction/noise_free.py REPORT DETERMINISTIC-REPORT: folders beside this file. Prints a line
for each task, algorithm and metric that both have: medians, and the p-value of the exact rank-sum test.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from elites.metrics.metric import METRICS, Quantity
from elites.metrics.statistics import rank_sum_p
from elites.results import names

DETERMINISTIC = "deterministic-"


def main(uncertain: Path, deterministic: Path) -> None:
    """Prints the comparison of two reports, or of one that has both kinds of tasks."""
    first, second = (_read_finals(report) for report in (uncertain, deterministic))
    for (task, algorithm), own in second.groupby(["task", "algorithm"], observed=True):
        counterpart = task.replace(DETERMINISTIC, "")
        other = first[(first["task"] == counterpart) & (first["algorithm"] == algorithm)]
        if counterpart == task or other.empty:
            continue
        for metric in (quantity for built_in in METRICS for quantity in (built_in, built_in.corrected)):
            pair = [table[metric.name].dropna().to_numpy() for table in (other, own)]
            if all(map(len, pair)):
                print(f"{counterpart}, {algorithm}, {_format_line(metric, *pair)}")


def _read_finals(report: Path) -> pd.DataFrame:
    """The last row of each run."""
    table = pd.read_parquet(report / names.REPORT_METRICS)
    return table.groupby(["task", "algorithm", "seed"], observed=True).last().reset_index()


def _format_line(metric: Quantity, first: np.ndarray, second: np.ndarray) -> str:
    medians = ", ".join(metric.format_value(float(np.median(values))) for values in (first, second))
    return f"{metric.label}: {medians}, p = {rank_sum_p(first, second):.2g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
