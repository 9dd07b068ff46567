"""Physics of Brax's robots as machine code in one thread, and under XLA: random actions, no policy.

    python benchmarks/native.py [--robots hopper walker2d] [--no-xla]

`taskset -c 0` gives XLA one core. The last line is one JSON object: steps per second, and the seconds of each
part of the compilation, of all, and of a start with code from the cache; both trace with JAX.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

import numpy as np

ROBOTS = ("hopper", "walker2d", "halfcheetah", "ant")
EPISODES = 128
STEPS = 100
REPETITIONS = 5  # the best counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS)
    parser.add_argument("--no-xla", action="store_true")
    options = parser.parse_args()
    steps, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ELITES_CACHE"] = folder
        for robot in options.robots:
            steps[robot], seconds[robot] = measure(robot, not options.no_xla)
            print(robot, steps[robot], seconds[robot], flush=True)
    print(json.dumps({"steps_per_s": steps, "seconds": seconds}))


def measure(robot: str, xla: bool) -> tuple[dict[str, int], dict[str, float]]:
    """Steps per second, and seconds of compilation."""
    import jax
    import jax.numpy as jnp

    from elites import make_task
    from elites.native import compile_function
    from elites.native.compiled import aligned, host, machine_code
    from elites.native.emit import emit
    from elites.native.trace import from_jaxpr, jaxpr_of
    from elites.tasks.task import DeviceTask

    task = make_task(f"brax-{robot}")
    assert isinstance(task, DeviceTask)

    def step(state: Any, action: jax.Array) -> tuple[Any, ...]:
        after = task.step(state, action)
        return after.state, (after.observation, after.reward), (after.terminated, after.descriptor)

    states, _ = jax.jit(jax.vmap(task.reset))(jnp.arange(EPISODES, dtype=jnp.uint32))
    example = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states)
    action = jax.ShapeDtypeStruct((task.action_size,), jnp.float32)
    clock = Clock()
    traced = jaxpr_of(step, example, action)
    clock("jaxpr")
    program = from_jaxpr(*traced)[0].without_dead_state()[0]
    clock("scalarise")
    machine_code(emit(program, host().lanes))
    clock("llvm")
    compile_function(step, example, action, state=True)
    clock("all")
    made = compile_function(step, example, action, state=True)
    clock("cached")

    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, EPISODES, task.action_size)).astype(np.float32)
    packed = [made.pack(1, [row]) for row in actions]
    start = made.pack(0, [np.asarray(leaf) for leaf in jax.tree.leaves(states)])
    memory, (_, results) = aligned(start.shape), made.buffers(len(start))

    def native() -> None:
        memory[:] = start
        for row in packed:
            made.run([memory, row], [memory, *results[1:]])

    rates = {"native_1": rate(native)}
    if xla:
        scanned = jax.jit(lambda now, rows: jax.lax.scan(lambda s, a: jax.vmap(step)(s, a)[:2], now, rows))
        rates["xla"] = rate(lambda: jax.block_until_ready(scanned(states, actions)))
    return rates, {name: round(value, 3) for name, value in clock.seconds.items()}


class Clock:
    """Seconds since the last call, by name."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str) -> None:
        self.seconds[name] = time.perf_counter() - self.last
        self.last = time.perf_counter()


def rate(function: Any) -> int:
    """Steps per second, the best of some; the first call may compile."""
    function()
    best = float("inf")
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return round(EPISODES * STEPS / best)


if __name__ == "__main__":
    main()
