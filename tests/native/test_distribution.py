"""Native physics and XLA's give the same results in distribution: their numbers differ by rounding alone."""

import numpy as np
import pytest

from elites import Execution, NativeEvaluator, RunConfig, make_task, run
from elites.evaluation.device import DeviceEvaluator
from elites.metrics.statistics import rank_sum_p
from tests.conftest import controllers


@pytest.mark.slow
def test_whole_episodes():
    task = make_task("brax-hopper", episode_length=300)
    seeds = np.arange(50)
    with DeviceEvaluator(task) as xla, NativeEvaluator(task, threads=2) as native:
        one, other = (each.evaluate(controllers(task, 50), seeds) for each in (xla, native))
    for field in ("fitness", "length"):
        assert rank_sum_p(getattr(one, field), getattr(other, field)) > 0.1
    for dimension in range(task.descriptor_size):
        assert rank_sum_p(one.descriptor[:, dimension], other.descriptor[:, dimension]) > 0.1


@pytest.mark.slow
def test_whole_runs(tmp_path):
    outcomes = {}
    for physics in ("xla", "native"):
        config = RunConfig(
            algorithm="map-elites",
            task="brax-hopper",
            evaluations=500,
            physics=physics,
            hyper_parameters={"hidden": (16,), "initial": 100},
            task_parameters={"episode_length": 100},
        )
        group = run(config, tmp_path / physics, seeds=6, execution=Execution(log=lambda _: None))
        outcomes[physics] = [outcome.metrics for outcome in group.runs]
    for metric in ("qd_score", "max_fitness", "coverage"):
        xla, native = ([metrics[metric] for metrics in outcomes[name]] for name in ("xla", "native"))
        assert xla != native  # rounding grows in such physics
        assert rank_sum_p(xla, native) > 0.05, (metric, xla, native)
