"""How much the elites of corrected archives owe to luck: python docs/reproduction/luck.py STUDY > luck.csv

One row for each corrected run below the folder, with medians over its elites. `kept_fitness` is the mean
fitness of an elite's replications divided by the fitness that it was added with; `descriptor_spread` the root
mean square distance of their descriptors from the mean one; `own_cell` the share that ends in its cell, here
the mean over elites. The columns of operators are shares of the elites that each has made.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import elites
from elites.results.folder import find_run_folders


def main(study: Path) -> None:
    """Prints the table of a study."""
    rows = []
    for run in find_run_folders(study):
        if not run.is_corrected:
            continue
        record, corrected = run.read_record(), elites.load_corrected(run.path)
        made, spread = elites.load_archive(run.path).operator, corrected.compute_spread()
        rows.append(
            {
                "task": record.task,
                "algorithm": record.algorithm,
                "seed": record.seed,
                "elites": len(made),
                "kept_fitness": np.median(corrected.mean_fitness / corrected.original_fitness),
                "descriptor_spread": np.median(spread.descriptor),
                "own_cell": spread.own_cell.mean(),
                **{f"made_{name}": np.mean(made == name) for name in sorted(set(made.tolist()))},
            }
        )
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(sys.stdout, list(names), restval=0.0, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
