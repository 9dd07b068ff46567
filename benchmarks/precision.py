"""Training in float32 and with bfloat16 matrix products: speed and, with --learning, final archives.

    python benchmarks/precision.py [--quick]
    python benchmarks/precision.py --learning [--task brax-hopper] [--seeds 10] [--evaluations 20000]

It times matrix products with both gradients in the shapes of training, and the training in a PGA-MAP-Elites
generation with the paper's sizes on walker2d. The two precisions alternate. --learning runs both with the
same seeds, each as one group, and compares the final archives. --quick: fewer training steps, under 40 s, and
tiny runs of --learning. The last line is one JSON object; `ratio` is the speed with bfloat16 relative to
float32.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

PRECISIONS = ("float32", "bfloat16")
METRICS = ("qd_score", "max_fitness")
LOOPS = 5
SHAPES = {  # number of products, then inputs [m, k] and weights [k, n]
    "pair of critics": (2, 256, 256, 256),
    "49 actors": (49, 256, 128, 128),
    "critic of 49 actors": (1, 49 * 256, 256, 256),
}
TINY: dict[str, Any] = {
    "initial": 20, "batch": 20, "hidden": (16,), "critic_hidden": (32,), "training_batch": 32,
    "buffer_size": 5000, "critic_steps": 10, "pg_steps": 5,
}  # fmt: skip


def in_turns(functions: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """Median time of each in seconds, without the first call, which compiles."""
    import jax

    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repetitions + 1):
        for name, function in functions.items():
            started = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - started)
    return {name: median(spent[1:]) for name, spent in seconds.items()}


def products(repetitions: int) -> dict[str, dict[str, float]]:
    """GFLOP/s of a product and its two gradients, one after the other as in training."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from elites.learning.products import PRODUCTS

    def work(precision: Any, *operands: jax.Array) -> Callable[[], Any]:
        def product_and_gradients(_: Any, operands: Any) -> Any:
            inputs, weights, slope = (jnp.clip(operand, -1, 1) for operand in operands)
            product, pull = jax.vjp(jax.vmap(PRODUCTS[precision]), inputs, weights)
            return *pull(slope), product

        compiled = jax.jit(lambda *operands: jax.lax.fori_loop(0, LOOPS, product_and_gradients, operands))
        return lambda: compiled(*operands)

    random, rates = np.random.default_rng(0), {}
    for name, (count, m, k, n) in SHAPES.items():
        sizes = ((count, m, k), (count, k, n), (count, m, n))
        operands = [jnp.asarray(random.standard_normal(size, np.float32)) for size in sizes]
        seconds = in_turns({precision: work(precision, *operands) for precision in PRECISIONS}, repetitions)
        operations = LOOPS * 6 * count * m * k * n
        rates[name] = {precision: 1e-9 * operations / spent for precision, spent in seconds.items()}
    return rates


