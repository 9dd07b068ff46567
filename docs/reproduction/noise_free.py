"""Compares final values of an uncertain task with those of its deterministic counterpart.

python docs/reproduction/noise_free.py REPORT DETERMINISTIC-REPORT: folders beside this file. Prints a line
for each algorithm and metric that both have: medians, and the p-value of the exact rank-sum test.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from elites.metrics.metric import METRICS, Quantity
from elites.metrics.statistics import rank_sum_p
from elites.results import names


def main(uncertain: Path, deterministic: Path) -> None:
    """Prints the comparison of two reports."""
    first, second = (_read_finals(report) for report in (uncertain, deterministic))
    for algorithm in sorted({*first["algorithm"]} & {*second["algorithm"]}):
        for metric in (quantity for own in METRICS for quantity in (own, own.corrected)):
            pair = [
                table.loc[table["algorithm"] == algorithm, metric.name].to_numpy()
                for table in (first, second)
            ]
            print(_format_line(algorithm, metric, *pair))


def _read_finals(report: Path) -> pd.DataFrame:
    """The last row of each run."""
    table = pd.read_parquet(report / names.REPORT_METRICS)
    return table.groupby(["task", "algorithm", "seed"], observed=True).last().reset_index()


def _select_values(finals: pd.DataFrame, algorithm: str, metric: Quantity) -> np.ndarray:
    return finals.loc[finals["algorithm"] == algorithm, metric.name].to_numpy()


def _format_line(algorithm: str, metric: Quantity, first: np.ndarray, second: np.ndarray) -> str:
    medians = ", ".join(metric.format_value(float(np.median(values))) for values in (first, second))
    return f"{algorithm}, {metric.label}: {medians}, p = {rank_sum_p(first, second):.2g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
