"""PGA-MAP-Elites on the accelerator: seconds per generation for one replication and for many at once.

    python benchmarks/gpu.py [--quick] [--tasks brax-walker2d brax-ant] [--seeds 1 4 20]

The paper's sizes: 100 offspring, 1000 steps each, 300 steps of the critics, 50 of the policy gradients, a
buffer of a million. No episode ends early, so every generation has the same number of steps. Parts are
compiled and timed one by one. --quick works on any machine: tiny sizes on the hopper, under 40 s. The last
line is one JSON object; `s_per_generation` is indexed by task and number of seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from shared.timing import timed

QDAX = {"brax-walker2d": 0.544}  # s per generation, its main branch, one seed, the same sizes on an H200
TINY = {
    "initial": 10, "batch": 10, "hidden": (8,), "critic_hidden": (16,), "training_batch": 16,
    "buffer_size": 1000, "critic_steps": 5, "pg_steps": 5,
}  # fmt: skip


def measure(name: str, seeds: int, *, quick: bool) -> dict[str, float]:
    """Times of one task and number of replications, in seconds."""
    import dataclasses

    import jax
    import jax.numpy as jnp

    from elites.algorithms import make_algorithm
    from elites.evaluation.device import rollout
    from elites.experiments.generation import Generation, evaluations_of, keys_of
    from elites.experiments.replications import Programs
    from elites.learning import critics
    from elites.tasks import make_task
    from elites.tasks.brax import BraxTask
    from elites.tasks.task import Stepping

    class Endless(BraxTask):
        """A task without early ends: falls do not end an episode."""

        def step(self, state: Any, action: jax.Array) -> Stepping:
            after = super().step(state, action)
            return after._replace(terminated=jnp.zeros_like(after.terminated))

    real = make_task(name, **({"episode_length": 10} if quick else {}))
    assert isinstance(real, BraxTask)
    task = Endless(**{field.name: getattr(real, field.name) for field in dataclasses.fields(real)})
    algorithm = make_algorithm("pga-map-elites", task, **(TINY if quick else {}))
    programs, keys = Programs(Generation(algorithm, seeds, budget=2**30)), keys_of(range(seeds))
    current: dict[str, Any] = {
        "states": programs.init(keys),
        "generation": 0,
        "evaluations": 0,
    }

    def advance(rounds: Any, count: int) -> Any:
        current["states"], rows = programs.generations(
            current["states"],
            keys,
            jnp.int32(current["generation"]),
            jnp.int32(current["evaluations"]),
            jnp.int32(count),
            rounds,
        )
        current["generation"] += count
        current["evaluations"] += count * evaluations_of(rounds)
        return rows

    started = time.perf_counter()
    jax.block_until_ready(advance(algorithm.opening[0], len(algorithm.opening)))
    jax.block_until_ready(advance(algorithm.generation, 1))
    times = {"first_s": time.perf_counter() - started}
    count = 2 if quick else 5
    times["generation_s"] = timed(lambda: advance(algorithm.generation, count), 1 if quick else 3) / count
    times["evaluations_per_s"] = seeds * algorithm.config.batch / times["generation_s"]
    if quick:
        return times

    states, (round,) = current["states"], algorithm.generation
    ask = jax.jit(jax.vmap(lambda state, key: algorithm.ask(state, key, round)[1]))
    times["ask_s"] = timed(lambda: ask(states, keys.generations), 3)
    train = jax.jit(
        jax.vmap(
            lambda learning, key: critics.train(
                learning.td3,
                algorithm.config,
                algorithm.policy,
                learning.buffer,
                key,
                algorithm.config.critic_steps,
            )
        )
    )
    times["training_s"] = timed(lambda: train(states.learning, keys.generations), 3)
    times["variation_s"] = times["ask_s"] - times["training_s"]
    batch = ask(states, keys.generations)
    numbers = jnp.arange(seeds * round.policies, dtype=jnp.uint32)
    physics = jax.jit(
        lambda parameters: rollout(task, algorithm.policy, parameters, numbers, transitions=True)
    )
    parameters = batch.parameters.reshape(len(numbers), -1)
    times["physics_s"] = timed(lambda: physics(parameters), 3)
    evaluation = jax.tree.map(lambda array: array.reshape(seeds, -1, *array.shape[1:]), physics(parameters))
    tell = jax.jit(
        jax.vmap(lambda state, key, batch, result: algorithm.tell(state, key, round, batch, result)),
        donate_argnums=0,
    )

    def insert() -> Any:
        current["states"], status = tell(current["states"], keys.generations, batch, evaluation)
        return status

    times["insertion_s"] = timed(insert, 3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, under 40 s")
    parser.add_argument("--tasks", nargs="+", default=["brax-walker2d", "brax-ant"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 4, 20])
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.seeds = ["brax-hopper"], [2]
        cheap = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        os.environ.setdefault("XLA_FLAGS", cheap)

    import jax

    from elites.cache import keep_compiled_programs

    keep_compiled_programs()
    device = jax.devices()[0]
    columns = [
        "generation_s",
        "evaluations_per_s",
        "physics_s",
        "training_s",
        "variation_s",
        "insertion_s",
        "first_s",
    ]
    print(f"{device.device_kind}, JAX {jax.__version__}\n")
    print("| task | seeds | " + " | ".join(columns) + " |\n" + "|---" * (2 + len(columns)) + "|")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for task in options.tasks:
        for seeds in options.seeds:
            times = measure(task, seeds, quick=options.quick)
            figures.setdefault(task, {})[str(seeds)] = times
            cells = [f"{times[name]:.4g}" if name in times else "" for name in columns]
            print(f"| {task} | {seeds} | {' | '.join(cells)} |", flush=True)
            jax.clear_caches()
    for task, theirs in QDAX.items():
        if not options.quick and "1" in figures.get(task, {}):
            print(f"\nQDax on {task}, 1 seed: {theirs} s, {100 / theirs:.0f} evaluations per second")
    print(
        json.dumps(
            {
                "device": device.device_kind,
                "s_per_generation": {
                    task: {seeds: times["generation_s"] for seeds, times in by_seeds.items()}
                    for task, by_seeds in figures.items()
                },
                "parts": figures,
            }
        )
    )


if __name__ == "__main__":
    main()
