"""Checks and times the steps of robots as kernels of an NVIDIA GPU.

    python benchmarks/ptx.py [--robots walker2d hopper ant] [--quick]

Each robot runs in a separate process, and each stage reports its own error, with the driver's message. The
stages:

- `ptx`: the PTX text is generated
- `load`: the driver compiles it; registers and local bytes of a thread
- `direct`: the kernel is launched without XLA and compared with machine code of the CPU, bit for bit
- `one_step`: the kernel inside a JAX program, compared with that machine code, and with Brax under XLA on the
  GPU; the kernel that runs use, which is not exact, is also compared with Brax
- `many_steps`: 100 steps, compared with Brax under XLA
- `physics`: milliseconds of 1000 steps alone, by number of robots and of threads per block, and of an exact
  kernel
- `episodes`: milliseconds of 1000 steps with a 128-128 policy, by number of robots
- `episodes_xla`: the same with Brax under XLA

walker2d's `episodes` without command buffers are in `without_command_buffers`. --quick only makes PTX of
the hopper and works on any machine. The last line is one JSON object; the exit status is 1 if a stage
failed.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import functools
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ROBOTS = ("walker2d", "hopper", "ant")
STAGES = ("ptx", "load", "direct", "one_step", "many_steps", "physics", "episodes", "episodes_xla")
STATES, STEPS = 256, 1000
COUNTS = (100, 2000)
THREADS = (32, 64, 128)
LIMIT = 540  # seconds for a robot


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", nargs="+", default=ROBOTS)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--quick", action="store_true", help="PTX of the hopper alone")
    parser.add_argument("--here", action="store_true", help="one robot, in this process")
    options = parser.parse_args()
    robots, stages = (["hopper"], ["ptx"]) if options.quick else (options.robots, options.stages)
    if options.here:
        measure(robots[0], stages)
        return
    results = {robot: in_a_process(robot, stages) for robot in robots}
    if "walker2d" in robots and "episodes" in stages:
        without = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer="}
        results["without_command_buffers"] = in_a_process("walker2d", ["episodes"], **without)
    print(json.dumps(results))
    sys.exit(any(found["errors"] for found in results.values()))


def in_a_process(robot: str, stages: Sequence[str], **environment: str) -> dict[str, Any]:
    """The results of a robot. A crash, or a broken GPU context, does not affect the others."""
    command = [sys.executable, __file__, "--here", "--robots", robot, "--stages", *stages]
    found: dict[str, Any] = {"errors": {}}
    with subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        limit = threading.Timer(LIMIT, process.kill)
        limit.start()
        for line in process.stdout or ():
            if line.startswith("{"):
                found = json.loads(line)
            else:
                print(f"{robot}: {line}", end="", flush=True)
    limit.cancel()
    if process.returncode:
        found["errors"]["process"] = f"ended with {process.returncode}"
    print(robot, json.dumps(found), flush=True)
    return found


def measure(robot: str, stages: Sequence[str]) -> None:
    """Prints the results so far after each stage, as JSON."""
    faulthandler.enable()
    found: dict[str, Any] = {"errors": {}}
    robots = Robot(robot)
    for name in ("environment", *stages):
        started = time.perf_counter()
        try:
            found[name] = getattr(robots, name)()
        except Exception as error:
            traceback.print_exc()
            found["errors"][name] = f"{type(error).__name__}: {error}"[:4000]
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
        print(json.dumps(found), flush=True)


class Robot:
    """A robot with one method per stage."""

    def __init__(self, name: str) -> None:
        from shared.no_early_termination import without_early_termination

        from elites import make_task

        self.task: Any = make_task(f"brax-{name}")
        self.unterminated = without_early_termination(name)

    def environment(self) -> dict[str, Any]:
        import jax
        import llvmlite

        return {
            "device": str(jax.devices()[0].device_kind),
            "jax": jax.__version__,
            "llvmlite": llvmlite.__version__,
        }

    def ptx(self) -> dict[str, Any]:
        from elites.evaluation.kernels import make_step
        from elites.native.cuda import compile_ptx
        from elites.native.emit import emit_kernel
        from elites.native.trace import trace

        started = time.perf_counter()
        program, kept = trace(*make_step(self.task))[0].remove_dead_state()
        text = compile_ptx(emit_kernel(program), "sm_90")
        seconds = round(time.perf_counter() - started, 2)
        return {
            "seconds": seconds,
            "bytes": len(text),
            "state": len(kept),
            "operations": program.count_operations(),
            "version": next(line for line in text.splitlines() if line.startswith(".version")),
        }

    def load(self) -> dict[str, Any]:
        from elites.evaluation.kernels import make_kernel
        from elites.native.cuda import find_jax_driver

        driver, started = find_jax_driver(), time.perf_counter()
        function = make_kernel(self.task, driver).function
        return {
            "seconds": round(time.perf_counter() - started, 2),
            "driver": driver.version,
            "target": driver.target,
            "registers": function.registers,
            "local_bytes": function.local_bytes,
            "log": function.log[-1000:],
        }

    @functools.cached_property
    def kernel(self) -> Any:
        from elites.evaluation.kernels import make_kernel
        from elites.native.cuda import find_jax_driver

        return make_kernel(self.task, find_jax_driver(), exact=True)

    @functools.cached_property
    def under_xla(self) -> Any:
        """Brax's own step for a batch, with matrix products in float32."""
        import jax

        from elites.evaluation.kernels import make_step

        def step(states: Any, actions: jax.Array) -> Any:
            with jax.default_matmul_precision("highest"):
                return jax.vmap(make_step(self.task)[0])(states, actions)

        return jax.jit(step)

    @functools.cached_property
    def states(self) -> dict[str, Any]:
        """States at the start of episodes and after 20 steps."""
        import jax
        import jax.numpy as jnp

        from elites.evaluation.native import unwrap_keys

        begun, _ = jax.jit(jax.vmap(self.task.reset))(jnp.arange(STATES, dtype=jnp.uint32))
        states = begun = jax.vmap(unwrap_keys)(begun)
        for action in self.actions(20, 1):
            states = self.under_xla(states, action)[0]
        return {"begun": begun, "later": states}

    def actions(self, steps: int, seed: int, count: int = STATES) -> Any:
        import jax.numpy as jnp

        shape = (steps, count, self.task.action_size)
        return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, shape), jnp.float32)

    def on_the_cpu(self, states: Any, action: Any) -> list[np.ndarray]:
        """The results of the same program as machine code of the host; the state as `[numbers, n]`."""
        import jax

        from elites.evaluation.kernels import make_step
        from elites.native import compile_function

        made = compile_function(*make_step(self.task), state=True, fused=True)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
        packed = [made.pack(0, leaves), made.pack(1, [np.asarray(action)])]
        _, results = made.buffers(len(packed[0]))
        made.run(packed, results)
        state = results[0].transpose(1, 0, 2).reshape(results[0].shape[1], -1)[:, :STATES]
        others = [made.unpack(k, results[k], STATES)[0] for k in range(1, 5)]
        return [state, *(other.reshape(STATES, -1) for other in others)]

    def direct(self) -> dict[str, Any]:
        """The kernel on JAX arrays, which it changes in place."""
        import jax
        import jax.numpy as jnp

        from elites.native.cuda import THREADS as THREADS_OF_A_BLOCK
        from elites.native.cuda import find_jax_driver

        driver, kernel, action = find_jax_driver(), self.kernel, self.actions(1, 2)[0]
        given = kernel.pack(self.states["later"])
        task = self.task
        outputs = [
            jnp.zeros_like(given),
            jnp.zeros((STATES, task.observation_size), jnp.float32),
            jnp.zeros((STATES, 1), jnp.float32),
            jnp.zeros((STATES, 1), jnp.int32),
            jnp.zeros((STATES, task.step_descriptor_size), jnp.int32),
        ]
        arrays = jax.block_until_ready([given, action, *outputs])
        values = [ctypes.c_uint64(array.unsafe_buffer_pointer()) for array in arrays]
        values.append(ctypes.c_uint64(STATES))
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = -(-STATES // THREADS_OF_A_BLOCK)
        sizes = [ctypes.c_uint(size) for size in (blocks, 1, 1, THREADS_OF_A_BLOCK, 1, 1, 0)]
        handle, before = ctypes.c_void_p(kernel.function.handle), ctypes.c_void_p()
        driver._do("cuCtxPushCurrent_v2", ctypes.c_void_p(driver.context))
        try:
            driver._do("cuLaunchKernel", handle, *sizes, None, pointers, None)
            driver._do("cuCtxSynchronize")
        finally:
            driver._do("cuCtxPopCurrent_v2", ctypes.byref(before))
        return same_bits(
            [np.asarray(array) for array in outputs], self.on_the_cpu(self.states["later"], action)
        )

    def one_step(self) -> dict[str, Any]:
        import jax

        from elites.evaluation.kernels import make_kernel
        from elites.native.cuda import find_jax_driver

        faster = make_kernel(self.task, find_jax_driver())
        step, step_faster, found = jax.jit(self.kernel), jax.jit(faster), {}
        for name, states in self.states.items():
            action = self.actions(1, 2)[0]
            ours = [np.asarray(array) for array in step(self.kernel.pack(states), action)]
            theirs = self.under_xla(states, action)
            found[name] = {
                "cpu": same_bits(ours, self.on_the_cpu(states, action)),
                "brax": compared(ours, theirs),
                "brax_faster": compared(step_faster(faster.pack(states), action), theirs),
            }
        return found

    def many_steps(self) -> dict[str, Any]:
        import jax

        step, theirs = jax.jit(self.kernel), self.states["begun"]
        found: dict[str, Any] = {}
        ours = self.kernel.pack(theirs)
        for k, action in enumerate(self.actions(100, 3), 1):
            ours, *results = step(ours, action)
            theirs, *others = self.under_xla(theirs, action)
            if k in (1, 10, 30, 100):
                found[f"{k}"] = compared([ours, *results], [theirs, *others])
        return found

    def physics(self) -> dict[str, Any]:
        import jax
        import jax.numpy as jnp

        from elites.evaluation.kernels import make_kernel_functions

        @functools.cache
        def begun(count: int) -> Any:  # the same for all kernels of a robot
            reset = jax.jit(make_kernel_functions(self.unterminated).reset)
            return reset(jnp.arange(count, dtype=jnp.uint32))[0]

        def all_steps(functions: Any, count: int) -> Callable[[], Any]:
            states, action = begun(count), self.actions(1, 4, count)[0]

            @jax.jit
            def run(states: Any) -> Any:
                def one(states: Any, _: None) -> tuple[Any, jax.Array]:
                    after = functions.step(states, action)
                    return after.state, after.reward.sum()

                return jax.lax.scan(one, states, length=STEPS)[1].sum()

            return lambda: run(states)

        found: dict[str, Any] = {}
        for threads in THREADS:
            functions = make_kernel_functions(self.unterminated, threads=threads)
            found[f"{threads}"] = {count: milliseconds(all_steps(functions, count)) for count in COUNTS}
        functions = make_kernel_functions(self.unterminated, exact=True)
        found["32_exact"] = {count: milliseconds(all_steps(functions, count)) for count in COUNTS}
        return found

    def episodes(self) -> dict[str, Any]:
        from elites.evaluation.kernels import make_kernel_functions

        return self.all_episodes(make_kernel_functions(self.unterminated))

    def episodes_xla(self) -> dict[str, Any]:
        return self.all_episodes(None)

    def all_episodes(self, functions: Any) -> dict[str, Any]:
        import jax
        import jax.numpy as jnp

        from elites.evaluation.device import rollout
        from elites.policies import Policy

        policy, found = Policy.for_task(self.unterminated, (128, 128)), {}
        run = jax.jit(
            functools.partial(rollout, self.unterminated, policy, transitions=True, functions=functions)
        )
        for count in COUNTS:
            parameters = jax.vmap(policy.init)(jax.random.split(jax.random.key(0), count))
            seeds = jnp.arange(count, dtype=jnp.uint32)
            made = run(parameters, seeds)
            found[f"{count}"] = {
                "ms": milliseconds(functools.partial(run, parameters, seeds)),
                "fitness": float(made.fitness.mean()),
                "length": float(made.length.mean()),
            }
        return found


def milliseconds(call: Callable[[], Any], repetitions: int = 4) -> float:
    """The best time of several calls, after one that compiles."""
    import jax

    jax.block_until_ready(call())
    best = float("inf")
    for _ in range(repetitions):
        started = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - started)
    return round(1000 * best, 2)


