"""The documented architecture is that of the code."""

import ast
import re
from pathlib import Path

import elites

SOURCE = Path(elites.__file__).parent


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


def test_the_documented_order_of_packages_is_that_of_the_imports():
    table = (SOURCE.parents[1] / "docs" / "architecture.md").read_text().split("## Ask, evaluate")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    documented = {names_in(package)[0]: names_in(below) for package, _, below in rows}
    order = list(documented)
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(order) == packages
    for position, package in enumerate(order):
        imports = sorted(imported(package) & packages - {package})
        assert documented[package] == imports
        assert set(imports) <= set(order[position + 1 :])


def names_in(cell):
    return re.findall("`(.+?)`", cell)
