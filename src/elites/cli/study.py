"""`elites study run`, `elites study merge` and `elites study report`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from elites.cli.command import Flag
from elites.experiments.options import PhysicsOptions
from elites.options import (
    Evaluations,
    Interval,
    Replications,
    RowInterval,
    Seed,
    Seeds,
    Snapshots,
    select_values,
)
from elites.studies.resources import StudyExecution


@dataclass(frozen=True, kw_only=True)
class StudyOptions(PhysicsOptions):
    """Options that define a study."""

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """performance, reproducibility, ablation, contribution, or a TOML file of your own."""
    out: Path
    """Folder of the study, with a subfolder for each run."""
    suite: str | None = None
    """Tasks of a study of the paper: qdgym, as in the paper, or their counterparts in brax or mujoco.
    Default: qdgym."""
    tasks: tuple[str, ...] = ()
    """Tasks to select from the study, or to use instead. Default: all of the study's."""
    algorithms: tuple[str, ...] = ()
    """Algorithms to select from the study, or to use instead. Default: all of the study's."""
    seeds: Seeds | None = None
    """Number of replications. Default: the study's (20; 10 in the ablation)."""
    first_seed: Seed | None = None
    """Seed of the first replication. Default: 0. `elites study merge` joins seeds of several machines."""
    evaluations: Evaluations | None = None
    """Budget of each run. Default: the study's (1,000,000)."""
    correct: bool | None = None
    """Whether final archives are corrected. Default: as in the study."""
    correct_every: Interval | None = None
    """Number of evaluations between corrections during a run. Default: no corrections."""
    correct_replications: Replications | None = None
    """Episodes per elite and correction. Default: 50."""
    snapshots: Snapshots | None = None
    """Number of archives of each run to save during the run. Default: the study's."""
    log_every: RowInterval | None = None
    """Interval between rows of a run's metrics.csv, in generations. Default: 1."""


@dataclass(frozen=True, kw_only=True)
class StudyRun(StudyExecution, StudyOptions):
    """Run a study of the paper, or one of your own, after showing what it will cost.

    The same command continues unfinished runs, and adds runs if it has more seeds. Seeds of tasks in JAX
    train together: more can be added when these are finished.
    """

    plan: Flag = False
    """Print the plan and stop."""

    def run(self) -> int:
        """Runs the study. Returns the exit status."""
        from elites.paper.presets import make_study
        from elites.studies.run import print_outcome, run_study
        from elites.studies.study import Study

        study = make_study(self.study, suite=self.suite, **select_values(self, Study))
        states = run_study(study, self.out, self, only_plan=self.plan)
        return 0 if self.plan else print_outcome(self.out, states)


@dataclass(frozen=True, kw_only=True)
class StudyMerge:
    """Join folders of one study whose parts were run on different machines.

    Only finished runs are joined. The folders themselves are not changed.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folders of the same study, with different seeds, tasks or algorithms."""
    out: Path
    """New folder for all of their runs."""
    without_parameters: Flag = False
    """Whether to leave out the controllers' parameters and the lineages. The folder is smaller; reports stay
    the same."""
    mixed_versions: Flag = False
    """Whether to join runs that were made with different versions of packages, or with different physics."""

    def run(self) -> int:
        """Joins the folders. Returns the exit status."""
        from elites.experiments.display import Bar

        with Bar(f"{self.out}", activity="copying runs"):
            from elites.studies.merge import describe, merge_studies

            merged = merge_studies(
                self.folders,
                self.out,
                parameters=not self.without_parameters,
                mixed_versions=self.mixed_versions,
            )
        print(describe(merged, self.out))
        return 0


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """Make a report on all runs in a folder: figures, tables and a page."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of the runs; the report goes into DIR/report."""
    x_axis: Literal["evaluations", "environment-steps", "wall-time"] = "evaluations"
    """X-axis of the first curves on the page; curves over the other two follow."""
    reference: str = ""
    """Algorithm that all others are compared with. Default: that of the study, or pga-map-elites."""

    def run(self) -> int:
        """Makes the report. Returns the exit status."""
        from elites.experiments.display import Bar

        with Bar(f"report on {self.folder}", activity="reading runs and drawing figures"):
            from elites.reports.study.report import report_study

            text = report_study(self.folder, x_axis=self.x_axis, reference=self.reference)
        encoding = sys.stdout.encoding or "utf-8"  # names may have characters that the terminal lacks
        print(text.encode(encoding, "backslashreplace").decode(encoding))
        return 0


STUDY_COMMANDS: dict[str, type[StudyRun] | type[StudyMerge] | type[StudyReport]] = {
    "run": StudyRun,
    "merge": StudyMerge,
    "report": StudyReport,
}
