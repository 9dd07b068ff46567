"""Steps per second of the QDGym tasks: PyBullet's stock environments with a NumPy policy against ours.

Both run the same episodes of random controllers (at most 100 steps each), in turns, in one process. The stock
environment's resets are left out of its time; ours include everything. Ratios are medians over rounds.

    python benchmarks/rollouts.py [--quick]

The last line is one JSON object: `speedup` per core and `scaling` from one thread to two, per robot.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from shared.controllers import random_controllers

from elites.policies import split_layers

ROBOTS = {
    "walker": "Walker2DBulletEnv-v0",
    "halfcheetah": "HalfCheetahBulletEnv-v0",
    "ant": "AntBulletEnv-v0",
    "hopper": "HopperBulletEnv-v0",
}
LIMIT = 100  # steps an episode


def run_stock(environment: Any, controllers: np.ndarray, sizes: tuple[int, ...]) -> float:
    """Steps per second, resets left out."""
    steps, seconds = 0, 0.0
    for seed, parameters in enumerate(controllers):
        *hidden, (last, last_biases) = split_layers(parameters, sizes)
        observation, _ = environment.reset(seed=seed)
        started = time.perf_counter()
        for _ in range(LIMIT):
            for weights, biases in hidden:
                observation = np.maximum(observation @ weights + biases, 0)
            observation, _, done, _, _ = environment.step(np.tanh(observation @ last + last_biases))
            steps += 1
            if done:
                break
        seconds += time.perf_counter() - started
    return steps / seconds


@cache
def timed_episode() -> Callable[..., tuple[float, float]]:
    """An episode with a clock around `stepSimulation`: seconds inside it, and in total."""
    import numba

    from elites.policies.numba import perceptron
    from elites.tasks.loops import fill
    from elites.tasks.qdgym import episode

    gettime = numba.types.ExternalFunction(
        "clock_gettime", numba.types.int32(numba.types.int32, numba.types.intp)
    )

    @numba.njit(nogil=True)
    def now(spec: np.ndarray) -> float:
        gettime(1, spec.ctypes.data)
        return spec[0] + 1e-9 * spec[1]  # type: ignore[no-any-return]

    @numba.njit(nogil=True)
    def timed(world, anatomy, parameters, sizes, angles, limit):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        spec = np.zeros(2, np.int64)
        observation = np.empty(8 + 2 * len(anatomy.joint) + len(anatomy.contacts), np.float32)
        contacts, action = (
            np.empty(len(anatomy.contacts), np.float32),
            np.empty(len(anatomy.joint), np.float32),
        )
        inputs, outputs = np.empty(sizes.max(), np.float32), np.empty(sizes.max(), np.float32)
        started, inside = now(spec), 0.0
        height, distance = episode.reset(world, anatomy, angles, contacts, observation)
        for _ in range(limit):
            fill(inputs, observation)
            perceptron(parameters, sizes, inputs, outputs, action)
            episode.push(world, anatomy, action)
            before = now(spec)
            episode.advance(world)
            inside += now(spec) - before
            _, upright, distance = episode.judge(
                world, anatomy, action, height, distance, contacts, observation
            )
            if not upright:
                break
        return inside, now(spec) - started

    return timed  # type: ignore[no-any-return]


def share_in_bullet(task: Any, controllers: np.ndarray, sizes: tuple[int, ...]) -> float:
    """The share of an episode's time in `stepSimulation`."""
    from elites.tasks.qdgym.simulator import QDGymSimulator

    simulator, timed, total = QDGymSimulator(task), timed_episode(), np.zeros(2)
    timed(simulator.world, simulator.anatomy, controllers[0], np.array(sizes), np.zeros(task.action_size), 0)
    for seed, parameters in enumerate(controllers):
        angles = simulator.angles(np.random.default_rng(seed))
        total += timed(simulator.world, simulator.anatomy, parameters, np.array(sizes), angles, LIMIT)
    simulator.close()
    return float(total[0] / total[1])


