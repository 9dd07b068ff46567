"""Imports between the parts of the package go one way."""

import ast
from pathlib import Path

import pytest

import elites

SOURCE = Path(elites.__file__).parent
LATER = ["evaluation", "archives", "learning", "variation", "algorithms", "experiments", "replays", "reports"]


def imported(part):
    """Parts of the package that a part imports, for types or later on demand, too."""
    names = set()
    for file in (SOURCE / part).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("elites.")}


@pytest.mark.parametrize(
    ("part", "later"),
    [
        ("policies", {"tasks", *LATER}),
        ("tasks", set(LATER)),
        ("evaluation", set(LATER) - {"evaluation"}),
    ],
)
def test_data_flows_from_policies_to_tasks_to_evaluation(part, later):
    assert imported(part)
    assert not imported(part) & later
