"""What a step of TD3 costs on `qd-walker`, and where it goes: one in the environment and one of training.

    python benchmarks/td3.py [--quick]

The last line is one JSON object: milliseconds per step of the whole loop, and of its parts alone.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from shared.timing import timed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, under 40 s")
    repetitions = 3 if parser.parse_args().quick else 15

    import jax
    import numpy as np

    from elites.algorithms.td3 import TD3
    from elites.evaluation.environment import StatelessSimulator
    from elites.learning import critics
    from elites.tasks import make_task
    from elites.tasks.task import CompiledTask

    task, key, steps = make_task("qd-walker"), jax.random.key(0), 200
    assert isinstance(task, CompiledTask)
    algorithm = TD3(task)
    held = {"state": jax.jit(algorithm.init)(key)}
    ask = jax.jit(algorithm.ask, static_argnums=2, donate_argnums=0)
    held["state"], _ = ask(held["state"], key, algorithm.opening[0][0])

    def loop() -> Any:
        held["state"], batch = ask(held["state"], key, algorithm.generation[0])
        return batch

    loop_ms = 1e3 * timed(loop, repetitions) / steps
    state = held["state"]
    train = jax.jit(
        lambda td3, buffer: critics.train(td3, algorithm.config, algorithm.policy, buffer, key, steps)
    )
    training_ms = 1e3 * timed(lambda: train(state.td3, state.buffer), repetitions) / steps
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, 6)).astype(np.float32)
    stepper = StatelessSimulator(task.simulator)

    def walk() -> None:
        """The environment alone, episodes and all."""
        seed = count = 0
        stepper.begin(seed)
        for _ in range(steps):
            terminated = stepper.step(seed, count, actions, actions[count])[2]
            count += 1
            if terminated:
                seed, count = seed + 1, 0
                stepper.begin(seed)

    environment_ms = 1e3 * timed(walk, repetitions) / steps
    found = {
        "loop_ms": loop_ms,
        "training_ms": training_ms,
        "environment_ms": environment_ms,
        "overhead": loop_ms / (training_ms + environment_ms) - 1,
    }
    print("| part | figure |\n|---|---|")
    for name, figure in found.items():
        print(f"| {name} | {figure:.3f} |")
    print(json.dumps({name: round(figure, 4) for name, figure in found.items()}))


if __name__ == "__main__":
    main()
