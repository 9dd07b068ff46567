"""Tables of a study: as CSV with all digits, as LaTeX with rounded numbers, and as rows of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from elites.metrics.metric import Quantity
from elites.metrics.statistics import bonferroni
from elites.paper.verdicts import Claim
from elites.reports.study.comparisons import NONE, Comparison, Final, as_text, p_text
from elites.studies.merge.results import StudyResults
from elites.text import file_name, printable


class Table(NamedTuple):
    """A table of text; the columns in `numeric` are aligned to the right."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[int] = frozenset()


def runs_table(study: StudyResults) -> Table:
    """The number of runs of each algorithm on each task, and their budgets."""
    rows = []
    for task in study.tasks:
        for variant in study.variants:
            replications = study.of(task, variant)
            if replications:
                ended = sorted({curves.evaluations for curves in replications})
                spread = f"{ended[0]:,}" if len(ended) == 1 else f"{ended[0]:,} to {ended[-1]:,}"
                corrected = sum(bool(study.correction(curves)) for curves in replications)
                seeds = len(replications)
                rows.append(
                    (task, variant, str(seeds), spread, f"{study.budgets[task]:,}", f"{corrected} of {seeds}")
                )
    columns = ("task", "algorithm", "runs", "evaluations", "compared at", "corrected")
    return Table("runs", "What was run.", columns, rows, frozenset({2, 3, 4, 5}))


def final_table(finals: Sequence[Final], metrics: Sequence[Quantity], name: str, caption: str) -> Table:
    """Medians with quartiles; empty if no run has any of the metrics."""
    by_metric = {(row.task, row.variant, row.metric): row for row in finals}
    names = [metric.name for metric in metrics]
    pairs = list(dict.fromkeys((row.task, row.variant) for row in finals if row.metric in names))
    rows = []
    for task, variant in pairs:
        cells = [(metric, by_metric.get((task, variant, metric.name))) for metric in metrics]
        seeds = max(final.seeds for _, final in cells if final is not None)
        rows.append((task, variant, str(seeds), *(_with_quartiles(metric, final) for metric, final in cells)))
    columns = ("task", "algorithm", "runs", *(metric.label for metric in metrics))
    return Table(name, caption, columns, rows, frozenset(range(2, len(columns))))


def _with_quartiles(metric: Quantity, final: Final | None) -> str:
    if final is None:
        return NONE
    median, low, high = (as_text(metric, value) for value in (final.median, final.low, final.high))
    return f"{median} ({low} to {high})"


def p_table(rows: Sequence[Comparison], metric: Quantity) -> Table:
    """p-values of one metric."""
    rows = [row for row in rows if row.metric == metric.name]
    texts = [
        (
            row.task,
            row.other,
            f"{row.seeds[0]}, {row.seeds[1]}",
            as_text(metric, row.medians[0]),
            as_text(metric, row.medians[1]),
            p_text(row.p),
            p_text(row.corrected),
            "yes" if row.significant else "no" if row.possible else "impossible",
        )
        for row in rows
    ]
    reference = rows[0].reference if rows else ""
    columns = (
        "task",
        f"{reference} against",
        "runs of each",
        f"median of {reference}",
        "of the other",
        "p",
        "p, Bonferroni",
        "significant",
    )
    caption = f"{metric.label}: {reference} against all others."
    return Table(
        f"p-values-{metric.name if metric.name.isidentifier() else file_name(metric.name)}",
        caption,
        columns,
        texts,
        frozenset(range(2, 7)),
    )


def claim_table(claims: Sequence[Claim]) -> Table:
    """The verdict on each claim."""
    rows = [(claim.number, claim.text, claim.verdict.value, claim.scope) for claim in claims]
    columns = ("", "claim of the paper", "verdict of these data", "what was compared")
    return Table("claims", "The paper's claims.", columns, rows)


