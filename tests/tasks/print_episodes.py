"""Prints what episodes of the QDGym tasks give, to the bit, for comparisons between installations."""

import numpy as np

from elites import ThreadEvaluator, make_task
from elites.policies import parameter_count
from elites.tasks.qdgym.library import require_bullet

CONTROLLERS = 10

if __name__ == "__main__":
    require_bullet()
    for robot in ("walker", "halfcheetah", "ant", "hopper"):
        task = make_task(f"qd-{robot}", episode_length=200)
        size = parameter_count(task.controller_sizes())
        parameters = 0.2 * np.random.default_rng(7).standard_normal((CONTROLLERS, size), np.float32)
        with ThreadEvaluator(task, threads=2) as evaluator:
            evaluation = evaluator.evaluate(parameters, np.arange(CONTROLLERS))
        for fitness, descriptor in zip(evaluation.fitness, evaluation.descriptor, strict=True):
            print(robot, float(fitness).hex(), *(float(touch).hex() for touch in descriptor))
