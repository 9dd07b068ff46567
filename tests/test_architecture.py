"""The documented architecture is that of the code."""

import ast
import re
from pathlib import Path

import elites

SOURCE = Path(elites.__file__).parent


def imported(part):
    """Parts of the package that a part imports, for types, later on demand or by an import path, too.

    "elites" stands for all of them: the package itself, or a public name of it.
    """
    names = set()
    for file in (SOURCE / part).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names |= {node.module} if node.module != "elites" else set()
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Constant) and re.fullmatch(r"elites\.[\w.]+:\w+", str(node.value)):
                names.add(node.value)
    parts = [name.split(".") for name in names if name.split(".")[0] == "elites"]
    return {name[1] if len(name) > 1 and is_part(name[1]) else name[0] for name in parts}


def is_part(name):
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()


def test_the_documented_order_of_packages_is_that_of_the_imports():
    table = (SOURCE.parents[1] / "docs" / "architecture.md").read_text().split("## Ask, evaluate")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    documented = {names_in(package)[0]: names_in(below) for package, _, below in rows}
    order = list(documented)
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(order) == packages
    for position, package in enumerate(order):
        everything = imported(package)
        assert "elites" not in everything, package
        imports = sorted(everything & packages - {package})
        assert documented[package] == imports
        assert set(imports) <= set(order[position + 1 :])


def names_in(cell):
    return re.findall("`(.+?)`", cell)


def test_only_the_results_package_spells_the_names_of_files():
    pattern = r"[\w-]*\.(csv|json|tex|parquet)|[\w-]+\.(npz|mp4|bin|html|png|log)"
    others = ("page.html", "checker_blue.png")  # templates of pages, and the floor of the qd- tasks
    root = SOURCE.parents[1]
    folders = (SOURCE, root / "benchmarks", root / "examples", root / "docs" / "reproduction")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    files = [file for file in files if SOURCE / "results" not in file.parents]
    nodes = ((file, node) for file in files for node in ast.walk(ast.parse(file.read_text())))
    assert not [
        (file.name, node.value)
        for file, node in nodes
        if isinstance(node, ast.Constant)
        and re.fullmatch(pattern, str(node.value))
        and node.value not in others
    ]


def test_only_the_results_package_handles_incomplete_files():
    """Others write files atomically, or ask a folder. An encoder writes a clip, which can be anywhere."""
    users = [
        file.relative_to(SOURCE)
        for file in SOURCE.rglob("*.py")
        if re.search(r"\b(is_partial|partial_path|PARTIAL)\b", file.read_text())
    ]
    assert {str(user) for user in users if user.parts[0] != "results"} == {"files.py", "replays/clip.py"}
