"""The documentation: its code runs, its reference is complete, its links hold, its site is built."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import elites
from elites import cli, native
from elites.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
NOTEBOOK = DOCS / "notebooks" / "first-archive.ipynb"
EXECUTED = ("tutorials/*.md", "coming-from-*.md", "python.md", "your-own-robot.md")


def blocks(page):
    """(language, file name, code) of each block of code that names its language."""
    return BLOCK.findall((DOCS / page).read_text())


@pytest.fixture
def execute(tmp_path, monkeypatch, capsys):
    """Executes a page in an empty folder: Python in one namespace, commands, and files that it names.

    Returns the namespace and what was printed.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = []

    def run(page, smaller=()):
        """`smaller` has pairs of a text in the page and what it is replaced by, for a small budget."""
        namespace = {"__name__": "page"}
        for language, file, code in blocks(page):
            for text, replacement in smaller:
                code = code.replace(text, replacement)
            if file:
                Path(file).write_text(code)
                modules.append(Path(file).stem)
            elif language == "python":
                exec(compile(code, page, "exec"), namespace)
            elif language == "sh":
                for line in code.splitlines():
                    program, *arguments = shlex.split(line, comments=True)
                    assert program == "elites"
                    assert cli.main(arguments) == 0, line
        printed = capsys.readouterr()
        assert printed.err == ""
        return namespace, printed.out

    yield run
    for name in modules:
        sys.modules.pop(name, None)


def test_the_tutorial_of_a_first_archive_runs(execute):
    smaller = ("--evaluations 2000", "--evaluations 600"), ("--evaluations 1000", "--evaluations 600")
    page, _ = execute("tutorials/first-archive.md", (*smaller, ("--replications 5", "--replications 2")))
    assert len(page["archive"].fitness) > 50
    drawn = ("archive.png", "progress.png", "corrected.png", "spread.png", "best.mp4")
    assert all(Path("runs/hopper", name).stat().st_size > 1000 for name in drawn)
    assert Path("gaits.gif").stat().st_size > 1000
    assert elites.load_archive("runs/again").about["evaluations"] == 600


def test_the_tutorial_of_functions_runs(execute):
    page, out = execute("tutorials/functions.md")
    archive = page["archive"]
    assert archive.metrics.coverage > 0.5
    assert np.linalg.norm(archive.descriptor[page["nearest"]] - page["target"]) < 0.15
    assert np.array_equal(elites.load_archive("arm.npz").fitness, archive.fitness)
    assert Path("arm.png").stat().st_size > 10_000
    assert "2000 evaluations; " in out
    assert "arms:arm, seed 0" in out


def test_the_tutorial_of_luck_agrees_with_the_true_fitness(execute):
    page, _ = execute("tutorials/luck.md")
    archive, truth, corrected = page["archive"], page["truth"], page["corrected"]
    assert archive.fitness[0] > 2.2  # above the top of the hill
    assert archive.fitness.mean() - truth.mean() > 0.2
    assert corrected.mean_fitness.mean() == pytest.approx(truth.mean(), abs=0.05)
    assert corrected.losses.coverage > 0
    assert page["moved"] > 0.1
    assert page["sampled"].losses.qd_score < corrected.losses.qd_score


def test_the_page_for_users_of_pyribs_runs(execute):
    page, _ = execute("coming-from-pyribs.md")
    ours, theirs = page["optimiser"].archive().metrics, page["archive"].stats
    assert ours.coverage == pytest.approx(theirs.coverage, abs=0.2)
    assert 0 < page["correction"].losses.qd_score < 0.5


@pytest.mark.slow
def test_the_page_for_users_of_qdax_runs(execute):
    smaller = (("evaluations=100_000", "evaluations=100"), ('"episode_length": 250', '"episode_length": 10'))
    page, out = execute("coming-from-qdax.md", smaller)
    assert "100 of 100" in out
    assert page["archive"].metrics.coverage > 0.2
    assert re.search(r"^\d+ elites$", out, re.MULTILINE)


def test_the_page_on_python_runs(execute):
    page, _ = execute("python.md", (("evaluations=5000", "evaluations=100"),))
    assert page["evaluation"].descriptor.shape == (100, 2)
    assert 0 <= page["info"]["descriptor"][0] <= 1
    assert Path("runs/both/seed-1/archive.npz").exists()


