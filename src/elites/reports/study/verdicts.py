"""Verdicts of data on claims.

A claim is taken apart into comparisons that the data can decide, each by an exact test at the level of 5 %,
Bonferroni-corrected over the comparisons of that claim which the runs allow:

- "A above B": the rank-sum test. It holds if A's median is above and the difference significant, is
  contradicted if A's median is below and the difference significant.
- "A like B": contradicted if the difference is significant and the medians are more than a tenth apart; holds
  if they are not and a difference could have been significant.
- "A below a limit", or a statement about single runs: the sign test over replications.

Whatever is none of these is not decidable with so few runs. A claim is contradicted if one of its comparisons
is, holds if all of them do, holds as far as tested if some could not be tested and all others do, and is not
tested if there is nothing to test it on. Only the paper's algorithms count: those with the default
hyper-parameters, but for the share of the GA that a claim is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from elites.metrics.statistics import LEVEL, bonferroni, least_p, rank_sum_p, sign_p
from elites.reports.study.comparisons import NAMES, as_text, p_text
from elites.reports.study.data import Curves, Study
from elites.reports.study.runs import STORAGE, Run, defaults_of

MARGIN = 0.1  # of a median: nearer than that is alike
PGA = "pga-map-elites"


class Verdict(StrEnum):
    """What data say of a claim."""

    HOLDS = "holds"
    PARTLY = "holds as far as tested"
    CONTRADICTED = "contradicted"
    UNDECIDED = "not decidable with so few runs"
    UNTESTED = "not tested by these runs"


class Who(NamedTuple):
    """An algorithm; of PGA-MAP-Elites, with its share of GA offspring."""

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
    sides: tuple[bool, bool]  # whether the data lean to the claim, and against it
    alike: bool = False  # whether the claim says that there is no difference

    @property
    def tested(self) -> bool:
        return not np.isnan(self.p)

    def verdict(self, comparisons: int) -> Verdict:
        """As one of so many."""
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
    """A claim with what the data say of it."""

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
        found = [verdict for _, verdict in self.verdicts]
        if not found:
            return Verdict.UNTESTED
        if Verdict.CONTRADICTED in found:
            return Verdict.CONTRADICTED
        if set(found) != {Verdict.HOLDS}:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if len(found) == len(self.checks) else Verdict.PARTLY

    @property
    def scope(self) -> str:
        """How much of it was tested."""
        found = [verdict for _, verdict in self.verdicts]
        if not found:
            return ""
        parts = [f"{found.count(verdict)} {word}" for verdict, word in COUNTED if verdict in found]
        return f"{len(found)} of {len(self.checks)} comparisons: {', '.join(parts)}"

    @property
    def possible(self) -> bool:
        """Whether any comparison could have been significant."""
        return any(bonferroni(check.least, len(self.tested)) < LEVEL for check in self.tested)


COUNTED = (
    (Verdict.HOLDS, "hold"),
    (Verdict.CONTRADICTED, "contradicted"),
    (Verdict.UNDECIDED, "undecided"),
)


class Data:
    """Final values by the names that the claims use."""

    def __init__(self, study: Study) -> None:
        self.study = study
        changed = {task for task in study.tasks if not _as_in_paper(study, task)}
        self.tasks = [task for task in study.tasks if task not in changed]
        self._published = [curves for curves in study.runs if _as_published(curves.run)]

    def runs(self, task: str, who: Who) -> list[Curves]:
        """The replications, if it is clear which they are: only one variant may go by this name."""
        share = 0.5 if who.p_evo is None and who.algorithm == PGA else who.p_evo
        if task not in self.tasks:
            return []
        found = [
            curves
            for curves in self._published
            if curves.run.task == task
            and curves.run.algorithm == who.algorithm
            and (share is None or curves.run.record["hyper_parameters"].get("p_evo") == share)
        ]
        return found if len({curves.run.variant for curves in found}) == 1 else []

    def values(self, task: str, who: Who, metric: str) -> np.ndarray:
        found = self.runs(task, who)
        values = self.study.finals(task, found[0].run.variant, metric) if found else np.empty(0)
        return values[~np.isnan(values)]

    def above(self, task: str, metric: str, better: Who, worse: Who) -> Check:
        """`better` is above `worse`."""
        text = f"{task}: {NAMES[metric]} of {better} above {worse}"
        return above(text, metric, self.values(task, better, metric), self.values(task, worse, metric))

    def like(self, task: str, metric: str, one: Who, other: Who) -> Check:
        """They do not differ."""
        first, second = self.values(task, one, metric), self.values(task, other, metric)
        text = f"{task}: {NAMES[metric]} of {one} like {other}"
        if not len(first) or not len(second):
            return _untested(text, alike=True)
        here, there = float(np.median(first)), float(np.median(second))
        near = abs(here - there) <= MARGIN * abs(there)
        p = rank_sum_p(first, second)
        return Check(
            f"{text}: {as_text(metric, here)} and {as_text(metric, there)}",
            p,
            least_p(len(first), len(second)),
            (near, not near),
            alike=True,
        )

    def below(self, task: str, metric: str, who: Who, limit: float) -> Check:
        """Every replication should be below a limit."""
        values = self.values(task, who, metric)
        return _signs(f"{task}: {NAMES[metric]} of {who} below {as_text(metric, limit)}", values < limit)

    def in_runs(self, task: str, text: str, holds: Callable[[Curves], bool | None]) -> Check:
        """Something is so in every replication of PGA-MAP-Elites; None where it cannot be told."""
        found = [holds(curves) for curves in self.runs(task, Who(PGA))]
        return _signs(f"{task}: {text}", np.array([one for one in found if one is not None], bool))


def _as_published(run: Run) -> bool:
    """Whether an algorithm is the one of that name: its hyper-parameters are the defaults."""
    own, given = defaults_of("algorithms", run.algorithm), run.record["hyper_parameters"]
    free = (*STORAGE, "p_evo") if run.algorithm == PGA else STORAGE
    return own is not None and all(
        given.get(name) == value for name, value in own.items() if name not in free
    )


def _as_in_paper(study: Study, task: str) -> bool:
    """Whether a task is the one of that name, with its own parameters."""
    own = defaults_of("tasks", task)
    if own is None:
        return False
    record = next(c.run.record["task_parameters"] for c in study.runs if c.run.task == task)
    return all(record.get(name) == value for name, value in own.items())


def _untested(text: str, *, alike: bool = False) -> Check:
    return Check(text, float("nan"), 1.0, (False, False), alike)


def above(text: str, metric: str, first: np.ndarray, second: np.ndarray) -> Check:
    if not len(first) or not len(second):
        return _untested(text)
    here, there = float(np.median(first)), float(np.median(second))
    told = f"{text}: {as_text(metric, here)} and {as_text(metric, there)}"
    sides = (here > there, here < there)
    return Check(told, rank_sum_p(first, second), least_p(len(first), len(second)), sides)


def _signs(text: str, successes: np.ndarray) -> Check:
    if not len(successes):
        return _untested(text)
    yes, count = int(successes.sum()), len(successes)
    told = f"{text}: in {yes} of {count} runs"
    return Check(told, sign_p(yes, count - yes), sign_p(count, 0), (2 * yes > count, 2 * yes < count))


def detail(claim: Claim) -> list[str]:
    """Every comparison that was tested, in a line each."""
    count = len(claim.tested)
    return [
        f"{check.text}; p = {p_text(check.p)}, corrected {p_text(bonferroni(check.p, count))}: {verdict}"
        for check, verdict in claim.verdicts
    ]
