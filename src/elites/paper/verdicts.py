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

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from elites.metrics.statistics import LEVEL, bonferroni
from elites.studies.results.study_results import POOLED

SAME, UNKNOWN = "the same", "not known"


class Verdict(StrEnum):
    """The verdict of data on a claim."""

    HOLDS = "holds"
    PARTLY = "holds as far as tested"
    CONTRADICTED = "contradicted"
    UNDECIDED = "not decidable with so few runs"
    UNTESTED = "not tested by these runs"


@dataclass(frozen=True)
class ClaimComparison:
    """One comparison of a claim."""

    text: str
    p: float  # uncorrected; NaN if it could not be tested
    smallest_p: float  # the smallest p that this number of runs can reach
    supports: bool  # whether the data lean towards the claim
    contradicts: bool  # whether they lean against it
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
        if self.alike:
            possible = bonferroni(self.smallest_p, comparisons) < LEVEL
            if significant and self.contradicts:
                return Verdict.CONTRADICTED
            return Verdict.HOLDS if possible and self.supports else Verdict.UNDECIDED
        if significant and self.supports:
            return Verdict.HOLDS
        return Verdict.CONTRADICTED if significant and self.contradicts else Verdict.UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A claim and its comparisons, each run at its own end."""

    number: str
    text: str
    comparisons: tuple[ClaimComparison, ...]
    common: tuple[ClaimComparison, ...] = ()
    """The same comparisons at the common budget; none if that changes nothing."""
    pooled: tuple[ClaimComparison, ...] = ()
    """The same comparisons with the pooled offset; none if it is not examined."""
    suite: str = ""  # title of the tasks that it is tested on

    @property
    def tested(self) -> tuple[ClaimComparison, ...]:
        return tuple(comparison for comparison in self.comparisons if comparison.tested)

    @property
    def verdicts(self) -> list[tuple[ClaimComparison, Verdict]]:
        return [(comparison, comparison.verdict(len(self.tested))) for comparison in self.tested]

    @property
    def verdict(self) -> Verdict:
        verdicts = [verdict for _, verdict in self.verdicts]
        if not verdicts:
            return Verdict.UNTESTED
        if Verdict.CONTRADICTED in verdicts:
            return Verdict.CONTRADICTED
        if set(verdicts) != {Verdict.HOLDS}:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if len(verdicts) == len(self.comparisons) else Verdict.PARTLY

    @property
    def at_common_budget(self) -> str:
        """The verdict at the common budget; empty if all runs are compared there anyway."""
        if not self.common or not self.tested:
            return ""
        return _change(self.verdict, Claim(self.number, self.text, self.common).verdict)

    @property
    def with_pooled_offset(self) -> str:
        """The verdict with the pooled offset; empty if no comparison that was tested depends on it."""
        if not self.pooled or not any(comparison.has_offset for comparison in self.tested):
            return ""
        if len(self.tested) != len([comparison for comparison in self.pooled if comparison.tested]):
            return UNKNOWN
        return _change(self.verdict, Claim(self.number, self.text, self.pooled).verdict)

    def sensitivities(self) -> list[tuple[str, str]]:
        """The change of each tested verdict at the common budget, and its change with the pooled offset."""
        count, texts = len(self.tested), []
        for place, comparison in enumerate(self.comparisons):
            if comparison.tested:
                verdict = comparison.verdict(count)
                common = _change(verdict, self.common[place].verdict(count)) if self.common else ""
                pooled = self.pooled[place].verdict(count) if self.pooled and comparison.has_offset else None
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
        return f"{len(verdicts)} of {len(self.comparisons)} comparisons: {', '.join(parts)}"

    @property
    def possible(self) -> bool:
        """Whether any comparison could have been significant."""
        return any(bonferroni(comparison.smallest_p, len(self.tested)) < LEVEL for comparison in self.tested)


def _change(verdict: Verdict, other: Verdict) -> str:
    return SAME if verdict is other else other.value


WORDS = {Verdict.HOLDS: "hold", Verdict.CONTRADICTED: "contradicted", Verdict.UNDECIDED: "undecided"}
