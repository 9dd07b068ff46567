import json
import subprocess
import sys

import pytest

from tests.fuzz.harness import ROOT
from tests.torture.torture import SCENARIOS


@pytest.mark.slow
def test_killed_commands_go_on_and_end_the_same():
    """A short selection of `make torture`, which forks: it needs a process without JAX's threads."""
    command = [sys.executable, "-m", "tests.torture", "12", "0", "extended", "group", "correct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["kills"] >= 12
    assert summary["findings"] == 0


def test_every_command_that_writes_is_tortured():
    assert {scenario.command for scenario in SCENARIOS.values()} == {
        "run",
        "resume",
        "correct",
        "study run",
        "study report",
    }