def same_bits(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> dict[str, Any]:
    """The share of equal numbers in each result, NaN being equal to NaN, and the largest difference."""
    found: dict[str, Any] = {"equal": [], "difference": []}
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if k > 0 and other.dtype.kind != "f":
            mine, other = (array.astype(np.int32) for array in (mine, other))
        equal = mine.view(np.uint32) == other.view(np.uint32)
        numbers, others = mine.view(np.float32), other.view(np.float32)
        found["equal"].append(float((equal | (np.isnan(numbers) & np.isnan(others))).mean()))
        if k in (1, 2):
            found["difference"].append(float(np.abs(numbers - others).max()))
    return found


def compared(ours: Sequence[Any], theirs: Sequence[Any]) -> dict[str, Any]:
    """Compares observations (relative to their largest value), rewards, ends and contacts with Brax's."""
    observation, other = np.asarray(ours[1]), np.asarray(theirs[1])
    size = np.maximum(1, np.abs(other).max(1, keepdims=True))
    worst = np.abs((observation - other) / size).max(1)
    return {
        "observation": {f"{q}": float(np.quantile(worst, q)) for q in (0.5, 0.9, 0.99, 1.0)},
        "beyond_1e-4": float((~(worst <= 1e-4)).mean()),
        "reward": float(np.abs(np.asarray(ours[2])[:, 0] - np.asarray(theirs[2])).max()),
        "ends_differ": int(((np.asarray(ours[3])[:, 0] != 0) != np.asarray(theirs[3])).sum()),
        "contacts_differ": int((np.asarray(ours[4]) != np.asarray(theirs[4])).any(1).sum()),
    }


if __name__ == "__main__":
    main()
