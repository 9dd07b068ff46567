"""Commands that are killed over and over until they end, and the comparison with their undisturbed result."""

import contextlib
import importlib
import os
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from elites.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]
SECONDS = 180.0  # longest time of a command
IMPORTED = (
    "elites.cli", "elites.experiments.run", "elites.experiments.correct", "elites.reports.show",
    "elites.reports.study.report", "elites.paper.presets", "elites.studies.run", "elites.tasks.gymnasium",
    "elites.tasks.qdgym.simulator", "matplotlib.pyplot", "ribs",
    "scipy.spatial", "tensorboard.summary.writer.record_writer", "tensorboard.plugins.hparams.summary_v2",
)  # fmt: skip
TIMED = (
    "timings.csv",
    "events.out.tfevents.0.elites",
    "measured.json",
    "checkpoints/*.npz",
    "*.png",
    "*.log",
)  # never the same twice
GO_ON = ("--threads", "1", "--checkpoint-seconds", "0")
HOPPER = ("qd-hopper", "--cells", "16", "--episode-length", "20")
PUSH = (
    "gym:tests.outside:push",
    "--cells",
    "16",
    "--descriptor",
    "tests.outside:up",
    "--episode-length",
    "20",
    "--qd-offset",
    "-50",
)
LEARNING = (
    "--initial 20 --batch 10 --critic-hidden 4 --training-batch 8 --buffer-size 400 --critic-steps 2 "
    "--pg-steps 2"
)
SIZES = {  # small enough to take no time; a few generations each
    "pga-map-elites": LEARNING,
    "qd-pg": f"{LEARNING} --stored-descriptors 50 --candidates 20 --neighbours 3",
    "td3": "--batch 10 --critic-hidden 4 --training-batch 8 --buffer-size 400 --random-steps 50",
    "cma-map-elites": "--emitters 2 --emitter-batch 5",
    "map-elites-es": "--pairs 3 --chunk 3 --centre-samples 2 --steps 2",
    "deep-grid": "--initial 20 --batch 10 --depth 3 --keep-members",
    "map-elites-sampling": "--initial 20 --batch 5 --samples 2",
    "map-elites": "--initial 20 --batch 10",
}
TOML = """evaluations = 40
seeds = 1
correct = true
correct_replications = 3

[[tasks]]
task = "qd-hopper"
task_parameters = {cells = 16, episode_length = 20}
label = "hopper"

[[tasks]]
task = "tests.toy:POINT"
label = "toy"

[[algorithms]]
algorithm = "map-elites"
hyper_parameters = {hidden = [4], initial = 20, batch = 10}
label = "plain"
"""
SHORT = """evaluations = 20
seeds = 2
correct = true
correct_replications = 2
tasks = ["tests.toy:POINT"]
algorithms = [{algorithm = "map-elites", hyper_parameters = {initial = 10, batch = 10, hidden = [4]}}]
"""


@dataclass(frozen=True)
class Scenario:
    """A command in a folder. After a kill, `resume` or the same command goes on with `out`."""

    name: str
    arguments: tuple[str, ...]
    out: str = "out"
    begin: str = ""  # the scenario in whose result it begins

    @property
    def command(self):
        return self.arguments[0] if self.arguments[0] != "study" else " ".join(self.arguments[:2])


def scenarios():
    """All algorithms and commands."""
    assert set(SIZES) == set(ALGORITHMS)
    small = ("--hidden", "4", "--out", "out", *GO_ON)
    for name, sizes in SIZES.items():
        yield Scenario(name, ("run", name, *HOPPER, *sizes.split(), "--evaluations", "45", *small))
    corrected = ("--correct-every", "20", "--correct-replications", "3", "--snapshots", "2", *small)
    plain, deep = SIZES["map-elites"].split(), SIZES["deep-grid"].split()
    yield Scenario("corrections", ("run", "map-elites", *HOPPER, *plain, "--evaluations", "45", *corrected))
    yield Scenario(
        "redrawn", ("run", "deep-grid", *HOPPER, *deep, "--evaluations", "45", "--correct-redraw", *corrected)
    )
    yield Scenario(
        "group",
        ("run", "map-elites", "tests.toy:POINT", *plain, "--evaluations", "45", "--seeds", "3", *corrected),
    )
    yield Scenario(
        "group of cma",
        (
            "run",
            "cma-map-elites",
            *HOPPER,
            *SIZES["cma-map-elites"].split(),
            "--es",
            "separable",
            "--evaluations",
            "35",
            "--seeds",
            "2",
            *small,
        ),
    )
    yield Scenario("gymnasium", ("run", "map-elites", *PUSH, *plain, "--evaluations", "45", *small))
    yield Scenario(
        "correct", ("correct", "out", "--replications", "60", "--threads", "1"), begin="map-elites"
    )
    longer = ("resume", "out", "--evaluations", "75", *GO_ON)
    yield Scenario("extended", longer, begin="pga-map-elites")
    yield Scenario("extended group", longer, begin="group")
    study = ("--out", "out", "--workers", "2", "--no-calibrate", *GO_ON)
    yield Scenario("study", ("study", "run", "mine.toml", *study))
    # Two generations each: few renames, for a kill at each of them.
    short = (
        "run",
        "map-elites",
        "tests.toy:POINT",
        "--initial",
        "10",
        "--batch",
        "10",
        "--evaluations",
        "20",
    )
    yield Scenario("short run", (*short, *small))
    yield Scenario("short group", (*short, "--seeds", "2", *small))
    yield Scenario("short study", ("study", "run", "short.toml", *study))
    yield Scenario("report", ("study", "report", "out"), begin="short study")
    yield Scenario("report again", ("study", "report", "out"), begin="report")


