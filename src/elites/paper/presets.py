"""The paper's tasks, their counterparts in other simulators, its algorithms and its four studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elites.errors import ElitesError, require
from elites.studies.study import Choice, Study, read_study_file

ROBOTS = ("walker", "halfcheetah", "ant", "hopper")


@dataclass(frozen=True)
class Suite:
    """The paper's tasks, or their counterparts in another simulator."""

    title: str
    prefix: str  # of the names of its tasks
    names: Mapping[str, str] = field(default_factory=dict)  # of robots that have another name in the paper

    def uncertain_task(self, robot: str) -> str:
        """The task of a robot."""
        return f"{self.prefix}{self.names.get(robot, robot)}"

    def deterministic_task(self, robot: str) -> str:
        """The same without noise."""
        return f"{self.prefix}deterministic-{self.names.get(robot, robot)}"

    @property
    def tasks(self) -> tuple[str, ...]:
        """All of them, the uncertain ones first."""
        return (*map(self.uncertain_task, ROBOTS), *map(self.deterministic_task, ROBOTS))


SUITES = {
    "qdgym": Suite("QDGym", "qd-"),
    "brax": Suite("Brax", "brax-", {"walker": "walker2d"}),
    "mujoco": Suite("MuJoCo", "mujoco-", {"walker": "walker2d"}),
}
PAPER_SUITE = "qdgym"  # the suite that the claims are about
PGA = "pga-map-elites"
GA_SHARE = 0.5  # of PGA-MAP-Elites' offspring (p_evo)
GA_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the ablation
EVALUATIONS, SEEDS, ABLATION_SEEDS = 1_000_000, 20, 10
DEEP_GRID = Choice("deep-grid", {"keep_members": True})  # corrected by drawing from its cells


def _make_choices(names: Iterable[str]) -> tuple[Choice, ...]:
    return tuple(Choice(name) for name in names)


STUDIES: dict[str, dict[str, Any]] = {  # all on the uncertain tasks
    "performance": {
        "deterministic": True,  # and on the others
        "algorithms": _make_choices((PGA, "map-elites", "map-elites-es", "qd-pg", "cma-map-elites", "td3")),
    },
    "reproducibility": {
        "algorithms": (
            *_make_choices((PGA, "map-elites", "map-elites-es", "map-elites-sampling")),
            DEEP_GRID,
        ),
        "correct": True,
    },
    "ablation": {
        "algorithms": tuple(Choice(PGA, {"p_evo": share}) for share in GA_SHARES),
        "seeds": ABLATION_SEEDS,
        "correct": True,
    },
    "contribution": {"algorithms": _make_choices((PGA,))},
}


def has_paper_share(hyper_parameters: Mapping[str, Any]) -> bool:
    """Whether these are hyper-parameters of PGA-MAP-Elites with the paper's share of GA offspring."""
    return hyper_parameters.get("p_evo") == GA_SHARE


def make_study_name(name: str, suite: str) -> str:
    """The name of a study of the paper; for another suite, with the name of the suite."""
    return name if suite == PAPER_SUITE else f"{name}-{suite}"


def _make_fields(name: str, suite: str) -> dict[str, Any]:
    """The fields of a study of the paper."""
    given = {"evaluations": EVALUATIONS, "seeds": SEEDS, **STUDIES[name]}
    count = 2 * len(ROBOTS) if given.pop("deterministic", False) else len(ROBOTS)
    return {
        **given,
        "name": make_study_name(name, suite),
        "tasks": _make_choices(SUITES[suite].tasks[:count]),
    }


def find_suite(name: str, tasks: Iterable[str], algorithms: Iterable[str]) -> Suite | None:
    """The suite of one of the paper's studies, or a part of it, by its name and contents; None for others."""
    for key, suite in SUITES.items():
        for study in STUDIES:
            if name == make_study_name(study, key):
                fields = _make_fields(study, key)
                offered = [{choice.name for choice in fields[what]} for what in ("tasks", "algorithms")]
                return suite if set(tasks) <= offered[0] and set(algorithms) <= offered[1] else None
    return None


def make_study(
    name: str,
    *,
    suite: str | None = None,
    tasks: Iterable[str] = (),
    algorithms: Iterable[str] = (),
    **changes: Any,
) -> Study:
    """A study of the paper by its name, or the study in a TOML file by its path, with some fields changed.

    `suite` has the tasks of a study of the paper: "qdgym", which is the default, or their counterparts in
    "brax" or "mujoco". `tasks` and `algorithms` select from the study's own, or name others to take instead.
    """
    require(suite is None or suite in SUITES, "suite", repr(suite), f"one of {', '.join(SUITES)}")
    if name in STUDIES:
        fields = _make_fields(name, suite or PAPER_SUITE)
    elif name.endswith(".toml") and suite is not None:
        raise ElitesError(f"suite is {suite}; it is for the paper's studies, and {name} names its own tasks")
    elif name.endswith(".toml"):
        fields = read_study_file(Path(name))
    else:
        raise ElitesError(
            f"unknown study {name!r}; the studies are {', '.join(STUDIES)}, or a file of your own: NAME.toml"
        )
    fields |= {name: value for name, value in changes.items() if value is not None}
    offered = fields["algorithms"]
    for what, names in (("tasks", tuple(tasks)), ("algorithms", tuple(algorithms))):
        if names:
            fields[what] = tuple(choice for name in names for choice in _select(fields[what], name))
    _check_reference(fields.get("reference", ""), (*offered, *fields["algorithms"]))
    return Study(**fields)


def _check_reference(reference: Any, choices: tuple[Choice, ...]) -> None:
    """A reference is one of the study's algorithms, also where only others are selected to be run."""
    names = [name for choice in choices for name in (choice.label, choice.name, choice.slug())]
    allowed = dict.fromkeys(choice.label or choice.slug() for choice in choices)
    known = isinstance(reference, str) and (not reference or reference in names)
    require(known, "reference", repr(reference), f"one of {', '.join(allowed)}")


def _select(choices: tuple[Choice, ...], name: str) -> tuple[Choice, ...]:
    """The choices of a study with this name; if there are none, a new one with default parameters."""
    matches = tuple(choice for choice in choices if name in (choice.name, choice.slug()))
    return matches or (DEEP_GRID if name == DEEP_GRID.name else Choice(name),)
