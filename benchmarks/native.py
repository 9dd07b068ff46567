"""Brax's robots in native code and under XLA: whole episodes of controllers with 128-128 hidden units.

    python benchmarks/native.py [--robots hopper walker2d] [--variants] [--quick]

No episode ends before its last step, so all computed steps count. XLA uses all cores. The last
line is one JSON object: `steps_per_s` by robot under XLA and in native code on one thread and on two, the
`ratio` of two threads to XLA, the `shares` of physics, policy and the rest in the time of one thread, and the
`seconds` until a first episode has ended, with code that is compiled (`first`) and from the cache (`cached`).
Their `parts` are tracing by JAX, scalarising, LLVM with its text, and reading and loading object code, in
processor time. With --variants, `variants` has the steps per second of one thread with other numbers of
robots side by side, and with products by zero (`whole_program`), in turns with the usual code.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any
from unittest import mock

import numpy as np

ROBOTS = ("hopper", "walker2d", "halfcheetah", "ant")
EPISODES, STEPS = 128, 250
REPETITIONS = 4  # in turns, as machines are noisy; the best counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS)
    parser.add_argument("--variants", action="store_true", help="other numbers of lanes, products by zero")
    parser.add_argument("--quick", action="store_true", help="the hopper alone, with short episodes")
    options = parser.parse_args()
    robots, steps = (("hopper",), STEPS // 2) if options.quick else (options.robots, STEPS)
    results: dict[str, dict[str, Any]] = {"steps_per_s": {}, "ratio": {}, "shares": {}, "seconds": {}}
    results |= {"variants": {}} if options.variants else {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ELITES_CACHE"] = folder
        for robot in robots:
            measured = measure(robot, steps, with_variants=options.variants)
            print(robot, measured, flush=True)
            for name, value in measured.items():
                results[name][robot] = value
    print(json.dumps(results))


def measure(robot: str, steps: int, *, with_variants: bool) -> dict[str, Any]:
    """The results of one robot."""
    import jax
    from shared.no_early_termination import NoEarlyTermination, without_early_termination

    from elites import NativeEvaluator
    from elites.evaluation.device import DeviceEvaluator

    task = without_early_termination(robot, episode_length=steps)
    jax.eval_shape(task.reset, jax.ShapeDtypeStruct((), np.uint32))  # imports Brax
    xla = DeviceEvaluator(task)
    keys = jax.random.split(jax.random.key(0), EPISODES)
    parameters, seeds = np.asarray(jax.vmap(xla.policy.init)(keys)), np.arange(EPISODES)

    class UncachedTask(NoEarlyTermination):  # type: ignore[misc]
        """The same robot, as in a process that has not compiled it: code comes from the cache on disk."""

    def prepared(threads: int, task: NoEarlyTermination) -> tuple[NativeEvaluator, float, dict[str, float]]:
        started = time.perf_counter()
        with parts_of_a_start() as parts:
            evaluator = NativeEvaluator(task, threads=threads)
            evaluator.evaluate(parameters[:1], seeds[:1])
        total = time.perf_counter() - started
        return evaluator, total, {name: round(seconds, 3) for name, seconds in parts.items()}

    one, first, first_parts = prepared(1, task)
    two, again, again_parts = prepared(
        2, UncachedTask(**{field.name: getattr(task, field.name) for field in fields(task)})
    )
    evaluators: dict[str, Any] = {"xla": xla, "native_1": one, "native_2": two}
    calls = {
        name: functools.partial(evaluator.evaluate, parameters, seeds)
        for name, evaluator in evaluators.items()
    }
    computed = {name: int(call().length.sum()) for name, call in calls.items()}  # the first call may compile
    seconds = best(calls)
    rates = {name: round(computed[name] / seconds[name]) for name in calls}
    others = {"variants": variants(task, calls["native_1"], parameters, seeds)} if with_variants else {}
    return {
        **others,
        "steps_per_s": rates,
        "ratio": round(rates["native_2"] / rates["xla"], 1),
        "shares": shares(one, calls["native_1"]),
        "seconds": {
            "first": round(first, 2),
            "cached": round(again, 2),
            "parts": {"first": first_parts, "cached": again_parts},
        },
    }


def variants(
    task: Any, usual: Callable[[], Any], parameters: np.ndarray, seeds: np.ndarray
) -> dict[str, int]:
    """Steps per second of one thread, for variants of the machine code."""
    from elites import NativeEvaluator
    from elites.native import compiled

    class WholeProgramTask(type(task)):  # type: ignore[misc]
        """The same robot: another name for what a process keeps."""

    evaluators: dict[str, Any] = {
        f"{lanes}_lanes": NativeEvaluator(task, threads=1, lanes=lanes) for lanes in (4, 8, 16, 32)
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, ELITES_CACHE=folder),
        mock.patch.object(compiled, "shorten_program", return_value=None),
    ):
        same = {field.name: getattr(task, field.name) for field in fields(task)}
        evaluators["whole_program"] = NativeEvaluator(WholeProgramTask(**same), threads=1)
    calls: dict[str, Callable[[], Any]] = {
        "usual": usual,
        **{
            name: functools.partial(evaluator.evaluate, parameters, seeds)
            for name, evaluator in evaluators.items()
        },
    }
    steps = int(usual().length.sum())
    return {name: round(steps / seconds) for name, seconds in best(calls).items()}


@contextmanager
def parts_of_a_start() -> Iterator[dict[str, float]]:
    """The seconds of processor time of the parts of compiling, while it is entered."""
    import jax

    from elites.native import compiled, perceptron

    functions: dict[str, list[tuple[Any, str]]] = {
        "tracing": [(jax, "eval_shape"), (compiled, "trace_jaxpr")],
        "scalarising": [(compiled, "from_jaxpr")],
        "llvm": [(compiled, "emit"), (compiled, "compile_ir"), (perceptron, "compile_ir")],
        "loading": [(compiled, "_cached"), (compiled, "LoadedCode"), (perceptron, "LoadedCode")],
    }
    seconds = dict.fromkeys(functions, 0.0)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                seconds[part] += time.process_time() - started

        return call

    with ExitStack() as patches:
        for part, places in functions.items():
            for module, name in places:
                patches.enter_context(mock.patch.object(module, name, timed(part, getattr(module, name))))
        yield seconds


def best(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """The best times of alternating calls, in seconds."""
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(REPETITIONS):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    return seconds


def shares(evaluator: Any, evaluate: Callable[[], Any]) -> dict[str, float]:
    """The share of time that is saved if the physics, or the policy, does nothing, and the rest."""
    from elites.native.compiled import LoadedCode, compile_ir

    nothing = LoadedCode(compile_ir("define void @nothing() {\n  ret void\n}"), "nothing")
    code = evaluator._code(False)

    def without(**parts: int) -> None:
        evaluator._code = lambda _: code._replace(**parts)
        evaluate()

    seconds = best(
        {
            "whole": without,
            "physics": functools.partial(without, step=nothing.address),
            "policy": functools.partial(without, perceptron=nothing.address),
        }
    )
    gone = {name: 1 - seconds[name] / seconds["whole"] for name in ("physics", "policy")}
    return {name: round(share, 2) for name, share in {**gone, "rest": 1 - sum(gone.values())}.items()}


if __name__ == "__main__":
    main()
