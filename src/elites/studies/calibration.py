"""The cost of a run: sizes follow from its configuration, times are measured on this machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from elites.errors import ElitesError
from elites.policies.layout import HIDDEN

ROLLOUT_SECONDS = 1.0  # of episodes, to measure their pace
CONTROLLERS = 50
LEARNING_SECONDS = 10.0  # at most, of the episodes while the rest of a generation is measured
MIN_EPISODE_LENGTH = 5  # steps of the episodes that are shortened for that
ZERO_SIZES = dict.fromkeys(
    (
        *("elites", "generations", "archive_bytes", "log_bytes"),
        *("corrected_bytes", "checkpoint_bytes", "episode_length", "needs"),
    ),
    0,
)  # for a task and algorithm whose runs cannot be made
LOG_BYTES = 950  # of a row of all logs together
RECORD_BYTES = 30_000  # of a run's record and the headers of its files
UNREACHED_EVALUATIONS = 1_000_000  # evaluations that no measurement reaches


def measure(request: dict[str, Any], log: Callable[[str], None]) -> dict[str, Any]:
    """Sizes of the runs of each task and algorithm and, if requested, their pace.

    The result has the fields of `plan.Measurements`, with a list for `by_combination`.
    """
    import jax

    from elites.cache import keep_compiled_programs
    from elites.evaluation.physics import choose_physics
    from elites.experiments.config import RunConfig
    from elites.experiments.replications import estimate_bytes
    from elites.memory import available_bytes
    from elites.tasks.function import FunctionTask

    keep_compiled_programs()
    configs = [RunConfig(**config) for config in request["configs"]]
    rollouts: dict[str, dict[str, float]] = {}
    learning: dict[str, dict[str, float]] = {}
    combinations: list[dict[str, Any]] = []
    for given, seeds in zip(configs, request["seeds"], strict=True):
        combinations.append(dict(ZERO_SIZES))
        try:
            together = seeds if given.shares_program else 1
            physics, _ = choose_physics(given.make_task(), given.physics, together)
            config = dataclasses.replace(given, physics=physics)
            algorithm = config.make_algorithm()
            needs = estimate_bytes(algorithm, config.physics, together)
            combinations[-1] |= {**_estimate_sizes(config, algorithm), "needs": needs}
            if not request["calibrate"]:
                continue
            grouped = algorithm.task.is_jax and config.shares_program
            if grouped or isinstance(algorithm.task, FunctionTask):
                log(f"measuring {config.algorithm} on {config.task_name}")
                combinations[-1]["pace"] = _measure_group_pace(config, seeds if grouped else 1)
                continue
            task = _make_key(config.task_name, config.task_parameters)
            if task not in rollouts:
                log(f"measuring episodes of {config.task_name}")
                rollouts[task] = _measure_rollouts(config)
            name = _make_key(config.algorithm, config.hyper_parameters)
            if name not in learning:
                log(f"measuring a generation of {config.algorithm}")
                learning[name] = _measure_learning(config, rollouts[task])
            combinations[-1]["pace"] = {**rollouts[task], **learning[name]}
        except ElitesError as error:  # only the runs of this combination will fail
            log(f"{given.algorithm} on {given.task_name}: {error}")
    return {
        "by_combination": combinations,
        "platform": jax.local_devices()[0].platform,
        "available": available_bytes(),
    }


def _make_key(name: str, parameters: dict[str, Any]) -> str:
    return repr((name, sorted(parameters.items())))


def _estimate_sizes(config: Any, algorithm: Any) -> dict[str, Any]:
    """Upper bounds for the sizes of its files: a full archive, and checkpoints as large as the state."""
    import jax

    from elites.results.checkpoints import KEPT
    from elites.results.lineage import RECORD

    task = algorithm.task
    rounds = [round.policies * round.episodes for round in algorithm.generation]
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    state_bytes = sum(int(leaf.size * leaf.dtype.itemsize) for leaf in jax.tree.leaves(state))
    parameters, count = algorithm.genome.parameter_count, len(algorithm.cells.centroids)
    most = min(count, config.evaluations)  # elites: not more than evaluations
    archive = 4 * (most * (parameters + task.descriptor_size + 16) + count * task.descriptor_size)
    depth = algorithm.members_per_cell if config.keeps_members else 0
    generations = -(-config.evaluations // sum(rounds))
    return {
        "elites": most,
        "generations": generations,
        "archive_bytes": archive + min(depth * count, config.evaluations * (depth > 0)) * 4 * parameters,
        "log_bytes": -(-generations // config.log_every) * LOG_BYTES
        + config.evaluations * RECORD.itemsize  # as if all offspring entered the archive
        + RECORD_BYTES,
        "corrected_bytes": most * 4 * config.correct_replications * (1 + task.descriptor_size),
        "state_bytes": state_bytes,
        "checkpoint_bytes": (KEPT + 1) * state_bytes + archive,  # while another of each is written
        "episode_length": task.episode_length,
    }


def _measure_rollouts(config: Any) -> dict[str, float]:
    """Steps per second of random controllers on all cores, and the length of their episodes."""
    import jax

    from elites.evaluation import make_evaluator
    from elites.policies import Policy

    task = config.make_task()
    keys = jax.random.split(jax.random.key(0), CONTROLLERS)
    parameters = np.asarray(jax.jit(jax.vmap(Policy.for_task(task).init))(keys))
    with make_evaluator(task, HIDDEN, None, physics=config.physics) as evaluator:
        evaluator.evaluate(parameters[:2], np.arange(2))  # compiles
        steps, episodes, started = 0, 0, time.perf_counter()
        while (seconds := time.perf_counter() - started) < ROLLOUT_SECONDS:
            evaluation = evaluator.evaluate(parameters, episodes + np.arange(CONTROLLERS))
            steps, episodes = steps + int(evaluation.length.sum()), episodes + CONTROLLERS
        seconds = time.perf_counter() - started
    return {"steps_per_s": steps / seconds, "random_length": steps / episodes}


def _measure_learning(config: Any, pace: dict[str, float]) -> dict[str, float]:
    """Seconds of a generation without its episodes, and seconds before the first generation.

    Long episodes are shortened, because `_measure_rollouts` measures them separately.
    """
    from elites.experiments.run import make_replications

    short = dataclasses.replace(_with_short_opening(config), evaluations=UNREACHED_EVALUATIONS)
    length = _choose_episode_length(short.make_algorithm(), pace["steps_per_s"])
    if length is not None:
        parameters = {**short.task_parameters, "episode_length": length}
        short = dataclasses.replace(short, task_parameters=parameters)
    started = time.perf_counter()
    with make_replications([short]) as current:
        for _ in (*current.algorithm.opening, current.algorithm.generation):
            current.advance(UNREACHED_EVALUATIONS)
        until_first = time.perf_counter() - started
        (generation,) = current.advance(UNREACHED_EVALUATIONS)
    timings = generation.timings
    return {"learning_s": timings["ask_s"] + timings["tell_s"], "start_s": until_first}


def _with_short_opening(config: Any) -> Any:
    """The configuration with the shortest opening: later generations take the same time."""
    smaller = config.make_algorithm().config.shortest_opening()
    return dataclasses.replace(config, hyper_parameters={**config.hyper_parameters, **smaller})


def _choose_episode_length(algorithm: Any, steps_per_s: float) -> int | None:
    """The length to which episodes are shortened; None if they do not have to or cannot be."""
    task = algorithm.task
    rounds = [*(round for rounds in algorithm.opening for round in rounds), *2 * algorithm.generation]
    episodes = sum(round.policies * round.episodes for round in rounds)
    length = max(MIN_EPISODE_LENGTH, int(LEARNING_SECONDS * steps_per_s / episodes))
    return length if length < task.episode_length and "episode_length" not in task.fixed else None


def _measure_group_pace(config: Any, seeds: int) -> dict[str, float]:
    """The pace of a group: seconds per generation, or those of episodes and the rest."""
    from elites.experiments.generation import count_evaluations
    from elites.experiments.run import make_replications

    short = dataclasses.replace(_with_short_opening(config), evaluations=UNREACHED_EVALUATIONS)
    configs = [dataclasses.replace(short, seed=config.seed + index) for index in range(seeds)]
    started = time.perf_counter()
    with make_replications(configs) as current:
        for _ in range(len(current.algorithm.opening) + 1):
            current.advance(current.evaluations + 1)
        until_first = time.perf_counter() - started
        (generation, *_) = current.advance(current.evaluations + 1)
    timings = generation.timings
    if "device_s" in timings:
        return {"generation_s": timings["device_s"], "start_s": until_first}
    steps = timings["steps_per_s"] * timings["rollouts_s"]
    rounds = current.functions.find_rounds(current.generation - 1)
    return {
        "learning_s": timings["ask_s"] + timings["tell_s"],
        "steps_per_s": timings["steps_per_s"],
        "random_length": steps / (seeds * count_evaluations(rounds)),
        "start_s": until_first,
    }
