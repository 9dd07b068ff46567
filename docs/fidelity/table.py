"""Prints the table of docs/fidelity.md from `runs.csv`: python docs/fidelity/table.py"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from elites.metrics.statistics import quartiles, rank_sum_p, superiority

METRICS = ("qd_score", "max_fitness", "coverage")


def main() -> None:
    """Compares the two variants of each study at their last common evaluation."""
    final: dict[str, dict[str, dict[str, dict[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    with (Path(__file__).parent / "runs.csv").open() as file:
        for row in csv.DictReader(file):  # later rows of a run replace earlier ones
            final[row["study"]][row["label"]][row["seed"]] = {
                name: float(row[name]) for name in ("evaluations", "gradient_steps", *METRICS)
            }
    print("| study | evaluations | metric | first | second | superiority of the first | p |")
    print("|---|---|---|---|---|---|---|")
    for study, variants in final.items():
        (first, ours), (second, others) = variants.items()
        evaluations = max(run["evaluations"] for run in ours.values())
        for metric in METRICS:
            one, other = ([run[metric] for run in runs.values()] for runs in (ours, others))
            estimate, low, high = superiority(one, other)
            print(
                f"| {study} | {evaluations:,.0f} | {metric.replace('_', '-')} | {first}: {_text(one)} | "
                f"{second}: {_text(other)} | {estimate:.2f} ({low:.2f} to {high:.2f}) | "
                f"{rank_sum_p(one, other):.3f} |"
            )


def _text(values: list[float]) -> str:
    median, low, high = (f"{value:,.0f}" if value > 10 else f"{value:.3f}" for value in quartiles(values))
    return f"{median} ({low} to {high})"


if __name__ == "__main__":
    main()
