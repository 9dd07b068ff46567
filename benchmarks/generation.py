"""The times of the parts of a PGA-MAP-Elites generation: the paper's sizes, `qd-walker`, all cores.

    python benchmarks/generation.py [--quick]

Parts are compiled and timed separately; results are medians over repetitions. Then, except with --quick, a
child process runs the first seven generations of a real run, with an empty cache and with a warm one, to
measure start-up and memory. The last line is one JSON object of all results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from shared.timing import timed

STARTED = time.time()


def parts(repetitions: int) -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from elites import PGAMAPElites, QDGymTask, ThreadEvaluator, make_task
    from elites.algorithms.base import make_solutions
    from elites.archives.archive import insert
    from elites.learning import critics, replay_buffer
    from elites.results.checkpoints import Checkpoints, RunIdentity
    from elites.results.schemas import RunRecord
    from elites.tasks.episode import Ending
    from elites.variation import policy_gradient

    task = make_task("qd-walker")
    assert isinstance(task, QDGymTask)
    algorithm = PGAMAPElites(task)
    config, policy, key = algorithm.config, algorithm.policy, jax.random.key(0)
    state = jax.jit(algorithm.init)(key)
    _, batch = algorithm.ask(state, key, algorithm.opening[0][0])
    assert state.learning is not None

    with ThreadEvaluator(task) as evaluator:
        parameters = np.asarray(batch.parameters)
        rollouts_s = timed(lambda: evaluator.evaluate(parameters, range(100), transitions=True), repetitions)
        evaluation = evaluator.evaluate(parameters, range(100), transitions=True)
    # As late in a run: episodes have full length, the buffer is full, all cells are filled.
    full = evaluation._replace(
        length=np.full(100, task.episode_length, np.int32), ending=np.full(100, Ending.TRUNCATED, np.uint8)
    )
    random = np.random.default_rng(0)
    buffer = replay_buffer.ReplayBuffer(
        jnp.array(random.normal(size=state.learning.buffer.rows.shape).astype(np.float32)),
        jnp.int32(0),
        jnp.int32(config.buffer_size),
    )
    elites = state.archive.elites
    archive = state.archive._replace(
        elites=elites._replace(
            parameters=jnp.array(parameters[random.integers(0, 100, len(elites.fitness))]),
            fitness=jnp.zeros(len(elites.fitness)),
        )
    )
    td3 = state.learning.td3
    steps = max(2, repetitions // 4)
    train = jax.jit(lambda: critics.train(td3, config, policy, buffer, key, config.critic_steps))
    train_s = timed(train, steps)
    in_groups = jax.jit(
        lambda parents: algorithm.pg.vary(key, parents, critics.first_critic(td3.critics), buffer)
    )
    parents = archive.elites.parameters[:49]
    policy_gradient_s = timed(lambda: in_groups(parents), steps)
    groups, policy_gradient.GROUPS = policy_gradient.GROUPS, (len(parents),)
    at_once = jax.jit(
        lambda parents: algorithm.pg.vary(key, parents, critics.first_critic(td3.critics), buffer)
    )
    policy_gradient_at_once_s = timed(lambda: at_once(parents), steps)
    policy_gradient.GROUPS = groups
    vary = jax.jit(lambda key: algorithm.ga(archive, key, 50))
    ga_ms = 1e3 * timed(lambda: vary(key), repetitions)

    current: dict[str, Any] = {"archive": archive, "buffer": buffer}
    put = jax.jit(insert, donate_argnums=0)
    cells = jax.jit(algorithm.cells.assign)
    offspring = make_solutions(batch, jax.tree.map(jnp.asarray, evaluation), state.progress)

    def time_insertion() -> float:  # better each time, so that offspring are added
        better = offspring._replace(fitness=offspring.fitness + current.setdefault("turn", 0))
        current["turn"] += 1000
        jax.block_until_ready(better)
        started = time.perf_counter()
        current["archive"], status = put(current["archive"], cells(offspring.descriptor), better)
        jax.block_until_ready((current["archive"], status))
        return time.perf_counter() - started

    time_insertion()
    insert_ms = 1e3 * median(time_insertion() for _ in range(5 * repetitions))
    add = jax.jit(replay_buffer.add, donate_argnums=0)

    def add_transitions() -> Any:
        current["buffer"] = add(current["buffer"], full)
        return current["buffer"]

    buffer_ms = 1e3 * timed(add_transitions, repetitions)
    whole = state._replace(
        archive=current["archive"], learning=state.learning._replace(buffer=current["buffer"])
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        header = RunIdentity([RunRecord(algorithm="pga-map-elites", task="qd-walker")]).make_header(
            generation=0, evaluations=0, environment_steps=[0], corrected=0, elapsed=0.0, logs=[{}]
        )
        checkpoint_s = timed(lambda: checkpoints.save(whole, header), 2)
    return {
        "rollouts_s": rollouts_s,
        "rollout_steps": float(evaluation.length.sum()),
        "train_s": train_s,
        "policy_gradient_s": policy_gradient_s,
        "policy_gradient_at_once_s": policy_gradient_at_once_s,
        "ga_ms": ga_ms,
        "insert_ms": insert_ms,
        "buffer_ms": buffer_ms,
        "checkpoint_s": checkpoint_s,
    }


def child(folder: str) -> None:
    """Seven generations of a real run: start-up times and peak memory."""
    import elites

    reports: list[tuple[float, dict[str, Any]]] = []
    config = elites.RunConfig(algorithm="pga-map-elites", task="qd-walker", evaluations=700)

    def note(report: elites.Report) -> None:
        reports.append((time.time(), report.timings))

    elites.run(config, folder, execution=elites.Execution(on_generation=note, keep_state=False))
    (before, _), (after, timings) = reports[-2:]
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    print(
        json.dumps(
            {
                "start_s": reports[0][0] - STARTED,
                "trained_s": reports[5][0] - STARTED,
                "other_s": after - before - timings["ask_s"] - timings["rollouts_s"],
                "resident_mib": int(line.split()[1]) / 1024,
            }
        )
    )


def real_run(cache: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [sys.executable, __file__, "--child", folder],
            env={**os.environ, "ELITES_CACHE": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(process.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, under 40 s")
    parser.add_argument("--child", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    figures = parts(4 if options.quick else 20)
    if not options.quick:
        with tempfile.TemporaryDirectory() as cache:
            cold = real_run(Path(cache))
            warm = real_run(Path(cache))
        figures |= {
            "start_cold_s": cold["start_s"],
            "start_warm_s": warm["start_s"],
            "trained_cold_s": cold["trained_s"],
            "trained_warm_s": warm["trained_s"],
            "other_s": warm["other_s"],
            "resident_mib": warm["resident_mib"],
        }
    print("| part | figure |\n|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure:.3g} |")
    print(json.dumps({name: round(figure, 4) for name, figure in figures.items()}))


if __name__ == "__main__":
    main()
