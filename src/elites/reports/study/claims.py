"""The twelve claims of the paper, as comparisons that runs can decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from elites.reports.study.data import ANT, Curves, Study
from elites.reports.study.verdicts import PGA, Check, Claim, Data, Who, above

FADED = 0.2  # of its early share: an operator that adds less has almost stopped
ROBOTS = ("walker", "halfcheetah", "ant", "hopper")
UNCERTAIN = tuple(f"qd-{robot}" for robot in ROBOTS)
DETERMINISTIC = tuple(f"qd-deterministic-{robot}" for robot in ROBOTS)
ME, ES, SAMPLING, DEEP = "map-elites", "map-elites-es", "map-elites-sampling", "deep-grid"
QD_OTHERS = (ME, ES, "qd-pg", "cma-map-elites")
SAMPLED = (ME, ES, SAMPLING, DEEP)  # beside PGA, where reproducibility is studied
MIXED, ENDS = (0.25, 0.5, 0.75), (0.0, 1.0)


def judge(study: Study) -> list[Claim]:
    """The verdict of a study on every claim."""
    data = Data(study)
    return [Claim(number, text, tuple(checks(data))) for number, text, checks in CLAIMS]


def _best(metric: str, tasks: Iterable[str], others: Iterable[str]) -> Callable[[Data], Iterator[Check]]:
    """PGA-MAP-Elites has the highest."""
    pairs = [(task, other) for task in tasks for other in others]
    return lambda data: (data.above(task, metric, Who(PGA), Who(other)) for task, other in pairs)


def _claim_3(data: Data) -> Iterator[Check]:
    yield from _best("max_fitness", (*UNCERTAIN, *DETERMINISTIC), QD_OTHERS)(data)
    for robot in ("walker", "hopper"):
        yield data.above(f"qd-{robot}", "max_fitness", Who(PGA), Who("td3"))
    for robot in ("halfcheetah", "ant"):
        yield data.like(f"qd-{robot}", "max_fitness", Who(PGA), Who("td3"))


def _claim_4(data: Data) -> Iterator[Check]:
    for name in (PGA, *QD_OTHERS, "td3"):
        values = []
        for task in ANT:
            also = [next(iter(c.also.values()), np.nan) for c in data.runs(task, Who(name))]
            values.append(np.array([value for value in also if not np.isnan(value)]))
        yield above(f"QD-score of {name} on {ANT[0]} above {ANT[1]}", "qd_score", values[0], values[1])


def _claim_5(data: Data) -> Iterator[Check]:
    for metric in ("corrected_qd_score", "corrected_max_fitness"):
        yield from _best(metric, UNCERTAIN, SAMPLED)(data)


def _claim_6(data: Data) -> Iterator[Check]:
    limits = {"walker": 0.1, "halfcheetah": 0.05, "ant": 0.05, "hopper": 0.2}
    for robot, limit in limits.items():
        yield data.below(f"qd-{robot}", "max_fitness_loss", Who(PGA), limit)


def _claim_7(data: Data) -> Iterator[Check]:
    metric = "qd_score_loss"
    for task in UNCERTAIN:
        for other in (PGA, ME, SAMPLING, DEEP):
            yield data.above(task, metric, Who(other), Who(ES))
        if task != "qd-hopper":
            for other in (PGA, SAMPLING):
                yield data.above(task, metric, Who(ME), Who(other))
        else:
            yield data.above(task, metric, Who(ME), Who(SAMPLING))
    yield data.above("qd-halfcheetah", metric, Who(SAMPLING), Who(PGA))


def _claim_8(data: Data) -> Iterator[Check]:
    for task in UNCERTAIN:
        for other in (PGA, ME, ES, SAMPLING):
            yield data.above(task, "max_fitness_loss", Who(DEEP), Who(other))


def _share(value: float) -> Who:
    return Who(PGA, value)


def _claim_9(data: Data) -> Iterator[Check]:
    for task in UNCERTAIN:
        for mixed in MIXED:
            for end in ENDS:
                yield data.above(task, "qd_score", _share(mixed), _share(end))
    for other in (0.5, 0.75):
        yield data.above("qd-walker", "qd_score", _share(other), _share(0.25))
    for other in (0.25, 0.5):
        yield data.above("qd-ant", "qd_score", _share(other), _share(0.75))
    for task in ("qd-ant", "qd-hopper"):
        for other in MIXED:
            yield data.like(task, "max_fitness", _share(0.0), _share(other))


def _claim_10(data: Data) -> Iterator[Check]:
    for task in UNCERTAIN:
        for other in (0.0, *MIXED):
            yield data.above(task, "qd_score_loss", _share(1.0), _share(other))


def _claim_11(data: Data) -> Iterator[Check]:
    def rates(curves: Curves, operator: str) -> tuple[float, float] | None:
        found = curves.rates.get(operator, (np.nan, np.nan))
        return None if np.isnan(found).any() else found

    def pg_fades(curves: Curves) -> bool | None:
        found = rates(curves, "pg")
        return None if found is None else found[0] > 0 and found[1] < FADED * found[0]

    def ga_goes_on(curves: Curves) -> bool | None:
        ga, pg = rates(curves, "ga"), rates(curves, "pg")
        return None if ga is None or pg is None else ga[1] > pg[1]

    def greedy_is_early(curves: Curves) -> bool | None:
        found = rates(curves, "greedy")
        return None if found is None else found[0] > found[1]

    for task in UNCERTAIN:
        yield data.in_runs(
            task, "share of PG offspring added in the last half below a fifth of the first tenth's", pg_fades
        )
        yield data.in_runs(task, "share of GA offspring added in the last half above PG's", ga_goes_on)
        yield data.in_runs(
            task, "the greedy actor added more often in the first tenth than the last half", greedy_is_early
        )


def _claim_12(data: Data) -> Iterator[Check]:
    for robot in ("walker", "halfcheetah"):
        yield data.like(f"qd-{robot}", "coverage", Who(PGA), Who(ME))
    for robot in ("hopper", "ant"):
        yield data.above(f"qd-{robot}", "coverage", Who(PGA), Who(ME))
    for other in (PGA, ME, ES, "qd-pg", "td3"):
        yield data.above("qd-ant", "coverage", Who("cma-map-elites"), Who(other))
    for task in UNCERTAIN:
        for other in (PGA, ME, SAMPLING, DEEP):
            yield data.above(task, "coverage_loss", Who(other), Who(ES))
        for other in (PGA, ME, DEEP):
            yield data.above(task, "coverage_loss", Who(other), Who(SAMPLING))
        if task != "qd-hopper":
            for other in (PGA, DEEP):
                yield data.above(task, "coverage_loss", Who(ME), Who(other))


CLAIMS: tuple[tuple[str, str, Callable[[Data], Iterator[Check]]], ...] = (
    (
        "1",
        "PGA-MAP-Elites has the best QD-score on all four uncertain tasks.",
        _best("qd_score", UNCERTAIN, (*QD_OTHERS, "td3")),
    ),
    (
        "2",
        "And on all four deterministic ones.",
        _best("qd_score", DETERMINISTIC, (*QD_OTHERS, "td3")),
    ),
    (
        "3",
        "PGA-MAP-Elites has the best max-fitness of all QD algorithms; on the uncertain tasks it ties with "
        "TD3 on halfcheetah and ant and beats it on walker and hopper.",
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
