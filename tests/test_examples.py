import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from elites import Execution, RunConfig, cli, load_archive, run

ROOT = Path(__file__).parent.parent


def test_the_quickstart_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "quickstart.py", tmp_path / "run", "150"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "elites; the best has fitness" in done.stdout
    assert "new cells" in done.stdout


def test_runs_can_be_compared(tmp_path):
    folders = sorted((ROOT / "docs" / "results").glob("*-qd-hopper-*"))
    arguments = [sys.executable, ROOT / "examples" / "compare.py", tmp_path / "curves.png", *folders]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "| qd-hopper | `pga-map-elites` | 3 | 30,000 | 1,358,978" in done.stdout
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_losses_can_be_compared(tmp_path):
    table = ROOT / "docs" / "results" / "losses.csv"
    arguments = [sys.executable, ROOT / "examples" / "losses.py", tmp_path / "losses.png", table]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "| qd-walker | `map-elites-es` | 3 | 18.5% (18.1% to 24.1%)" in done.stdout
    assert (tmp_path / "losses.png").stat().st_size > 10_000


def test_the_readmes_python_runs(tmp_path):
    """Every block of Python in the README, in one process, with a small budget."""
    blocks = (ROOT / "README.md").read_text().split("```python\n")[1:]
    code = "\n".join(block.split("```")[0] for block in blocks).replace("evaluations=5000", "evaluations=100")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_description_of_the_wheel_has_no_links_into_the_repository():
    """On a package index there are neither its pictures nor its other documents."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / project["readme"]).read_text()
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href)=\"([^\"]*)\"", text)
    assert all(one.startswith("https://") for pair in targets for one in pair if one)
    assert "pip install elites" in text
    assert set(re.findall("^elites ([a-z-]+)", text, re.MULTILINE)) <= set(cli.COMMANDS)


def test_every_public_name_can_be_imported():
    import elites

    for name in elites.__all__:
        assert getattr(elites, name) is not None


@pytest.mark.slow
def test_the_tutorial_for_your_own_environment_runs(tmp_path, monkeypatch, capsys):
    """Its script and its commands, with small budgets; the script is fifty lines at most."""
    text = (ROOT / "docs" / "your-own-task.md").read_text()
    script = text.split("```python\n")[1].split("```")[0]
    assert len(script.splitlines()) <= 50
    (tmp_path / "pendulum.py").write_text(script.replace("evaluations=2000", "evaluations=60"))
    done = subprocess.run([sys.executable, "pendulum.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "60 of 60" in done.stdout
    assert "upright" in done.stdout
    assert (tmp_path / "runs" / "pendulum" / "grid-2x2.mp4").stat().st_size > 1000

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    commands = next(block for block in text.split("```\n") if block.startswith("elites run"))
    assert len(commands.splitlines()) == 4
    for line in commands.splitlines():
        _, *arguments = line.partition("#")[0].replace("--evaluations 2000", "--evaluations 40").split()
        few = ["--replications", "2"] if arguments[0] == "correct" else []
        assert cli.main([*arguments, *few]) == 0
        assert capsys.readouterr().err == ""
    assert Path("runs/again/best.mp4").exists()


def test_the_tutorial_for_a_task_in_jax_runs(tmp_path):
    text = (ROOT / "docs" / "your-own-task.md").read_text()
    _, _, _, block = text.split("```python\n")
    script = block.split("```")[0].replace("evaluations=2000", "evaluations=300")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("300 of 300") == 2
    archives = [load_archive(tmp_path / "runs" / name) for name in ("drift", "harbour")]
    assert archives[0].descriptor.min() >= 0
    assert archives[1].descriptor.min() < 0  # a place, not a share of the time
    assert all(len(archive.fitness) > 5 for archive in archives)


@pytest.mark.slow
def test_the_tutorial_for_notebooks_runs(tmp_path):
    block = (ROOT / "docs" / "your-own-task.md").read_text().split("```python\n")[2]
    script = "import elites\n" + block.split("```")[0].replace("evaluations=500", "evaluations=40")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "only in the memory of this process: in-memory:lambda-" in done.stdout
    assert (tmp_path / "runs" / "effort" / "best.mp4").exists()


def test_the_page_on_archives_and_controllers_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig(
        algorithm="map-elites",
        task="qd-hopper",
        evaluations=40,
        hyper_parameters={"initial": 40, "batch": 40, "hidden": (8,)},
        task_parameters={"episode_length": 24},
    )
    run(config, "runs/first", execution=Execution(log=lambda _: None))
    blocks = (ROOT / "docs" / "controllers.md").read_text().split("```python\n")[1:]
    names = {}
    for block in blocks:
        exec(block.split("```")[0], names)
    act = names["archive"].policy(0)
    np.testing.assert_allclose(names["values"], act(np.zeros(15)), atol=1e-6)
    np.testing.assert_allclose(names["act"](np.zeros(15)), act(np.zeros(15)), atol=1e-6)
    assert Path("best.onnx").stat().st_size > 500
    pyplot.close("all")


def test_benchmarks_run_where_gymnasium_is_not_installed():
    """One of them has its name, and must not be taken for it."""
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import gymnasium"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'gymnasium'" in done.stderr
