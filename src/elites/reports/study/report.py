"""The report of a study: everything the paper shows, from any folder of runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from elites.errors import ElitesError
from elites.files import error_in_one_line
from elites.paper.claims import ANT, DEEP, judge
from elites.reports.plain import plain_text
from elites.reports.study.archives import draw_archives, read_panels
from elites.reports.study.comparisons import compare, counted, finals
from elites.reports.study.figures import (
    AXES,
    Picture,
    contribution,
    corrected_progress,
    losses,
    progress,
    save,
)
from elites.reports.study.page import make_page
from elites.reports.study.tables import aligned_claims, write_tables
from elites.results.study import ReportFolder, StudyFolder
from elites.studies.merge.results import read_study
from elites.text import printable


def study_report(folder: Path | str, *, against: str = "evaluations") -> str:
    """Makes `report/` in a folder of runs: a page, figures, tables and all metrics. Returns a summary.

    The same runs give the same files. A new report replaces an earlier one once it is complete; anything else
    of that name is an error, and is left alone.
    """
    home = StudyFolder(folder)
    if not home.path.is_dir():
        raise ElitesError(f"{folder} is no folder")
    with error_in_one_line(f"cannot write to {folder}"):
        report = home.begin_report()
        try:
            summary = _make(home, report, against)
            home.finish_report()
        finally:
            home.discard_report()
    return summary


@plain_text()
def _make(home: StudyFolder, report: ReportFolder, against: str) -> str:
    study = read_study(home.path, report.metrics, shared=ANT)
    panels, archive_notes = read_panels(study)
    notes = [*study.notes, *archive_notes]
    final, comparisons, claims = finals(study), compare(study), judge(study)
    sections: dict[str, Iterable[Picture]] = {
        **{f"progress-{x}": progress(study, x) for x in AXES},
        "archives": draw_archives(panels),
        "corrected": corrected_progress(study),
        "losses": chain(losses(study), losses(study, without=DEEP)),
        "contribution": contribution(study),
    }
    pictures: dict[str, list[tuple[str, str]]] = {}
    for section, drawn in sections.items():
        pictures[section] = []
        for picture in drawn:  # one at a time: figures are large
            save(picture, report.figures)
            pictures[section].append((picture.name, picture.caption))
    write_tables(study, final, comparisons, claims, report.tables)
    page = make_page(study, notes, final, comparisons, claims, pictures, report.figures, against)
    report.page.write_text(page, encoding="utf-8", errors="replace")
    figures = counted(sum(map(len, pictures.values())), "figure")
    lines = [
        ", ".join(
            counted(len(items), noun)
            for items, noun in ((study.runs, "run"), (study.tasks, "task"), (study.variants, "algorithm"))
        ),
        *(f"  {printable(note)}" for note in notes),
        *aligned_claims(claims),
        f"{home.report.page} shows the results; {figures} and the tables are beside it",
    ]
    return "\n".join(lines)
