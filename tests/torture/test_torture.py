import json
import subprocess
import sys

import pytest

from tests.fuzz.harness import ROOT
from tests.torture.torture import SCENARIOS


def torture(*arguments):
    """`make torture` forks: it needs a process without JAX's threads."""
    command = [sys.executable, "-m", "tests.torture", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_killed_command_continues_with_the_same_result():
    summary = torture("12", "0", "extended", "group", "correct")
    assert summary["kills"] >= 12
    assert summary["findings"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "renames",
    [
        {"short run": 4, "short group": 3 + 3 + 2, "correct": 2},
        {"short study": 1 + 8 + 2, "report again": 2},  # the study's record, its group, their corrections
    ],
)
def test_a_command_killed_before_any_rename_continues_with_the_same_result(renames):
    summary = torture("each", "0", *renames)
    assert summary["kills"] == sum(renames.values())
    assert (
        summary["renames_killed_at"].items() >= {name: f"{n} of {n}" for name, n in renames.items()}.items()
    )
    assert summary["findings"] == 0


def test_every_command_that_writes_has_a_scenario():
    assert {scenario.command for scenario in SCENARIOS.values()} == {
        "run",
        "resume",
        "correct",
        "study run",
        "study report",
    }