def test_the_page_on_robots_runs(execute):
    smaller = (
        ("--evaluations 5000", "--evaluations 200 --initial 100"),
        ("evaluations=5000", 'evaluations=100, hyper_parameters={"initial": 100}'),
        ("elites random ", "elites random --controllers 5 "),
        ("episode_length=250", "episode_length=50"),
    )
    page, out = execute("your-own-robot.md", smaller)
    feet = ("front left foot", "front right foot", "back left foot", "back right foot")
    assert page["robot"].descriptor_names == feet
    assert "mujoco:scene.xml: 5 controllers" in out
    assert len(elites.load_archive("runs/crawler").fitness) > 10
    assert Path("runs/again/archive.npz").exists()


def test_every_page_with_code_is_executed():
    """Code is tagged as Python or sh only where a test executes it, here or in the tests of that page."""
    elsewhere = {
        "controllers.md",
        "index.md",
        "logging.md",
        "studies.md",
        "your-own-task.md",
        "your-own-algorithm.md",
    }
    executed = {str(path.relative_to(DOCS)) for pattern in EXECUTED for path in DOCS.glob(pattern)}
    tagged = {
        str(path.relative_to(DOCS))
        for path in DOCS.rglob("*.md")
        if any(language in ("python", "sh") for language, _, _ in blocks(path))
    }
    assert tagged - elsewhere == executed
    assert all(f'execute("{page}"' in Path(__file__).read_text() for page in executed)
    readme = (ROOT / "README.md").read_text()
    assert all(line in readme for _, _, code in blocks("index.md") for line in code.splitlines())


def documented():
    """Everything that the reference describes."""
    pages = sorted((DOCS / "reference").glob("*.md"))
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]


def test_every_public_name_is_in_the_reference():
    names = documented()
    assert len(names) == len(set(names))
    public = {f"elites.{name}" for name in elites.__all__}
    public |= {f"elites.native.{name}" for name in native.__all__}
    assert sorted(public - set(names)) == []
    for name in names:
        assert object_at(name) is not None


def object_at(path):
    """The object at a dotted path."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        return import_module(path)


def test_imports_of_examples_are_in_the_reference():
    names = set(documented())
    for page in DOCS.rglob("*.md"):
        for language, _, code in blocks(page):
            for node in ast.walk(ast.parse(code)) if language == "python" else ():
                if isinstance(node, ast.ImportFrom) and node.module.startswith("elites."):
                    imported = {f"{node.module}.{alias.name}" for alias in node.names}
                    assert node.module in names or imported <= names, page


def test_the_page_on_the_command_has_everything():
    text = (DOCS / "commands.md").read_text()
    assert [name for name in elites.ALGORITHMS if f"| `{name}` |" not in text] == []
    assert [name for name in COMMANDS if f"elites {name}" not in text] == []
    built_in = [name for name in elites.TASKS if ":" not in name and "deterministic" not in name]
    assert [name for name in built_in if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_in_pages_of_the_root_lead_to_files(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_notebook_is_committed_without_outputs():
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    program = (
        "import sys, nbclient, nbformat\n"
        "notebook = nbformat.read(sys.argv[1], 4)\n"
        "nbclient.NotebookClient(notebook, timeout=300, kernel_name='python3').execute()\n"
        "nbformat.write(notebook, sys.argv[2])\n"
    )
    executed = tmp_path / "executed.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", program, NOTEBOOK, executed], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    outputs = [
        output for cell in json.loads(executed.read_text())["cells"] for output in cell.get("outputs", ())
    ]
    printed = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
    assert "2,000 of 2,000" in printed
    replayed, recorded = re.search(r"fitness (\S+), recorded (\S+)", printed).groups()
    assert replayed == recorded
    pictures = [kind for output in outputs for kind in output.get("data", ()) if kind.startswith("image/")]
    assert pictures.count("image/png") == 4
    assert pictures.count("image/gif") == 1


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_other_hosts(tmp_path):
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text())
        assert [tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag)] == [], page
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]).decode()
    described = {line.split()[0] for line in inventory.splitlines()}
    assert {f"elites.{name}" for name in elites.__all__} <= described


@pytest.mark.slow
def test_the_pictures_of_the_concepts_are_drawn(tmp_path):
    subprocess.run([sys.executable, DOCS / "pictures" / "draw.py", tmp_path], check=True)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    text = "".join(page.read_text() for page in (DOCS / "concepts").glob("*.md"))
    assert drawn == {path.name for path in (DOCS / "pictures").glob("*.svg")}
    assert drawn == set(re.findall(r"pictures/(\S+\.svg)", text))
