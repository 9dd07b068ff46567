"""Elites: collections of diverse, high-performing, reproducible neural-network controllers.

    import elites

    task = elites.make_task("qd-walker")
    policy = elites.Policy.of(task)
    with elites.ThreadEvaluator(task, threads=2) as evaluator:
        evaluation = evaluator.evaluate(parameters, seeds)

Names are imported when first used, so that `import elites` itself takes no time.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elites.errors import ElitesError
    from elites.evaluation.evaluation import Ending, Evaluation, Evaluator, Transitions
    from elites.evaluation.threads import ThreadEvaluator
    from elites.policies import Policy
    from elites.tasks import TASKS, make_task
    from elites.tasks.qdgym import QDGymTask
    from elites.tasks.task import Task

__all__ = [
    "TASKS",
    "ElitesError",
    "Ending",
    "Evaluation",
    "Evaluator",
    "Policy",
    "QDGymTask",
    "Task",
    "ThreadEvaluator",
    "Transitions",
    "make_task",
]

_HOME = {
    "ElitesError": "elites.errors",
    "Ending": "elites.evaluation.evaluation",
    "Evaluation": "elites.evaluation.evaluation",
    "Evaluator": "elites.evaluation.evaluation",
    "Policy": "elites.policies",
    "QDGymTask": "elites.tasks.qdgym",
    "TASKS": "elites.tasks",
    "Task": "elites.tasks.task",
    "ThreadEvaluator": "elites.evaluation.threads",
    "Transitions": "elites.evaluation.evaluation",
    "make_task": "elites.tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'elites' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


if find_spec("gymnasium") is not None:
    from elites.tasks.qdgym import register_environments

    register_environments()
