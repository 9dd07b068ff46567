"""Synthetic folders of finished runs, with random numbers."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from elites.results.folder import RunFolder
from elites.results.names import seed_folder

PARAMETERS = 8  # per elite; real elites have 20 000, but reports do not read them
REPLICATIONS = 50


def make_runs(
    folder: Path, tasks: tuple[str, ...], algorithms: tuple[str, ...], seeds: int, generations: int
) -> None:
    """Creates a run of each algorithm on each task with each seed, with a corrected archive."""
    for task in tasks:
        for algorithm in algorithms:
            for seed in range(seeds):
                _make_run(folder / task / algorithm / seed_folder(seed), task, algorithm, seed, generations)


def _make_run(folder: Path, task: str, algorithm: str, seed: int, generations: int) -> None:
    from elites import RunConfig
    from elites.experiments.rows import list_columns
    from elites.metrics.metric import Metrics

    rng = np.random.default_rng([seed, zlib.crc32(f"{algorithm} on {task}".encode())])
    config = RunConfig(algorithm=algorithm, task=task, seed=seed, evaluations=100 * generations)
    run = RunFolder(folder)
    run.create(config.record())
    instance = config.make_algorithm()
    names = list_columns(instance, Metrics())
    place = np.arange(1, generations + 1)
    rising = np.maximum.accumulate(1 - np.exp(-5 * place / generations) + 0.01 * rng.random(generations))
    columns = {
        "generation": place,
        "evaluations": 100 * place,
        "environment_steps": 50_000 * place,
        "gradient_steps": 300 * place,
        "qd_score": rng.uniform(5e5, 1e6) * rising,
        "max_fitness": rng.uniform(1000, 3000) * rising,
        "coverage": np.minimum(1, rng.uniform(0.5, 1) * rising),
        "invalid": np.zeros(generations, int),
    }
    counts = rng.integers(0, 50, (generations, len(names)))
    table = np.column_stack([columns.get(name, counts[:, index]) for index, name in enumerate(names)])
    forms = ["%.17g" if name in ("qd_score", "max_fitness", "coverage") else "%d" for name in names]
    _write(run.metrics, names, table, forms)
    times = ["generation", "ask_s", "rollouts_s", "tell_s", "checkpoint_s", "elapsed_s", "steps_per_s"]
    spent = np.column_stack([place, *rng.random((4, generations)), 5.0 * place, rng.random(generations)])
    _write(run.timings, times, spent, ["%d", *["%.17g"] * 6])
    _write_archive(run, config, instance, rng)


def _write(path: Path, names: list[str], table: np.ndarray, forms: list[str]) -> None:
    row = ",".join(forms) + "\n"
    path.write_text(",".join(names) + "\n" + "".join(row % tuple(line) for line in table.tolist()))


def _write_archive(run: RunFolder, config: object, instance: object, rng: np.random.Generator) -> None:
    from elites.results.archive import SavedArchive
    from elites.results.corrected import make_corrected_archive, save_corrected

    task, cells = instance.task, instance.cells  # type: ignore[attr-defined]
    count, size = len(cells.centroids), task.descriptor_size
    cell = rng.permutation(count)[: int(0.8 * count)].astype(np.int32)
    fitness = np.sort(rng.uniform(0, 2000, len(cell)).astype(np.float32))[::-1].copy()
    about = {
        "format": 1,
        "algorithm": config.algorithm,  # type: ignore[attr-defined]
        "task": {"name": task.name, "qd_offset": task.qd_offset, "descriptor_names": task.descriptor_names},
        "seed": config.seed,  # type: ignore[attr-defined]
        "evaluations": config.evaluations,  # type: ignore[attr-defined]
    }
    archive = SavedArchive(
        parameters=np.zeros((len(cell), PARAMETERS), np.float32),
        fitness=fitness,
        descriptor=cells.centroids[cell].astype(np.float32),
        cell=cell,
        evaluation=np.arange(len(cell)),
        seed=np.arange(len(cell)),
        generation=np.ones(len(cell), int),
        operator=np.full(len(cell), "ga"),
        parents=np.full((len(cell), 2), -1),
        centroids=cells.centroids,
        bounds=cells.bounds,
        grid=np.array(cells.grid, np.int32),
        policy_sizes=np.array([], np.int32),
        about=about,
    )
    run.write_archive(archive)
    shape = (len(cell), REPLICATIONS)
    samples = (fitness[:, None] * rng.uniform(0.5, 1, shape)).astype(np.float32)
    places = np.clip(archive.descriptor[:, None] + rng.normal(0, 0.05, (*shape, size)), 0, 1)
    settings = {**about, "replications": REPLICATIONS, "redraw": False, "archive": archive.digest()}
    corrected = make_corrected_archive(archive, samples, places.astype(np.float32), settings)
    save_corrected(run.corrected_path(), corrected)