def write_tables(
    study: StudyResults,
    finals: Sequence[Final],
    comparisons: Sequence[Comparison],
    claims: Sequence[Claim],
    folder: Path,
) -> None:
    """Writes all tables into a folder."""
    _csv(
        folder / "runs.csv",
        ("task", "algorithm", "seed", "evaluations", "compared_at", "corrected"),
        [
            (
                *(curves.run.task, curves.run.variant, curves.run.seed, curves.evaluations),
                *(study.budgets[curves.run.task], bool(study.correction(curves))),
            )
            for curves in study.runs
        ],
    )
    _csv(
        folder / "final.csv",
        ("task", "algorithm", "metric", "runs", "evaluations", "median", "first_quartile", "third_quartile"),
        finals,
    )
    _csv(
        folder / "p-values.csv",
        (
            *("metric", "task", "reference", "other", "reference_runs", "other_runs"),
            *("reference_median", "other_median", "p", "comparisons", "p_bonferroni", "least_p_bonferroni"),
        ),
        [
            (*row[:4], *row.seeds, *row.medians, row.p, row.comparisons, row.corrected, row.least)
            for row in comparisons
        ],
    )
    _csv(
        folder / "claims.csv",
        (
            *("claim", "text", "verdict", "comparisons_tested", "comparisons"),
            *("comparison", "p", "p_bonferroni", "verdict_of_comparison"),
        ),
        [row for claim in claims for row in _claim_rows(claim)],
    )
    tables = [runs_table(study), claim_table(claims)]
    for name, metrics in (
        ("final", study.metrics),
        ("final-corrected", study.corrected_metrics),
        ("final-losses", study.losses),
    ):
        caption = f"{metrics[0].label} and others: medians and quartiles."
        tables.append(final_table(finals, metrics, name, caption))
    tables += [p_table(comparisons, metric) for metric in study.quantities]
    for table in tables:
        if table.rows:
            (folder / f"{table.name}.tex").write_text(latex(table), encoding="utf-8")


def _claim_rows(claim: Claim) -> list[tuple[object, ...]]:
    """A row for each comparison; one row if there is none."""
    count = len(claim.tested)
    about = (claim.number, claim.text, claim.verdict.value, count, len(claim.checks))
    rows: list[tuple[object, ...]] = [
        (*about, check.text, check.p, bonferroni(check.p, count), verdict.value)
        for check, verdict in claim.verdicts
    ]
    return rows or [(*about, "", "", "", "")]


def _csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
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


def latex(table: Table) -> str:
    """A `table` that needs no package; long text is wrapped."""
    kinds = []
    for place in range(len(table.columns)):
        longest = max([len(row[place]) for row in table.rows], default=0)
        kinds.append("r" if place in table.numeric else "p{0.3\\linewidth}" if longest > 40 else "l")
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{_escaped(table.caption)}}}",
        f"\\begin{{tabular}}{{{''.join(kinds)}}}",
        r"\hline",
        " & ".join(map(_escaped, table.columns)) + r" \\",
        r"\hline",
        *(" & ".join(map(_escaped, row)) + r" \\" for row in table.rows),
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in printable(text))


def details(claims: Sequence[Claim]) -> list[tuple[Claim, list[str]]]:
    """Every comparison of every claim that was tested, in a line each."""
    return [(claim, _claim_lines(claim)) for claim in claims if claim.tested]


def _claim_lines(claim: Claim) -> list[str]:
    count = len(claim.tested)
    return [
        f"{check.text}; p = {p_text(check.p)}, corrected {p_text(bonferroni(check.p, count))}: {verdict}"
        for check, verdict in claim.verdicts
    ]


def aligned_claims(claims: Sequence[Claim]) -> list[str]:
    """The verdicts as lines of text."""
    return [
        f"  claim {claim.number:<3} {claim.verdict.value}" + (f" ({claim.scope})" if claim.scope else "")
        for claim in claims
    ]
