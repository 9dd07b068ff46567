"""`elites study report`: everything the paper shows, from whatever runs are there."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from elites.errors import ElitesError
from elites.files import error_in_one_line
from elites.reports.study.archives import archives
from elites.reports.study.claims import judge
from elites.reports.study.comparisons import compare, counted, finals
from elites.reports.study.data import Study, read_study
from elites.reports.study.figures import (
    AXES,
    DEEP,
    Picture,
    contribution,
    corrected_progress,
    losses,
    progress,
    save,
)
from elites.reports.study.page import make_page
from elites.reports.study.tables import aligned_claims, write_tables

HOME, UNFINISHED, REPLACED = "report", ".report.partial", ".report.replaced"
OURS = ("index.html", "metrics.parquet")  # by which an earlier report is known


def study_report(folder: Path | str, *, against: str = "evaluations") -> str:
    """Makes `report/` in a folder of runs: a page, figures, tables and all metrics. Returns a summary.

    It is a function of the runs alone: the same ones give the same files. What an earlier report left is
    replaced once the new one is complete; anything else that is called so is left alone, and refused.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ElitesError(f"{folder} is no folder")
    with error_in_one_line(f"cannot write to {folder}"):
        if (folder / REPLACED).is_dir() and not (folder / HOME).exists():  # ended between two renames
            (folder / REPLACED).rename(folder / HOME)
        _refuse_others(folder / HOME)
        making = folder / UNFINISHED
        shutil.rmtree(making, ignore_errors=True)
        try:
            for name in ("figures", "tables"):
                (making / name).mkdir(parents=True)
            summary = _make(folder, making, against)
            _swap(making, folder / HOME, folder / REPLACED)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return summary


def _refuse_others(home: Path) -> None:
    """Only what is a report may be replaced."""
    if not home.exists() and not home.is_symlink():
        return
    if home.is_dir() and not home.is_symlink():
        there = {path.name for path in home.iterdir()}
        if not there or (there.issuperset(OURS) and "config.json" not in there):
            return
    raise ElitesError(f"{home} is not a report that was made here; it is left alone: move it, or rename it")


def _swap(made: Path, home: Path, replaced: Path) -> None:
    """Puts what was made in the place of what is there, which stays if that fails."""
    shutil.rmtree(replaced, ignore_errors=True)
    if home.exists():
        home.rename(replaced)
    try:
        made.rename(home)
    except OSError:
        if replaced.exists():
            replaced.rename(home)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _make(folder: Path, making: Path, against: str) -> str:
    study = read_study(folder, making / "metrics.parquet")
    final, comparisons, claims = finals(study), compare(study), judge(study)
    sections: dict[str, Iterable[Picture]] = {
        **{f"progress-{x}": progress(study, x) for x in AXES},
        "archives": archives(study),
        "corrected": corrected_progress(study),
        "losses": _losses(study),
        "contribution": contribution(study),
    }
    pictures: dict[str, list[tuple[str, str]]] = {}
    for section, of in sections.items():
        pictures[section] = []
        for picture in of:  # one at a time: figures are large
            save(picture, making / "figures")
            pictures[section].append((picture.name, picture.caption))
    write_tables(study, final, comparisons, claims, making / "tables")
    page = make_page(study, final, comparisons, claims, pictures, making / "figures", against)
    (making / "index.html").write_text(page, encoding="utf-8")
    figures = counted(sum(map(len, pictures.values())), "figure")
    lines = [
        ", ".join(
            counted(len(of), noun)
            for of, noun in ((study.runs, "run"), (study.tasks, "task"), (study.variants, "algorithm"))
        ),
        *(f"  {note}" for note in study.notes),
        *aligned_claims(claims),
        f"{folder / HOME / 'index.html'} shows it all; {figures} and the tables are beside it",
    ]
    return "\n".join(lines)


def _losses(study: Study) -> Iterator[Picture]:
    yield from losses(study)
    yield from losses(study, without=DEEP)
