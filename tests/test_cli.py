import importlib.metadata
import importlib.util
import itertools
import re
import subprocess
import sys

import pytest

from elites import ALGORITHMS, cli
from elites.cli.study import STUDY_COMMANDS
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
    assert [row.split()[0] for row in rows[1:]] == [*TASKS, "gym:ID", "mujoco:FILE", "module:task"]
    assert rows[1].split()[1:6] == ["22", "6", "2", "20230", "1024"]


def test_tasks_that_cannot_run_here_are_marked_with_the_reason(monkeypatch, tmp_path, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr("elites.tasks.brax.find_spec", lambda name: None if name == "brax" else find(name))
    monkeypatch.setenv("ELITES_BULLET", str(tmp_path))
    assert cli.main(["tasks"]) == 0
    *rows, first, second, _, _, _ = capsys.readouterr().out.splitlines()[1:]
    marks = {row.split()[0]: row.split()[-1] for row in rows if row.endswith(")")}
    expected = {"qd": "(1)", "brax": "(2)"}
    assert marks == {name: expected[kind] for name in TASKS if (kind := name.split("-")[0]) in expected}
    assert first == (
        f"(1)  cannot run here: ELITES_BULLET is {tmp_path}, which holds no Bullet; "
        f"`elites install-bullet --folder {tmp_path}` puts it there"
    )
    assert (
        second == "(2)  cannot run here: brax tasks need brax, which is not installed; install elites[brax]"
    )


def test_the_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"elites {importlib.metadata.version('elites')}\n"


def test_listing_tasks_imports_nothing_heavy():
    program = (
        "import sys; from elites.cli import main; main(['tasks']); heavy = "
        "{'jax', 'numba', 'scipy', 'pandas', 'matplotlib', 'pybullet', 'pyarrow', 'ray', 'PIL'}; "
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_random_controllers_are_evaluated():
    done = elites("random", "qd-hopper", "qd-walker", "--controllers", "5", "--threads", "2")
    assert done.returncode == 0, done.stderr
    assert "qd-hopper: 5 controllers" in done.stdout
    assert "fitness" in done.stdout
    assert "left foot" in done.stdout
    assert "steps/s" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command was given; the commands are run, resume"),
        (["taks"], "unknown command 'taks'; the commands are run, resume"),
        (["run"], "usage: elites run ALGORITHM TASK; the algorithms are pga-map-elites"),
        (["run", "luck", "qd-ant"], "unknown algorithm 'luck'; the algorithms are pga-map-elites"),
        (["run", "map-elites"], "elites: TASK is missing; see elites run map-elites --help"),
        (["study", "run"], "elites: STUDY and --out are missing; see elites study run --help"),
        (["show", "nowhere", "--forma", "pdf"], "--forma, pdf; perhaps you meant --format; see elites show"),
        (["run", "map-elites", "qd-ant", "--hidden", "wide"], "--hidden is 'wide'; it must be INT …;"),
        (["replay", "nowhere", "--size", "3"], "--size is '3'; it must be INT INT; see elites replay --help"),
        (["run", "map-elites", "qd-worm"], "unknown task 'qd-worm'; the tasks are qd-walker"),
        (["run", "map-elites", "qd-ant", "--evaluations", "-1"], "evaluations is -1"),
        (["run", "map-elites", "qd-ant", "--p-evo", "1"], "Unrecognized options: --p-evo"),
        (["run", "map-elites", "qd-ant", "--archive", "tree"], "Expected one of ('cvt', 'grid')"),
        (["run", "pga-map-elites", "qd-ant", "--p-evo", "2"], "p_evo is 2.0; it must be from 0 to 1"),
        (["run", "map-elites", "qd-ant", "--out", "/dev/null/run"], "cannot make the run's folder"),
        (
            ["run", "map-elites", "qd-ant", "--grid", "9", "9", "9", "9"],
            "grid can only be set with",
        ),
        (
            ["run", "map-elites", "qd-ant", "--archive", "grid", "--cells", "9"],
            "cells can only be set with archive=cvt",
        ),
        (
            ["run", "map-elites", "qd-ant", "--cells", "100001"],
            "cells is 100001; it must be from 1 to 100,000",
        ),
        (
            ["run", "td3", "qd-ant", "--training-precision", "float16"],
            "invalid choice 'float16' for argument '--training-precision'",
        ),
        (["resume"], "DIR"),
        (["resume", "nowhere"], "nowhere holds no run"),
        (["show", "nowhere"], "nowhere holds no run"),
        (["correct"], "DIR"),
        (["correct", "nowhere"], "nowhere holds no run"),
        (["correct", "nowhere", "--replications", "0"], "replications is 0; it must be from 1 to 1,000,000"),
        (["correct", "nowhere", "--seed", "-1"], "seed is -1; it must be from 0 to 4,294,967,295"),
        (["correct", "nowhere", "--threads", "0"], "threads is 0; it must be from 1 to "),
        (["replay", "nowhere", "--no-best"], "Unrecognized options: --no-best"),
        (["random", "--controllers", "many"], "--controllers is 'many'; it must be INT"),
        (["random", "--wings", "2"], "Unrecognized options: --wings"),
        (["random", "qd-worm"], "unknown task 'qd-worm'; the tasks are qd-walker"),
        (["random", "--controllers", "-3"], "controllers is -3"),
        (["random", "qd-ant", "--threads", "0"], "threads is 0; it must be from 1 to "),
        (["random", "brax-ant", "--threads", "0"], "threads is 0; it must be from 1 to "),
        (["random", "qd-ant", "--physics", "xla"], "physics is xla; it is for tasks in JAX"),
        (["random", "--noise", "nan"], "noise is nan; it must be from 0 to "),
        (
            ["random", "--noise-distribution", "flat"],
            "invalid choice 'flat' for argument '--noise-distribution'",
        ),
        (["random", "--episode-length", "0"], "episode_length is 0; it must be from 1 to "),
    ],
)
def test_wrong_input_gets_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out in ("", "compiling\n")  # the latter before the folder is made
    assert len(err.splitlines()) == 1
    assert err.startswith("elites: ")
    assert message in err


