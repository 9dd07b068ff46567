"""Steps per second of PyBullet's and Gymnasium's environments with a NumPy policy, and of the compiled loop.

Both run the same episodes of random controllers (at most 100 steps each), alternately, in one process. The
environments' resets are left out of their time; ours include everything. Ratios are medians over rounds.

    python benchmarks/rollouts.py [--suite mujoco] [--quick]

The last line is one JSON object: per robot `speedup` per core, `scaling` from one thread to two, `share` of
the simulator's own step in an episode and, for MuJoCo, `speedup_async` of two threads over an AsyncVectorEnv
with two environments, and `speedup_async_one` of one thread over an AsyncVectorEnv with one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from shared.controllers import random_controllers

from elites.policies import split_layers

SUITES = {
    "qdgym": {
        "qd-walker": "Walker2DBulletEnv-v0",
        "qd-halfcheetah": "HalfCheetahBulletEnv-v0",
        "qd-ant": "AntBulletEnv-v0",
        "qd-hopper": "HopperBulletEnv-v0",
    },
    "mujoco": {
        "mujoco-walker2d": "Walker2d-v5",
        "mujoco-halfcheetah": "HalfCheetah-v5",
        "mujoco-ant": "Ant-v5",
        "mujoco-hopper": "Hopper-v5",
        "mujoco-humanoid": "Humanoid-v5",
        "mujoco-swimmer": "Swimmer-v5",
    },
}
LIMIT = 100  # steps an episode
Timed = Callable[[int, np.ndarray], tuple[float, float]]
"""A function of a seed and a controller: seconds inside the simulator's step, and of the whole episode."""


def run_stock(environment: Any, controllers: np.ndarray, sizes: tuple[int, ...]) -> float:
    """Steps per second, without resets."""
    steps, seconds, scale = 0, 0.0, environment.action_space.high
    for seed, parameters in enumerate(controllers):
        *hidden, (last, last_biases) = split_layers(parameters, sizes)
        observation, _ = environment.reset(seed=seed)
        started = time.perf_counter()
        for _ in range(LIMIT):
            for weights, biases in hidden:
                observation = np.maximum(observation @ weights + biases, 0)
            observation, _, done, _, _ = environment.step(scale * np.tanh(observation @ last + last_biases))
            steps += 1
            if done:
                break
        seconds += time.perf_counter() - started
    return steps / seconds


