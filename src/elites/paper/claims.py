"""The twelve claims of the paper, as comparisons that runs can decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from elites.metrics.metric import BY_NAME, Quantity
from elites.metrics.statistics import rank_sum_p, sign_p, smallest_p
from elites.paper.presets import DEEP_GRID, GA_SHARE, GA_SHARES, PAPER_SUITE, PGA, ROBOTS, SUITES, Suite
from elites.paper.verdicts import Claim, ClaimComparison
from elites.results.schemas import result_parameters
from elites.studies.results.runs import Run, find_defaults, has_default_task
from elites.studies.results.study_results import ComparisonBasis, Curves, RunValues, StudyResults

FREE_PARAMETERS = {
    "qd-deterministic-halfcheetah": "ends_on_fall"
}  # a parameter that may differ from the default
MARGIN = 0.1  # of a median: two medians within it are alike
FADED = 0.2  # of its early share: an operator that adds less than this has almost stopped
ME, ES, SAMPLING, DEEP = "map-elites", "map-elites-es", "map-elites-sampling", DEEP_GRID.name
QD_OTHERS = (ME, ES, "qd-pg", "cma-map-elites")
SAMPLED = (ME, ES, SAMPLING, DEEP)  # in addition to PGA, where reproducibility is studied
LOWEST, *MIXED, HIGHEST = GA_SHARES
QD_SCORE, MAX_FITNESS, COVERAGE = (BY_NAME[name] for name in ("qd_score", "max_fitness", "coverage"))


def evaluate_claims(study: StudyResults) -> list[Claim]:
    """The verdict of a study on every claim, and on its counterparts in other suites that have runs.

    A claim is about the paper's own tasks. Its counterpart is the same statement about another suite.
    """
    present = {curves.run.record.task for curves in study.runs}
    suites = [suite for name, suite in SUITES.items() if name == PAPER_SUITE or present & set(suite.tasks)]
    data = {ComparisonBasis.ENDS: Evidence(study), ComparisonBasis.POOLED: Evidence(study.with_pooled_offset)}
    if any(_has_other_common_budget(curves) for curves in study.runs):
        data[ComparisonBasis.COMMON] = Evidence(study.at_common_budget)
    claims = []
    for number, text, compare in CLAIMS:
        for suite in suites:
            by = {basis: tuple(compare(suite, evidence)) for basis, evidence in data.items()}
            common = by.get(ComparisonBasis.COMMON, ())
            claims.append(
                Claim(number, text, by[ComparisonBasis.ENDS], common, by[ComparisonBasis.POOLED], suite.title)
            )
    return claims


def _has_other_common_budget(curves: Curves) -> bool:
    """Whether a run is compared at other evaluations than all others."""
    pairs = [(curves.end, curves.common), *([curves.across_tasks] if curves.across_tasks else [])]
    return any(end.evaluations != common.evaluations for end, common in pairs)


def _find_ant_tasks(suite: Suite) -> tuple[str, str]:
    return suite.uncertain_task("ant"), suite.deterministic_task("ant")


ANT_TASKS = tuple(map(_find_ant_tasks, SUITES.values()))  # of each suite, for `read_results`


def _list_uncertain_tasks(suite: Suite) -> list[str]:
    return [suite.uncertain_task(robot) for robot in ROBOTS]


def _compare_best(
    data: Evidence, metric: Quantity, tasks: Iterable[str], others: Iterable[str]
) -> Iterator[ClaimComparison]:
    """Whether PGA-MAP-Elites has the highest value of a metric."""
    pairs = [(task, other) for task in tasks for other in others]
    return (data.compare_above(task, metric, Contender(PGA), Contender(other)) for task, other in pairs)


def _claim_1(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    return _compare_best(data, QD_SCORE, _list_uncertain_tasks(suite), (*QD_OTHERS, "td3"))


def _claim_2(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    return _compare_best(data, QD_SCORE, map(suite.deterministic_task, ROBOTS), (*QD_OTHERS, "td3"))


def _claim_3(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    yield from _compare_best(data, MAX_FITNESS, suite.tasks, QD_OTHERS)
    for choose_task in (suite.uncertain_task, suite.deterministic_task):
        for robot in ("walker", "hopper"):
            yield data.compare_above(choose_task(robot), MAX_FITNESS, Contender(PGA), Contender("td3"))
        for robot in ("halfcheetah", "ant"):
            yield data.compare_alike(choose_task(robot), MAX_FITNESS, Contender(PGA), Contender("td3"))


def _claim_4(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    ants = _find_ant_tasks(suite)
    for name in (PGA, *QD_OTHERS, "td3"):
        scores = [data.find_qd_scores_across_tasks(task, Contender(name)) for task in ants]
        yield compare_values(f"{QD_SCORE.label} of {name} on {ants[0]} above {ants[1]}", QD_SCORE, *scores)


def _claim_5(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    for metric in (QD_SCORE.corrected, MAX_FITNESS.corrected):
        yield from _compare_best(data, metric, _list_uncertain_tasks(suite), SAMPLED)


def _claim_6(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    limits = {"walker": 0.1, "halfcheetah": 0.05, "ant": 0.05, "hopper": 0.2}
    for robot, limit in limits.items():
        yield data.compare_below(suite.uncertain_task(robot), MAX_FITNESS.loss, Contender(PGA), limit)


def _claim_7(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    metric = QD_SCORE.loss
    for task in _list_uncertain_tasks(suite):
        for other in (PGA, ME, SAMPLING, DEEP):
            yield data.compare_above(task, metric, Contender(other), Contender(ES))
        if task != suite.uncertain_task("hopper"):
            for other in (PGA, SAMPLING):
                yield data.compare_above(task, metric, Contender(ME), Contender(other))
        else:
            yield data.compare_above(task, metric, Contender(ME), Contender(SAMPLING))
    yield data.compare_above(suite.uncertain_task("halfcheetah"), metric, Contender(SAMPLING), Contender(PGA))


def _claim_8(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    for task in _list_uncertain_tasks(suite):
        for other in (PGA, ME, ES, SAMPLING):
            yield data.compare_above(task, MAX_FITNESS.loss, Contender(DEEP), Contender(other))


def _with_share(value: float) -> Contender:
    return Contender(PGA, value)


def _claim_9(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    for task in _list_uncertain_tasks(suite):
        for mixed in MIXED:
            for end in (LOWEST, HIGHEST):
                yield data.compare_above(task, QD_SCORE, _with_share(mixed), _with_share(end))
    for other in (0.5, 0.75):
        yield data.compare_above(
            suite.uncertain_task("walker"), QD_SCORE, _with_share(other), _with_share(0.25)
        )
    for other in (0.25, 0.5):
        yield data.compare_above(suite.uncertain_task("ant"), QD_SCORE, _with_share(other), _with_share(0.75))
    for task in map(suite.uncertain_task, ("ant", "hopper")):
        for other in MIXED:
            yield data.compare_alike(task, MAX_FITNESS, _with_share(LOWEST), _with_share(other))


def _claim_10(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    for task in _list_uncertain_tasks(suite):
        for other in (LOWEST, *MIXED):
            yield data.compare_above(task, QD_SCORE.loss, _with_share(HIGHEST), _with_share(other))


def _claim_11(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    def find_rates(run: RunValues, operator: str) -> tuple[float, float] | None:
        shares = run.rates.get(operator, (np.nan, np.nan))
        return None if np.isnan(shares).any() else shares

    def pg_fades(run: RunValues) -> bool | None:
        pg = find_rates(run, "pg")
        return None if pg is None else pg[0] > 0 and pg[1] < FADED * pg[0]

    def ga_goes_on(run: RunValues) -> bool | None:
        ga, pg = find_rates(run, "ga"), find_rates(run, "pg")
        return None if ga is None or pg is None else ga[1] > pg[1]

    def greedy_is_early(run: RunValues) -> bool | None:
        greedy = find_rates(run, "greedy")
        return None if greedy is None else greedy[0] > greedy[1]

    for task in _list_uncertain_tasks(suite):
        yield data.compare_in_runs(
            task, "share of PG offspring added in the last half below a fifth of the first tenth's", pg_fades
        )
        yield data.compare_in_runs(
            task, "share of GA offspring added in the last half above PG's", ga_goes_on
        )
        yield data.compare_in_runs(
            task, "the greedy actor added more often in the first tenth than the last half", greedy_is_early
        )


def _claim_12(suite: Suite, data: Evidence) -> Iterator[ClaimComparison]:
    for robot in ("walker", "halfcheetah"):
        yield data.compare_alike(suite.uncertain_task(robot), COVERAGE, Contender(PGA), Contender(ME))
    for robot in ("hopper", "ant"):
        yield data.compare_above(suite.uncertain_task(robot), COVERAGE, Contender(PGA), Contender(ME))
    for other in (PGA, ME, ES, "qd-pg", "td3"):
        yield data.compare_above(
            suite.uncertain_task("ant"), COVERAGE, Contender("cma-map-elites"), Contender(other)
        )
    for task in _list_uncertain_tasks(suite):
        for other in (PGA, ME, SAMPLING, DEEP):
            yield data.compare_above(task, COVERAGE.loss, Contender(other), Contender(ES))
        for other in (PGA, ME, DEEP):
            yield data.compare_above(task, COVERAGE.loss, Contender(other), Contender(SAMPLING))
        if task != suite.uncertain_task("hopper"):
            for other in (PGA, DEEP):
                yield data.compare_above(task, COVERAGE.loss, Contender(ME), Contender(other))


CLAIMS: tuple[tuple[str, str, Callable[[Suite, Evidence], Iterator[ClaimComparison]]], ...] = (
    ("1", "PGA-MAP-Elites has the best QD-score on all four uncertain tasks.", _claim_1),
    ("2", "PGA-MAP-Elites has the best QD-score on all four deterministic tasks.", _claim_2),
    (
        "3",
        "PGA-MAP-Elites has the best max-fitness of all QD algorithms; it ties with TD3 on halfcheetah and "
        "ant and beats it on walker and hopper, on the uncertain and on the deterministic tasks.",
        _claim_3,
    ),
    (
        "4",
        "Every algorithm's QD-score on the deterministic ant is lower than on the uncertain one.",
        _claim_4,
    ),
    ("5", "PGA-MAP-Elites has the best corrected QD-score and corrected max-fitness.", _claim_5),
    (
        "6",
        "PGA-MAP-Elites' max-fitness loss is below 20 % on every task, below 10 % on walker, below 5 % on "
        "halfcheetah and ant.",
        _claim_6,
    ),
    (
        "7",
        "MAP-Elites-ES has the lowest QD-score loss; MAP-Elites a higher one than all but Deep-grid, except "
        "on hopper; MAP-Elites-sampling a lower one than MAP-Elites everywhere; PGA-MAP-Elites a lower one "
        "than sampling on halfcheetah.",
        _claim_7,
    ),
    ("8", "Deep-grid has the worst max-fitness loss.", _claim_8),
    (
        "9",
        "p_evo = 0.25, 0.5 and 0.75 beat 0 and 1 in QD-score; among the three, 0.25 is lower on walker and "
        "0.75 on ant; 0 reaches the same max-fitness on ant and hopper.",
        _claim_9,
    ),
    ("10", "p_evo = 1 loses most to re-evaluation.", _claim_10),
    (
        "11",
        "PG variation adds offspring early and almost none later; GA adds throughout; the greedy actor adds "
        "early.",
        _claim_11,
    ),
    (
        "12",
        "PGA-MAP-Elites' coverage is like MAP-Elites' on walker and halfcheetah and higher on hopper and "
        "ant; CMA-MAP-Elites' is the best on ant. Coverage losses: MAP-Elites-ES lowest, then sampling, "
        "MAP-Elites highest except on hopper.",
        _claim_12,
    ),
)


class Contender(NamedTuple):
    """An algorithm; for PGA-MAP-Elites, with its share of GA offspring."""

    algorithm: str
    p_evo: float | None = None

    def __str__(self) -> str:
        return self.algorithm if self.p_evo is None else f"p_evo {self.p_evo:g}"


class Evidence:
    """The final values of a study that count for the paper's claims."""

    def __init__(self, study: StudyResults) -> None:
        self.study = study
        self.labels = _find_task_labels(study)
        self._runs = [curves for curves in study.runs if _is_paper_algorithm(curves.run)]

    def find_runs(self, task: str, contender: Contender) -> list[Curves]:
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

    def find_values(self, task: str, contender: Contender, metric: Quantity) -> np.ndarray:
        runs = self.find_runs(task, contender)
        if not runs:
            return np.empty(0)
        return self._drop_missing(self.study.finals(runs[0].run.task, runs[0].run.variant, metric.name))

    def find_qd_scores_across_tasks(self, task: str, contender: Contender) -> np.ndarray:
        """QD-scores where tasks are compared with each other."""
        return self._drop_missing(
            np.array([self.study.qd_score_across_tasks(c) for c in self.find_runs(task, contender)])
        )

    def _drop_missing(self, values: np.ndarray) -> np.ndarray:
        """The values without NaN; with the pooled offset, all replications or none."""
        missing = np.isnan(values)
        return (
            values[:0] if self.study.basis is ComparisonBasis.POOLED and missing.any() else values[~missing]
        )

    def name_task(self, task: str) -> str:
        """A task's name, with the variant that was run if more than one counts."""
        label, free = self.labels.get(task), FREE_PARAMETERS.get(task)
        if label is None or free is None:
            return task
        given = next(c.run.record.task_parameters for c in self.study.runs if c.run.task == label)
        return f"{task} ({free} {given.get(free)})"

    def compare_above(
        self, task: str, metric: Quantity, better: Contender, worse: Contender
    ) -> ClaimComparison:
        """Tests that `better` is above `worse`."""
        text = f"{self.name_task(task)}: {metric.label} of {better} above {worse}"
        return compare_values(
            text, metric, self.find_values(task, better, metric), self.find_values(task, worse, metric)
        )

    def compare_alike(self, task: str, metric: Quantity, one: Contender, other: Contender) -> ClaimComparison:
        """Tests that two algorithms do not differ."""
        first, second = self.find_values(task, one, metric), self.find_values(task, other, metric)
        text = f"{self.name_task(task)}: {metric.label} of {one} like {other}"
        if not len(first) or not len(second):
            return _make_untested(text, metric.name, alike=True)
        first_median, second_median = float(np.median(first)), float(np.median(second))
        near = abs(first_median - second_median) <= MARGIN * abs(second_median)
        p = rank_sum_p(first, second)
        return ClaimComparison(
            f"{text}: {metric.format_value(first_median)} and {metric.format_value(second_median)}",
            p,
            smallest_p(len(first), len(second)),
            supports=near,
            contradicts=not near,
            alike=True,
            quantity=metric.name,
        )

    def compare_below(
        self, task: str, metric: Quantity, contender: Contender, limit: float
    ) -> ClaimComparison:
        """Tests that every replication is below a limit."""
        values = self.find_values(task, contender, metric)
        text = f"{self.name_task(task)}: {metric.label} of {contender} below {metric.format_value(limit)}"
        return _run_sign_test(text, values < limit, metric.name)

    def compare_in_runs(
        self, task: str, text: str, holds: Callable[[RunValues], bool | None]
    ) -> ClaimComparison:
        """Tests that `holds` is true in every replication of PGA-MAP-Elites. It returns None if undecided."""
        outcomes = [
            holds(self.study.compared_values(curves)) for curves in self.find_runs(task, Contender(PGA))
        ]
        known = np.array([one for one in outcomes if one is not None], bool)
        return _run_sign_test(f"{self.name_task(task)}: {text}", known)


