import json

import numpy as np
import pytest

from elites import RunConfig
from elites.results.archive import save_archive
from elites.results.corrected import save_corrected
from tests.browser import Browser
from tests.explorer.archives import replicated, synthetic_archive


@pytest.fixture(scope="session")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory):
    """Makes the folder of a run from an archive."""

    def make(archive, corrected=None, snapshots=(), name="run"):
        folder = tmp_path_factory.mktemp("explored") / name
        folder.mkdir()
        config = RunConfig(algorithm="pga-map-elites", task="qd-walker", evaluations=30_000)
        record = {**config.record(), "task": archive.about["task"]["name"]}
        (folder / "config.json").write_text(json.dumps(record))
        save_archive(folder / "archive.npz", archive)
        if corrected is not None:
            save_corrected(folder / "corrected.npz", corrected)
        for snapshot in snapshots:
            path = folder / "snapshots" / f"{snapshot.about['evaluations']:010d}.npz"
            path.parent.mkdir(exist_ok=True)
            save_archive(path, snapshot)
        evaluations = np.arange(100, 30_001, 100)
        share = 1 - np.exp(-evaluations / 9000)
        columns = {
            **{
                "generation": evaluations // 100,
                "evaluations": evaluations,
                "environment_steps": evaluations,
            },
            **{"gradient_steps": 0 * evaluations, "qd_score": 5e5 * share, "max_fitness": 1300 * share**0.3},
            **{"coverage": 0.8 * share, "invalid": 0 * evaluations},
        }
        rows = [",".join(columns)] + [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
        (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
        return folder

    return make


@pytest.fixture(scope="session")
def walker(make_folder):
    """A run in two dimensions, corrected, with snapshots."""
    archive = synthetic_archive()
    return make_folder(archive, replicated(archive), [earlier(archive, at) for at in (500, 1000, 1400)])


def earlier(archive, evaluations):
    """The archive as it was: elites that had been found, some of them worse ones than at the end."""
    from dataclasses import replace

    rows = np.flatnonzero(archive.evaluation < evaluations)
    fitness, evaluation = archive.fitness[rows].copy(), archive.evaluation[rows].copy()
    fitness[::3] -= 100
    evaluation[::3] += 1_000_000  # these are not the ones of the end
    order = np.argsort(-fitness, kind="stable")
    rows = rows[order]
    fields = ("parameters", "descriptor", "cell", "seed", "generation", "operator", "parents")
    return replace(
        archive,
        **{name: getattr(archive, name)[rows] for name in fields},
        fitness=fitness[order],
        evaluation=evaluation[order],
        about={**archive.about, "evaluations": evaluations},
    )
