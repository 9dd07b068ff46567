"""Kills at renames: before one a file is complete but not in its place, after it both."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
KILL = """
import os, signal

def killing(rename):
    def at(source, target, **options):
        if os.environ["KILL_BELOW"] in str(target):
            with open(os.environ["KILL_COUNT"], "ab") as count:
                count.write(b".")
            if os.stat(os.environ["KILL_COUNT"]).st_size == int(os.environ["KILL_AT"]):
                os.kill(os.getpid(), signal.SIGKILL)
        return rename(source, target, **options)
    return at

os.replace, os.rename = killing(os.replace), killing(os.rename)
"""


@contextlib.contextmanager
def copies_at_renames(folder, into):
    """Copies a folder, as it is on the disk, before each rename in it: what a SIGKILL would leave there."""
    originals, copies = (os.replace, os.rename), []

    def copying(rename):
        def at(source, target, **options):
            if str(folder) in str(target):
                copies.append(shutil.copytree(folder, into / f"{len(copies) + 1:02d}"))
            return rename(source, target, **options)

        return at

    os.replace, os.rename = map(copying, originals)
    try:
        yield copies
    finally:
        os.replace, os.rename = originals


def elites(*arguments, **environment):
    """Runs the command in a process of its own."""
    program = "import sys; from elites.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def kill_at_each_rename(scratch, begin, command, again):
    """Repeats a command that is killed before its first rename, its second, …, until it ends by itself.

    `begin` makes a folder with what is there before, `command` and `again` return the arguments of the
    command and of the one that goes on, given that folder. Yields each folder after the latter. The processes
    that the command starts are killed as it is.
    """
    patch = scratch / "patch"
    patch.mkdir(parents=True)
    (patch / "sitecustomize.py").write_text(KILL)
    for number in range(1, 100):
        folder, count = scratch / f"{number:02d}", scratch / f"{number:02d}.count"
        begin(folder)
        count.write_bytes(b"")
        path = f"{patch}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        done = elites(
            *command(folder),
            PYTHONPATH=path,
            KILL_BELOW=str(folder),
            KILL_COUNT=str(count),
            KILL_AT=str(number),
        )
        if count.stat().st_size < number:
            assert done.returncode == 0, done.stderr
            assert number > 1, "nothing was ever renamed"
            return
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr  # a study goes on without a worker
        continued = elites(*again(folder, done.returncode))
        assert continued.returncode == 0, continued.stderr
        yield folder
