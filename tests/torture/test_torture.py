import random

import pytest

from tests.torture.torture import SCENARIOS, Torturer


@pytest.mark.slow
def test_killed_commands_go_on_and_end_the_same(tmp_path):
    """A short selection; `make torture` is all of it."""
    torturer = Torturer(tmp_path, random.Random(0))
    torturer.torture(10, ["group", "correct"], say=lambda *_, **__: None)
    assert not torturer.findings, "\n".join(torturer.findings)
    assert sum(torturer.kills.values()) >= 10
    assert {"run", "resume", "correct"} <= {*torturer.kills}


def test_every_command_that_writes_is_tortured():
    assert {scenario.command for scenario in SCENARIOS.values()} == {
        "run",
        "correct",
        "study run",
        "study report",
    }
