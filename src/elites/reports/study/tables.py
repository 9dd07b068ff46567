"""Tables of a study: as CSV with all digits, as LaTeX with rounded numbers, and as rows of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elites.metrics.metric import Quantity
from elites.metrics.statistics import bonferroni
from elites.paper.presets import PAPER_SUITE, SUITES
from elites.paper.verdicts import SAME, UNKNOWN, Claim
from elites.reports.study.comparisons import (
    NONE,
    PROBABILITY,
    Aggregate,
    Comparison,
    FinalValue,
    Findings,
    describe_power,
    format_interval,
    format_p,
    format_value,
)
from elites.reports.tables import align_rows
from elites.results.names import ReportTable, report_part
from elites.results.study import ReportFolder
from elites.studies.results.study_results import StudyResults
from elites.text import format_duration, make_file_name, make_printable


class Table(NamedTuple):
    """A table of text; the columns in `numeric` are aligned to the right."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[int] = frozenset()
    note: str = ""  # of the page


def make_runs_table(study: StudyResults) -> Table:
    """The number of runs of each algorithm on each task, and their budgets."""
    rows = []
    for task in study.tasks:
        for variant in study.variants:
            replications = study.replications(task, variant)
            if replications:
                ended = _format_range(curves.evaluations for curves in replications)
                at = _format_range(curves.end.evaluations for curves in replications)
                corrected = sum(bool(study.correction(curves)) for curves in replications)
                seeds = len(replications)
                common = [f"{study.budgets[task]:,}"] if study.tasks_without_common_budget else []
                rows.append((task, variant, str(seeds), ended, at, *common, f"{corrected} of {seeds}"))
    common = ["common budget"] if study.tasks_without_common_budget else []
    columns = ("task", "algorithm", "runs", "evaluations", "compared at", *common, "corrected")
    caption = "Runs of each algorithm on each task."
    return Table(ReportTable.RUNS, caption, columns, rows, frozenset(range(2, len(columns))))


def make_cost_table(study: StudyResults) -> Table:
    """The cost of a run of each algorithm on each task: medians over runs with a known time."""
    rows = []
    for task in study.tasks:
        for variant in study.variants:
            timed = [curves for curves in study.replications(task, variant) if 0 < curves.seconds < np.inf]
            if timed:
                steps, seconds, pace, rate = (
                    float(np.median(values))
                    for values in zip(
                        *(
                            (c.steps, c.seconds, c.evaluations / c.seconds, c.steps / c.seconds)
                            for c in timed
                        ),
                        strict=True,
                    )
                )
                counts = (f"{number:,.{1 if number < 100 else 0}f}" for number in (pace, rate))
                rows.append(
                    (task, variant, str(len(timed)), f"{steps:,.0f}", format_duration(seconds), *counts)
                )
    columns = (
        *("task", "algorithm", "runs", "environment steps", "wall time"),
        *("evaluations per second", "steps per second"),
    )
    caption = "Cost of a run (medians). Replications that train together have the time of all of them."
    return Table(ReportTable.COST, caption, columns, rows, frozenset(range(2, len(columns))))


def _format_range(counts: Iterable[int]) -> str:
    ordered = sorted(counts)
    return f"{ordered[0]:,}" if ordered[0] == ordered[-1] else f"{ordered[0]:,} to {ordered[-1]:,}"


def make_final_table(
    finals: Sequence[FinalValue], metrics: Sequence[Quantity], name: str, caption: str
) -> Table:
    """Medians with quartiles; empty if no run has any of the metrics."""
    by_metric = {(row.task, row.variant, row.metric): row for row in finals}
    names = [metric.name for metric in metrics]
    pairs = list(dict.fromkeys((row.task, row.variant) for row in finals if row.metric in names))
    rows = []
    for task, variant in pairs:
        cells = [(metric, by_metric.get((task, variant, metric.name))) for metric in metrics]
        seeds = max(final.seeds for _, final in cells if final is not None)
        rows.append(
            (task, variant, str(seeds), *(_format_with_quartiles(metric, final) for metric, final in cells))
        )
    columns = ("task", "algorithm", "runs", *(metric.label for metric in metrics))
    return Table(name, caption, columns, rows, frozenset(range(2, len(columns))))


