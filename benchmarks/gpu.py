"""PGA-MAP-Elites on the accelerator: seconds per generation for one replication and for many at once.

    python benchmarks/gpu.py [--quick] [--robots walker2d ant] [--seeds 1 20] [--physics xla native cuda]

It uses the paper's sizes: 100 offspring, 1000 steps each, 300 critic steps, 50 policy-gradient steps, a
buffer of a million. No episode ends early, so every generation has the same number of steps. The code is that
of `elites run`. Episodes are computed by XLA, by native code in CPU threads, or with a CUDA kernel for a
step. The parts of a generation are timed if it is not one program. --quick works on any machine: tiny sizes
on the hopper, under 40 s. The last line is one JSON object; `s_per_generation` is indexed by robot, physics
and number of seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

QDAX = {"walker2d": 0.544}  # s per generation, its main branch, one seed, the same sizes on an H200
TINY = {
    "initial": 10, "batch": 10, "hidden": (8,), "critic_hidden": (16,), "training_batch": 16,
    "buffer_size": 1000, "critic_steps": 5, "pg_steps": 5,
}  # fmt: skip
PARTS = ("ask_s", "rollouts_s", "tell_s")


def measure(robot: str, seeds: int, physics: str, *, quick: bool) -> dict[str, float]:
    """Seconds of a generation of all seeds and, where they are known, of its parts."""
    from shared.no_early_termination import without_early_termination

    from elites import RunConfig
    from elites.experiments.run import make_replications
    from elites.tasks import TASKS

    task = without_early_termination(robot, **({"episode_length": 10} if quick else {}))
    TASKS[task.name] = task
    configs = [
        RunConfig(
            algorithm="pga-map-elites",
            task=task.name,
            evaluations=2**30,
            seed=seed,
            physics=physics,  # type: ignore[arg-type]
            hyper_parameters=TINY if quick else {},
            task_parameters={"episode_length": task.episode_length},
        )
        for seed in range(seeds)
    ]
    started = time.perf_counter()
    replications = make_replications(configs)
    opening = len(replications.algorithm.opening)

    def advance(generations: int) -> list[Any]:
        done: list[Any] = []
        while len(done) < generations:
            each = replications.algorithm.config.batch
            done += replications.advance(replications.evaluations + (generations - len(done)) * each)
        return done

    advance(opening)
    advance(2)
    times = {"first_s": time.perf_counter() - started}
    count = 3 if quick else 30
    clock = time.perf_counter()
    done = advance(count)
    times["generation_s"] = (time.perf_counter() - clock) / count
    times["evaluations_per_s"] = seeds * replications.algorithm.config.batch / times["generation_s"]
    for part in PARTS:
        if part in done[0].timings:
            times[part] = statistics.median(each.timings[part] for each in done)
    replications.evaluator.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, under 40 s")
    parser.add_argument("--robots", nargs="+", default=["walker2d", "ant"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 20])
    parser.add_argument(
        "--physics", nargs="+", choices=["xla", "native", "cuda"], help="all that the machine has by default"
    )
    options = parser.parse_args()
    if options.quick:
        options.robots, options.seeds = ["hopper"], [2]
        options.physics = options.physics or ["native"]  # XLA would compile for half a minute
        cheap = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        os.environ.setdefault("XLA_FLAGS", cheap)

    import jax

    from elites.cache import keep_compiled_programs

    keep_compiled_programs()
    device, cores = jax.devices()[0], len(os.sched_getaffinity(0))
    kinds = options.physics or ["xla", "native", *(["cuda"] if device.platform == "gpu" else [])]
    columns = ["generation_s", "evaluations_per_s", *PARTS, "first_s"]
    print(f"{device.device_kind}, {cores} cores, JAX {jax.__version__}\n")
    print("| robot | physics | seeds | " + " | ".join(columns) + " |\n" + "|---" * (3 + len(columns)) + "|")
    figures: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for robot in options.robots:
        for physics in kinds:
            for seeds in options.seeds:
                times = measure(robot, seeds, physics, quick=options.quick)
                figures.setdefault(robot, {}).setdefault(physics, {})[str(seeds)] = times
                cells = [f"{times[name]:.4g}" if name in times else "" for name in columns]
                print(f"| {robot} | {physics} | {seeds} | {' | '.join(cells)} |", flush=True)
                jax.clear_caches()
    if not options.quick and "walker2d" in figures:
        theirs = QDAX["walker2d"]
        print(f"\nQDax on walker2d, 1 seed: {theirs} s, {100 / theirs:.0f} evaluations per second")
    print(
        json.dumps(
            {
                "device": device.device_kind,
                "cores": cores,
                "s_per_generation": {
                    robot: {
                        physics: {seeds: times["generation_s"] for seeds, times in by_seeds.items()}
                        for physics, by_seeds in by_physics.items()
                    }
                    for robot, by_physics in figures.items()
                },
                "parts": figures,
            }
        )
    )


if __name__ == "__main__":
    main()
