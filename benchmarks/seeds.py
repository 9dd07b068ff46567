"""Compares replications of a PyBullet task as one group with single runs of the same seeds.

    python benchmarks/seeds.py [--quick] [--task qd-hopper] [--seeds 20] [--evaluations 1500]

It runs PGA-MAP-Elites with the paper's sizes. The seeds of a group share a program, and their episodes are
one batch; each single run has its own start-up. Compilation is not included: a short first run of
each kind is not timed. --quick: small sizes, under 40 s. The last line is one JSON object: evaluations per
second of both, and their ratio.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "initial": 40, "batch": 40, "hidden": (16,), "critic_hidden": (32,), "training_batch": 32,
    "buffer_size": 20_000, "critic_steps": 30, "pg_steps": 10,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, under 40 s")
    parser.add_argument("--task", default="qd-hopper")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=1500)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.evaluations = 3, 160

    import jax

    import elites

    config = elites.RunConfig(
        algorithm="pga-map-elites",
        task=options.task,
        evaluations=options.evaluations,
        hyper_parameters=SMALL if options.quick else {},
        task_parameters={"episode_length": 100} if options.quick else {},
    )
    quiet = elites.Execution(log=lambda _: None)

    def group(folder: Path) -> None:
        elites.run(config, folder, seeds=options.seeds, execution=quiet)

    def one_by_one(folder: Path) -> None:
        for seed in range(options.seeds):
            elites.run(dataclasses.replace(config, seed=seed), folder / str(seed), execution=quiet)

    seconds = {}
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        sizes = config.make_algorithm().config
        short = dataclasses.replace(config, evaluations=sizes.initial + 2 * sizes.batch)
        elites.run(short, home / "first", execution=quiet)
        elites.run(short, home / "first-group", seeds=options.seeds, execution=quiet)
        for name, work in (("group", group), ("one_by_one", one_by_one)):
            started = time.perf_counter()
            work(home / name)
            seconds[name] = time.perf_counter() - started
    rates = {name: options.seeds * options.evaluations / spent for name, spent in seconds.items()}
    device, cores = jax.devices()[0].device_kind, len(os.sched_getaffinity(0))
    runs = f"{options.seeds} seeds of {options.evaluations} evaluations"
    print(f"{options.task}, {runs}; {cores} cores, {device}\n")
    print("| | s | evaluations/s |\n|---|---|---|")
    for name, spent in seconds.items():
        print(f"| {name.replace('_', ' ')} | {spent:.1f} | {rates[name]:.0f} |")
    print(
        json.dumps(
            {
                "evaluations_per_s": {name: round(rate, 1) for name, rate in rates.items()},
                "ratio": round(rates["group"] / rates["one_by_one"], 3),
                "seeds": options.seeds,
                "evaluations": options.evaluations,
                "cores": cores,
                "device": device,
            }
        )
    )


if __name__ == "__main__":
    main()