def _format_with_quartiles(metric: Quantity, final: FinalValue | None) -> str:
    if final is None:
        return NONE
    median, low, high = (format_value(metric, value) for value in (final.median, final.low, final.high))
    return f"{median} ({low} to {high})"


def make_p_table(rows: Sequence[Comparison], metric: Quantity) -> Table:
    """Effects and p-values of one metric."""
    rows = [row for row in rows if row.metric == metric.name]
    pooled = any(row.pooled for row in rows)
    texts = [
        (
            row.task,
            row.other,
            f"{row.seeds[1]}, {row.seeds[0]}",
            format_interval(metric, row.difference),
            format_interval(PROBABILITY, row.superiority),
            format_p(row.p),
            format_p(row.corrected_p),
            "yes" if row.significant else "no" if row.possible else "impossible",
            *([row.pooled] if pooled else []),
        )
        for row in rows
    ]
    reference = rows[0].reference if rows else ""
    columns = (
        "task",
        "algorithm",
        "runs of each",
        "difference of medians",
        "probability of being above",
        "p",
        "p, Bonferroni",
        "significant",
        *(["with the pooled offset"] if pooled else []),
    )
    caption = f"{metric.label}: all others against {reference}."
    return Table(
        report_part(
            ReportTable.P_VALUES, metric.name if metric.name.isidentifier() else make_file_name(metric.name)
        ),
        caption,
        columns,
        texts,
        frozenset(range(2, 7)),
        describe_power(rows) if rows else "",
    )


def make_aggregate_table(rows: Sequence[Aggregate], metrics: Sequence[Quantity], reference: str) -> Table:
    """Metrics over all tasks; empty if there is only one."""
    labels = {metric.name: metric.label for metric in metrics}
    texts = [
        (
            labels[row.metric],
            row.variant,
            str(row.tasks),
            format_interval(PROBABILITY, row.mean),
            format_interval(PROBABILITY, row.superiority),
        )
        for row in rows
        if row.metric in labels
    ]
    above = f"probability of being above {reference}"
    columns = ("metric", "algorithm", "tasks", "interquartile mean, scaled", above)
    return Table(ReportTable.AGGREGATE, "All tasks together.", columns, texts, frozenset(range(2, 5)))


def format_results(findings: Findings) -> list[str]:
    """The final values of each metric and their effects against the reference, as lines of text."""
    compared_rows = {(row.metric, row.task, row.other): row for row in findings.comparisons}
    lines: list[str] = []
    for metric in findings.study.metrics:
        rows = [("task", "algorithm", "runs", metric.label, "quartiles")]
        effects = [("difference", "probability of being above")]
        for row in (row for row in findings.finals if row.metric == metric.name):
            low, high = format_value(metric, row.low), format_value(metric, row.high)
            numbers = (str(row.seeds), format_value(metric, row.median), f"{low} to {high}")
            rows.append((row.task, row.variant, *numbers))
            effect = compared_rows.get((metric.name, row.task, row.variant))
            effects.append(
                (format_interval(metric, effect.difference), format_interval(PROBABILITY, effect.superiority))
                if effect
                else ("", "")
            )
        if len(rows) > 1:
            compared = any(effect != ("", "") for effect in effects[1:])
            against = f", against {findings.reference} with 95 % intervals" if compared else ""
            lines.append(f"{metric.label}: medians over replications{against}")
            width = max(len(row[1]) for row in rows)
            lines += align_rows(
                [
                    (f"{row[0]}", row[1].ljust(width), *row[2:], *(effect if compared else ()))
                    for row, effect in zip(rows, effects, strict=True)
                ]
            )
    return lines


def describe_suite(claim: Claim) -> str:
    """The tasks of a verdict. Only those of the paper decide its claim."""
    return claim.suite if claim.suite == SUITES[PAPER_SUITE].title else f"counterpart on {claim.suite}"