def run_async(environments: Any, controllers: np.ndarray, sizes: tuple[int, ...]) -> float:
    """Steps per second of environments in separate processes, each with its own controller."""
    steps, seconds, scale, count = 0, 0.0, environments.single_action_space.high, environments.num_envs
    for seed in range(len(controllers) // count):
        group = controllers[seed * count : (seed + 1) * count]
        layers = [
            np.stack(each)
            for layer in zip(*(split_layers(one, sizes) for one in group), strict=True)
            for each in zip(*layer, strict=True)
        ]
        observation, _ = environments.reset(seed=seed)
        started = time.perf_counter()
        for _ in range(LIMIT):  # an environment that has ended begins again by itself
            values = observation[:, None].astype(np.float32)
            for index in range(0, len(layers), 2):
                values = values @ layers[index] + layers[index + 1][:, None]
                values = np.maximum(values, 0) if index + 2 < len(layers) else np.tanh(values)
            observation, *_ = environments.step(scale * values[:, 0])
            steps += count
        seconds += time.perf_counter() - started
    return steps / seconds


@cache
def clock() -> Callable[[np.ndarray], float]:
    """A compiled function that returns the time in seconds; its argument is memory for two numbers."""
    import numba

    gettime = numba.types.ExternalFunction(
        "clock_gettime", numba.types.int32(numba.types.int32, numba.types.intp)
    )

    @numba.njit(nogil=True)
    def now(spec: np.ndarray) -> float:
        gettime(1, spec.ctypes.data)
        return spec[0] + 1e-9 * spec[1]  # type: ignore[no-any-return]

    return now  # type: ignore[no-any-return]


def timed_bullet(task: Any, sizes: np.ndarray) -> Timed:
    """Episodes with a clock around `stepSimulation`."""
    import numba

    from elites.policies.numba import perceptron
    from elites.tasks.loops import fill
    from elites.tasks.qdgym import episode
    from elites.tasks.qdgym.simulator import QDGymSimulator

    now = clock()

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
            episode.apply_torques(world, anatomy, action)
            before = now(spec)
            episode.advance(world)
            inside += now(spec) - before
            _, upright, distance = episode.measure_step(
                world, anatomy, action, height, distance, contacts, observation
            )
            if not upright:
                break
        return inside, now(spec) - started

    simulator = QDGymSimulator(task)

    def run(seed: int, parameters: np.ndarray) -> tuple[float, float]:
        angles = simulator.draw_angles(np.random.default_rng(seed))
        return timed(simulator.world, simulator.anatomy, parameters, sizes, angles, LIMIT)  # type: ignore[no-any-return]

    return run


def timed_mujoco(task: Any, sizes: np.ndarray) -> Timed:
    """Episodes with a clock around `mj_step` and `mj_rnePostConstraint`."""
    import numba

    from elites.policies.numba import perceptron
    from elites.tasks.loops import fill
    from elites.tasks.mujoco import episode
    from elites.tasks.mujoco.simulator import MujocoSimulator

    now = clock()

    @numba.njit(nogil=True)
    def timed(world, rules, parameters, sizes, qpos, qvel, observation, limit):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        spec = np.zeros(2, np.int64)
        action = np.empty(len(rules.half), np.float32)
        inputs, outputs = np.empty(sizes.max(), np.float32), np.empty(sizes.max(), np.float32)
        started, inside = now(spec), 0.0
        episode.reset(world, rules, qpos, qvel, observation)
        for _ in range(limit):
            fill(inputs, observation)
            perceptron(parameters, sizes, inputs, outputs, action)
            action = rules.middle + rules.half * action
            x, y = episode.locate_robot(world, rules)
            before = now(spec)
            episode.advance(world, rules, action)
            inside += now(spec) - before
            _, ended = episode.measure_step(world, rules, action, x, y)
            episode.observe(rules, observation)
            if ended:
                break
        return inside, now(spec) - started

    simulator, observation = MujocoSimulator(task), np.zeros(task.observation_size)

    def run(seed: int, parameters: np.ndarray) -> tuple[float, float]:
        start = simulator.draw_initial_state(np.random.default_rng(seed))
        return timed(simulator.world, simulator.rules, parameters, sizes, *start, observation, LIMIT)  # type: ignore[no-any-return]

    return run


def share_inside(timed: Timed, controllers: np.ndarray) -> float:
    """The share of an episode's time in the simulator's own step."""
    timed(0, controllers[0])  # compiles
    inside, whole = np.sum([timed(seed, one) for seed, one in enumerate(controllers)], 0)
    return float(inside / whole)


def enough(evaluator: Any, controllers: np.ndarray, steps: int) -> int:
    """The number of the first controllers whose episodes have this many steps together."""
    total = 0
    for start in range(0, len(controllers), few := -(-steps // LIMIT)):
        batch = controllers[start : start + few]
        lengths = total + evaluator.evaluate(batch, range(start, start + len(batch))).length.cumsum()
        if lengths[-1] >= steps:
            return start + int(np.searchsorted(lengths, steps)) + 1
        total = int(lengths[-1])
    return len(controllers)


def measure(name: str, stock_name: str, steps: int, rounds: int) -> dict[str, float]:
    import gymnasium

    from elites import ThreadEvaluator, make_task

    mujoco = name.startswith("mujoco-")
    task: Any = make_task(name, episode_length=LIMIT)
    if mujoco:
        from elites.tasks.mujoco import interface

        def set_timers(on: bool) -> None:  # ours are off; environments have theirs
            interface.clock.value = interface.their_clock if on else None
    else:
        import pybullet_envs_gymnasium

        assert pybullet_envs_gymnasium

        def set_timers(on: bool) -> None: ...

    set_timers(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stock = gymnasium.make(stock_name, disable_env_checker=True).unwrapped
        processes = [
            gymnasium.make_vec(stock_name, count, vectorization_mode="async") for count in (1, 2) if mujoco
        ]
    stock.reset(seed=0)
    one, two = ThreadEvaluator(task, threads=1), ThreadEvaluator(task, threads=2)
    controllers = random_controllers(one.sizes, 8 * steps // (LIMIT // 4))
    few, many = (enough(two, controllers, count) for count in (steps, 4 * steps))

    def timed(evaluator: ThreadEvaluator, episodes: int, transitions: bool = False) -> float:
        set_timers(False)
        started = time.perf_counter()
        evaluation = evaluator.evaluate(controllers[:episodes], range(episodes), transitions=transitions)
        return float(evaluation.length.sum() / (time.perf_counter() - started))

    def plain() -> float:
        set_timers(True)
        return run_stock(stock, controllers[:few], one.sizes)

    def in_processes(count: int) -> float:
        if not mujoco:
            return np.nan
        return run_async(processes[count - 1], controllers[: max(2, few // 4)], one.sizes)

    rounds_of_rates = [
        {
            "stock": plain(),
            "async_one": in_processes(1),
            "async": in_processes(2),
            "same": timed(one, few),
            "one": timed(one, many),
            "two": timed(two, many),
            "recorded": timed(one, many, transitions=True),
            "again": timed(one, many),
        }
        for _ in range(rounds)
    ]
    opened: list[Any] = [one, two, stock, *processes]
    for each in opened:
        each.close()

    def middle(ratio: Callable[[dict[str, float]], float]) -> float:
        return median(map(ratio, rounds_of_rates))

    inside = (timed_mujoco if mujoco else timed_bullet)(task, np.array(one.sizes))
    return {
        **{
            rate: middle(lambda rates, rate=rate: rates[rate])  # type: ignore[misc]
            for rate in ("stock", "async_one", "async", "one", "two")
        },
        "speedup": middle(lambda rate: rate["same"] / rate["stock"]),
        "speedup_async_one": middle(lambda rate: rate["one"] / rate["async_one"]),
        "speedup_async": middle(lambda rate: rate["two"] / rate["async"]),
        "scaling": middle(lambda rate: 2 * rate["two"] / (rate["one"] + rate["again"])),
        "recording_cost": middle(lambda rate: (rate["one"] + rate["again"]) / (2 * rate["recorded"]) - 1),
        "share": share_inside(inside, controllers[:few]),
    }


def resident_mib(field: str) -> float:
    """Memory of this process: VmRSS is the current value, VmHWM the peak (getrusage inherits its peak)."""
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


COLUMNS = {  # title and format of each figure
    "stock": ("environment, steps/s", ".0f"),
    "one": ("ours, 1 thread", ".0f"),
    "two": ("ours, 2 threads", ".0f"),
    "speedup": ("speed-up per core", ".2f"),
    "scaling": ("2 threads : 1", ".2f"),
    "share": ("in the simulator's step", ".0%"),
    "recording_cost": ("recording costs", "+.1%"),
    "async_one": ("AsyncVectorEnv, 1", ".0f"),
    "speedup_async_one": ("speed-up over AsyncVectorEnv, 1 thread", ".2f"),
    "async": ("AsyncVectorEnv, 2", ".0f"),
    "speedup_async": ("speed-up over AsyncVectorEnv, 2 threads", ".2f"),
}
RATIOS = ("speedup", "speedup_async_one", "speedup_async", "scaling", "share", "recording_cost")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, default="qdgym")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 40 s")
    parser.add_argument("--memory", action="store_true", help="only the memory measurement")
    options = parser.parse_args()
    if options.memory:
        memory()
        return
    steps, rounds = (200, 2) if options.quick else (3000, 15)  # of a measurement
    figures = {name: measure(name, stock, steps, rounds) for name, stock in SUITES[options.suite].items()}
    measured = {key: form for key, form in COLUMNS.items() if not np.isnan(next(iter(figures.values()))[key])}
    print("| task |", *(f"{title} |" for title, _ in measured.values()))
    print("|---" * (len(measured) + 1) + "|")
    for name, row in figures.items():
        print(f"| {name} |", *(f"{row[key]:{form}} |" for key, (_, form) in measured.items()))
    summary: dict[str, Any] = {
        key: {name: round(row[key], 3) for name, row in figures.items()} for key in measured if key in RATIOS
    }
    if options.suite == "qdgym":
        command = [sys.executable, __file__, "--memory"]
        child = subprocess.run(command, capture_output=True, text=True, check=True)
        memory_mib = json.loads(child.stdout)
        print(
            f"\n100 episodes of 1000 steps with transitions: {memory_mib['peak_mib']} MiB resident at the "
            f"peak, {memory_mib['added_mib']} MiB of it for the episodes"
        )
        summary |= memory_mib
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
