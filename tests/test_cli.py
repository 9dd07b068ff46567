import subprocess
import sys

import pytest

from elites import cli
from elites.tasks import TASKS


def elites(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "import sys; from elites.cli import main; sys.exit(main())", *arguments],
        capture_output=True,
        text=True,
    )


def test_tasks_are_listed_with_their_sizes(capsys):
    assert cli.main(["tasks"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == list(TASKS)
    assert rows[1].split()[1:6] == ["22", "6", "2", "20230", "1024"]


def test_listing_tasks_imports_nothing_heavy():
    program = (
        "import sys; from elites.cli import main; main(['tasks']); "
        "print({'jax', 'numba', 'scipy', 'pandas', 'matplotlib', 'pybullet'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_random_controllers_are_evaluated():
    done = elites("random", "qd-hopper", "qd-walker", "--controllers", "5", "--threads", "2")
    assert done.returncode == 0, done.stderr
    assert "qd-hopper: 5 controllers" in done.stdout
    assert "fitness" in done.stdout
    assert "foot_left" in done.stdout
    assert "steps/s" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Expected one of {tasks, random}"),
        (["taks"], "Unrecognized options: taks"),
        (["random", "--controllers", "many"], "--controllers"),
        (["random", "--wings", "2"], "Unrecognized options: --wings"),
        (["random", "qd-worm"], "unknown task 'qd-worm'; the tasks are qd-walker"),
        (["random", "--controllers", "-3"], "controllers is -3"),
        (["random", "qd-ant", "--threads", "0"], "threads is 0; it must be at least 1"),
        (["random", "--noise", "nan"], "noise is nan; it must be from 0 to pi"),
        (["random", "--episode-length", "0"], "episode_length is 0; it must be a whole number from 1"),
    ],
)
def test_wrong_input_gets_one_line(arguments, told, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("elites: ")
    assert told in err


def test_help_is_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["random", "--help"])
    assert stopped.value.code == 0
    assert "--controllers" in capsys.readouterr().out
