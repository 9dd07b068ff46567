"""Runs cases in a child process, judges how they end, and collects what should not have happened."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from elites.files import is_partial

ROOT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))  # longest time of a case
PATIENCE = 10.0  # then a case that is only large is interrupted; twice, as by an impatient user
MEMORY = 3 * 2**29  # bytes beyond those of an idle child
LOGS = ("metrics.csv", "timings.csv", "corrections.csv", "lineage.bin", "events.out.tfevents.0.elites")
REMADE = {  # what a command may write where something was before
    "run": ("centroids/*.npz",),  # in the cache
    "show": ("*.png", "*.pdf", "*.svg", "*.mp4", "*.gif"),
    "correct": ("corrected*.npz", ".corrected*"),
    "replay": ("*.mp4", "*.gif"),
    "resume": (
        *LOGS,
        "archive.npz",
        "members.npz",
        "corrected*.npz",
        ".corrected*",
        "*.png",
        "checkpoints/*",
        "config.json",  # its budget
    ),
    "study report": ("report/*", "report/*/*"),
}
REMADE["study run"] = (*REMADE["resume"], "study.json", "measured.json", "logs/*")


@dataclass(frozen=True)
class Case:
    """Arguments of the command, to be run in a copy of a prepared folder after changes to it."""

    seed: str  # the prepared folder
    arguments: tuple[str, ...]
    changes: tuple = ()  # each is called with the folder; its repr describes it
    encoding: str = "utf-8"
    environment: tuple[tuple[str, str], ...] = ()
    large: bool = False  # whether it may just take long: it is then interrupted
    expected: str = ""  # "success", "refusal", or either

    @property
    def command(self):
        words = [word for word in self.arguments[:2] if not word.startswith("-")]
        return " ".join(words) if words[:1] == ["study"] else "".join(words[:1])


@dataclass
class Ending:
    """How a case ended."""

    status: int | None = None
    escaped: str | None = None
    killed: str | None = None  # why the child was killed or died
    interrupted: bool = False
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""


@dataclass
class Finding:
    cause: str
    case: Case
    detail: str
    repeat: str
    count: int = 1


def tree(root):
    """A process and those below it."""
    below = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parent = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1]
                below.setdefault(int(parent), []).append(int(entry))
    pids, waiting = [], [root]
    while waiting:
        pids.append(waiting.pop())
        waiting += below.get(pids[-1], [])
    return pids


def resident(pids):
    """Memory of processes in bytes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")