def _is_paper_algorithm(run: Run) -> bool:
    """Whether an algorithm has its default hyper-parameters."""
    defaults, given = find_defaults("algorithms", run.algorithm), run.record.hyper_parameters
    free = ("p_evo",) if run.algorithm == PGA else ()
    return defaults is not None and all(
        given.get(name) == value
        for name, value in result_parameters(run.algorithm, defaults).items()
        if name not in free
    )


def _find_task_labels(study: StudyResults) -> dict[str, str]:
    """The paper's tasks, each with its label in the study; of two variants, the one with the defaults."""
    labels: dict[str, str] = {}
    for run in (curves.run for curves in study.runs):
        free = FREE_PARAMETERS.get(run.record.task)
        if has_default_task(run, free):
            usual = (find_defaults("tasks", run.record.task) or {}).get(free or "")
            if run.record.task not in labels or run.record.task_parameters.get(free or "") == usual:
                labels[run.record.task] = run.task
    return labels


def _make_untested(text: str, quantity: str = "", *, alike: bool = False) -> ClaimComparison:
    return ClaimComparison(text, float("nan"), 1.0, False, False, alike, quantity)


def compare_values(text: str, metric: Quantity, first: np.ndarray, second: np.ndarray) -> ClaimComparison:
    """Tests that the first values are above the second."""
    if not len(first) or not len(second):
        return _make_untested(text, metric.name)
    first_median, second_median = float(np.median(first)), float(np.median(second))
    text = f"{text}: {metric.format_value(first_median)} and {metric.format_value(second_median)}"
    return ClaimComparison(
        text,
        rank_sum_p(first, second),
        smallest_p(len(first), len(second)),
        supports=first_median > second_median,
        contradicts=first_median < second_median,
        quantity=metric.name,
    )


def _run_sign_test(text: str, successes: np.ndarray, quantity: str = "") -> ClaimComparison:
    if not len(successes):
        return _make_untested(text, quantity)
    yes, count = int(successes.sum()), len(successes)
    text = f"{text}: in {yes} of {count} runs"
    return ClaimComparison(
        text,
        sign_p(yes, count - yes),
        sign_p(count, 0),
        supports=2 * yes > count,
        contradicts=2 * yes < count,
        quantity=quantity,
    )
