"""Prints how comparisons of QD-scores depend on the QD offset: python docs/reproduction/offset.py

A lower offset adds the same number for each filled cell, so the comparison follows from the QD-score and the
coverage of each run. In the limit, the algorithm with more cells is first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import elites
from elites.metrics.statistics import rank_sum_p
from elites.results import names

HERE = Path(__file__).parent
REFERENCE = "pga-map-elites"
LOWER_BY = (0, 1_000, 10_000, 1_000_000)


def table() -> Iterator[str]:
    """A row for each task and algorithm that PGA-MAP-Elites is compared with."""
    headers = [f"lower by {lower:,}" if lower else "the task's offset" for lower in LOWER_BY]
    yield f"| task | evaluations | algorithm | {' | '.join(headers)} |"
    yield "|---|---|---|" + "---|" * len(LOWER_BY)
    for file in sorted(HERE.glob(f"*/{names.REPORT_METRICS}")):
        finals = pd.read_parquet(file).groupby(["task", "variant", "seed"], observed=True).last()
        for task in finals.index.get_level_values("task").unique():
            runs = finals.loc[task]
            variants = list(runs.index.get_level_values("variant").unique())
            if REFERENCE not in variants:
                continue
            cells = elites.make_task(task).cells
            for other in variants:
                if other != REFERENCE:
                    budget = int(runs["evaluations"].max())
                    pair = (runs.loc[REFERENCE], runs.loc[other])
                    texts = [
                        compare(*(rows["qd_score"] + lower * cells * rows["coverage"] for rows in pair))
                        for lower in LOWER_BY
                    ]
                    yield f"| `{task}` | {budget:,} | `{other}` | {' | '.join(texts)} |"


def compare(first: pd.Series[float], second: pd.Series[float]) -> str:
    """Which one is higher, and the p-value of the exact rank-sum test."""
    order = "above" if np.median(first) > np.median(second) else "below"
    return f"{order}, p = {rank_sum_p(first.to_numpy(), second.to_numpy()):.1g}"


if __name__ == "__main__":
    print("\n".join(table()))
