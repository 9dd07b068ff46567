"""The names of all files and folders of a run. Nothing else spells them."""

CONFIG = "config.json"
GROUP = "group.json"  # in the folder that the replications of a run share
ARCHIVE = "archive.npz"
MEMBERS = "members.npz"
CORRECTED = "corrected.npz"
METRICS = "metrics.csv"
TIMINGS = "timings.csv"
CORRECTIONS = "corrections.csv"
EVENTS = "events.out.tfevents.0.elites"
SNAPSHOTS = "snapshots"
CHECKPOINTS = "checkpoints"