def training(repetitions: int, *, quick: bool) -> dict[str, dict[str, float]]:
    """Seconds of the training of critics, of the policy gradients and of the whole `ask` of a generation."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from elites.algorithms import make_algorithm
    from elites.learning import critics
    from elites.tasks import make_task

    task, key, random = make_task("brax-walker2d"), jax.random.key(0), np.random.default_rng(0)
    sizes = {"critic_steps": 30, "pg_steps": 5} if quick else {}
    algorithms = {
        precision: make_algorithm("pga-map-elites", task, training_precision=precision, **sizes)
        for precision in PRECISIONS
    }
    algorithm = algorithms["float32"]
    # As late in a run: the buffer is full, all cells are filled.
    state = jax.jit(algorithm.init)(key)
    buffer = state.learning.buffer
    rows = jnp.array(random.standard_normal(buffer.rows.shape, np.float32))
    buffer = buffer._replace(rows=rows, size=jnp.int32(algorithm.config.buffer_size))
    elites = state.archive.elites
    controllers = jax.vmap(algorithm.policy.init)(jax.random.split(key, len(elites.fitness)))
    elites = elites._replace(parameters=controllers, fitness=jnp.zeros(len(elites.fitness)))
    state = state._replace(
        archive=state.archive._replace(elites=elites), learning=state.learning._replace(buffer=buffer)
    )

    def parts(algorithm: Any) -> dict[str, Callable[[Any], Any]]:
        config, policy = algorithm.config, algorithm.policy

        def train(state: Any) -> Any:
            td3, buffer = state.learning.td3, state.learning.buffer
            return critics.train(td3, config, policy, buffer, key, config.critic_steps)

        def policy_gradient(state: Any) -> Any:
            parents, critic = (
                state.archive.elites.parameters[:49],
                critics.first_critic(state.learning.td3.critics),
            )
            return algorithm.pg.vary(key, parents, critic, state.learning.buffer)

        def ask(state: Any) -> Any:
            after, batch = algorithm.ask(state, key, algorithm.generation[0])
            return after.learning.td3, batch

        return {"ask": ask} if quick else {"critics": train, "policy gradients": policy_gradient, "ask": ask}

    works = {precision: parts(algorithm) for precision, algorithm in algorithms.items()}
    return {
        part: in_turns(
            {
                precision: functools.partial(jax.jit(works[precision][part]), state)
                for precision in PRECISIONS
            },
            repetitions,
        )
        for part in works["float32"]
    }


def learning(task: str, seeds: int, evaluations: int, home: Path, *, quick: bool) -> dict[str, Any]:
    """Final metrics of both precisions over seeds, and their differences."""
    import elites
    from elites.metrics.statistics import quartiles, rank_sum_p, superiority

    runs = {}
    for precision in PRECISIONS:
        config = elites.RunConfig(
            algorithm="pga-map-elites",
            task=task,
            evaluations=evaluations,
            hyper_parameters={**(TINY if quick else {}), "training_precision": precision},
            task_parameters={"episode_length": 20} if quick else {},
        )
        started = time.perf_counter()
        runs[precision] = elites.run(config, home / precision, seeds=seeds).runs
        print(f"{precision}: {time.perf_counter() - started:.1f} s", flush=True)
    print(f"\n{task}, {seeds} seeds of {evaluations} evaluations, median (quartiles)\n")
    print("| | " + " | ".join(PRECISIONS) + " | p | superiority of bfloat16 |\n|---|---|---|---|---|")
    found = {}
    for metric in METRICS:
        values = [[run.metrics[metric] for run in runs[precision]] for precision in PRECISIONS]
        middle = dict(zip(PRECISIONS, map(quartiles, values), strict=True))
        p, above = rank_sum_p(*values), superiority(values[1], values[0])
        cells = [f"{centre:.5g} ({low:.5g} to {high:.5g})" for centre, low, high in middle.values()]
        cells += [f"{p:.3f}", f"{above.estimate:.2f} ({above.low:.2f} to {above.high:.2f})"]
        print(f"| {metric} | {' | '.join(cells)} |")
        found[metric] = {**middle, "p": p, "superiority": above.estimate}
    return {"task": task, "seeds": seeds, "evaluations": evaluations, **found}


def rounded(figures: Any) -> Any:
    """All numbers with four digits."""
    if isinstance(figures, dict):
        return {name: rounded(figure) for name, figure in figures.items()}
    if isinstance(figures, tuple):
        return [rounded(figure) for figure in figures]
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer steps, under 40 s")
    parser.add_argument("--learning", action="store_true", help="compare what is learnt, too")
    parser.add_argument("--task", default="brax-hopper")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="folder of the runs of --learning; the default is not kept")
    options = parser.parse_args()

    import jax

    repetitions = 3 if options.quick else 5
    rates, seconds = products(2 * repetitions), training(repetitions, quick=options.quick)
    ratio = {name: both["bfloat16"] / both["float32"] for name, both in rates.items()}
    ratio |= {name: both["float32"] / both["bfloat16"] for name, both in seconds.items()}
    device, cores = jax.devices()[0].device_kind, len(os.sched_getaffinity(0))
    print(f"{device}, {cores} cores, JAX {jax.__version__}\n")
    for title, table in (("GFLOP/s of products", rates), ("seconds", seconds)):
        print(f"| {title} | " + " | ".join(PRECISIONS) + " | ratio |\n|---|---|---|---|")
        for name, both in table.items():
            cells = [f"{both[precision]:.4g}" for precision in PRECISIONS]
            print(f"| {name} | {' | '.join(cells)} | {ratio[name]:.2f} |")
        print(flush=True)
    figures: dict[str, Any] = {"device": device, "cores": cores, "gflops": rates, "seconds": seconds}
    figures["ratio"] = ratio
    if options.learning:
        with tempfile.TemporaryDirectory() as scratch:
            figures["learning"] = learning(
                options.task,
                options.seeds,
                options.evaluations,
                options.out or Path(scratch),
                quick=options.quick,
            )
    print(json.dumps(rounded(figures)))


if __name__ == "__main__":
    main()