class Child:
    """The process in which cases run; replaced after one that had to be killed."""

    def __init__(self, scratch):
        self.scratch, self.process = scratch, None

    def start(self):
        environment = {
            "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
            "JAX_PLATFORMS": "cpu",
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "MPLBACKEND": "agg",
            "COLUMNS": "120",
        }
        with (self.scratch / "child.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.scratch,
                env=environment,
            )
        os.set_blocking(self.process.stdout.fileno(), False)
        answer, why, _ = self._answer(time.monotonic() + 120, None, None)
        assert answer, f"the child did not start ({why}): {(self.scratch / 'child.log').read_text()[-2000:]}"
        self.base = resident([self.process.pid])

    def _answer(self, limit, interrupt_at, memory):
        """A line of the child, or why there is none."""
        line, interrupted, looked = b"", 0, 0.0
        while True:
            part = self.process.stdout.read()
            line += part or b""
            if line.endswith(b"\n"):
                return json.loads(line), None, interrupted
            if self.process.poll() is not None:
                code = self.process.returncode
                return None, f"died: {signal.Signals(-code).name if code < 0 else code}", interrupted
            now = time.monotonic()
            if memory is not None and now - looked > 0.2:
                looked = now
                if resident(tree(self.process.pid)) > memory:
                    return None, "took too much memory", interrupted
            if interrupt_at is not None and now > interrupt_at and interrupted < 2:
                self.process.send_signal(signal.SIGINT)
                interrupted, interrupt_at = interrupted + 1, now + 2
            if now > limit:
                return None, "hangs", interrupted
            time.sleep(0.01)

    def run(self, case, folder):
        if self.process is None:
            self.start()
        out, err = self.scratch / "stdout", self.scratch / "stderr"
        request = {
            "arguments": case.arguments,
            "folder": str(folder),
            "stdout": str(out),
            "stderr": str(err),
            "encoding": case.encoding,
            "environment": {name: value.format(folder=folder) for name, value in case.environment},
        }
        begun = time.monotonic()
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer, why, interrupted = self._answer(
            begun + SECONDS, begun + PATIENCE if case.large else None, self.base + MEMORY
        )
        ending = Ending(killed=why, interrupted=interrupted > 0, seconds=time.monotonic() - begun)
        if answer is None:
            self.stop()
        else:
            ending.status, ending.escaped = answer["status"], answer["escaped"]
            self.base = max(self.base, min(resident([self.process.pid]), self.base + 2**27))
        ending.stdout, ending.stderr = (path.read_bytes().decode(errors="replace") for path in (out, err))
        return ending

    def stop(self):
        if self.process is None:
            return
        for pid in tree(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None


def contents(folder):
    """Everything in a folder; links as they are."""
    entries = {}
    for directory, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(directory) / name
            if path.is_symlink():
                entries[str(path.relative_to(folder))] = ("link", os.readlink(path))
            elif path.is_file():
                entries[str(path.relative_to(folder))] = ("file", path.read_bytes())
            elif not any(path.iterdir()):
                entries[str(path.relative_to(folder))] = ("folder", None)
    return entries


def lost(command, status, before, after):
    """What was there before, is not there any more, and was not the command's to change."""
    mine = REMADE.get(command, ()) if status == 0 or command in ("show", "study report") else ()
    gone = []
    for name, content in before.items():
        if after.get(name) == content or is_partial(Path(name)):
            continue
        if any(Path(name).match(pattern) for pattern in mine):
            continue
        moved = [other for other, there in after.items() if there == content]  # a checkpoint that is damaged
        if "checkpoints" in Path(name).parts and any("checkpoints" in Path(other).parts for other in moved):
            continue
        if content[0] == "folder" and any(other.startswith(f"{name}/") for other in after):
            continue  # something was added to it
        gone.append(name)
    return gone


def problem(case, ending, gone):
    """What is wrong with the ending of a case, as (cause, detail); None if nothing is."""
    everything = ending.stdout + ending.stderr
    if ending.killed:
        return f"{case.command} {ending.killed}", everything[-500:]
    if ending.escaped:
        if ending.interrupted and "KeyboardInterrupt" in ending.escaped.splitlines()[-1]:
            return None
        frames = re.findall(r'File "[^"]*/src/(elites/[^"]+)", line (\d+), in (\w+)', ending.escaped)
        where = "{0}:{2}".format(*frames[-1]) if frames else "?"
        last = re.findall(r"^[\w.]+(?::.*)?$", ending.escaped, re.MULTILINE)[-1]
        return f"traceback: {last.split(':')[0]} in {where}", f"{last[:300]}\n{ending.escaped[-1500:]}"
    if "Traceback (most recent call last)" in everything:
        last = everything.strip().splitlines()[-1]
        return f"traceback printed: {re.sub('[0-9]+', 'N', last)[:100]}", everything[-1500:]
    if gone:
        return f"{case.command} (status {ending.status}) changed {Path(gone[0]).name}", ", ".join(gone)
    if ending.status == 0:
        if case.expected == "refusal" and not ending.interrupted:
            return f"{case.command} accepts what is wrong", everything[-300:]
        return None
    lines = ending.stderr.splitlines()
    failed_jobs = case.command == "study run" and ending.status == 1 and " jobs failed" in ending.stdout
    interrupted = [line for line in lines if line and "again stops at once" not in line]
    if failed_jobs and not lines:
        return None
    if ending.interrupted and len(interrupted) <= 1:
        return None
    if len(lines) != 1 or not lines[0].startswith("elites: "):
        kinds = re.findall(r"^.*?(\w+Warning|\w+Error)", ending.stderr, re.MULTILINE)
        return f"{case.command}: {len(lines)} lines of error {kinds[:1]}", ending.stderr[-1500:]
    if len(lines[0]) > 10_000:
        return f"{case.command}: an error of {len(lines[0])} characters", lines[0][:300]
    if case.expected == "success":
        return f"{case.command} refuses what can be read", lines[0][:300]
    return None


@dataclass
class Fuzzer:
    """Runs cases and keeps what went wrong, the shortest case of each cause."""

    scratch: Path
    seeds: Path  # the prepared folders
    keep: Path | None = None  # for folders that repeat a finding
    cases: int = 0
    refused: int = 0
    interrupted: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    slowest: list = field(default_factory=list)
    log: object = None

    def __post_init__(self):
        self.child = Child(self.scratch)

    def run(self, case):
        """Runs one case. Returns how it ended."""
        home = self.scratch / "case"
        shutil.rmtree(home, ignore_errors=True)
        self._prepare(case, home)
        before = contents(home)
        ending = self.child.run(case, home)
        self.cases += 1
        self.refused += ending.status not in (0, None)
        self.interrupted += ending.interrupted
        self.slowest = sorted([*self.slowest, (round(ending.seconds, 1), shlex.join(case.arguments))])[-5:]
        failure = problem(case, ending, lost(case.command, ending.status, before, contents(home)))
        if self.log:
            line = (ending.stderr.splitlines() or [""])[-1][:150]
            print(
                f"{ending.seconds:5.1f}s {ending.status} {describe(case)[:300]} -> {line}",
                file=self.log,
                flush=True,
            )
        if failure:
            self._note(case, *failure)
        return ending

    def _prepare(self, case, home):
        if case.seed:
            shutil.copytree(self.seeds / case.seed, home, symlinks=True)
        else:
            home.mkdir()
        for change in case.changes:
            change(home)

    def _note(self, case, cause, detail):
        if cause in self.findings:
            known = self.findings[cause]
            known.count += 1
            if len(describe(case)) >= len(describe(known.case)):
                return
        folder = (self.keep or Path(tempfile.gettempdir())) / f"fuzz-{re.sub('[^a-zA-Z]+', '-', cause)[:60]}"
        shutil.rmtree(folder, ignore_errors=True)
        self._prepare(case, folder)
        environment = "".join(f"{name}={value.format(folder=folder)} " for name, value in case.environment)
        if case.encoding != "utf-8":
            environment += f"PYTHONIOENCODING={case.encoding} "
        repeat = (
            f"cd {shlex.quote(str(folder))} && {environment}PYTHONPATH={ROOT}/src:{ROOT} "
            f"{sys.executable} -m elites {shlex.join(case.arguments)}"
        )
        count = self.findings[cause].count if cause in self.findings else 1
        self.findings[cause] = Finding(cause, case, detail, repeat, count)
        if self.log:
            print(f"FINDING {cause}\n  {describe(case)}\n  {detail}", file=self.log, flush=True)

    def report(self):
        """All findings, and how to repeat each."""
        return "\n\n".join(
            f"{finding.cause} ({finding.count} cases)\n  {describe(finding.case)}\n  "
            + finding.detail.strip().replace("\n", "\n  ")
            + f"\n  repeat: {finding.repeat}"
            for finding in self.findings.values()
        )

    def close(self):
        self.child.stop()


def describe(case):
    """A case in one line."""
    parts = [*(f"{change!r};" for change in case.changes), "elites", shlex.join(case.arguments)]
    if case.encoding != "utf-8":
        parts.append(f"({case.encoding})")
    line = " ".join(parts).replace("\n", "\\n")
    return line if len(line) < 700 else f"{line[:600]} … {line[-90:]}"
