"""The names of all files and folders of a run, in one place."""

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


def seed_folder(seed: int | str) -> str:
    """The folder of one replication."""
    return f"seed-{seed}"


SEVERAL = "seeds-"  # begins the name of a folder of a group that has been added to others


def seeds_folder(first: int, last: int) -> str:
    """The folder of a group of replications that was added to others."""
    return f"{SEVERAL}{first}-to-{last}"
