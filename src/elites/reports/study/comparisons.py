"""Final values in figures: medians over replications, and whether algorithms differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from elites.metrics.statistics import LEVEL, bonferroni, least_p, quartiles, rank_sum_p
from elites.reports.study.data import Study
from elites.reports.study.logs import CORRECTED, LOSSES, METRICS

NONE = "\N{EN DASH}"  # where there is no number
NAMES = {
    "qd_score": "QD-score",
    "max_fitness": "max-fitness",
    "coverage": "coverage",
    "corrected_qd_score": "corrected QD-score",
    "corrected_max_fitness": "corrected max-fitness",
    "corrected_coverage": "corrected coverage",
    "qd_score_loss": "QD-score loss",
    "max_fitness_loss": "max-fitness loss",
    "coverage_loss": "coverage loss",
}


class Final(NamedTuple):
    """A metric of an algorithm on a task at the common budget."""

    task: str
    variant: str
    metric: str
    seeds: int
    evaluations: int
    median: float
    low: float  # first quartile
    high: float  # third quartile


class Comparison(NamedTuple):
    """Whether another algorithm differs from the reference in a metric on a task."""

    metric: str
    task: str
    reference: str
    other: str
    seeds: tuple[int, int]
    medians: tuple[float, float]
    p: float
    comparisons: int  # that were made with this metric
    corrected: float  # p after Bonferroni
    least: float  # the smallest that so many replications can reach, after Bonferroni

    @property
    def possible(self) -> bool:
        """Whether so few replications can show anything at all."""
        return self.least < LEVEL

    @property
    def significant(self) -> bool:
        return self.corrected < LEVEL


def finals(study: Study) -> list[Final]:
    """Medians and quartiles of everything."""
    rows = []
    for task in study.tasks:
        for variant in study.variants:
            for metric in (*METRICS, *CORRECTED, *LOSSES):
                values = _numbers(study.finals(task, variant, metric))
                if len(values):
                    at = study.budgets[task]
                    rows.append(Final(task, variant, metric, len(values), at, *quartiles(values)))
    return rows


def reference_of(study: Study) -> str:
    """Whom all others are compared with: PGA-MAP-Elites as the paper has it, else the first."""
    own = [c.run for c in study.runs if c.run.algorithm == "pga-map-elites"]
    as_in_paper = [run.variant for run in own if run.record["hyper_parameters"].get("p_evo") == 0.5]
    return next(iter([*as_in_paper, *(run.variant for run in own), *study.variants]))


def compare(study: Study) -> list[Comparison]:
    """The reference against all others, for every metric; corrected over all comparisons of a metric."""
    reference, rows = reference_of(study), []
    for metric in (*METRICS, *CORRECTED, *LOSSES):
        found = []
        for task in study.tasks:
            own = _numbers(study.finals(task, reference, metric))
            for other in study.variants:
                theirs = _numbers(study.finals(task, other, metric))
                if other != reference and len(own) and len(theirs):
                    found.append((task, other, own, theirs))
        count = len(found)
        for task, other, own, theirs in found:
            p = rank_sum_p(own, theirs)
            rows.append(
                Comparison(
                    metric=metric,
                    task=task,
                    reference=reference,
                    other=other,
                    seeds=(len(own), len(theirs)),
                    medians=(float(np.median(own)), float(np.median(theirs))),
                    p=p,
                    comparisons=count,
                    corrected=bonferroni(p, count),
                    least=bonferroni(least_p(len(own), len(theirs)), count),
                )
            )
    return rows


def seeds_needed(comparisons: int) -> int:
    """The replications of each with which so many comparisons can be significant."""
    seeds = 1
    while bonferroni(least_p(seeds, seeds), comparisons) >= LEVEL:
        seeds += 1
    return seeds


def verdict_on_power(rows: Sequence[Comparison]) -> str:
    """What so many replications can show of one metric, in a sentence; empty if all can be significant."""
    impossible = [row for row in rows if not row.possible]
    if not impossible:
        return ""
    count, least = rows[0].comparisons, min(row.least for row in impossible)
    seeds = min(min(row.seeds) for row in impossible)
    told = "none of them can" if len(impossible) == len(rows) else f"{len(impossible)} of them cannot"
    return (
        f"With {counted(seeds, 'replication')} and {counted(count, 'comparison')} {told} be significant at "
        f"{LEVEL:g}, whatever the runs had found: the smallest corrected p-value that they can reach is "
        f"{least:.2g}. It takes {seeds_needed(count)} replications of each."
    )


def counted(count: int, noun: str) -> str:
    """So many of them."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _numbers(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]  # type: ignore[no-any-return]


def as_text(metric: str, value: float) -> str:
    """A value as a person reads it."""
    if math.isnan(value):
        return NONE
    if metric.endswith("_loss") or "coverage" in metric:
        return f"{value:.1%}"
    return f"{value:,.0f}" if "qd_score" in metric else f"{value:,.1f}"


def p_text(p: float) -> str:
    """A p-value with two digits."""
    return NONE if math.isnan(p) else "1" if p >= 1 else f"{p:.2g}"
