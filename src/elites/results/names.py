"""The names of all files and folders of a run, of a study and of its report, in one place."""

from enum import StrEnum

CONFIG = "config.json"
GROUP = "group.json"  # in the folder that the replications of a run share
ARCHIVE = "archive.npz"
MEMBERS = "members.npz"
START = "start.npz"  # copy of the archive that a run or a group began with
CORRECTED = "corrected.npz"
UNFINISHED = ".unfinished.npz"  # suffix of a correction in progress
METRICS = "metrics.csv"
TIMINGS = "timings.csv"
CORRECTIONS = "corrections.csv"
LINEAGE = "lineage.bin"  # all offspring that entered the archive
EVENTS = "events.out.tfevents.0.elites"
LOGGERS = "loggers.json"  # what loggers need when a run is resumed
EXPLORER = "explorer.html"
SNAPSHOTS = "snapshots"
CHECKPOINTS = "checkpoints"
LOGS = (METRICS, TIMINGS, CORRECTIONS, LINEAGE, EVENTS)  # only ever appended to

RUNS = "runs"  # of a study; also where runs are by default
STUDY = "study.json"
MEASURED = "measured.json"
WORKER_LOGS = "logs"
REPORT = "report"
REPLACED_REPORT = ".report.replaced"
REPORT_PAGE = "index.html"
REPORT_METRICS = "metrics.parquet"
REPORT_FIGURES = "figures"
REPORT_TABLES = "tables"


def worker_log(job: str = "worker") -> str:
    """The log of the worker of a job, which is named by its folder."""
    return f"{job_name(job).replace('/', '-')}.log"


def seed_folder(seed: int | str) -> str:
    """The folder of one replication."""
    return f"seed-{seed}"


ADDED = "seeds-*"  # pattern of the folders of groups that were added to others


def seeds_folder(first: int, last: int) -> str:
    """The folder of a group of replications that was added to others."""
    return ADDED.replace("*", f"{first}-to-{last}")


def replications_folder(task: str, algorithm: str) -> str:
    """The folder of the replications of an algorithm on a task, within that of a study."""
    return f"{RUNS}/{task}/{algorithm}"


def job_name(folder: str) -> str:
    """The name of a job in messages, by its folder within that of the study."""
    return folder.removeprefix(f"{RUNS}/")


FIGURES = ("progress", "profile", "corrected", "spread")  # of a run
COLOURED_FIGURES = ("archive", "parallel")  # of a run; their names have the colour, if it is not the fitness


def clip_name(cell: int | None = None, grid: tuple[int, int] | None = None) -> str:
    """The clip of the best elite, of the elite of a cell, or of a grid of elites, rows x columns."""
    if grid is not None:
        return f"grid-{grid[0]}x{grid[1]}.mp4"
    return "best.mp4" if cell is None else f"cell-{cell}.mp4"


class ReportTable(StrEnum):
    """The tables of a report, without their endings."""

    RUNS = "runs"
    COST = "cost"
    FINAL = "final"
    FINAL_CORRECTED = "final-corrected"
    FINAL_LOSSES = "final-losses"
    FINAL_COMMON = "final-common-budget"
    P_VALUES = "p-values"
    P_VALUES_COMMON = "p-values-common-budget"
    AGGREGATE = "aggregate"
    CLAIMS = "claims"


class ReportFigure(StrEnum):
    """The kinds of figures of a report; the rest of a name is the task, the algorithm, or a number."""

    PROGRESS = "progress"
    ARCHIVES = "archives"
    CORRECTED = "corrected"
    LOSSES = "losses"
    CONTRIBUTION = "contribution"


def report_part(kind: ReportTable | ReportFigure, *parts: str) -> str:
    """The name of a table or figure about something, without its ending; empty parts are left out."""
    return "-".join([kind, *(part for part in parts if part)])
