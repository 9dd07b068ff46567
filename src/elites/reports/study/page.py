"""The page of a study: one self-contained file."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from elites.metrics.metric import Quantity
from elites.paper.presets import ABLATION_SEEDS, EVALUATIONS, PAPER_SUITE, SEEDS, SUITES
from elites.reports.study.comparisons import Findings
from elites.reports.study.figures import AXES, Captions
from elites.reports.study.tables import Table, Tables, describe_comparisons, describe_suite
from elites.results import names
from elites.results.schemas import result_parameters
from elites.results.study import ReportFolder
from elites.studies.results.runs import find_defaults
from elites.studies.results.study_results import StudyResults


def make_page(
    findings: Findings,
    tables: Tables,
    captions: Captions,
    report: ReportFolder,
    *,
    title: str,
    notes: Sequence[str],
    x_axis: str,
) -> str:
    """The page. The figures are in the report's folder; `x_axis` is the x-axis of the first ones."""
    from jinja2 import Environment, StrictUndefined

    study, claims = findings.study, findings.claims
    shown = {
        section: [_embed(report.figure_path(name), caption) for name, caption in named]
        for section, named in captions.items()
    }
    seeds = sorted({curves.run.seed for curves in study.runs})
    plural = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    count, tasks, variants = len(study.runs), len(study.tasks), len(study.variants)
    algorithms = sorted({curves.run.algorithm for curves in study.runs})
    noun = f"algorithm{'s' * (variants > 1)}"
    if len(algorithms) == 1 and variants > 1:
        noun = f"variants of {algorithms[0]}"
    summary = (
        f"{count} run{'s' * (count > 1)}: {variants} {noun} on {tasks} "
        f"task{'s' * (tasks > 1)}, {plural}, compared after {_format_ends(study)} evaluations of controllers."
    )
    template = resources.files("elites.reports.study").joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        title=title,
        summary=summary,
        notes=notes,
        runs=tables.runs,
        cost=tables.cost,
        settings=list_changed_settings(study),
        versions=_describe_versions(study),
        progress=shown[f"progress-{x_axis}"],
        also=[(AXES[x], shown[f"progress-{x}"]) for x in AXES if x != x_axis],
        final=tables.final,
        reference=findings.reference,
        p_values=_select_tables(tables.p_values, study.metrics),
        pooled=any(row.pooled for row in findings.comparisons),
        aggregate=tables.aggregate,
        common_final=tables.common_final,
        common_p_values=_select_tables(tables.common_p_values, study.metrics),
        alone=len(study.variants) == 1,
        archives=shown["archives"],
        explorers=find_explorers(study, report.path),
        losses=shown["losses"],
        corrected=shown["corrected"],
        final_corrected=tables.final_corrected,
        final_losses=tables.final_losses,
        p_losses=_select_tables(tables.p_values, (*study.corrected_metrics, *study.losses)),
        contribution=shown["contribution"],
        scale=_describe_scale(study),
        claims=claims,
        describe_suite=describe_suite,
        others=sorted({claim.suite for claim in claims} - {SUITES[PAPER_SUITE].title}),
        common_budget=any(claim.common for claim in claims),
        details=describe_comparisons(claims),
        metrics_file=names.REPORT_METRICS,
        tables_folder=names.REPORT_TABLES,
        figures_folder=names.REPORT_FIGURES,
    )


def find_explorers(study: StudyResults, report: Path) -> list[tuple[str, str]]:
    """Label and address of the explorer of each run that has one, seen from the report's folder."""
    pages = [(curves.run, curves.run.folder.explorer) for curves in study.runs]
    return [
        (f"{run.task}, {run.variant}, seed {run.seed}", quote(Path(os.path.relpath(page, report)).as_posix()))
        for run, page in pages
        if page.is_file()
    ]


def _select_tables(tables: Mapping[str, Table], metrics: Sequence[Quantity]) -> list[Table]:
    """The tables of those metrics that were compared."""
    return [tables[metric.name] for metric in metrics if metric.name in tables]


def _format_ends(study: StudyResults) -> str:
    ends = sorted({curves.end.evaluations for curves in study.runs})
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def _describe_scale(study: StudyResults) -> str:
    """The size of these runs, compared with the paper's."""
    seeds = [len(study.replications(task, variant)) for task in study.tasks for variant in study.variants]
    replications = sorted({count for count in seeds if count})
    count = f"{replications[0]}" if len(replications) == 1 else f"{replications[0]} to {replications[-1]}"
    paper = f"The paper has {SEEDS} ({ABLATION_SEEDS} in its ablation) of {EVALUATIONS:,} evaluations each"
    if max(study.limits.values()) < EVALUATIONS:
        paper += ", and its claims are about the end of such runs: a verdict here is on these data alone"
    noun = f"replication{'s' * (count != '1')}"
    return f"These runs are {count} {noun} of {_format_ends(study)} evaluations. {paper}."


def list_changed_settings(study: StudyResults) -> list[str]:
    """The settings of each algorithm and task that differ from the defaults."""
    lines = {}
    for curves in study.runs:
        run = curves.run
        changed = _find_changes(find_defaults("algorithms", run.algorithm), run.record.hyper_parameters)
        changed = result_parameters(run.algorithm, changed)
        if changed:
            lines[run.variant] = f"{run.variant}: {_format_changes(changed)}"
        parameters = run.record.task_parameters
        defaults = find_defaults("tasks", run.record.task)
        if defaults is None:  # a user's own task
            lines[run.task] = (
                f"{run.task}: {', '.join(f'{name} {parameters[name]}' for name in sorted(parameters))}"
            )
        elif changed := _find_changes(defaults, parameters):
            lines[run.task] = f"{run.task}: {_format_changes(changed)}"
    return [lines[name] for name in sorted(lines)]


def _find_changes(defaults: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Value and default of each parameter that differs from a default that is known."""
    pairs = {name: (given[name], default) for name, default in (defaults or {}).items() if name in given}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _format_changes(changed: Mapping[str, tuple[Any, Any]]) -> str:
    items = sorted(changed.items())
    return ", ".join(f"{name} {value} (default {default})" for name, (value, default) in items)


def _describe_versions(study: StudyResults) -> str:
    """The versions that the runs were made with, all of them where they differ."""
    versions: dict[str, set[str]] = {}
    for curves in study.runs:
        for name, version in curves.run.record.versions.items():
            if version is not None:
                versions.setdefault(name, set()).add(str(version))
    texts = (f"{name} {' and '.join(sorted(values))}" for name, values in versions.items())
    return ", ".join(texts) or "versions that were not recorded"


def _embed(path: Path, caption: str) -> dict[str, Any]:
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of a PNG's header
    return {"png": base64.b64encode(data).decode(), "width": width, "height": height, "caption": caption}