def measure(robot: str, steps: int, rounds: int) -> dict[str, float]:
    import gymnasium
    import pybullet_envs_gymnasium

    from elites import QDGymTask, ThreadEvaluator, make_task

    assert pybullet_envs_gymnasium
    task = make_task(f"qd-{robot}", episode_length=LIMIT)
    assert isinstance(task, QDGymTask)
    stock = gymnasium.make(ROBOTS[robot], disable_env_checker=True).unwrapped
    stock.reset(seed=0)
    one, two = ThreadEvaluator(task, threads=1), ThreadEvaluator(task, threads=2)
    controllers = random_controllers(one.sizes, 8 * steps // (LIMIT // 4))
    lengths = two.evaluate(controllers, range(len(controllers))).length.cumsum()
    few, many = (int(np.searchsorted(lengths, count)) + 1 for count in (steps, 4 * steps))

    def timed(evaluator: ThreadEvaluator, episodes: int, transitions: bool = False) -> float:
        started = time.perf_counter()
        evaluation = evaluator.evaluate(controllers[:episodes], range(episodes), transitions=transitions)
        return float(evaluation.length.sum() / (time.perf_counter() - started))

    rounds_of_rates = [
        {
            "stock": run_stock(stock, controllers[:few], one.sizes),
            "same": timed(one, few),
            "one": timed(one, many),
            "two": timed(two, many),
            "recorded": timed(one, many, transitions=True),
            "again": timed(one, many),
        }
        for _ in range(rounds)
    ]
    for evaluator in (one, two):
        evaluator.close()
    stock.close()

    def middle(ratio: Callable[[dict[str, float]], float]) -> float:
        return median(map(ratio, rounds_of_rates))

    return {
        "stock": middle(lambda rate: rate["stock"]),
        "one": middle(lambda rate: rate["one"]),
        "two": middle(lambda rate: rate["two"]),
        "speedup": middle(lambda rate: rate["same"] / rate["stock"]),
        "scaling": middle(lambda rate: 2 * rate["two"] / (rate["one"] + rate["again"])),
        "recording_cost": middle(lambda rate: (rate["one"] + rate["again"]) / (2 * rate["recorded"]) - 1),
        "bullet_share": share_in_bullet(task, controllers[:few], one.sizes),
    }


def resident_mib(field: str) -> float:
    """Memory of this process: VmRSS is the current one, VmHWM the peak (that of getrusage is inherited)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def memory() -> None:
    """Peak memory of a process that records 100 full-length episodes, and the memory of the episodes."""
    from elites import QDGymTask, ThreadEvaluator, make_task

    task = make_task("qd-halfcheetah")
    assert isinstance(task, QDGymTask)
    with ThreadEvaluator(task, threads=2) as evaluator:
        controllers = random_controllers(evaluator.sizes, 100)
        before = resident_mib("VmRSS")
        evaluation = evaluator.evaluate(controllers, range(100), transitions=True)
        added = resident_mib("VmRSS") - before
    assert (evaluation.length == task.episode_length).all()
    print(json.dumps({"peak_mib": round(resident_mib("VmHWM")), "added_mib": round(added)}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 40 s")
    parser.add_argument("--memory", action="store_true", help="only the memory measurement")
    options = parser.parse_args()
    if options.memory:
        memory()
        return
    steps, rounds = (500, 2) if options.quick else (3000, 15)
    figures = {robot: measure(robot, steps, rounds) for robot in ROBOTS}
    print(
        "| robot | stock, steps/s | ours, 1 thread | ours, 2 threads | speed-up per core | 2 threads : 1 | "
        "in stepSimulation | recording costs |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for robot, row in figures.items():
        print(
            f"| {robot} | {row['stock']:.0f} | {row['one']:.0f} | {row['two']:.0f} | {row['speedup']:.2f} | "
            f"{row['scaling']:.2f} | {row['bullet_share']:.0%} | {row['recording_cost']:+.1%} |"
        )
    child = subprocess.run([sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True)
    memory_mib = json.loads(child.stdout)
    print(
        f"\n100 episodes of 1000 steps with transitions: {memory_mib['peak_mib']} MiB resident at the peak, "
        f"{memory_mib['added_mib']} MiB of it for the episodes"
    )
    summary: dict[str, Any] = {
        name: {robot: round(row[name], 3) for robot, row in figures.items()}
        for name in ("speedup", "scaling", "bullet_share", "recording_cost")
    }
    print(json.dumps({**summary, **memory_mib}))


if __name__ == "__main__":
    main()
