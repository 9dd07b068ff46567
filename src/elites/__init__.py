"""Elites: collections of diverse, high-performing, reproducible neural-network controllers.

    import elites

    config = elites.RunConfig(algorithm="pga-map-elites", task="qd-hopper", evaluations=5000)
    elites.run(config, "runs/first")
    archive = elites.load_archive("runs/first")
    act = archive.policy(0)  # the best elite: observation in, action out

Names are imported when first used: `import elites` itself only registers the Gymnasium environments.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elites.algorithms import ALGORITHMS, make_algorithm
    from elites.algorithms.base import Algorithm, AlgorithmConfig, Batch, RandomStream, Round
    from elites.algorithms.map_elites import MAPElites, MAPElitesConfig
    from elites.algorithms.pga_map_elites import PGAMAPElites, PGAMAPElitesConfig
    from elites.archives.archive import Status
    from elites.errors import ElitesError
    from elites.evaluation.evaluation import Evaluation, Evaluator
    from elites.evaluation.native import NativeEvaluator
    from elites.evaluation.processes import ProcessEvaluator
    from elites.evaluation.threads import ThreadEvaluator
    from elites.experiments.config import RunConfig
    from elites.experiments.correct import correct
    from elites.experiments.execution import Execution, Report
    from elites.experiments.loop import Outcome
    from elites.experiments.optimise import Optimiser, optimise
    from elites.experiments.run import resume, run
    from elites.explorer.explore import explore
    from elites.loggers.logger import LoggedRun, Logger
    from elites.metrics.metric import (
        ArchiveMetrics,
        GenerationMetric,
        Losses,
        Metric,
        compute_archive_metrics,
    )
    from elites.metrics.pyribs import from_pyribs
    from elites.paper.presets import make_study
    from elites.policies import Policy
    from elites.policies.controller import Controller
    from elites.replays.film import draw_film
    from elites.replays.replay import Replay, replay
    from elites.reports.figures import (
        draw_archive,
        draw_corrected,
        draw_parallel,
        draw_profile,
        draw_spread,
    )
    from elites.reports.notebook import plot_archive
    from elites.reports.show import show
    from elites.reports.study.report import report_study
    from elites.results.archive import Elite, SavedArchive, load_archive
    from elites.results.corrected import CorrectedArchive, load_corrected, make_corrected_archive
    from elites.results.lineage import Lineage, load_lineage
    from elites.results.tables import read_table
    from elites.studies.merge import merge_studies
    from elites.studies.resources import StudyExecution
    from elites.studies.run import run_study
    from elites.studies.study import Study
    from elites.tasks import TASKS, make_task
    from elites.tasks.episode import Ending, Transitions
    from elites.tasks.function import FunctionTask, task
    from elites.tasks.gymnasium import GymnasiumTask, gymnasium_task
    from elites.tasks.gymnasium.simulator import Episode
    from elites.tasks.mujoco import MujocoTask
    from elites.tasks.mujoco.robot import RobotTask, mujoco_task
    from elites.tasks.mujoco.robot_state import RobotState
    from elites.tasks.qdgym import QDGymTask
    from elites.tasks.task import DeviceTask, StepResult, Task

_HOME = {
    "ALGORITHMS": "elites.algorithms",
    "Algorithm": "elites.algorithms.base",
    "AlgorithmConfig": "elites.algorithms.base",
    "ArchiveMetrics": "elites.metrics.metric",
    "Batch": "elites.algorithms.base",
    "Controller": "elites.policies.controller",
    "CorrectedArchive": "elites.results.corrected",
    "DeviceTask": "elites.tasks.task",
    "Elite": "elites.results.archive",
    "ElitesError": "elites.errors",
    "Ending": "elites.tasks.episode",
    "Episode": "elites.tasks.gymnasium.simulator",
    "Evaluation": "elites.evaluation.evaluation",
    "Evaluator": "elites.evaluation.evaluation",
    "Execution": "elites.experiments.execution",
    "FunctionTask": "elites.tasks.function",
    "GenerationMetric": "elites.metrics.metric",
    "GymnasiumTask": "elites.tasks.gymnasium",
    "Lineage": "elites.results.lineage",
    "LoggedRun": "elites.loggers.logger",
    "Logger": "elites.loggers.logger",
    "Losses": "elites.metrics.metric",
    "MAPElites": "elites.algorithms.map_elites",
    "MAPElitesConfig": "elites.algorithms.map_elites",
    "Metric": "elites.metrics.metric",
    "RobotState": "elites.tasks.mujoco.robot_state",
    "MujocoTask": "elites.tasks.mujoco",
    "NativeEvaluator": "elites.evaluation.native",
    "Optimiser": "elites.experiments.optimise",
    "Outcome": "elites.experiments.loop",
    "PGAMAPElites": "elites.algorithms.pga_map_elites",
    "PGAMAPElitesConfig": "elites.algorithms.pga_map_elites",
    "Policy": "elites.policies",
    "ProcessEvaluator": "elites.evaluation.processes",
    "QDGymTask": "elites.tasks.qdgym",
    "RandomStream": "elites.algorithms.base",
    "Replay": "elites.replays.replay",
    "Report": "elites.experiments.execution",
    "RobotTask": "elites.tasks.mujoco.robot",
    "Round": "elites.algorithms.base",
    "RunConfig": "elites.experiments.config",
    "SavedArchive": "elites.results.archive",
    "Status": "elites.archives.archive",
    "StepResult": "elites.tasks.task",
    "Study": "elites.studies.study",
    "StudyExecution": "elites.studies.resources",
    "TASKS": "elites.tasks",
    "Task": "elites.tasks.task",
    "ThreadEvaluator": "elites.evaluation.threads",
    "Transitions": "elites.tasks.episode",
    "compute_archive_metrics": "elites.metrics.metric",
    "correct": "elites.experiments.correct",
    "draw_archive": "elites.reports.figures",
    "draw_corrected": "elites.reports.figures",
    "draw_film": "elites.replays.film",
    "draw_parallel": "elites.reports.figures",
    "draw_profile": "elites.reports.figures",
    "draw_spread": "elites.reports.figures",
    "explore": "elites.explorer.explore",
    "from_pyribs": "elites.metrics.pyribs",
    "gymnasium_task": "elites.tasks.gymnasium",
    "load_archive": "elites.results.archive",
    "load_corrected": "elites.results.corrected",
    "load_lineage": "elites.results.lineage",
    "make_algorithm": "elites.algorithms",
    "make_corrected_archive": "elites.results.corrected",
    "make_study": "elites.paper.presets",
    "make_task": "elites.tasks",
    "merge_studies": "elites.studies.merge",
    "mujoco_task": "elites.tasks.mujoco.robot",
    "optimise": "elites.experiments.optimise",
    "plot_archive": "elites.reports.notebook",
    "read_table": "elites.results.tables",
    "replay": "elites.replays.replay",
    "resume": "elites.experiments.run",
    "run": "elites.experiments.run",
    "run_study": "elites.studies.run",
    "show": "elites.reports.show",
    "report_study": "elites.reports.study.report",
    "task": "elites.tasks.function",
}

__all__ = [
    "ALGORITHMS",
    "TASKS",
    "Algorithm",
    "AlgorithmConfig",
    "ArchiveMetrics",
    "Batch",
    "Controller",
    "CorrectedArchive",
    "DeviceTask",
    "Elite",
    "ElitesError",
    "Ending",
    "Episode",
    "Evaluation",
    "Evaluator",
    "Execution",
    "FunctionTask",
    "GenerationMetric",
    "GymnasiumTask",
    "Lineage",
    "LoggedRun",
    "Logger",
    "Losses",
    "MAPElites",
    "MAPElitesConfig",
    "Metric",
    "MujocoTask",
    "NativeEvaluator",
    "Optimiser",
    "Outcome",
    "PGAMAPElites",
    "PGAMAPElitesConfig",
    "Policy",
    "ProcessEvaluator",
    "QDGymTask",
    "RandomStream",
    "Replay",
    "Report",
    "RobotState",
    "RobotTask",
    "Round",
    "RunConfig",
    "SavedArchive",
    "Status",
    "StepResult",
    "Study",
    "StudyExecution",
    "Task",
    "ThreadEvaluator",
    "Transitions",
    "compute_archive_metrics",
    "correct",
    "draw_archive",
    "draw_corrected",
    "draw_film",
    "draw_parallel",
    "draw_profile",
    "draw_spread",
    "explore",
    "from_pyribs",
    "gymnasium_task",
    "load_archive",
    "load_corrected",
    "load_lineage",
    "make_algorithm",
    "make_corrected_archive",
    "make_study",
    "make_task",
    "merge_studies",
    "mujoco_task",
    "optimise",
    "plot_archive",
    "read_table",
    "replay",
    "report_study",
    "resume",
    "run",
    "run_study",
    "show",
    "task",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'elites' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


if find_spec("gymnasium") is not None:  # not needed for tasks on a GPU
    from elites.tasks import mujoco, qdgym

    qdgym.register_environments()
    mujoco.register_environments()
