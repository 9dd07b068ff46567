"""The plan of a study: its runs and their cost."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elites.experiments.config import RunConfig
from elites.files import format_bytes
from elites.results.folder import RunFolder
from elites.studies.remaining import is_done
from elites.studies.study import Job, Study
from elites.text import format_duration, shorten

WORKER_BYTES = 600_000_000  # memory of a worker without that of its run


class Cost(NamedTuple):
    """The cost of the remaining work."""

    runs: int
    evaluations: int
    corrections: int  # episodes, if every cell is filled
    disk: int  # bytes, at most
    seconds: tuple[float, float] | None  # with episodes as short as those of random controllers; at most


@dataclass(frozen=True)
class Measurements:
    """Sizes and paces of the runs of a study, by task and algorithm as in `make_cost_key`."""

    by_combination: dict[str, dict[str, Any]]
    platform: str  # of JAX
    available: int  # bytes of memory


def make_cost_key(config: RunConfig) -> str:
    """A key for runs that cost the same."""
    task = [config.task_name, config.task_parameters, *([config.physics] if config.physics else [])]
    return json.dumps([*task, config.algorithm, config.hyper_parameters])


def predict_cost(
    study: Path, jobs: Sequence[Job], measured: Measurements, workers: int, keep_state: bool = False
) -> Cost:
    """The remaining cost of these unfinished jobs; with the states of all runs if they are kept."""
    runs = evaluations = corrections = disk = 0
    low = high = 0.0
    all_measured = True
    checkpoints = []
    compiled: set[str] = set()
    for job in jobs:
        sizes = measured.by_combination[make_cost_key(job.configs[0])]
        corrected = sizes["elites"] * job.configs[0].correct_replications  # episodes of a correction
        left_runs = [folder for folder in job.folders if not is_done(study / folder, job)]
        done = [RunFolder(study / folder).evaluations() for folder in left_runs]
        left = sum(max(0, job.configs[0].evaluations - count) for count in done)
        again = _count_corrections(job) * len(left_runs)
        runs, evaluations = runs + len(left_runs), evaluations + left
        corrections += corrected * again
        disk += len(left_runs) * (
            sizes["archive_bytes"] * (1 + job.configs[0].snapshots) + sizes["log_bytes"]
        )
        disk += len(left_runs) * sizes["corrected_bytes"] * (again > 0)
        disk += len(left_runs) * sizes["state_bytes"] if keep_state else 0
        checkpoints.append(sizes["checkpoint_bytes"] * len(left_runs))
        pace = sizes.get("pace")
        if pace is None:
            all_measured = False
            continue
        share = left / max(1, job.configs[0].evaluations * len(left_runs))
        start = pace["start_s"]
        low += (
            start if make_cost_key(job.configs[0]) not in compiled else 0.0
        )  # later runs use the same programs
        compiled.add(make_cost_key(job.configs[0]))
        if "generation_s" in pace:
            seconds = share * sizes["generations"] * pace["generation_s"]
            episodes = seconds * corrected * again / max(1, job.configs[0].evaluations)
            low, high = low + seconds, high + start + seconds + episodes
            continue
        learning, steps = share * sizes["generations"] * pace["learning_s"], pace["steps_per_s"]
        episodes = left + corrected * again
        low += learning + episodes * pace["random_length"] / steps
        high += start + learning + episodes * sizes["episode_length"] / steps
    disk += sum(sorted(checkpoints)[-workers:])
    return Cost(runs, evaluations, corrections, disk, (low, high) if all_measured else None)


def measure_disk_use(study: Path, jobs: Sequence[Job]) -> int:
    """Bytes on disk that these jobs have written."""
    files = [file for job in jobs for file in (study / job.folder).rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())


def _count_corrections(job: Job) -> int:
    """The number of corrections of each run."""
    config = job.configs[0]
    during = -(-config.evaluations // config.correct_every) if config.correct_every else 0
    return during + (1 if job.correct and not during else 0)


def estimate_job_memory(job: Job, measured: Measurements) -> int:
    """Bytes of memory that a job's runs need together."""
    return int(measured.by_combination[make_cost_key(job.configs[0])]["needs"]) * len(job.folders)


def predict_memory(jobs: Sequence[Job], measured: Measurements, workers: int) -> int:
    """Upper bound for the bytes of `workers` jobs at once, with their workers if these share the memory."""
    worker = WORKER_BYTES if measured.platform == "cpu" else 0
    return sum(sorted(estimate_job_memory(job, measured) + worker for job in jobs)[-workers:])


def choose_worker_count(jobs: Sequence[Job], measured: Measurements) -> int:
    """One per core, fewer where memory is short; one on a GPU."""
    if measured.platform != "cpu" or not jobs:
        return 1
    needed = max(estimate_job_memory(job, measured) for job in jobs)
    fits = measured.available // (needed + WORKER_BYTES)
    return max(1, min(count_cores(), len(jobs), int(fits)))


def count_cores() -> int:
    return len(os.sched_getaffinity(0))


def describe(
    study: Study, jobs: Sequence[Job], cost: Cost, finished: int, where: str, limit: str = ""
) -> str:
    """The plan as text. `limit` is the time after which it stops."""
    total = sum(len(job.folders) for job in jobs)
    seeds = f"{study.seeds} of each" + (f" from seed {study.first_seed} on" if study.first_seed else "")
    rows = {
        "tasks": ", ".join(choice.slug() for choice in study.tasks),
        "algorithms": ", ".join(choice.slug() for choice in study.algorithms),
        "runs": f"{total:,}: {seeds}, {study.evaluations:,} evaluations a run"
        + (f"; {finished:,} are finished" if finished else ""),
        "left to do": f"{cost.runs:,} run{'s' * (cost.runs != 1)}, {cost.evaluations:,} evaluations",
        "corrections": f"up to {cost.corrections:,} episodes, {study.correct_replications} of each elite"
        if cost.corrections
        else "none",
        "disk": f"up to {format_bytes(cost.disk)}",
        "time": "not measured"
        if cost.seconds is None
        else f"{format_duration(cost.seconds[0])} with episodes as short as those of random controllers, "
        f"{format_duration(cost.seconds[1])} if no episode ends early",
        **({"stops after": limit} if limit else {}),
        "on": where,
    }
    return "\n".join(
        [f"study {shorten(study.name)}", *(f"  {name:<12} {text}" for name, text in rows.items())]
    )
