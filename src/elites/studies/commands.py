"""`elites study run` and `elites study report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """Run a study of the paper, or one of your own, after telling what it will cost.

    Killed, interrupted or with more seeds, the same command goes on with what is not finished. Seeds of Brax
    tasks share a program and cannot be added later.
    """

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """performance, reproducibility, ablation, contribution, or a TOML file of your own."""
    out: Path
    """Folder of the study; each run has one in it."""
    tasks: tuple[str, ...] = ()
    """These tasks only, or instead; the study's own unless given."""
    algorithms: tuple[str, ...] = ()
    """These algorithms only, or instead; the study's own unless given."""
    seeds: int | None = None
    """Replications; the study's own unless given (20, of the ablation 10)."""
    first_seed: int | None = None
    """Seed of the first replication; 0 unless given."""
    evaluations: int | None = None
    """Budget of each run; the study's own unless given (1,000,000)."""
    correct: bool | None = None
    """Whether final archives are corrected; as the study has it unless given."""
    correct_every: int | None = None
    """Corrects archives along the way too, every so many evaluations."""
    correct_replications: int | None = None
    """Episodes per elite and correction; 50 unless given."""
    snapshots: int | None = None
    """How many archives of each run to keep along the way."""
    workers: int | None = None
    """Runs at once; one per core unless given, fewer where memory is short."""
    threads: int | None = None
    """Of each run's rollouts; the cores divided by the workers unless given."""
    cluster: str | None = None
    """Address of a Ray cluster to run on, such as 10.0.0.1:6379, or auto."""
    checkpoint_seconds: float = 60.0
    """Least time between the checkpoints of a run."""
    calibrate: bool = True
    """Measures for a moment how long it will take before it starts."""
    plan: bool = False
    """Tells what it would do, and does nothing."""

    def run(self) -> int:
        """Does it. Returns the exit status."""
        from elites.studies.run import conclude, run_study
        from elites.studies.study import make_study

        names = ("seeds", "first_seed", "evaluations", "correct", "correct_every", "correct_replications")
        changes = {name: getattr(self, name) for name in (*names, "snapshots")}
        study = make_study(self.study, tasks=self.tasks, algorithms=self.algorithms, **changes)
        states = run_study(
            study,
            self.out,
            workers=self.workers,
            threads=self.threads,
            cluster=self.cluster,
            checkpoint_seconds=self.checkpoint_seconds,
            calibrate=self.calibrate,
            only_plan=self.plan,
        )
        return 0 if self.plan else conclude(self.out, states)


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """Make figures, tables and a page of all runs in a folder."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Where the runs are; what is made goes into DIR/report."""
    against: Literal["evaluations", "environment-steps", "wall-time"] = "evaluations"
    """What the page's curves are drawn against first; the other two follow it."""

    def run(self) -> int:
        """Does it. Returns the exit status."""
        from elites.reports.study.report import study_report

        print(study_report(self.folder, against=self.against))
        return 0


STUDY_COMMANDS: dict[str, type[StudyRun] | type[StudyReport]] = {"run": StudyRun, "report": StudyReport}
