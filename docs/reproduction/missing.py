"""Prints the commands for all runs that a study in this folder plans and its report does not have.

python docs/reproduction/missing.py. Each command also works for a part: choose `--seeds` and `--first-seed`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from elites.results import names
from elites.results.study import ReportFolder
from elites.studies.study import Choice, Study, read_study_file

HERE = Path(__file__).parent


def list_commands() -> Iterator[str]:
    """A command for all algorithms of a study that lack the same seeds on the same tasks."""
    for file in sorted(HERE.glob("*.toml")):
        study = Study(**read_study_file(file))
        runs = read_runs(HERE / file.stem)
        planned = range(study.first_seed, study.first_seed + study.seeds)
        algorithms: dict[tuple[range, tuple[str, ...]], list[str]] = {}
        for algorithm in study.algorithms:
            tasks: dict[range, list[str]] = {}
            for task in study.tasks:
                own = {seed for *pair, seed in runs if pair == [label(task), label(algorithm)]}
                for seeds in find_ranges([seed for seed in planned if seed not in own]):
                    tasks.setdefault(seeds, []).append(task.slug())
            for seeds, lacking in tasks.items():
                algorithms.setdefault((seeds, tuple(lacking)), []).append(algorithm.slug())
        for (seeds, lacking), chosen in algorithms.items():
            part = f" --tasks {' '.join(lacking)}" if len(lacking) < len(study.tasks) else ""
            if len(chosen) < len(study.algorithms):
                part += f" --algorithms {' '.join(chosen)}"
            first, count = seeds.start, len(seeds)
            yield f"elites study run {file.relative_to(HERE.parents[1])}{part} \\"
            yield f"    --first-seed {first} --seeds {count} --out more/{file.stem}"


def read_runs(report: Path) -> list[tuple[str, str, int]]:
    """Task, algorithm and seed of each run of a report, if there is one."""
    file = report / ReportFolder(report).table_path(names.ReportTable.RUNS).name
    if not file.exists():
        return []
    with file.open() as lines:
        return [(row["task"], row["algorithm"], int(row["seed"])) for row in csv.DictReader(lines)]


def label(choice: Choice) -> str:
    """What a report calls a task or an algorithm of these studies, such as "p_evo 0.25"."""
    numbers = [
        f"{name} {value:g}" for name, value in choice.parameters.items() if not isinstance(value, bool)
    ]
    return choice.label or ", ".join(numbers) or choice.name


def find_ranges(numbers: list[int]) -> list[range]:
    """Ranges of consecutive numbers, given in ascending order."""
    groups = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = ([number for _, number in group] for _, group in groups)
    return [range(run[0], run[-1] + 1) for run in runs]


if __name__ == "__main__":
    print("\n".join(list_commands()))
