"""Finding the runs of a study and naming what they have in common. Nothing is read but their records."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elites.errors import ElitesError
from elites.reports import colours

STUDY = "study.json"
STORAGE = ("keep_members",)  # hyper-parameters that change what is kept, not what is found
FIELDS: dict[str, type] = {
    **{"algorithm": str, "task": str, "evaluations": int, "seed": int},
    **{"hyper_parameters": dict, "task_parameters": dict},
}


@dataclass(frozen=True)
class Run:
    """A run's folder and record."""

    folder: Path
    record: Mapping[str, Any]
    task: str  # as figures call it
    variant: str  # as figures call the algorithm
    order: int  # of the variant

    @property
    def algorithm(self) -> str:
        return str(self.record["algorithm"])

    @property
    def seed(self) -> int:
        return int(self.record["seed"])

    @property
    def name(self) -> str:
        return f"{self.variant} on {self.task}, seed {self.seed}"


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All runs below a folder, by task, variant and seed; and what is wrong with others."""
    if not folder.is_dir():
        raise ElitesError(f"{folder} is no folder")
    found, wrong = [], []
    for path in sorted(folder.rglob("config.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            for name, kind in FIELDS.items():
                if name not in record:
                    raise ValueError(f"it has no {name}")
                if not isinstance(record[name], kind):
                    raise ValueError(f"{name} is {json.dumps(record[name])}")
            found.append((path.parent, record))
        except (OSError, ValueError, TypeError) as error:
            wrong.append(f"{path.relative_to(folder)} is damaged and left out: {error}")
    records = [record for _, record in found]
    tasks = _named(records, "task", "task_parameters", _choices(folder, "tasks"))
    variants = _named(records, "algorithm", "hyper_parameters", _choices(folder, "algorithms"))
    if len({record["algorithm"] for _, record in found}) == 1 and len(set(variants)) > 1:
        only = found[0][1]["algorithm"]
        variants = [variant.removeprefix(f"{only}, ") for variant in variants]
    known = list(colours.ALGORITHMS)
    ranked = sorted(
        {
            (known.index(a) if a in known else len(known), a, _natural(v), v)
            for v, a in zip(variants, (record["algorithm"] for _, record in found), strict=True)
        }
    )
    order = {variant: place for place, (_, _, _, variant) in enumerate(ranked)}
    runs = [
        Run(own, record, task, variant, order[variant])
        for (own, record), task, variant in zip(found, tasks, variants, strict=True)
    ]
    runs.sort(key=lambda run: (_task_order(run.task), run.order, run.seed, str(run.folder)))
    kept: dict[tuple[str, str, int], Run] = {}
    for run in runs:
        key = (run.task, run.variant, run.seed)
        if key in kept:
            wrong.append(f"{run.folder.relative_to(folder)} repeats {run.name} and is left out")
        else:
            kept[key] = run
    return list(kept.values()), wrong


def _task_order(task: str) -> tuple[bool, int, str]:
    """As in the paper: the uncertain tasks first, walker, halfcheetah, ant, hopper."""
    robots = ("walker", "halfcheetah", "ant", "hopper")
    place = next((place for place, robot in enumerate(robots) if robot in task), len(robots))
    return "deterministic" in task, place, task


def _natural(text: str) -> tuple[tuple[bool, float, str], ...]:
    """For sorting: numbers by value."""
    parts = []
    for word in text.replace(",", " ").split():
        try:
            parts.append((False, float(word), ""))
        except ValueError:
            parts.append((True, 0.0, word))
    return tuple(parts)


def _choices(folder: Path, what: str) -> list[dict[str, Any]]:
    """The tasks or algorithms of a study's own record, if it has one, with all of their parameters."""
    try:
        found = [dict(choice) for choice in json.loads((folder / STUDY).read_text(encoding="utf-8"))[what]]
        return [
            {
                "name": str(choice["name"]),
                "label": str(choice.get("label") or ""),
                "given": len(choice.get("parameters") or {}),
                "parameters": _whole(what, str(choice["name"]), dict(choice.get("parameters") or {})),
            }
            for choice in found
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _whole(what: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the defaults of what is not given, as a record has them; else those given alone."""
    own = defaults_of(what, name) or {}
    whole: dict[str, Any] = json.loads(json.dumps({**own, **given}))
    return {key: value for key, value in whole.items() if key not in STORAGE}


@functools.cache
def defaults_of(what: str, name: str) -> dict[str, Any] | None:
    """What one of our `algorithms` or `tasks` has if nothing is given, as a record has it."""
    from elites.algorithms import ALGORITHMS
    from elites.tasks import TASKS, parameters_of

    if what == "algorithms":
        own = dataclasses.asdict(ALGORITHMS[name].Config()) if name in ALGORITHMS else None
    else:
        own = parameters_of(TASKS[name]) if name in TASKS else None
    found: dict[str, Any] | None = json.loads(json.dumps(own))
    return found


def _label(name: str, own: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """What the study calls a run with these parameters; empty if that is nothing of its own.

    A choice that gives more of the parameters is nearer to the run than one that gives fewer.
    """
    fitting = [
        choice
        for choice in choices
        if choice["name"] == name
        and all(key not in own or own[key] == value for key, value in choice["parameters"].items())
    ]
    best = max(fitting, key=lambda choice: choice["given"], default=None)
    return "" if best is None else str(best["label"])


def _named(
    records: Sequence[Mapping[str, Any]],
    what: str,
    parameters: str,
    choices: Sequence[Mapping[str, Any]],
) -> list[str]:
    """A name for each record: of those with the same name, with the parameters in which they differ."""
    differing: dict[str, list[str]] = {}
    for name in sorted({str(record[what]) for record in records}):
        given = [record[parameters] for record in records if record[what] == name]
        keys = [key for key in dict.fromkeys(key for g in given for key in g) if key not in STORAGE]
        differing[name] = [key for key in keys if len({json.dumps(g.get(key)) for g in given}) > 1]
    names = []
    for record in records:
        name, own = str(record[what]), record[parameters]
        told = ", ".join(f"{key} {_text(own.get(key))}" for key in differing[name])
        names.append(_label(name, own, choices) or (f"{name}, {told}" if told else name))
    return names


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value) if value is None else str(value)


def colour_of(runs: Sequence[Run]) -> dict[str, str]:
    """A colour for each variant: the algorithm's own, unless there are several variants of it.

    More variants than can be told apart by their hue are a sweep, and go from dark to light in their order.
    """
    chosen: dict[str, str] = {}
    others: list[str] = []
    by_order = sorted({(run.order, run.variant, run.algorithm) for run in runs})
    for _, variant, algorithm in by_order:
        several = sum(other == algorithm for _, _, other in by_order) > 1
        own = next(run for run in runs if run.variant == variant)
        as_in_paper = own.record["hyper_parameters"].get("p_evo") == 0.5
        usual = colours.ALGORITHMS.get(algorithm)
        if usual is not None and usual not in chosen.values() and (not several or as_in_paper):
            chosen[variant] = usual
        else:
            others.append(variant)
    return {**chosen, **dict(zip(others, _told_apart(len(others)), strict=True))}


def is_sweep(variants: int) -> bool:
    """Whether there are more variants than colours of their own."""
    return variants > len(colours.VARIANTS)


def _told_apart(count: int) -> list[str]:
    if not is_sweep(count):
        return list(colours.VARIANTS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](0.92 * place / (count - 1))) for place in range(count)]
