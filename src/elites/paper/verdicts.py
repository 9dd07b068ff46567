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
the share of the GA that a claim is about. Of the tasks, those with the default parameters count, and the
deterministic half-cheetah of the paper's authors, which ends on a fall. A claim is about the paper's suite of
tasks; runs on another suite decide only its counterpart there.

Runs are compared at their own ends, as in the paper. Two more verdicts are given: at the common budget, and
with the offset of QD-scores that the authors used.
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
from elites.results.schemas import STORAGE
from elites.studies.merge.pooled import POOLED
from elites.studies.merge.results import Basis, Curves, RunValues, StudyResults
from elites.studies.merge.runs import Run, find_defaults, has_usual_task

FREE_PARAMETERS = {
    "qd-deterministic-halfcheetah": "ends_on_fall"
}  # a parameter that may differ from the default
SAME, UNKNOWN = "the same", "not known"
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
    least: float  # the smallest p that this number of runs can reach
    sides: tuple[bool, bool]  # whether the data lean towards the claim, and against it
    alike: bool = False  # whether the claim is that there is no difference
    quantity: str = ""  # the compared one

    @property
    def tested(self) -> bool:
        return not np.isnan(self.p)

    @property
    def has_offset(self) -> bool:
        """Whether it depends on the offset of QD-scores."""
        return self.quantity in POOLED

    def verdict(self, comparisons: int) -> Verdict:
        """The verdict on this comparison, corrected for the number of comparisons."""
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
    """A claim and its comparisons, each run at its own end."""

    number: str
    text: str
    checks: tuple[Check, ...]
    common: tuple[Check, ...] = ()  # the same comparisons at the common budget; none if that changes nothing
    pooled: tuple[Check, ...] = ()  # the same with the pooled offset; none if it is not examined
    suite: str = ""  # title of the tasks that it is tested on

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
    def at_common_budget(self) -> str:
        """The verdict at the common budget; empty if all runs are compared there anyway."""
        if not self.common or not self.tested:
            return ""
        return _change(self.verdict, Claim(self.number, self.text, self.common).verdict)

    @property
    def with_pooled_offset(self) -> str:
        """The verdict with the pooled offset; empty if no comparison that was tested depends on it."""
        if not self.pooled or not any(check.has_offset for check in self.tested):
            return ""
        if len(self.tested) != len([check for check in self.pooled if check.tested]):
            return UNKNOWN
        return _change(self.verdict, Claim(self.number, self.text, self.pooled).verdict)

    def sensitivities(self) -> list[tuple[str, str]]:
        """The change of each tested verdict at the common budget, and its change with the pooled offset."""
        count, texts = len(self.tested), []
        for place, check in enumerate(self.checks):
            if check.tested:
                verdict = check.verdict(count)
                common = _change(verdict, self.common[place].verdict(count)) if self.common else ""
                pooled = self.pooled[place].verdict(count) if self.pooled and check.has_offset else None
                unknown = pooled is Verdict.UNTESTED
                offset = "" if pooled is None else UNKNOWN if unknown else _change(verdict, pooled)
                texts.append((common, offset))
        return texts

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


def _change(verdict: Verdict, other: Verdict) -> str:
    return SAME if verdict is other else other.value


WORDS = {Verdict.HOLDS: "hold", Verdict.CONTRADICTED: "contradicted", Verdict.UNDECIDED: "undecided"}


