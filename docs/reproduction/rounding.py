"""What rounding does to an archive: python docs/reproduction/rounding.py FOLDER [REPLICATIONS]

FOLDER has runs on tasks in JAX, with their controllers. The script evaluates each elite again, once by
default or with so many seeds: as it is, with every weight moved to the next float32 number, and with weights
that have a fraction of 10 bits, as in products of TF32 on a GPU. It prints the losses of each run.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import elites
from elites.evaluation import make_evaluator
from elites.metrics.metric import METRICS
from elites.results.corrected import make_corrected_archive
from elites.results.folder import find_run_folders

FRACTION_BITS = 23 - 10  # those of float32 that TF32 does not have


def main(folder: Path, replications: int) -> None:
    """Prints the losses of all runs below a folder."""
    losses = [metric.loss.name for metric in METRICS]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["task", "algorithm", "seed", "replications", "weights", *losses])
    for run in find_run_folders(folder):
        record, archive = run.read_record(), elites.load_archive(run.path)
        hidden = tuple(int(size) for size in archive.policy_sizes[1:-1])
        task = elites.make_task(record.task, **record.task_parameters)
        with make_evaluator(task, hidden, None, physics="native") as evaluator:
            for name, change in CHANGES.items():
                seeds = np.random.default_rng(0).integers(2**31, size=(len(archive.cell), replications))
                again = evaluator.evaluate(change(archive.parameters), seeds)
                corrected = make_corrected_archive(archive, again.fitness, again.descriptor)
                shares = [round(float(corrected.losses[index]), 4) for index in range(len(losses))]
                writer.writerow([record.task, record.algorithm, record.seed, replications, name, *shares])


def move_to_next(weights: np.ndarray) -> np.ndarray:
    """Each number's next one in float32, away from zero."""
    return np.nextafter(weights, np.copysign(np.float32(np.inf), weights))


def round_to_tf32(weights: np.ndarray) -> np.ndarray:
    """The nearest numbers with a fraction of 10 bits, halves to even."""
    bits = weights.view(np.uint32)
    half = np.uint32((1 << (FRACTION_BITS - 1)) - 1) + ((bits >> FRACTION_BITS) & np.uint32(1))
    return ((bits + half) & ~np.uint32((1 << FRACTION_BITS) - 1)).view(np.float32)


CHANGES = {"as they are": lambda weights: weights, "next number": move_to_next, "TF32": round_to_tf32}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
