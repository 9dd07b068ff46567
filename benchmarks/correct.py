"""Compares the steps per second of `elites correct` with plain rollouts.

Half of the ants fall at once (20 steps), the others may continue to the end (1000 steps), in random order.
This makes it hard to keep all threads busy. Both run the same episodes, alternately, in one process. The time
of `correct` includes everything: reading the archive, building simulators, saving, correcting.

    python benchmarks/correct.py [--quick]

The last line is one JSON object: `ratio` of the two rates, the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

TASK = "qd-ant"


def make_run(folder: Path, elites: int) -> None:
    """A folder like that of a finished run."""
    import jax
    import numpy as np

    from elites import Policy, RunConfig, make_task
    from elites.archives.cells import make_cells
    from elites.results.archive import SavedArchive
    from elites.results.folder import RunFolder

    task, rng = make_task(TASK), np.random.default_rng(0)
    policy, cells = Policy.for_task(task), make_cells(task)
    parameters = np.array(jax.vmap(policy.init)(jax.random.split(jax.random.key(0), elites)))
    parameters[rng.permutation(elites)[: elites // 2]] *= 0.2
    cell = rng.permutation(len(cells.centroids))[:elites].astype(np.int32)
    config = RunConfig(algorithm="map-elites", task=TASK, evaluations=elites)
    run = RunFolder(folder)
    run.create(config.record())
    archive = SavedArchive(
        parameters=parameters,
        fitness=np.zeros(elites, np.float32),
        descriptor=cells.centroids[cell].astype(np.float32),
        cell=cell,
        evaluation=np.arange(elites),
        seed=np.arange(elites),
        generation=np.ones(elites, int),
        operator=np.full(elites, "ga"),
        parents=np.full((elites, 2), -1),
        centroids=cells.centroids,
        bounds=cells.bounds,
        grid=np.array(cells.grid, np.int32),
        policy_sizes=np.array(policy.sizes),
        about={
            "format": 1,
            "algorithm": "map-elites",
            "task": {
                "name": TASK,
                "qd_offset": task.qd_offset,
                "descriptor_names": task.descriptor_names,
            },
            "seed": 0,
            "evaluations": elites,
        },
    )
    run.write_archive(archive)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer elites and rounds, under 40 s")
    elites, replications, rounds = (3, 6, 2) if parser.parse_args().quick else (12, 24, 3)

    import numpy as np

    from elites import QDGymTask, ThreadEvaluator, correct, load_archive, make_task
    from elites.experiments.correct import Settings, derive_episode_seeds
    from elites.results.folder import RunFolder

    task = make_task(TASK)
    assert isinstance(task, QDGymTask)
    rows = []
    with tempfile.TemporaryDirectory() as temporary, ThreadEvaluator(task) as evaluator:
        folder = Path(temporary) / "run"
        make_run(folder, elites)
        archive = load_archive(folder)
        seeds = derive_episode_seeds(archive, Settings(replications=replications))
        for _ in range(rounds):
            started = time.perf_counter()
            evaluation = evaluator.evaluate(archive.parameters, seeds)
            plain = time.perf_counter() - started
            started = time.perf_counter()
            result = correct(folder, replications=replications)
            corrected = time.perf_counter() - started
            np.testing.assert_array_equal(result.fitness, evaluation.fitness)
            RunFolder(folder).corrected_path().unlink()
            steps = int(evaluation.length.sum())
            rows.append((steps / plain, steps / corrected))
    length = evaluation.length
    print(f"{length.size} episodes of {length.min()} to {length.max()} steps, median {np.median(length):.0f}")
    print("| plain, steps/s | correct, steps/s | ratio |\n|---|---|---|")
    for plain, corrected in rows:
        print(f"| {plain:.0f} | {corrected:.0f} | {corrected / plain:.3f} |")
    summary = {
        "plain_steps_per_s": round(median(plain for plain, _ in rows)),
        "correct_steps_per_s": round(median(corrected for _, corrected in rows)),
        "ratio": round(median(corrected / plain for plain, corrected in rows), 3),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
