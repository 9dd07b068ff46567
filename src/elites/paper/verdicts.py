"""Verdicts of data on claims.

A claim is split into comparisons that the data can decide, each by an exact test at the level of 5 %,
Bonferroni-corrected over the comparisons of that claim which the runs allow:

- "A above B": the rank-sum test. It holds if A's median is above and the difference significant, is
  contradicted if A's median is below and the difference significant.
- "A like B": contradicted if the difference is significant and the medians are more than a tenth apart; holds
  if they are not and a difference could have been significant.
- "A below a limit", or a statement about single runs: the sign test over replications.

Anything else is not decidable with so few runs. A claim is contradicted if one of its comparisons is, holds
if all of them do, holds as far as tested if some could not be tested and all others hold, and is not tested
if the runs allow none. Only the paper's algorithms count: those with the default hyper-parameters, except for
the share of the GA that a claim is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from elites.metrics.metric import Quantity
from elites.metrics.statistics import LEVEL, bonferroni, least_p, rank_sum_p, sign_p
from elites.paper.presets import GA_SHARE, PGA
from elites.studies.merge.results import Curves, StudyResults
from elites.studies.merge.runs import STORAGE, Run, defaults_of

MARGIN = 0.1  # of a median: two medians within it are alike


class Verdict(StrEnum):
    """The verdict of data on a claim."""

    HOLDS = "holds"
    PARTLY = "holds as far as tested"
    CONTRADICTED = "contradicted"
    UNDECIDED = "not decidable with so few runs"
    UNTESTED = "not tested by these runs"


class Contender(NamedTuple):
    """An algorithm; for PGA-MAP-Elites, with its share of GA offspring."""

    algorithm: str
    p_evo: float | None = None

    def __str__(self) -> str:
        return self.algorithm if self.p_evo is None else f"p_evo {self.p_evo:g}"


@dataclass(frozen=True)
class Check:
    """One comparison of a claim."""

    text: str
    p: float  # uncorrected; NaN if it could not be tested
    least: float  # the smallest p that so many runs can reach
    sides: tuple[bool, bool]  # whether the data lean towards the claim, and against it
    alike: bool = False  # whether the claim is that there is no difference

    @property
    def tested(self) -> bool:
        return not np.isnan(self.p)

    def verdict(self, comparisons: int) -> Verdict:
        """The verdict as one of so many comparisons."""
        if not self.tested:
            return Verdict.UNTESTED
        significant = bonferroni(self.p, comparisons) < LEVEL
        towards, against = self.sides
        if self.alike:
            possible = bonferroni(self.least, comparisons) < LEVEL
            if significant and against:
                return Verdict.CONTRADICTED
            return Verdict.HOLDS if possible and towards else Verdict.UNDECIDED
        if significant and towards:
            return Verdict.HOLDS
        return Verdict.CONTRADICTED if significant and against else Verdict.UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A claim and its comparisons."""

    number: str
    text: str
    checks: tuple[Check, ...]

    @property
    def tested(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.tested)

    @property
    def verdicts(self) -> list[tuple[Check, Verdict]]:
        return [(check, check.verdict(len(self.tested))) for check in self.tested]

    @property
    def verdict(self) -> Verdict:
        verdicts = [verdict for _, verdict in self.verdicts]
        if not verdicts:
            return Verdict.UNTESTED
        if Verdict.CONTRADICTED in verdicts:
            return Verdict.CONTRADICTED
        if set(verdicts) != {Verdict.HOLDS}:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if len(verdicts) == len(self.checks) else Verdict.PARTLY

    @property
    def scope(self) -> str:
        """The number of comparisons that were tested, and their verdicts."""
        verdicts = [verdict for _, verdict in self.verdicts]
        if not verdicts:
            return ""
        parts = [
            f"{verdicts.count(verdict)} {word}" for verdict, word in WORDS.items() if verdict in verdicts
        ]
        return f"{len(verdicts)} of {len(self.checks)} comparisons: {', '.join(parts)}"

    @property
    def possible(self) -> bool:
        """Whether any comparison could have been significant."""
        return any(bonferroni(check.least, len(self.tested)) < LEVEL for check in self.tested)


WORDS = {Verdict.HOLDS: "hold", Verdict.CONTRADICTED: "contradicted", Verdict.UNDECIDED: "undecided"}


