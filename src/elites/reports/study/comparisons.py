"""Final values: medians over replications, and whether algorithms differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from elites.metrics.metric import Quantity
from elites.metrics.statistics import LEVEL, bonferroni, least_p, quartiles, rank_sum_p
from elites.paper.presets import GA_SHARE, PGA
from elites.studies.merge.results import StudyResults

NONE = "\N{EN DASH}"  # for a number that is missing


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
        """Whether so many replications can be significant at all."""
        return self.least < LEVEL

    @property
    def significant(self) -> bool:
        return self.corrected < LEVEL


def finals(study: StudyResults) -> list[Final]:
    """Medians and quartiles of all quantities."""
    rows = []
    for task in study.tasks:
        for variant in study.variants:
            for metric in study.quantities:
                values = _numbers(study.finals(task, variant, metric.name))
                if len(values):
                    at = study.budgets[task]
                    rows.append(Final(task, variant, metric.name, len(values), at, *quartiles(values)))
    return rows


def reference_of(study: StudyResults) -> str:
    """The variant that all others are compared with: the paper's PGA-MAP-Elites, else the first."""
    runs = [curves.run for curves in study.runs if curves.run.algorithm == PGA]
    papers = [run.variant for run in runs if run.record.hyper_parameters.get("p_evo") == GA_SHARE]
    return next(iter([*papers, *(run.variant for run in runs), *study.variants]))


def compare(study: StudyResults) -> list[Comparison]:
    """The reference against all others, for every quantity; Bonferroni-corrected over its comparisons."""
    reference, rows = reference_of(study), []
    for metric in study.quantities:
        pairs = []
        for task in study.tasks:
            own = _numbers(study.finals(task, reference, metric.name))
            for other in study.variants:
                theirs = _numbers(study.finals(task, other, metric.name))
                if other != reference and len(own) and len(theirs):
                    pairs.append((task, other, own, theirs))
        count = len(pairs)
        for task, other, own, theirs in pairs:
            p = rank_sum_p(own, theirs)
            rows.append(
                Comparison(
                    metric=metric.name,
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
    """The replications of each with which one of so many comparisons can be significant."""
    seeds = 1
    while bonferroni(least_p(seeds, seeds), comparisons) >= LEVEL:
        seeds += 1
    return seeds


def describe_power(rows: Sequence[Comparison]) -> str:
    """What these replications can show for one metric; empty if all comparisons can be significant."""
    impossible = [row for row in rows if not row.possible]
    if not impossible:
        return ""
    count, least = rows[0].comparisons, min(row.least for row in impossible)
    seeds = min(min(row.seeds) for row in impossible)
    which = "none of them can" if len(impossible) == len(rows) else f"{len(impossible)} of them cannot"
    return (
        f"With {counted(seeds, 'replication')} and {counted(count, 'comparison')} {which} be significant at "
        f"{LEVEL:g}, whatever their values: the smallest corrected p-value that they can reach is "
        f"{least:.2g}. It takes {seeds_needed(count)} replications of each."
    )


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _numbers(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]  # type: ignore[no-any-return]


def as_text(metric: Quantity, value: float) -> str:
    """A value in a table."""
    return NONE if math.isnan(value) else metric.text(value)


def p_text(p: float) -> str:
    """A p-value with two digits."""
    return NONE if math.isnan(p) else "1" if p >= 1 else f"{p:.2g}"