def make_claim_table(claims: Sequence[Claim]) -> Table:
    """The verdict on each claim."""
    rows = [
        (
            *(claim.number, claim.text, describe_suite(claim), claim.verdict.value, claim.scope),
            *(claim.at_common_budget or NONE, claim.with_pooled_offset or NONE),
        )
        for claim in claims
    ]
    columns = (
        *("", "claim of the paper", "tasks", "verdict of these data", "what was compared"),
        *("at the common budget", "with the pooled offset"),
    )
    return Table(ReportTable.CLAIMS, "The paper's claims.", columns, rows)


class Tables(NamedTuple):
    """All tables of a report; those of p-values by the name of the metric that was compared."""

    runs: Table
    cost: Table
    final: Table
    final_corrected: Table
    final_losses: Table
    p_values: dict[str, Table]
    aggregate: Table
    claims: Table
    common_final: Table
    common_p_values: dict[str, Table]


def make_tables(findings: Findings) -> Tables:
    """The tables of the page, of which some are LaTeX files, too. A table without rows is not shown."""
    study, quantities = findings.study, findings.study.quantities

    def make_final(rows: Sequence[FinalValue], metrics: Sequence[Quantity], name: str) -> Table:
        return make_final_table(rows, metrics, name, f"{metrics[0].label} and others: medians and quartiles.")

    def make_p_values(comparisons: Sequence[Comparison]) -> dict[str, Table]:
        compared = {row.metric for row in comparisons}
        chosen = [metric for metric in quantities if metric.name in compared]
        return {metric.name: make_p_table(comparisons, metric) for metric in chosen}

    return Tables(
        make_runs_table(study),
        make_cost_table(study),
        make_final(findings.finals, study.metrics, ReportTable.FINAL),
        make_final(findings.finals, study.corrected_metrics, ReportTable.FINAL_CORRECTED),
        make_final(findings.finals, study.losses, ReportTable.FINAL_LOSSES),
        make_p_values(findings.comparisons),
        make_aggregate_table(findings.aggregates, quantities, findings.reference),
        make_claim_table(findings.claims),
        make_final(findings.common_finals, study.metrics, ReportTable.FINAL_COMMON),
        make_p_values(findings.common_comparisons),
    )


def write_tables(findings: Findings, tables: Tables, report: ReportFolder) -> None:
    """Writes all numbers as CSV, and the tables as LaTeX."""
    study = findings.study
    _write_csv(
        report.table_path(ReportTable.RUNS),
        (
            *("task", "algorithm", "seed", "evaluations", "compared_at", "common_budget", "corrected"),
            *("environment_steps", "elapsed_s"),
        ),
        [
            (
                *(curves.run.task, curves.run.variant, curves.run.seed, curves.evaluations),
                *(curves.end.evaluations, curves.common.evaluations, bool(study.correction(curves))),
                *(curves.steps, "" if np.isnan(curves.seconds) else curves.seconds),
            )
            for curves in study.runs
        ],
    )
    rows = map(_make_comparison_row, findings.comparisons)
    _write_csv(report.table_path(ReportTable.FINAL), FINAL_COLUMNS, findings.finals)
    _write_csv(report.table_path(ReportTable.P_VALUES), COMPARISON_COLUMNS, rows)
    if findings.common_finals:
        rows = map(_make_comparison_row, findings.common_comparisons)
        _write_csv(report.table_path(ReportTable.FINAL_COMMON), FINAL_COLUMNS, findings.common_finals)
        _write_csv(report.table_path(ReportTable.P_VALUES_COMMON), COMPARISON_COLUMNS, rows)
    if findings.aggregates:
        _write_csv(
            report.table_path(ReportTable.AGGREGATE),
            (
                *("metric", "algorithm", "tasks", *_list_interval_columns("scaled_interquartile_mean")),
                *_list_interval_columns("probability_above_reference"),
            ),
            [(*row[:3], *row.mean, *row.superiority) for row in findings.aggregates],
        )
    if findings.claims:
        _write_csv(
            report.table_path(ReportTable.CLAIMS),
            (
                *("claim", "text", "suite", "verdict", "comparisons_tested", "comparisons"),
                *("comparison", "p", "p_bonferroni", "verdict_of_comparison"),
                *("at_common_budget", "with_pooled_offset"),
            ),
            [row for claim in findings.claims for row in _make_claim_rows(claim)],
        )
    finals = tables.final, tables.final_corrected, tables.final_losses
    others = tables.runs, tables.cost, tables.aggregate, tables.claims, *tables.p_values.values()
    for table in (*finals, *others):
        if table.rows:
            report.table_path(table.name, "tex").write_text(format_latex(table), encoding="utf-8")


