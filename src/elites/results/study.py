"""The folder of a study: paths, readers and writers of all files that are not part of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elites.errors import ElitesError
from elites.files import partial_path, remove_partials
from elites.results import names
from elites.results.folder import RunFolder, find_run_folders, write_json
from elites.results.schemas import Pace, StudyRecord, read_record


class ReportFolder:
    """The folder of a report: a page, its figures and tables, and all metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.page = path / names.REPORT_PAGE
        self.metrics = path / names.REPORT_METRICS
        self.figures = path / names.REPORT_FIGURES
        self.tables = path / names.REPORT_TABLES

    def figure_path(self, name: str, ending: str = "png") -> Path:
        """The path of a figure."""
        return self.figures / f"{name}.{ending}"

    def table_path(self, name: str, ending: str = "csv") -> Path:
        """The path of a table."""
        return self.tables / f"{name}.{ending}"

    def create(self) -> None:
        """Makes the folder and those in it."""
        for folder in (self.figures, self.tables):
            folder.mkdir(parents=True)


class StudyFolder:
    """The folder of a study. Its runs may be anywhere below it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.record = self.path / names.STUDY
        self.measured = self.path / names.MEASURED
        self.report = ReportFolder(self.path / names.REPORT)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def unfinished(self) -> StudyFolder:
        """The folder while it is written."""
        return StudyFolder(partial_path(self.path))

    def remove_partials(self) -> None:
        """Removes incomplete files that a killed process left in the folder itself."""
        remove_partials(self.path, below=False)

    def log_path(self, job: str) -> Path:
        """The log of a job's worker, which is kept until the job is finished."""
        return self.path / names.WORKER_LOGS / names.worker_log(job)

    def runs(self) -> Iterator[RunFolder]:
        """Its own runs, in the order of their paths."""
        return find_run_folders(self.path / names.RUNS)

    def merged_path(self, run: RunFolder, seed: int) -> str:
        """The path of a run in a merged study, where no run is part of a group."""
        parts = run.path.relative_to(self.path / names.RUNS).parts
        if len(parts) < 3:
            raise ElitesError(f"{run} is not where a study has its runs: {names.RUNS}/TASK/ALGORITHM")
        task, algorithm, *_ = parts
        return f"{names.replications_folder(task, algorithm)}/{names.seed_folder(seed)}"

    def read_record(self) -> StudyRecord | None:
        """The record of the planned study; None if there is none."""
        return read_record(self.record, StudyRecord)

    def write_record(self, record: dict[str, Any]) -> None:
        write_json(self.record, record)

    def read_measured(self) -> dict[str, Pace]:
        """The times of earlier measurements; empty if there are none."""
        return read_record(self.measured, dict[str, Pace]) or {}

    def write_measured(self, measured: dict[str, Pace]) -> None:
        write_json(self.measured, {cell: pace.fields() for cell, pace in measured.items()})

    def begin_report(self) -> ReportFolder:
        """An empty folder for a new report, next to the last one.

        Only a report may be replaced: anything else with its name is an error.
        """
        replaced = self.path / names.REPLACED_REPORT
        if replaced.is_dir() and not self.report.path.exists():  # killed between two renames
            replaced.rename(self.report.path)
        self._refuse_other_report()
        self.discard_report()
        report = ReportFolder(partial_path(self.report.path))
        report.create()
        return report

    def finish_report(self) -> None:
        """Replaces the last report by the new one. If that fails, the last one stays."""
        new_report, replaced, home = (
            partial_path(self.report.path),
            self.path / names.REPLACED_REPORT,
            self.report.path,
        )
        shutil.rmtree(replaced, ignore_errors=True)
        if home.exists():
            home.rename(replaced)
        try:
            new_report.rename(home)
        except OSError:
            if replaced.exists():
                replaced.rename(home)
            raise
        shutil.rmtree(replaced, ignore_errors=True)

    def discard_report(self) -> None:
        """Removes a report that is not finished."""
        shutil.rmtree(partial_path(self.report.path), ignore_errors=True)

    def _refuse_other_report(self) -> None:
        home = self.report.path
        if not home.exists() and not home.is_symlink():
            return
        if home.is_dir() and not home.is_symlink():
            present = {path.name for path in home.iterdir()}
            is_report = present.issuperset((self.report.page.name, self.report.metrics.name))
            if not present or (is_report and names.CONFIG not in present):
                return
        raise ElitesError(f"{home} is not a report that was made here; move it, or rename it")
