"""The paper's tasks, algorithms and four studies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elites.errors import ElitesError, require
from elites.studies.study import Choice, Study, read_study

ROBOTS = ("walker", "halfcheetah", "ant", "hopper")
UNCERTAIN = tuple(f"qd-{robot}" for robot in ROBOTS)
DETERMINISTIC = tuple(f"qd-deterministic-{robot}" for robot in ROBOTS)
PGA = "pga-map-elites"
GA_SHARE = 0.5  # of PGA-MAP-Elites' offspring (p_evo)
GA_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the ablation
EVALUATIONS, SEEDS, ABLATION_SEEDS = 1_000_000, 20, 10
DEEP_GRID = Choice("deep-grid", {"keep_members": True})  # corrected by drawing from its cells


def _choices(names: Iterable[str]) -> tuple[Choice, ...]:
    return tuple(Choice(name) for name in names)


STUDIES: dict[str, dict[str, Any]] = {
    "performance": {
        "tasks": _choices((*UNCERTAIN, *DETERMINISTIC)),
        "algorithms": _choices((PGA, "map-elites", "map-elites-es", "qd-pg", "cma-map-elites", "td3")),
    },
    "reproducibility": {
        "tasks": _choices(UNCERTAIN),
        "algorithms": (
            *_choices((PGA, "map-elites", "map-elites-es", "map-elites-sampling")),
            DEEP_GRID,
        ),
        "correct": True,
    },
    "ablation": {
        "tasks": _choices(UNCERTAIN),
        "algorithms": tuple(Choice(PGA, {"p_evo": share}) for share in GA_SHARES),
        "seeds": ABLATION_SEEDS,
        "correct": True,
    },
    "contribution": {"tasks": _choices(UNCERTAIN), "algorithms": _choices((PGA,))},
}


def make_study(
    name: str,
    *,
    tasks: Iterable[str] = (),
    algorithms: Iterable[str] = (),
    **changes: Any,
) -> Study:
    """A study of the paper by its name, or the study in a TOML file by its path, with some fields changed.

    `tasks` and `algorithms` select from the study's own, or name others to take instead.
    """
    if name in STUDIES:
        fields = {"name": name, "evaluations": EVALUATIONS, "seeds": SEEDS, **STUDIES[name]}
    elif name.endswith(".toml"):
        fields = read_study(Path(name))
    else:
        raise ElitesError(
            f"unknown study {name!r}; the studies are {', '.join(STUDIES)}, or a file of your own: NAME.toml"
        )
    fields |= {field: value for field, value in changes.items() if value is not None}
    offered = fields["algorithms"]
    for field, names in (("tasks", tuple(tasks)), ("algorithms", tuple(algorithms))):
        if names:
            fields[field] = tuple(choice for name in names for choice in _select(fields[field], name))
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