class Evidence:
    """The final values of a study that count for the paper's claims."""

    def __init__(self, study: StudyResults) -> None:
        self.study = study
        self.tasks = [task for task in study.tasks if _is_papers_task(study, task)]
        self._runs = [curves for curves in study.runs if _is_papers_algorithm(curves.run)]

    def runs(self, task: str, contender: Contender) -> list[Curves]:
        """The replications; none if several variants match."""
        share = contender.p_evo
        if share is None and contender.algorithm == PGA:
            share = GA_SHARE
        if task not in self.tasks:
            return []
        runs = [
            curves
            for curves in self._runs
            if curves.run.task == task
            and curves.run.algorithm == contender.algorithm
            and (share is None or curves.run.record.hyper_parameters.get("p_evo") == share)
        ]
        return runs if len({curves.run.variant for curves in runs}) == 1 else []

    def values(self, task: str, contender: Contender, metric: Quantity) -> np.ndarray:
        runs = self.runs(task, contender)
        values = self.study.finals(task, runs[0].run.variant, metric.name) if runs else np.empty(0)
        return values[~np.isnan(values)]

    def above(self, task: str, metric: Quantity, better: Contender, worse: Contender) -> Check:
        """`better` is above `worse`."""
        text = f"{task}: {metric.label} of {better} above {worse}"
        return above(text, metric, self.values(task, better, metric), self.values(task, worse, metric))

    def like(self, task: str, metric: Quantity, one: Contender, other: Contender) -> Check:
        """They do not differ."""
        first, second = self.values(task, one, metric), self.values(task, other, metric)
        text = f"{task}: {metric.label} of {one} like {other}"
        if not len(first) or not len(second):
            return _untested(text, alike=True)
        first_median, second_median = float(np.median(first)), float(np.median(second))
        near = abs(first_median - second_median) <= MARGIN * abs(second_median)
        p = rank_sum_p(first, second)
        return Check(
            f"{text}: {metric.text(first_median)} and {metric.text(second_median)}",
            p,
            least_p(len(first), len(second)),
            (near, not near),
            alike=True,
        )

    def below(self, task: str, metric: Quantity, contender: Contender, limit: float) -> Check:
        """Every replication is below a limit."""
        values = self.values(task, contender, metric)
        return _signs(f"{task}: {metric.label} of {contender} below {metric.text(limit)}", values < limit)

    def in_runs(self, task: str, text: str, holds: Callable[[Curves], bool | None]) -> Check:
        """Something holds in every replication of PGA-MAP-Elites; None where the run cannot decide it."""
        outcomes = [holds(curves) for curves in self.runs(task, Contender(PGA))]
        return _signs(f"{task}: {text}", np.array([one for one in outcomes if one is not None], bool))


def _is_papers_algorithm(run: Run) -> bool:
    """Whether an algorithm has its default hyper-parameters."""
    defaults, given = defaults_of("algorithms", run.algorithm), run.record.hyper_parameters
    free = (*STORAGE, "p_evo") if run.algorithm == PGA else STORAGE
    return defaults is not None and all(
        given.get(name) == value for name, value in defaults.items() if name not in free
    )


def _is_papers_task(study: StudyResults, task: str) -> bool:
    """Whether a task has its default parameters."""
    defaults = defaults_of("tasks", task)
    if defaults is None:
        return False
    given = next(c.run.record.task_parameters for c in study.runs if c.run.task == task)
    return all(given.get(name) == value for name, value in defaults.items())


def _untested(text: str, *, alike: bool = False) -> Check:
    return Check(text, float("nan"), 1.0, (False, False), alike)


def above(text: str, metric: Quantity, first: np.ndarray, second: np.ndarray) -> Check:
    """The first values are above the second."""
    if not len(first) or not len(second):
        return _untested(text)
    first_median, second_median = float(np.median(first)), float(np.median(second))
    text = f"{text}: {metric.text(first_median)} and {metric.text(second_median)}"
    sides = (first_median > second_median, first_median < second_median)
    return Check(text, rank_sum_p(first, second), least_p(len(first), len(second)), sides)


def _signs(text: str, successes: np.ndarray) -> Check:
    if not len(successes):
        return _untested(text)
    yes, count = int(successes.sum()), len(successes)
    text = f"{text}: in {yes} of {count} runs"
    return Check(text, sign_p(yes, count - yes), sign_p(count, 0), (2 * yes > count, 2 * yes < count))
