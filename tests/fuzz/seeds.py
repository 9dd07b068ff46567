"""Folders that cases begin with: small runs of every kind, made once."""

import json
import shutil

import numpy as np

from elites.files import write_arrays
from elites.paper.presets import make_study
from elites.results.corrected import describe_correction
from elites.results.folder import RunFolder
from elites.results.study import StudyFolder
from elites.studies.plan import make_cost_key
from tests.fuzz.harness import Case

TASK = ("--cells", "16", "--episode-length", "20", "--noise", "0.05")
SMALL = ("--hidden", "4", "--initial", "20", "--batch", "10")
STOP = ("--max-hours", "1e-9", "--threads", "1", "--checkpoint-seconds", "0")
LEARNING = (
    *("--critic-hidden", "4", "--training-batch", "8", "--buffer-size", "400"),
    *("--critic-steps", "2", "--pg-steps", "2"),
)
BUDGET, BEFORE = 50, 20  # evaluations of a whole run; of one that was stopped, at its newest checkpoint
TOML = """evaluations = 20
seeds = 2
snapshots = 2
correct = true
correct_replications = 2

[[tasks]]
task = "qd-hopper"
task_parameters = {cells = 16, episode_length = 20, noise = 0.05}
label = "hopper"

[[algorithms]]
algorithm = "map-elites"
hyper_parameters = {hidden = [4], initial = 20, batch = 10}
label = "plain"

[[algorithms]]
algorithm = "deep-grid"
hyper_parameters = {hidden = [4], initial = 20, batch = 10, depth = 2, keep_members = true}
label = "deep"
"""


def make_seeds(fuzzer):
    """Makes them all with the command itself, in the fuzzer's child."""
    folder = fuzzer.seeds
    (folder / "stopped").mkdir(parents=True)

    def elites(seed, *arguments):
        ending = fuzzer.child.run(Case(seed, tuple(map(str, arguments))), folder / seed)
        assert ending.status == 0, f"{arguments}: {ending}"

    shared = ("qd-hopper", *TASK, *SMALL, "--evaluations", BUDGET)
    corrected = ("--correct-every", 20, "--correct-replications", 2, "--snapshots", 5)
    for name, arguments in (
        ("plain", ("map-elites", *shared, *corrected)),
        ("learning", ("pga-map-elites", *shared, *LEARNING)),
        ("group", ("map-elites", *shared, "--seeds", 2)),
    ):
        elites("stopped", "run", *arguments, "--out", name, *STOP)
        elites("stopped", "resume", name, *STOP)
    shutil.copytree(folder / "stopped" / "plain", folder / "whole" / "plain")
    elites("whole", "resume", "plain", "--threads", 1)
    _begin_correction(RunFolder(folder / "whole" / "plain"))
    _make_study(folder / "study", elites)


def _begin_correction(run):
    """Leaves a correction by three replications that was stopped after two elites."""
    archive = run.read_archive()
    about = describe_correction(archive, replications=3, seed=0, redraw=False)
    arrays = {
        "fitness": np.ones((2, 3), np.float32),
        "descriptor": np.full((2, 3, archive.descriptor.shape[1]), 0.5, np.float32),
        "about": np.array(json.dumps(about)),
    }
    write_arrays(run.path / "corrected.unfinished.npz", arrays)


def _make_study(folder, elites):
    """A finished study of four runs, as `elites study run` leaves it, without its processes."""
    folder.mkdir()
    (folder / "mine.toml").write_text(TOML)
    study, home = make_study(str(folder / "mine.toml")), StudyFolder(folder / "out")
    paces = {}
    for job in study.jobs():
        config = job.configs[0]
        extra = ("--depth", 2, "--keep-members") if config.algorithm == "deep-grid" else ()
        out = f"out/{job.folder}"
        elites("study", "run", config.algorithm, "qd-hopper", *TASK, *SMALL, *extra, "--evaluations", 20,
               "--snapshots", 2, "--seed", config.seed, "--out", out, "--threads", 1,
               "--correct-replications", 2)  # fmt: skip
        redraw = ("--redraw",) if extra else ()
        elites("study", "correct", out, "--replications", 2, *redraw, "--threads", 1)
        paces[make_cost_key(config)] = {
            "steps_per_s": 1e5, "random_length": 15.0, "learning_s": 0.1, "start_s": 1.0
        }  # fmt: skip
    home.record.write_text(json.dumps(study.record()))
    home.measured.write_text(json.dumps(paces))
