"""The report of a study: everything the paper shows, from any folder of runs."""

from __future__ import annotations

from pathlib import Path

from elites.errors import ElitesError
from elites.files import convert_os_errors
from elites.paper.claims import ANT_TASKS, evaluate_claims
from elites.paper.presets import Suite, find_suite
from elites.reports.plain import plain_text
from elites.reports.study.comparisons import format_count, make_findings
from elites.reports.study.figures import draw_figures
from elites.reports.study.page import make_page
from elites.reports.study.tables import align_claims, format_results, make_tables, write_tables
from elites.results.schemas import StudyRecord
from elites.results.study import ReportFolder, StudyFolder
from elites.studies.results.reader import read_results
from elites.studies.results.runs import find_runs
from elites.text import make_printable, shorten


def report_study(folder: Path | str, *, x_axis: str = "evaluations", reference: str = "") -> str:
    """Makes `report/` in a folder of runs: a page, figures, tables and all metrics. Returns a summary.

    `reference` is the algorithm that all others are compared with; by default that of the study, else
    pga-map-elites if it is among them, else the first.

    The same runs give the same files. A new report replaces an earlier one once it is complete. Anything else
    with that name is an error and stays unchanged.
    """
    home = StudyFolder(folder)
    if not home.path.is_dir():
        raise ElitesError(f"{folder} is not a folder")
    with convert_os_errors(f"cannot write to {folder}"):
        report = home.begin_report()
        try:
            summary = _make(home, report, x_axis, reference)
            home.finish_report()
        finally:
            home.discard_report()
    return summary


@plain_text()
def _make(home: StudyFolder, report: ReportFolder, x_axis: str, reference: str) -> str:
    study = read_results(find_runs(home.path), report.metrics, ANT_TASKS)
    record = study.record
    suite = _find_paper_suite(record)
    claims = evaluate_claims(study)
    if not suite and not any(claim.tested for claim in claims):
        claims = []  # a study of something else
    findings = make_findings(study, claims, reference, record.reference)
    captions, archive_notes = draw_figures(study, report)
    notes = [*study.notes, *findings.notes, *archive_notes]
    tables = make_tables(findings)
    write_tables(findings, tables, report)
    figures = format_count(sum(map(len, captions.values())), "figure")
    lines = [
        ", ".join(
            format_count(len(items), noun)
            for items, noun in ((study.runs, "run"), (study.tasks, "task"), (study.variants, "algorithm"))
        ),
        *(f"  {make_printable(note)}" for note in notes),
        *([] if suite else format_results(findings)),
        *align_claims(
            [claim for claim in findings.claims if claim.tested or (suite and claim.suite == suite.title)]
        ),
        f"{home.report.page} shows the results; {figures} and the tables are in the same folder",
    ]
    name = record.name
    title = shorten(name if name and not suite else f"Study {name or home.path.resolve().name}")
    page = make_page(findings, tables, captions, report, title=title, notes=notes, x_axis=x_axis)
    report.page.write_text(page, encoding="utf-8", errors="replace")
    return "\n".join(lines)


def _find_paper_suite(record: StudyRecord) -> Suite | None:
    """The suite of one of the paper's studies, or of a part of it; None for other studies."""
    tasks, algorithms = ([choice.name for choice in given] for given in (record.tasks, record.algorithms))
    return find_suite(record.name, tasks, algorithms)
