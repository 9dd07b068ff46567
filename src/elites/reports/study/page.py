"""The page of a study: one file that needs no other, to be read from top to bottom."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from elites.reports.study.comparisons import Comparison, Final, reference_of, verdict_on_power
from elites.reports.study.data import Study
from elites.reports.study.figures import AXES
from elites.reports.study.logs import CORRECTED, LOSSES, METRICS
from elites.reports.study.runs import STORAGE, defaults_of
from elites.reports.study.tables import details, final_table, p_table, what_was_run
from elites.reports.study.verdicts import Claim

PAPER = 1_000_000  # evaluations of each run


def make_page(
    study: Study,
    finals: Sequence[Final],
    comparisons: Sequence[Comparison],
    claims: Sequence[Claim],
    pictures: Mapping[str, Sequence[tuple[str, str]]],
    figures: Path,
    against: str,
) -> str:
    """The page. `pictures` are (name, caption) by section, their files in `figures`."""
    from jinja2 import Environment, StrictUndefined

    shown = {
        section: [_embedded(figures / f"{name}.png", caption) for name, caption in of]
        for section, of in pictures.items()
    }
    seeds = sorted({curves.run.seed for curves in study.runs})
    plural = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    count, tasks, variants = len(study.runs), len(study.tasks), len(study.variants)
    algorithms = sorted({curves.run.algorithm for curves in study.runs})
    what = f"algorithm{'s' * (variants > 1)}"
    if len(algorithms) == 1 and variants > 1:
        what = f"variants of {algorithms[0]}"
    summary = (
        f"{count} run{'s' * (count > 1)}: {variants} {what} on {tasks} "
        f"task{'s' * (tasks > 1)}, {plural}, compared after {_budgets(study)} evaluations of controllers."
    )
    template = resources.files("elites.reports.study").joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        title=f"Study {study.folder.resolve().name}",
        summary=summary,
        notes=study.notes,
        runs=what_was_run(study),
        settings=settings(study),
        versions=_versions(study),
        progress=shown[f"progress-{against}"],
        also=[(AXES[x], shown[f"progress-{x}"]) for x in AXES if x != against],
        final=final_table(finals, METRICS, "final", ""),
        reference=reference_of(study),
        p_values=_tested(comparisons, METRICS),
        alone=len(study.variants) == 1,
        archives=shown["archives"],
        losses=shown["losses"],
        corrected=shown["corrected"],
        final_corrected=final_table(finals, CORRECTED, "final-corrected", ""),
        final_losses=final_table(finals, LOSSES, "final-losses", ""),
        p_losses=_tested(comparisons, (*CORRECTED, *LOSSES)),
        contribution=shown["contribution"],
        scale=_scale(study),
        claims=claims,
        details=details(claims),
    )


def _tested(comparisons: Sequence[Comparison], metrics: Sequence[str]) -> list[tuple[Any, str]]:
    found = []
    for metric in metrics:
        of = [row for row in comparisons if row.metric == metric]
        if of:
            found.append((p_table(of, metric), verdict_on_power(of)))
    return found


def _budgets(study: Study) -> str:
    budgets = sorted(set(study.budgets.values()))
    return f"{budgets[0]:,}" if len(budgets) == 1 else f"{budgets[0]:,} to {budgets[-1]:,}"


def _scale(study: Study) -> str:
    """How these runs compare with the paper's in size."""
    seeds = [len(study.of(task, variant)) for task in study.tasks for variant in study.variants]
    replications = sorted({count for count in seeds if count})
    told = f"{replications[0]}" if len(replications) == 1 else f"{replications[0]} to {replications[-1]}"
    less = "The paper has 20 (10 in its ablation) of 1,000,000 evaluations each"
    if max(study.budgets.values()) < PAPER:
        less += ", and its claims are about where such runs end: a verdict here is on these data alone"
    told += f" replication{'s' * (told != '1')}"
    return f"These runs are {told} of {_budgets(study)} evaluations. {less}."


def settings(study: Study) -> list[str]:
    """What was changed, of each algorithm and task."""
    lines = {}
    for curves in study.runs:
        run = curves.run
        changed = _changed(defaults_of("algorithms", run.algorithm), run.record["hyper_parameters"])
        changed = {name: value for name, value in changed.items() if name not in STORAGE}
        if changed:
            lines[run.variant] = f"{run.variant}: {_listed(changed)}"
        given = run.record["task_parameters"]
        own = defaults_of("tasks", run.record["task"])
        if own is None:  # somebody's own: nothing of it is known elsewhere
            lines[run.task] = f"{run.task}: {', '.join(f'{name} {given[name]}' for name in sorted(given))}"
        elif changed := _changed(own, given):
            lines[run.task] = f"{run.task}: {_listed(changed)}"
    return [lines[name] for name in sorted(lines)]


def _changed(own: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    if own is None:
        return {}
    return {name: (value, own[name]) for name, value in given.items() if name in own and own[name] != value}


def _listed(changed: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {value} (else {own})" for name, (value, own) in sorted(changed.items()))


def _versions(study: Study) -> str:
    """What the runs were made with, all values where they differ."""
    found: dict[str, set[str]] = {}
    for curves in study.runs:
        recorded = curves.run.record.get("versions")
        for name, version in (recorded if isinstance(recorded, dict) else {}).items():
            if version is not None:
                found.setdefault(name, set()).add(str(version))
    named = (f"{name} {' and '.join(sorted(versions))}" for name, versions in found.items())
    return ", ".join(named) or "versions that were not recorded"


def _embedded(path: Path, caption: str) -> dict[str, Any]:
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of a PNG's header
    return {"png": base64.b64encode(data).decode(), "width": width, "height": height, "caption": caption}