SCENARIOS = {scenario.name: scenario for scenario in scenarios()}


@dataclass
class Attempt:
    status: int | None  # None: killed
    output: str
    seconds: float
    renames: int


class Torturer:
    """Runs commands in forks of this process, which has imported everything but started nothing."""

    def __init__(self, scratch, random, keep=None):
        self.scratch, self.random, self.keep = scratch, random, keep
        self.kills, self.findings = Counter(), []
        self.whole = {}  # of each scenario: its undisturbed files, seconds and renames
        self.killed_at = {}
        self.tags = 0
        site = scratch / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "from tests.torture.kill import install_from_environment\ninstall_from_environment()\n"
        )
        paths = [str(site), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        self.environment = {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"}
        os.environ.update(self.environment)
        os.environ.setdefault(
            "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        )
        sys.path.insert(0, str(ROOT))
        for name in IMPORTED:
            importlib.import_module(name)

    # One attempt

    def attempt(self, arguments, folder, kill=None):
        """Runs a command; `kill` is ("rename", number, when, whom) or ("moment", seconds, whom)."""
        self.tags += 1
        tag, counter, log = (
            f"torture-{os.getpid()}-{self.tags}",
            self.scratch / "renames",
            self.scratch / "output",
        )
        counter.unlink(missing_ok=True)
        number, when, whom = kill[1:] if kill and kill[0] == "rename" else (0, "never", "self")
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._become(arguments, folder, log, f"{folder}|{counter}|{number}|{when}|{whom}", tag)
        status = self._wait(pid, tag, begun, kill)
        seconds = time.monotonic() - begun
        self._await_end_of_workers(tag, arguments)
        renames = counter.stat().st_size if counter.exists() else 0
        return Attempt(status, log.read_bytes().decode(errors="replace"), seconds, renames)

    def _become(self, arguments, folder, log, renames, tag):
        """The fork: never returns."""
        status = 70
        try:
            os.setsid()
            os.chdir(folder)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.environ.update(TORTURE_RENAMES=renames, TORTURE_TOP=str(os.getpid()), TORTURE_TAG=tag)
            from elites.cli import main
            from tests.torture.kill import install_from_environment

            install_from_environment()
            sys.stdout = os.fdopen(1, "w", buffering=1)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            status = main(list(arguments))
            sys.stdout.flush()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)

    def _wait(self, pid, tag, begun, kill):
        at = begun + kill[1] if kill and kill[0] == "moment" else None
        while True:
            done, code = os.waitpid(pid, os.WNOHANG)
            now = time.monotonic()
            if done:
                return None if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)
            if at is not None and now > at:
                at = None
                victims = [pid] if kill[2] == "top" else [*tagged(tag, pid), pid][:1]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victims[0], signal.SIGKILL)
            if now - begun > SECONDS:
                for victim in (pid, *tagged(tag, pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                os.waitpid(pid, 0)
                return 124
            time.sleep(0.005)

    def _await_end_of_workers(self, tag, arguments):
        limit = time.monotonic() + 30
        while left := tagged(tag):
            if time.monotonic() > limit:
                self.findings.append(f"{shlex.join(arguments)}: processes outlive it")
                for victim in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                return
            time.sleep(0.02)

    # Scenarios

    def prepare(self, scenario, folder):
        """The folder as it is before the command."""
        shutil.rmtree(folder, ignore_errors=True)
        if scenario.begin:
            self.undisturbed(SCENARIOS[scenario.begin])
            shutil.copytree(self.scratch / f"whole-{scenario.begin}", folder, symlinks=True)
        else:
            folder.mkdir()
            (folder / "mine.toml").write_text(TOML)
            (folder / "short.toml").write_text(SHORT)

    def undisturbed(self, scenario):
        """The files of the result, the seconds it took and its renames."""
        if scenario.name not in self.whole:
            folder = self.scratch / f"whole-{scenario.name}"
            for _ in range(2):  # the second one finds all programs compiled: its time counts
                self.prepare(scenario, folder)
                done = self.attempt(scenario.arguments, folder)
                assert done.status == 0, f"{scenario.name}: {done}"
                if done.seconds < 5:
                    break
            self.whole[scenario.name] = results(folder), done.seconds, done.renames
            self.killed_at[scenario.name] = set()
        return self.whole[scenario.name]

    def chain(self, scenario, kills):
        """Kills a command as often as asked, lets it end, and compares. Returns how often it was killed."""
        expected, *_ = self.undisturbed(scenario)
        folder, history, killed = self.scratch / "chain", [], 0
        self.prepare(scenario, folder)
        for number, kill in enumerate((*kills, None), 1):
            arguments = next_command(scenario, folder)
            done = self.attempt(arguments, folder, kill)
            history.append(f"{shlex.join(arguments)}  # {kill or 'to the end'}: {done.status}")
            if kill and kill[0] == "rename" and len(history) == 1 and done.renames >= kill[1]:
                self.killed_at[scenario.name].add(kill[1:3])
            if done.status is None:
                killed += 1
                self.kills[scenario.command if arguments == scenario.arguments else arguments[0]] += 1
                continue
            if done.status != 0:
                self._find(
                    f"{scenario.name}: status {done.status}: {done.output.strip()[-300:]}", history, folder
                )
                return killed
            if kill and kill[0] == "rename" and kill[3] == "self" and done.renames >= kill[1]:
                killed += 1  # a worker, which was replaced
                self.kills[f"{scenario.command}, a worker"] += 1
            elif kill and kill[0] == "moment" and kill[2] != "top" and done.seconds > kill[1]:
                killed += 1
                self.kills[f"{scenario.command}, a worker"] += 1
            if number >= len(kills) or scenario.command not in ("correct", "study run", "study report"):
                break  # it has ended, if with another worker
        files = results(folder)
        wrong = sorted(name for name in {*files, *expected} if files.get(name) != expected.get(name))
        if wrong:
            self._find(f"{scenario.name} ends with other files: {', '.join(wrong[:5])}", history, folder)
        return killed

    def _find(self, what, history, folder):
        if self.keep is not None:
            self.keep.mkdir(exist_ok=True)
            kept = self.keep / f"{len(self.findings)}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, symlinks=True)
            what = f"{what}\n  {kept}"
        self.findings.append("\n  ".join([what, *history]))
        print("FINDING", self.findings[-1], flush=True)

    def random_kill(self, scenario):
        _, seconds, renames = self.undisturbed(scenario)
        if self.random.random() < 0.5:
            soon = self.random.randint(1, min(3, renames))  # what goes on has few left
            return ("rename", soon, *self._how(scenario))
        whom = "worker" if scenario.command == "study run" and self.random.random() < 0.3 else "top"
        return ("moment", self.random.uniform(0.0, 1.0) * seconds, whom)

    def _how(self, scenario):
        several = scenario.command == "study run"
        return self.random.choice(["before", "after"]), "self" if not several else self.random.choice(
            ["self", "all"]
        )

    def torture(self, kills, names=tuple(SCENARIOS), log=print):
        """Every rename of every scenario, each followed by kills at random, until that many kills.

        Next is always the scenario that has taken the least time so far.
        """
        todo, spent, total = {}, dict.fromkeys(names, 0.0), 0
        while total < kills:
            name, begun = min(spent, key=spent.get), time.monotonic()
            scenario = SCENARIOS[name]
            if name not in todo:
                _, seconds, renames = self.undisturbed(scenario)
                todo[name] = self.random.sample(range(1, renames + 1), renames)
                log(f"{name}: {renames} renames, {seconds:.1f} s", flush=True)
            if todo[name]:
                first = ("rename", todo[name].pop(), *self._how(scenario))
            else:
                first = self.random_kill(scenario)
            more = [self.random_kill(scenario) for _ in range(self.random.randint(2, 5))]
            done = self.chain(scenario, [first, *more][: kills - total])
            total, spent[name] = total + done, spent[name] + time.monotonic() - begun
            log(f"{total} kills, {len(self.findings)} findings: {done} of {name}", flush=True)

    def kill_at_each_rename(self, names, log=print):
        """Each scenario, killed before its first rename and repeated, then before its second, and so on."""
        for name in names:
            _, seconds, renames = self.undisturbed(SCENARIOS[name])
            log(f"{name}: {renames} renames, {seconds:.1f} s", flush=True)
            for number in range(1, renames + 1):
                self.chain(SCENARIOS[name], [("rename", number, "before", "self")])

    def coverage(self):
        """How many of the renames were killed at, of each scenario."""
        return {
            name: f"{len({number for number, _ in killed})} of {self.whole[name][2]}"
            for name, killed in self.killed_at.items()
        }


def next_command(scenario, folder):
    """The same command, or `resume` once a run has its record."""
    out = folder / scenario.out
    if scenario.command == "run" and any((out / name).exists() for name in ("config.json", "group.json")):
        return ("resume", scenario.out, *GO_ON)
    return scenario.arguments


def tagged(tag, besides=0):
    """Processes that were started below an attempt."""
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != besides:
            with contextlib.suppress(OSError):
                if f"TORTURE_TAG={tag}\0".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    pids.append(int(entry))
    return pids


def results(folder):
    """The files of a result: their bytes, or None where those depend on the time."""
    return {
        str(path.relative_to(folder)): None if any(path.match(name) for name in TIMED) else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
