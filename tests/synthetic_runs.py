"""Folders like those of finished runs, made of formulas, so that no run need be waited for."""

import json

import numpy as np

from elites import RunConfig, make_task
from elites.archives.cells import make_cells
from elites.experiments.loop import list_correction_columns
from elites.metrics.metric import METRICS
from elites.paper.claims import ANT_TASKS
from elites.results.archive import SavedArchive, save_archive
from elites.results.corrected import make_corrected_archive, save_corrected
from elites.results.tables import Table
from elites.studies.results.reader import read_results
from elites.studies.results.runs import find_runs

OPERATORS = {
    "pga-map-elites": ("random", "ga", "pg", "greedy"),
    "map-elites": ("random", "ga"),
    "deep-grid": ("random", "ga"),
    "td3": ("actor",),
}


def make_run(
    folder,
    algorithm,
    task,
    seed,
    *,
    qd_score=1000.0,
    evaluations=1000,
    budget=None,
    loss=None,
    corrected_along=0,
    corrected_at=None,
    cells="cvt",
    archive=False,
    timings=True,
    hyper_parameters=None,
    task_parameters=None,
    noise=1,
):
    """A run whose metrics rise towards `qd_score`; `loss` is what a correction takes of all three.

    `corrected_at` are the evaluations after which its archive was corrected, unless at its end.
    """
    config = RunConfig(
        algorithm=algorithm,
        task=task,
        seed=seed,
        evaluations=budget or evaluations,
        hyper_parameters=hyper_parameters or {},
        task_parameters=task_parameters or {},
    )
    own = folder / f"{algorithm}-{task}-{seed}-{(hyper_parameters or {}).get('p_evo', '')}"
    own.mkdir(parents=True)
    (own / "config.json").write_text(json.dumps(config.record()))
    operators = OPERATORS.get(algorithm, ("random", "ga"))
    made = [f"{what}_{name}" for name in operators for what in ("made", "new", "improved")]
    columns = ["generation", "evaluations", "environment_steps", "gradient_steps"]
    log = Table(own / "metrics.csv", [*columns, "qd_score", "max_fitness", "coverage", "invalid", *made])
    times = Table(own / "timings.csv", ["generation", "elapsed_s"]) if timings else None
    generations = evaluations // 20
    for generation in range(1, generations + 1):
        share = 1 - np.exp(-4 * generation / generations)
        early = max(0.0, 1 - 3 * generation / generations)
        row = {
            "generation": generation,
            "evaluations": 20 * generation,
            "environment_steps": 400 * generation,
            "gradient_steps": 0,
            "qd_score": float(qd_score * share),
            "max_fitness": float(qd_score / 10 * share),
            "coverage": float(min(1.0, 0.5 * share * (1 + qd_score / 10_000))),
            "invalid": 0,
            **dict.fromkeys(made, 0),
        }
        if generation <= 2 and "random" in operators:
            row["made_random"], row["new_random"] = 20, 10
        else:
            for name in set(operators) - {"random"}:
                row[f"made_{name}"] = 1 if name == "greedy" else 10
                row[f"new_{name}"] = round((1 if name == "greedy" else 8) * (0.5 if name == "ga" else early))
        log.append(row)
        if times:
            times.append({"generation": generation, "elapsed_s": 0.5 * generation})
    log.file.close()
    if times:
        times.file.close()
    if corrected_along:
        table = Table(own / "corrections.csv", list_correction_columns(METRICS))
        for index in range(1, corrected_along + 1):
            share = 1 - np.exp(-4 * index / corrected_along)
            metrics = {"qd_score": qd_score, "max_fitness": qd_score / 10, "coverage": 0.5}
            table.append(
                {
                    "generation": generations * index // corrected_along,
                    "evaluations": evaluations * index // corrected_along,
                    "elites": 10,
                    **{name: float(share * value * (1 - loss)) for name, value in metrics.items()},
                    **{f"{name}_loss": float(loss) for name in metrics},
                    "invalid": 0,
                }
            )
        table.file.close()
    if archive or (loss is not None and not corrected_along):
        make_archive(own, config, qd_score, loss, corrected_at, cells, noise)
    return own


def synthetic_archive(config, top, kind="cvt"):
    """Elites in half of the cells, better the further right they are."""
    task, rng = make_task(config.task), np.random.default_rng(config.seed)
    cells = make_cells(task, kind)
    cell = rng.permutation(len(cells.centroids))[: len(cells.centroids) // 2].astype(np.int32)
    descriptor = cells.centroids[cell].astype(np.float32)
    fitness = (top * descriptor[:, 0]).astype(np.float32)
    order = np.argsort(-fitness, kind="stable")
    cell, descriptor, fitness = cell[order], descriptor[order], fitness[order]
    count = len(cell)
    about = {
        "format": 1,
        "algorithm": config.algorithm,
        "task": {
            "name": config.task,
            "qd_offset": task.qd_offset,
            "descriptor_names": task.descriptor_names,
        },
        "seed": config.seed,
        "evaluations": config.evaluations,
    }
    return SavedArchive(
        parameters=np.zeros((count, 2), np.float32),
        fitness=fitness,
        descriptor=descriptor,
        cell=cell,
        evaluation=np.arange(count),
        seed=np.arange(count),
        generation=np.ones(count, int),
        operator=np.full(count, "ga"),
        parents=np.full((count, 2), -1),
        centroids=cells.centroids,
        bounds=cells.bounds,
        grid=np.array(cells.grid, np.int32),
        policy_sizes=np.array([1, 1]),
        about=about,
    )


def make_archive(own, config, top, loss, corrected_at=None, kind="cvt", noise=1):
    """Saves such elites; of a loss, all lose that share. Their two episodes differ by the noise."""
    saved = synthetic_archive(config, top, kind)
    fitness, descriptor, about = saved.fitness, saved.descriptor, dict(saved.about)
    save_archive(own / "archive.npz", saved)
    if loss is not None:
        samples = (fitness * (1 - loss))[:, None] + np.array([-noise, noise], np.float32) / 2
        places = np.repeat(descriptor[:, None], 2, axis=1)
        about |= {"replications": 2, "redraw": False, "evaluations": corrected_at or config.evaluations}
        about["archive"] = saved.digest()
        save_corrected(own / "corrected.npz", make_corrected_archive(saved, samples, places, about))


def study_of(folder):
    """The results of the runs in a folder."""
    return read_results(find_runs(folder), folder / "metrics.parquet", ANT_TASKS)