def _list_interval_columns(name: str) -> tuple[str, ...]:
    return name, f"{name}_low", f"{name}_high"


FINAL_COLUMNS = (
    *("task", "algorithm", "metric", "runs", "evaluations", "median", "first_quartile", "third_quartile"),
)
COMPARISON_COLUMNS = (
    *("metric", "task", "reference", "other", "reference_runs", "other_runs"),
    *("reference_median", "other_median", "p", "comparisons", "p_bonferroni", "least_p_bonferroni"),
    *_list_interval_columns("probability_above_reference"),
    *_list_interval_columns("difference_from_reference"),
    "with_pooled_offset",
)


def _make_comparison_row(row: Comparison) -> tuple[object, ...]:
    return (
        *(*row[:4], *row.seeds, *row.medians, row.p, row.comparisons, row.corrected_p, row.smallest_p),
        *(*row.superiority, *row.difference, row.pooled),
    )


def _make_claim_rows(claim: Claim) -> list[tuple[object, ...]]:
    """A row for each comparison; one row if there is none."""
    count = len(claim.tested)
    about = (claim.number, claim.text, claim.suite, claim.verdict.value, count, len(claim.comparisons))
    rows: list[tuple[object, ...]] = [
        (*about, comparison.text, comparison.p, bonferroni(comparison.p, count), verdict.value, *changes)
        for (comparison, verdict), changes in zip(claim.verdicts, claim.sensitivities(), strict=True)
    ]
    return rows or [(*about, "", "", "", "", "", "")]


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", errors="replace")


SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    NONE: "--",
}


def format_latex(table: Table) -> str:
    """A `table` that needs no package; long text is wrapped."""
    kinds = []
    for place in range(len(table.columns)):
        longest = max([len(row[place]) for row in table.rows], default=0)
        kinds.append("r" if place in table.numeric else "p{0.3\\linewidth}" if longest > 40 else "l")
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{_escape(table.caption)}}}",
        f"\\begin{{tabular}}{{{''.join(kinds)}}}",
        r"\hline",
        " & ".join(map(_escape, table.columns)) + r" \\",
        r"\hline",
        *(" & ".join(map(_escape, row)) + r" \\" for row in table.rows),
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in make_printable(text))


def describe_comparisons(claims: Sequence[Claim]) -> list[tuple[Claim, list[str]]]:
    """Every comparison of every claim that was tested, in a line each."""
    return [(claim, _describe_claim(claim)) for claim in claims if claim.tested]


def _describe_claim(claim: Claim) -> list[str]:
    count = len(claim.tested)
    lines = []
    for (comparison, verdict), (common, pooled) in zip(claim.verdicts, claim.sensitivities(), strict=True):
        p = f"p = {format_p(comparison.p)}, corrected {format_p(bonferroni(comparison.p, count))}"
        additions = [
            f"{text} {condition}"
            for text, condition in ((common, "at the common budget"), (pooled, "with the pooled offset"))
            if text
        ]
        lines.append("; ".join([comparison.text, f"{p}: {verdict}", *additions]))
    return lines


def align_claims(claims: Sequence[Claim]) -> list[str]:
    """The verdicts as lines of text."""
    lines = []
    for claim in claims:
        line = f"  claim {claim.number:<3} {describe_suite(claim)}: {claim.verdict.value}" + (
            f" ({claim.scope})" if claim.scope else ""
        )
        if claim.at_common_budget not in ("", SAME):
            line += f"; at the common budget {claim.at_common_budget}"
        if claim.with_pooled_offset not in ("", SAME, UNKNOWN):
            line += f"; with the pooled offset {claim.with_pooled_offset}"
        lines.append(line)
    return lines
