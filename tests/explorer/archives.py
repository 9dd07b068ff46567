"""Archives made of formulas, in any number of dimensions, with luck and with a history."""

from dataclasses import replace

import numpy as np

from elites.archives.archive import Status
from elites.archives.cells import Cells, make_cvt, make_grid
from elites.results.archive import SavedArchive, load_archive
from elites.results.corrected import make_corrected_archive
from elites.results.lineage import WORDS, encode_header, encode_records

NAMES = ("right_foot", "left_foot", "torso", "tail", "head", "hip")


def synthetic_archive(
    dims=2, cells=256, filled=0.8, seed=0, kind="cvt", task="qd-walker", phrase=None, shift=0.0, flat=False
):
    """Elites whose fitness is a landscape and luck: the nearer to the middle, the luckier they were."""
    generator = np.random.default_rng(seed)
    bounds = np.tile([0.0, 1.0], (dims, 1))
    made = {"cvt": make_cvt, "scattered": scattered}
    places = made[kind](cells, bounds.tolist()) if kind in made else make_grid(kind, bounds.tolist())
    count = max(1, int(filled * len(places.centroids)))
    wave = np.sin(3 * places.centroids[:, 0]) + np.cos(4 * places.centroids[:, -1]) * 0.6
    likely = wave + 0.8 * generator.random(len(wave))
    cell = np.argsort(-likely)[:count].astype(np.int32)
    place = places.centroids[cell]
    descriptor = np.clip(
        place + generator.normal(0, 0.1 / len(places.centroids) ** (1 / dims), place.shape), 0, 1
    )
    fitness = 700 * wave[cell] + 400 + generator.normal(0, 60, count) + shift
    fitness = np.full(count, 5.0) if flat else fitness
    order = np.argsort(-fitness, kind="stable")
    cell, descriptor, fitness = cell[order], descriptor[order], fitness[order]
    evaluation = (generator.permutation(count) + generator.integers(0, 20_000, count)).astype(np.int64)
    evaluation = np.argsort(np.argsort(evaluation)) * 7 + generator.integers(0, 7, count)
    parents = np.stack(
        [np.maximum(-1, evaluation - generator.integers(1, 900, count)), np.full(count, -1)], 1
    )
    operator = np.array(["random", "ga", "pg", "greedy"])[
        generator.choice(4, count, p=[0.05, 0.5, 0.4, 0.05])
    ]
    parents[operator == "random"] = -1
    known = np.sort(evaluation)
    for row in np.flatnonzero(parents[:, 0] >= 0):  # of parents, most are elites still
        at = np.searchsorted(known, parents[row, 0], "right") - 1
        parents[row, 0] = known[at] if at >= 0 else -1
    about = {
        "format": 1,
        "algorithm": "pga-map-elites",
        "task": {"name": task, "qd_offset": 0.0, "descriptor_names": list(NAMES[:dims])},
        "seed": seed,
        "evaluations": 30_000,
    }
    if phrase is not None:
        about["task"]["descriptor_phrase"] = phrase
    return SavedArchive(
        parameters=np.zeros((count, 3), np.float32),
        fitness=fitness.astype(np.float32),
        descriptor=descriptor.astype(np.float32),
        cell=cell,
        evaluation=evaluation,
        seed=generator.integers(0, 2**32, count).astype(np.uint32),
        generation=(evaluation // 100 + 1).astype(np.int32),
        operator=operator,
        parents=parents,
        centroids=places.centroids,
        bounds=places.bounds,
        grid=np.array(places.grid, np.int32),
        policy_sizes=np.array([2, 1], np.int32),
        about=about,
    )


def scattered(count, bounds):
    """Cells around random points: a CVT of very many cells takes long to compute."""
    low, high = np.array(bounds).T
    return Cells(np.random.default_rng(0).uniform(low, high, (count, len(bounds))), np.array(bounds), ())


def replicated(archive, replications=50, seed=1):
    """Its correction: some of the elites were lucky, some are elsewhere."""
    generator = np.random.default_rng(seed)
    count, dims = archive.descriptor.shape
    luck = np.clip(1.4 - 2.2 * np.abs(archive.descriptor - 0.45).mean(1), 0.02, 1) * generator.random(count)
    spread = 20 + 480 * luck
    fitness = (
        archive.fitness[:, None]
        - 700 * luck[:, None]
        + spread[:, None] * generator.normal(size=(count, replications))
    )
    drift = (0.5 - archive.descriptor)[:, None] * 0.35 * luck[:, None, None]
    noise = 0.09 * luck[:, None, None] * generator.normal(size=(count, replications, dims))
    descriptor = np.clip(archive.descriptor[:, None] + drift + noise, 0, 1)
    return make_corrected_archive(archive, fitness.astype(np.float32), descriptor.astype(np.float32))


def logged(folder, replaced, seed=0):
    """Writes the log of a run: its elites come after so many others, all offspring of the first one."""
    archive, generator = load_archive(folder), np.random.default_rng(seed)
    order, count = np.argsort(archive.evaluation), replaced + len(archive)
    words = np.zeros((count, WORDS), np.int32)
    words[:, 0] = np.concatenate([np.arange(replaced), replaced + archive.evaluation[order]])
    words[0, 1:3] = -1
    words[1:, 1:3] = words[generator.integers(0, np.arange(1, count)[:, None], (count - 1, 2)), 0]
    words[:, 3] = generator.integers(0, len(archive.centroids), count)
    words[:, 4] = generator.normal(500, 100, count).astype(np.float32).view(np.int32)
    words[:, 5] = 1 + words[:, 0] // 100
    words[:, 6] = (np.arange(count) > 0) + 256 * Status.IMPROVED
    words[replaced:, 3], words[replaced:, 4] = archive.cell[order], archive.fitness[order].view(np.int32)
    rows = replaced + np.argsort(order)
    changed = {"evaluation": words[rows, 0], "parents": words[rows, 1:3], "generation": words[rows, 5]}
    replace(archive, **changed, operator=np.full(len(archive), "ga")).save(folder / "archive.npz")
    (folder / "lineage.bin").write_bytes(encode_header(["random", "ga"]) + encode_records(words))