class Evidence:
    """The final values of a study that count for the paper's claims."""

    def __init__(self, study: StudyResults) -> None:
        self.study = study
        self.labels = _labels(study)
        self._runs = [curves for curves in study.runs if _is_papers_algorithm(curves.run)]

    def runs(self, task: str, contender: Contender) -> list[Curves]:
        """The replications; none if several variants match."""
        share = contender.p_evo
        if share is None and contender.algorithm == PGA:
            share = GA_SHARE
        runs = [
            curves
            for curves in self._runs
            if curves.run.task == self.labels.get(task)
            and curves.run.algorithm == contender.algorithm
            and (share is None or curves.run.record.hyper_parameters.get("p_evo") == share)
        ]
        return runs if len({curves.run.variant for curves in runs}) == 1 else []

    def values(self, task: str, contender: Contender, metric: Quantity) -> np.ndarray:
        runs = self.runs(task, contender)
        if not runs:
            return np.empty(0)
        return self._known(self.study.finals(runs[0].run.task, runs[0].run.variant, metric.name))

    def qd_scores_across_tasks(self, task: str, contender: Contender) -> np.ndarray:
        """QD-scores where tasks are compared with each other."""
        return self._known(
            np.array([self.study.qd_score_across_tasks(c) for c in self.runs(task, contender)])
        )

    def _known(self, values: np.ndarray) -> np.ndarray:
        """The values without NaN; with the pooled offset, all replications or none."""
        missing = np.isnan(values)
        return values[:0] if self.study.basis is Basis.POOLED and missing.any() else values[~missing]

    def name(self, task: str) -> str:
        """A task's name, with the variant that was run if more than one counts."""
        label, free = self.labels.get(task), FREE_PARAMETERS.get(task)
        if label is None or free is None:
            return task
        given = next(c.run.record.task_parameters for c in self.study.runs if c.run.task == label)
        return f"{task} ({free} {given.get(free)})"

    def above(self, task: str, metric: Quantity, better: Contender, worse: Contender) -> Check:
        """Tests that `better` is above `worse`."""
        text = f"{self.name(task)}: {metric.label} of {better} above {worse}"
        return above(text, metric, self.values(task, better, metric), self.values(task, worse, metric))

    def like(self, task: str, metric: Quantity, one: Contender, other: Contender) -> Check:
        """Tests that two algorithms do not differ."""
        first, second = self.values(task, one, metric), self.values(task, other, metric)
        text = f"{self.name(task)}: {metric.label} of {one} like {other}"
        if not len(first) or not len(second):
            return _untested(text, metric.name, alike=True)
        first_median, second_median = float(np.median(first)), float(np.median(second))
        near = abs(first_median - second_median) <= MARGIN * abs(second_median)
        p = rank_sum_p(first, second)
        return Check(
            f"{text}: {metric.text(first_median)} and {metric.text(second_median)}",
            p,
            least_p(len(first), len(second)),
            (near, not near),
            alike=True,
            quantity=metric.name,
        )

    def below(self, task: str, metric: Quantity, contender: Contender, limit: float) -> Check:
        """Tests that every replication is below a limit."""
        values = self.values(task, contender, metric)
        text = f"{self.name(task)}: {metric.label} of {contender} below {metric.text(limit)}"
        return _signs(text, values < limit, metric.name)

    def in_runs(self, task: str, text: str, holds: Callable[[RunValues], bool | None]) -> Check:
        """Tests that `holds` is true in every replication of PGA-MAP-Elites. It returns None if undecided."""
        outcomes = [holds(self.study.compared_values(curves)) for curves in self.runs(task, Contender(PGA))]
        known = np.array([one for one in outcomes if one is not None], bool)
        return _signs(f"{self.name(task)}: {text}", known)


def _is_papers_algorithm(run: Run) -> bool:
    """Whether an algorithm has its default hyper-parameters."""
    defaults, given = find_defaults("algorithms", run.algorithm), run.record.hyper_parameters
    free = (*STORAGE, "p_evo") if run.algorithm == PGA else STORAGE
    return defaults is not None and all(
        given.get(name) == value for name, value in defaults.items() if name not in free
    )


def _labels(study: StudyResults) -> dict[str, str]:
    """The paper's tasks, each with its label in the study; of two variants, the one with the defaults."""
    labels: dict[str, str] = {}
    for run in (curves.run for curves in study.runs):
        free = FREE_PARAMETERS.get(run.record.task)
        if has_usual_task(run, free):
            usual = (find_defaults("tasks", run.record.task) or {}).get(free or "")
            if run.record.task not in labels or run.record.task_parameters.get(free or "") == usual:
                labels[run.record.task] = run.task
    return labels


def _untested(text: str, quantity: str = "", *, alike: bool = False) -> Check:
    return Check(text, float("nan"), 1.0, (False, False), alike, quantity)


def above(text: str, metric: Quantity, first: np.ndarray, second: np.ndarray) -> Check:
    """Tests that the first values are above the second."""
    if not len(first) or not len(second):
        return _untested(text, metric.name)
    first_median, second_median = float(np.median(first)), float(np.median(second))
    text = f"{text}: {metric.text(first_median)} and {metric.text(second_median)}"
    sides = (first_median > second_median, first_median < second_median)
    p, least = rank_sum_p(first, second), least_p(len(first), len(second))
    return Check(text, p, least, sides, quantity=metric.name)


def _signs(text: str, successes: np.ndarray, quantity: str = "") -> Check:
    if not len(successes):
        return _untested(text, quantity)
    yes, count = int(successes.sum()), len(successes)
    text = f"{text}: in {yes} of {count} runs"
    sides = (2 * yes > count, 2 * yes < count)
    return Check(text, sign_p(yes, count - yes), sign_p(count, 0), sides, quantity=quantity)
