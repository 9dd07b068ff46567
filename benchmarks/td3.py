"""The time of a TD3 step on `qd-walker`: one step in the environment and one training step.

    python benchmarks/td3.py [--quick]

The last line is one JSON object: milliseconds per step of the whole loop, and of each part.
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
    current = {"state": jax.jit(algorithm.init)(key)}
    ask = jax.jit(algorithm.ask, static_argnums=2, donate_argnums=0)
    current["state"], _ = ask(current["state"], key, algorithm.opening[0][0])

    def loop() -> Any:
        current["state"], batch = ask(current["state"], key, algorithm.generation[0])
        return batch

    loop_ms = 1e3 * timed(loop, repetitions) / steps
    state = current["state"]
    train = jax.jit(
        lambda td3, buffer: critics.train(td3, algorithm.config, algorithm.policy, buffer, key, steps)
    )
    training_ms = 1e3 * timed(lambda: train(state.td3, state.buffer), repetitions) / steps
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, 6)).astype(np.float32)
    stepper = StatelessSimulator(task.make_simulator)

    def walk() -> None:
        """Steps in the environment only, with resets."""
        seed = count = 0
        stepper.begin(seed)
        for _ in range(steps):
            terminated = stepper.step(seed, count, actions, actions[count])[2]
            count += 1
            if terminated:
                seed, count = seed + 1, 0
                stepper.begin(seed)

    environment_ms = 1e3 * timed(walk, repetitions) / steps
    figures = {
        "loop_ms": loop_ms,
        "training_ms": training_ms,
        "environment_ms": environment_ms,
        "overhead": loop_ms / (training_ms + environment_ms) - 1,
    }
    print("| part | figure |\n|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure:.3f} |")
    print(json.dumps({name: round(figure, 4) for name, figure in figures.items()}))


if __name__ == "__main__":
    main()
