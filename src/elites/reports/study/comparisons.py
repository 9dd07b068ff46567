"""Final values: medians over replications, whether algorithms differ, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from elites.errors import ElitesError
from elites.metrics.metric import Quantity
from elites.metrics.statistics import (
    LEVEL,
    Interval,
    bonferroni,
    interquartile_mean,
    mean_superiority,
    median_difference,
    quartiles,
    rank_sum_p,
    smallest_p,
    superiority,
)
from elites.paper.presets import PGA, has_paper_share
from elites.paper.verdicts import SAME, UNKNOWN, Claim
from elites.studies.results.study_results import POOLED, StudyResults

PROBABILITY = Quantity("probability", "probability", ".2f")
NONE = "\N{EN DASH}"  # for a number that is missing


class FinalValue(NamedTuple):
    """A metric of an algorithm on a task where its runs are compared."""

    task: str
    variant: str
    metric: str
    seeds: int
    evaluations: int  # the fewest of its replications
    median: float
    low: float  # first quartile
    high: float  # third quartile


class Comparison(NamedTuple):
    """Whether another algorithm differs from the reference in a metric on a task, and by how much."""

    metric: str
    task: str
    reference: str
    other: str
    seeds: tuple[int, int]
    medians: tuple[float, float]
    p: float
    comparisons: int  # with this metric
    corrected_p: float  # p after Bonferroni
    smallest_p: float  # the smallest p that these replications can reach, after Bonferroni
    superiority: Interval  # the probability that the other is above the reference
    difference: Interval  # of the medians, the other's minus the reference's
    pooled: str = ""  # of QD-scores: whether the result is the same with the pooled offset

    @property
    def possible(self) -> bool:
        """Whether a comparison of these replications can be significant at all."""
        return self.smallest_p < LEVEL

    @property
    def significant(self) -> bool:
        return self.corrected_p < LEVEL

    @property
    def outcome(self) -> float:
        """1 or -1 if the other is significantly above or below the reference, else 0."""
        return float(np.sign(self.medians[1] - self.medians[0])) if self.significant else 0.0


class Aggregate(NamedTuple):
    """A metric of an algorithm over all tasks of the reference."""

    metric: str
    variant: str
    tasks: int
    mean: Interval  # interquartile, of values scaled on each task from its lowest (0) to its highest (1)
    superiority: Interval  # the probability that it is above the reference, in the mean over tasks


@dataclass(frozen=True)
class Findings:
    """Everything that a report states about a study, apart from its figures."""

    study: StudyResults
    reference: str
    finals: list[FinalValue]
    comparisons: list[Comparison]
    aggregates: list[Aggregate]
    common_finals: list[FinalValue]  # at the common budget; empty if all runs are compared there anyway
    common_comparisons: list[Comparison]
    claims: list[Claim]
    notes: tuple[str, ...]


def make_findings(
    study: StudyResults, claims: list[Claim], reference: str, recorded_reference: str
) -> Findings:
    """The final values of a study, compared with those of the reference, and the paper's claims.

    The reference in the study's record does not count while it has no runs.
    """
    notes: tuple[str, ...] = ()
    try:
        reference = choose_reference(study, reference or recorded_reference)
    except ElitesError as error:
        if reference:
            raise
        reference = choose_reference(study)  # a study that is not complete yet
        notes = (f"The study's {error}. All others are compared with {reference}.",)
    common = study.at_common_budget if study.tasks_without_common_budget else None
    return Findings(
        study,
        reference,
        compute_finals(study),
        compare(study, reference, pool=True),
        aggregate(study, reference),
        compute_finals(common) if common else [],
        compare(common, reference) if common else [],
        claims,
        notes,
    )


def compute_finals(study: StudyResults) -> list[FinalValue]:
    """Medians and quartiles of all quantities."""
    rows = []
    for task in study.tasks:
        for variant in study.variants:
            for metric in study.quantities:
                values = _drop_missing(study.finals(task, variant, metric.name))
                if len(values):
                    at = min(
                        study.compared_values(curves).evaluations
                        for curves in study.replications(task, variant)
                    )
                    rows.append(FinalValue(task, variant, metric.name, len(values), at, *quartiles(values)))
    return rows


def choose_reference(study: StudyResults, name: str = "") -> str:
    """The variant that all others are compared with, by default the paper's PGA-MAP-Elites, else the first.

    `name` is its label, its algorithm, or the folder of its runs in the study.
    """
    runs = [curves.run for curves in study.runs]
    if name in study.variants:
        return name
    if name:
        runs = [run for run in runs if name in (run.algorithm, run.home)]
    else:
        runs = [run for run in runs if run.algorithm == PGA]
    with_paper_share = [run.variant for run in runs if has_paper_share(run.record.hyper_parameters)]
    matches = list(dict.fromkeys([run.variant for run in runs]))
    if name and not with_paper_share and len(matches) != 1:
        problem = "names several algorithms" if matches else "is none of the algorithms"
        raise ElitesError(f"reference {name!r} {problem}; it must be one of {', '.join(study.variants)}")
    return next(iter([*with_paper_share, *matches, *study.variants]))


def compare(study: StudyResults, reference: str = "", *, pool: bool = False) -> list[Comparison]:
    """The reference against all others, for every quantity; Bonferroni-corrected over its comparisons.

    With `pool`, comparisons of QD-scores also say whether the result is the same with the pooled offset.
    """
    reference, rows = reference or choose_reference(study), []
    for metric in study.quantities:
        compared = _compare(study, reference, metric)
        if pool and metric.name in POOLED:
            compared = [
                row._replace(pooled=_describe_sensitivity(study.with_pooled_offset, row)) for row in compared
            ]
        rows += compared
    return rows


def _describe_sensitivity(pooled: StudyResults, row: Comparison) -> str:
    """The result of a comparison with the pooled offset, in words."""
    first, second = (
        _drop_missing(pooled.finals(row.task, name, row.metric)) for name in (row.reference, row.other)
    )
    if (len(first), len(second)) != row.seeds:
        return UNKNOWN
    corrected_p = bonferroni(rank_sum_p(first, second), row.comparisons)
    medians = float(np.median(first)), float(np.median(second))
    outcome = row._replace(corrected_p=corrected_p, medians=medians).outcome
    words = {0.0: "not significant", 1.0: "significantly above", -1.0: "significantly below"}
    return SAME if outcome == row.outcome else words[outcome]


def _compare(study: StudyResults, reference: str, metric: Quantity) -> list[Comparison]:
    pairs = []
    for task in study.tasks:
        own = _drop_missing(study.finals(task, reference, metric.name))
        for other in study.variants:
            theirs = _drop_missing(study.finals(task, other, metric.name))
            if other != reference and len(own) and len(theirs):
                pairs.append((task, other, own, theirs))
    rows, count = [], len(pairs)
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
                corrected_p=bonferroni(p, count),
                smallest_p=bonferroni(smallest_p(len(own), len(theirs)), count),
                superiority=superiority(theirs, own),
                difference=median_difference(theirs, own),
            )
        )
    return rows


def aggregate(study: StudyResults, reference: str) -> list[Aggregate]:
    """Every quantity over all tasks on which the reference has values, if there are several such tasks.

    An algorithm that has no values on one of them is left out.
    """
    rows = []
    for metric in study.quantities:
        values = {
            (task, variant): _select_finite(study.finals(task, variant, metric.name))
            for task in study.tasks
            for variant in study.variants
        }
        tasks = [task for task in study.tasks if len(values[task, reference])]
        if len(tasks) < 2:
            continue
        scaled = {}
        for task in tasks:
            all_of_it = np.concatenate([values[task, variant] for variant in study.variants])
            low, range_ = all_of_it.min(), np.ptp(all_of_it)
            for variant in study.variants:
                scaled[task, variant] = (values[task, variant] - low) / (range_ or 1.0)
        for variant in study.variants:
            if all(len(values[task, variant]) for task in tasks):
                pairs = [(values[task, variant], values[task, reference]) for task in tasks]
                above = Interval(math.nan) if variant == reference else mean_superiority(pairs)
                mean = interquartile_mean([scaled[task, variant] for task in tasks])
                rows.append(Aggregate(metric.name, variant, len(tasks), mean, above))
    return rows


def compute_required_seeds(comparisons: int) -> int:
    """The number of replications of each algorithm with which one of `comparisons` can be significant."""
    seeds = 1
    while bonferroni(smallest_p(seeds, seeds), comparisons) >= LEVEL:
        seeds += 1
    return seeds


def describe_power(rows: Sequence[Comparison]) -> str:
    """The comparisons of one metric that cannot be significant, as text; empty if all can."""
    impossible = [row for row in rows if not row.possible]
    if not impossible:
        return ""
    count, smallest = rows[0].comparisons, min(row.smallest_p for row in impossible)
    seeds = min(min(row.seeds) for row in impossible)
    subject = "none" if len(impossible) == len(rows) else f"{len(impossible)}"
    can = "can" if subject == "none" else "cannot"
    required = format_count(compute_required_seeds(count), "replication")
    return (
        f"With {format_count(seeds, 'replication')} and {format_count(count, 'comparison')}, {subject} of "
        f"the comparisons {can} be significant at {LEVEL:g}, whatever the values: the smallest possible "
        f"corrected p-value is {smallest:.2g}. At least {required} of each algorithm are needed."
    )


def format_count(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _drop_missing(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]  # type: ignore[no-any-return]


def _select_finite(values: np.ndarray) -> np.ndarray:
    """The finite values: losses may be infinite, which no scale can show."""
    return values[np.isfinite(values)]  # type: ignore[no-any-return]


def format_value(metric: Quantity, value: float) -> str:
    """A value in a table."""
    return NONE if math.isnan(value) else metric.format_value(value)


def format_interval(metric: Quantity, interval: Interval) -> str:
    """An estimate with its interval, where it has one."""
    estimate, low, high = (format_value(metric, value) for value in interval)
    return estimate if NONE in (low, high) else f"{estimate} ({low} to {high})"


def format_p(p: float) -> str:
    """A p-value with two digits."""
    return NONE if math.isnan(p) else "1" if p >= 1 else f"{p:.2g}"
