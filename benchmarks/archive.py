"""Compares adding a batch to an archive with pyribs' `add`: 1024 CVT cells and a grid of 32 x 32.

    python benchmarks/archive.py [--quick]

A call computes the cells of the descriptors, adds the batch and returns each status. Both sides get the same
NumPy arrays, in memory that JAX has allocated, and update their archive in place. Each batch is better than
the last by a fixed step, so its best offspring are added. The last line is one JSON object: milliseconds, and
pyribs' time divided by ours.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import numpy as np

BATCHES = (100, 1000, 10_000, 100_000)
PARAMETERS = (100, 20_230)
MAX_BATCH_BYTES = 1.5e9  # bytes of a batch's parameters, of which copies exist
MAX_BATCH_BYTES_QUICK = 2e8
BOUNDS = [(0.0, 1.0), (0.0, 1.0)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller, under 40 s")
    quick = parser.parse_args().quick

    columns: tuple[dict[str, float], ...] = ({}, {}, {}, {})
    print("| cells | parameters | batch | ours, ms | copied first, ms | pyribs, ms | pyribs : ours |")
    print("|---|---|---|---|---|---|---|")
    for parameters in PARAMETERS:
        for batch in BATCHES:
            size = 4 * batch * parameters
            if size > (MAX_BATCH_BYTES_QUICK if quick else MAX_BATCH_BYTES):
                print(f"| both | {parameters} | {batch} | left out: {size / 1e9:.1f} GB | | | |")
                continue
            for kind in ("cvt", "grid"):
                repetitions = 6 if quick or size > 5e8 else 300 if size < 1e7 else 30
                ours, copied, pyribs = measure(kind, parameters, batch, repetitions)
                figures = (1e3 * ours, 1e3 * copied, 1e3 * pyribs, pyribs / ours)
                for column, figure in zip(columns, figures, strict=True):
                    column[f"{kind} {parameters} {batch}"] = round(figure, 3)
                shown = " | ".join(f"{figure:.{2 if figure < 100 else 0}f}" for figure in figures)
                print(f"| {kind} | {parameters} | {batch} | {shown} |", flush=True)
    print(json.dumps(dict(zip(("ours_ms", "copied_ms", "pyribs_ms", "ratio"), columns, strict=True))))


def measure(kind: str, parameters: int, batch: int, repetitions: int) -> tuple[float, float, float]:
    """Seconds of alternating calls: ours, ours with parameters that JAX has to copy first, pyribs."""
    import jax
    from ribs.archives import CVTArchive, GridArchive

    from elites.archives.archive import Origin, Solutions, empty_archive, insert
    from elites.archives.cells import make_cvt, make_grid

    cells = make_cvt(1024, BOUNDS) if kind == "cvt" else make_grid((32, 32), BOUNDS)
    shape: dict[str, Any] = {"solution_dim": parameters, "ranges": BOUNDS, "dtype": np.float32}
    theirs: Any = (
        CVTArchive(centroids=cells.centroids, **shape)
        if kind == "cvt"
        else GridArchive(dims=cells.grid, **shape)
    )
    put = jax.jit(lambda archive, new: insert(archive, cells.assign(new.descriptor), new), donate_argnums=0)
    archives = {name: empty_archive(1024, parameters, 2) for name in ("shared", "copied")}
    rng = np.random.default_rng(0)
    # JAX copies NumPy arrays, except those that start at a multiple of 64 bytes.
    unaligned: Any = np.empty(batch * parameters + 1, np.float32)[1:].reshape(batch, parameters)
    rng.random(out=unaligned, dtype=np.float32)
    aligned: Any = np.asarray(jax.device_put(unaligned))
    none: Any = np.full(batch, -1, np.int32)
    origin = Origin(none, none.astype(np.uint32), none, none, np.stack([none, none], 1))  # type: ignore[arg-type]

    def ours(name: str, solutions: Any, fitness: Any, descriptor: Any) -> float:
        started = time.perf_counter()
        new = Solutions(solutions, fitness, descriptor, origin)
        archives[name], _ = jax.block_until_ready(put(archives[name], new))
        return time.perf_counter() - started

    def pyribs(fitness: Any, descriptor: Any) -> float:
        started = time.perf_counter()
        theirs.add(aligned, fitness, descriptor)
        return time.perf_counter() - started

    times: tuple[list[float], ...] = ([], [], [])
    for number in range(repetitions + 3):
        fitness = rng.random(batch, np.float32) + np.float32(0.1 * number)
        descriptor = rng.random((batch, 2), np.float32)
        for turn in range(3):  # each goes first in turn: the next one has warm caches
            side = (number + turn) % 3
            if side == 2:
                seconds = pyribs(fitness, descriptor)
            else:
                seconds = ours(*(("shared", aligned), ("copied", unaligned))[side], fitness, descriptor)
            if number >= 3:  # the first calls compile, and allocate memory
                times[side].append(seconds)
    expected = np.full(1024, -np.inf, np.float32)
    data = theirs.data()
    expected[data["index"]] = data["objective"]
    same = (expected == np.asarray(archives["shared"].elites.fitness)).mean()
    # Rounding may differ at the edges of cells.
    assert same > 0.99, f"only {same:.1%} of the cells have the same fitness as in pyribs"
    shared, copied, other = map(median, times)
    return shared, copied, other


if __name__ == "__main__":
    main()
