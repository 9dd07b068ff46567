"""Steps per second of BipedalWalker-v3: a plain loop, Gymnasium's AsyncVectorEnv, and our worker processes.

    python benchmarks/environments.py [--quick]

The plain loop is what a user would write: one environment, one step after the other, the controller in NumPy.
AsyncVectorEnv steps two environments in two processes; each has its own controller, and both controllers are
one batched product. Ours runs whole episodes in one worker and in two, and records every step. All have the
same random controllers, with 128-128 hidden units, and the same limit of steps per episode. They alternate;
ratios are medians over rounds. The start of the workers is measured separately.

If other processes also use the cores, two workers get no more processor time than one loop. `per_core`, the
steps per second of processor time, is then the fair comparison.

The last line is one JSON object: steps per second of each, and the ratios to the plain loop.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from shared.controllers import random_controllers

from elites.policies import split_layers

ENVIRONMENT = "BipedalWalker-v3"
LIMIT = 400  # steps an episode
HIDDEN = (128, 128)


def leg_contacts(episode: Any) -> np.ndarray:
    """The descriptor: how often each leg touches the ground."""
    contact: np.ndarray = episode.observations[1:, [8, 13]].mean(0)
    return contact


def plain(controllers: np.ndarray, sizes: tuple[int, ...]) -> tuple[float, float]:
    """Steps per second of a loop over episodes, and per second of processor time."""
    environment = gymnasium.make(ENVIRONMENT)
    steps, started, busy = 0, time.perf_counter(), time.process_time()
    for seed, parameters in enumerate(controllers):
        *hidden, (last, last_biases) = split_layers(parameters, sizes)
        observation, _ = environment.reset(seed=seed)
        for _ in range(LIMIT):
            for weights, biases in hidden:
                observation = np.maximum(observation @ weights + biases, 0)
            action = np.tanh(observation @ last + last_biases)
            observation, _, terminated, truncated, _ = environment.step(action)
            steps += 1
            if terminated or truncated:
                break
    rate = steps / (time.perf_counter() - started)
    environment.close()
    return rate, steps / (time.process_time() - busy)


def vectorised(
    vector: Any, controllers: np.ndarray, sizes: tuple[int, ...], steps: int
) -> tuple[float, float]:
    """Steps per second of two environments that step together; after an end, the next seed starts."""
    pairs = [split_layers(parameters, sizes) for parameters in controllers[:2]]
    *hidden, (last, last_biases) = [
        (np.stack(weights), np.stack(biases))
        for weights, biases in (zip(*layer, strict=True) for layer in zip(*pairs, strict=True))
    ]
    observation, _ = vector.reset(seed=0)
    started = time.perf_counter()
    for _ in range(steps // 2):
        values = observation[:, None]
        for weights, biases in hidden:
            values = np.maximum(values @ weights + biases[:, None], 0)
        action = np.tanh(values @ last + last_biases[:, None])[:, 0]
        observation, *_ = vector.step(action)
    return 2 * (steps // 2) / (time.perf_counter() - started), float("nan")


def ours(evaluator: Any, controllers: np.ndarray) -> tuple[float, float]:
    """Steps per second of an evaluator, and per second of its workers' processor time."""
    started, busy = time.perf_counter(), workers_time(evaluator)
    evaluation = evaluator.evaluate(controllers, np.arange(len(controllers)), transitions=True)
    steps = int(evaluation.length.sum())
    return steps / (time.perf_counter() - started), steps / (workers_time(evaluator) - busy)


def workers_time(evaluator: Any) -> float:
    """Processor time of an evaluator's workers, in seconds."""
    ticks = 0
    for worker in evaluator._workers.values():
        fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    import elites

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds of few episodes")
    quick = parser.parse_args().quick
    rounds, episodes = (3, 16) if quick else (9, 100)
    task = elites.gymnasium_task(
        ENVIRONMENT, descriptor="environments:leg_contacts", episode_length=LIMIT, qd_offset=0.0
    )
    sizes = task.controller_sizes(HIDDEN)
    controllers = random_controllers(sizes, episodes)
    clock = time.perf_counter()
    one = elites.ProcessEvaluator(task, hidden=HIDDEN, processes=1)
    start_s = time.perf_counter() - clock
    two = elites.ProcessEvaluator(task, hidden=HIDDEN, processes=2)
    vector = gymnasium.make_vec(ENVIRONMENT, num_envs=2, vectorization_mode="async")
    names = ["plain", "vectorised", "one_worker", "two_workers"]
    figures: dict[str, list[float]] = {name: [] for name in names}
    per_core: dict[str, list[float]] = {name: [] for name in names}
    for evaluator in (one, two):
        evaluator.evaluate(controllers[:4], np.arange(4))  # imports, and the episode that is run twice
    for number in range(rounds):
        kinds = {
            "plain": lambda: plain(controllers, sizes),
            "vectorised": lambda: vectorised(vector, controllers, sizes, 100 * episodes),
            "one_worker": lambda: ours(one, controllers),
            "two_workers": lambda: ours(two, controllers),
        }
        for name in names[number % 4 :] + names[: number % 4]:  # the order changes from round to round
            rate, efficiency = kinds[name]()
            figures[name].append(rate)
            per_core[name].append(efficiency)
    for resource in (one, two, vector):
        resource.close()
    print(f"{ENVIRONMENT}, {len(os.sched_getaffinity(0))} cores; a worker starts in {start_s:.2f} s\n")
    print("| | steps/s | relative to the plain loop | per core |\n|---|---|---|---|")
    ratios, cores = (
        {
            name: median(rate / base for rate, base in zip(rates[name], rates["plain"], strict=True))
            for name in names
        }
        for rates in (figures, per_core)
    )
    for name in names:
        core = "" if name == "vectorised" else f"{cores[name]:.2f}"
        print(f"| {name.replace('_', ' ')} | {median(figures[name]):.0f} | {ratios[name]:.2f} | {core} |")
    print(
        json.dumps(
            {
                "steps_per_s": {name: round(median(rates)) for name, rates in figures.items()},
                "ratio": {name: round(ratio, 3) for name, ratio in ratios.items()},
                "per_core": {name: round(cores[name], 3) for name in names if name != "vectorised"},
                "start_s": round(start_s, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
