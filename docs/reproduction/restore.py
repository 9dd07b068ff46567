"""Makes the folders of a study's runs again: python docs/reproduction/restore.py REPORT FOLDER

REPORT is a folder beside this file. Its `metrics.parquet` has the logs and corrections of all runs, but not
their archives. `elites study report FOLDER` then works on them and on runs that are added to the folder, such
as those of more seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pandas as pd

import elites
from elites.metrics.metric import METRICS
from elites.results import names
from elites.results.folder import RunFolder
from elites.results.schemas import COUNTS, ChoiceRecord, StudyRecord, is_count
from elites.studies.study import Choice

OF_RUNS = ("task", "algorithm", "variant", "seed", "elapsed_s")


def main(report: Path, folder: Path) -> None:
    """Writes a folder for each run of a report."""
    record = (report / names.STUDY).read_bytes()
    study = msgspec.json.decode(record, type=StudyRecord)
    tasks = {choice.name: choice.parameters for choice in study.tasks}
    table = pd.read_parquet(report / names.REPORT_METRICS)
    renamed = {metric.corrected.name: metric.name for metric in METRICS}
    corrections = [*renamed, *(metric.loss.name for metric in METRICS)]
    by_run = table.groupby(["task", "algorithm", "variant", "seed"], observed=True)
    for (task, algorithm, variant, seed), rows in by_run:
        choice = find_choice(study, algorithm, variant)
        config = elites.RunConfig(
            algorithm=algorithm,
            task=task,
            evaluations=study.evaluations,
            seed=int(seed),
            log_every=study.log_every,
            correct_replications=study.correct_replications,
            physics=study.physics,
            hyper_parameters=choice.parameters,
            task_parameters=tasks[task],
        )
        run = RunFolder(
            folder
            / names.RUNS
            / task
            / Choice(choice.name, choice.parameters).slug()
            / names.seed_folder(seed)
        )
        run.create({**config.record(), "versions": {}})
        logged = [name for name in table if name not in (*OF_RUNS, *corrections)]
        logged = [name for name in logged if not is_count(name) or rows[name].notna().all()]
        write(run.metrics, rows[logged])
        write(run.timings, rows[["generation", "elapsed_s"]])
        corrected = rows[rows[corrections[0]].notna()]
        if len(corrected):
            numbers = corrected[["generation", "evaluations", "invalid", *corrections]]
            write(run.corrections, numbers.rename(columns=renamed))
    (folder / names.STUDY).write_bytes(record)


def find_choice(study: StudyRecord, algorithm: str, variant: str) -> ChoiceRecord:
    """The algorithm of a study that a report calls `variant`, such as "p_evo 0.25"."""
    choices = [choice for choice in study.algorithms if choice.name == algorithm]
    if len(choices) == 1:
        return choices[0]
    labels = [[f"{name} {value:g}" for name, value in choice.parameters.items()] for choice in choices]
    return next(
        choice for choice, own in zip(choices, labels, strict=True) if variant in (", ".join(own), *own)
    )


def write(path: Path, rows: pd.DataFrame) -> None:
    """Writes a log."""
    counts = {name: "int64" for name in rows if is_count(name) or name in COUNTS}
    rows.astype(counts).to_csv(path, index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