def test_the_help_of_a_command_lists_its_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["random", "--help"])
    assert stopped.value.code == 0
    assert "--controllers" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        *([name] for name in cli.COMMANDS if name not in ("run", "study")),
        *(["study", action] for action in STUDY_COMMANDS),
        *(["run", algorithm] for algorithm in ALGORITHMS),
    ],
    ids=" ".join,
)
def test_help_is_wrapped_text_without_empty_defaults(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    out = capsys.readouterr().out
    assert not re.search(r"None|<class|default: \)|default: ''", out)
    boxed = [line[2:].rstrip("│").rstrip() for line in out.splitlines()]
    boxed = boxed[next(i for i, line in enumerate(boxed) if line.startswith("-h")) :]
    width = max(map(len, boxed))
    for line, following in itertools.pairwise(boxed):
        if following.startswith("  "):  # the same text goes on
            assert line.startswith("-") or len(f"{line} {following.split()[0]}") > width


def test_the_help_of_a_run_begins_with_its_own_options_and_ends_with_hyper_parameters(capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "pga-map-elites", "--help"])
    out = capsys.readouterr().out
    listed = [
        "TASK",
        "--seed ",
        "--evaluations ",
        "--physics ",
        "Hyper-parameters of the algorithm",
        "--p-evo ",
    ]
    positions = [out.index(text) for text in listed]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ([], set(cli.COMMANDS)),
        (["run"], {*ALGORITHMS, "module:Class"}),
        (["study"], {"run", "merge", "report"}),
    ],
)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_commands_with_choices_list_them(command, flag, listed, capsys):
    assert cli.main([*command, flag]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: elites {' '.join(command)}".rstrip() + " ")
    assert set(re.findall(r"^  (\S+) {3,}\S", out, re.MULTILINE)) == listed


def test_algorithms_are_listed_with_their_defaults(capsys):
    assert cli.main(["algorithms"]) == 0
    out = capsys.readouterr().out
    assert "pga-map-elites: " in out
    assert re.search(r"--p-evo +0\.5\n", out)
    assert re.search(r"--critic-hidden +256 256\n", out)


def test_a_run_from_the_command_line_ends_with_its_summary(tmp_path, capsys):
    folder = tmp_path / "run"
    options = [
        "--evaluations",
        "60",
        "--initial",
        "40",
        "--batch",
        "20",
        "--out",
        str(folder),
        "--noise",
        "0.05",
    ]
    assert cli.main(["run", "map-elites", "qd-hopper", *options]) == 0
    out = capsys.readouterr().out
    assert "60 of 60 evaluations" in out
    assert "QD-score" in out
    assert "elites found by" in out
    assert (folder / "archive.png").exists()
    assert (folder / "progress.png").exists()
    assert cli.main(["show", str(folder)]) == 0
    assert str(folder / "archive.png") in capsys.readouterr().out
    assert cli.main(["correct", str(folder), "--replications", "3"]) == 0
    out = capsys.readouterr().out
    assert "corrected by 3 replications of each of" in out
    assert re.search(r"QD-score +[\d,]+ +[\d,]+ +-?[\d.]+%\n", out)
    assert cli.main(["show", str(folder)]) == 0
    out = capsys.readouterr().out
    assert str(folder / "spread.png") in out
    assert "the luckiest elites" in out
    assert (folder / "corrected.png").exists()
    assert (folder / "spread.png").exists()


def test_a_closed_output_pipe_is_not_an_error():
    main = f"{sys.executable} -c 'import sys; from elites.cli import main; sys.exit(main())'"
    done = subprocess.run(f"{main} algorithms | head -1", shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("pga-map-elites")
    assert done.stderr == ""
