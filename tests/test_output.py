import errno
import io
import os
import subprocess
import sys

import pytest

from elites import cli
from elites.output import Output

COMMAND = [sys.executable, "-m", "elites"]


class Full(io.StringIO):
    encoding = "utf-8"

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_characters_that_an_encoding_lacks_are_escaped():
    raw = io.BytesIO()
    output = Output(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert output.write("σ … x\n") == 6
    assert raw.getvalue() == b"\\u03c3 \\u2026 x\n"
    assert output.loss_reason == ""


def test_output_that_cannot_be_written_is_dropped():
    output = Output(Full())
    output.write("text")
    output.flush()
    assert output.loss_reason == "No space left on device"
    closed = io.StringIO()
    closed.close()
    output = Output(closed)
    output.write("text")
    assert output.loss_reason


def test_a_broken_pipe_is_not_lost_output():
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        output = Output(stream)
        output.write("text")
        output.flush()
        assert isinstance(output.failure, BrokenPipeError)
        assert output.loss_reason == ""


@pytest.mark.parametrize(
    ("how", "status", "stderr"),
    [
        ("> /dev/full", 1, "elites: the output was lost: No space left on device\n"),
        ("> /dev/full 2> /dev/full", 1, ""),
        ("| head -1 > /dev/null; exit ${PIPESTATUS[0]}", 0, ""),
        (">&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
    ],
)
def test_a_command_that_prints_ends_quietly(how, status, stderr):
    command = f"{sys.executable} -m elites algorithms {how}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, stderr)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_in_any_encoding(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"usage: elites COMMAND" in done.stdout


def test_opened_files_do_not_replace_closed_standard_files(tmp_path):
    """A file that a run opens must not become its standard output."""
    program = (
        "import os, sys; from elites.output import safe_output\n"
        f"with safe_output(): assert os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY) > 2"
    )
    done = subprocess.run(["bash", "-c", f'{sys.executable} -c "$0" >&- 2>&- <&-', program])
    assert done.returncode == 0


LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        *(["show", LONG], ["resume", LONG], ["correct", LONG], ["replay", LONG], ["study", "report", LONG]),
        ["run", "map-elites", "qd-hopper", "--out", LONG],
        ["study", "run", f"{LONG}.toml", "--out", "s"],
        ["study", "run", "performance", "--out", LONG],
        ["run", "map-elites", f"{LONG}:x"],
        ["run", "map-elites", "qd-ant", "--batch", "9" * 5000],
        ["run", "map-elites", "gym:a", "--environment-options", "[" * 100_000],
        ["run", "map-elites", "qd-hopper", "--threads", "1000000"],
        ["run", "map-elites", "qd-hopper", "--seeds", "1000000000"],
        ["run", "map-elites", "qd-hopper", "--sigma1", "inf"],
        ["run", "map-elites", "qd-hopper", "--batch", "1000000", "--hidden", "4096", "4096"],
        ["run", "map-elites", "qd-hopper", "--seeds", "10000", "--hidden", "4096", "4096"],
        ["run", "map-elites", "qd-ant", "--archive", "grid", "--grid", "1000", "1000", "1000", "1000"],
        ["run", "qd-pg", "qd-ant", "--stored-descriptors", "1000000", "--training-batch", "1000000"],
        ["run", "pga-map-elites", "qd-ant", "--training-batch", "1000000", "--pg-steps", "100000"],
        ["random", "qd-hopper", "--controllers", "1000000", "--seed", "0", "--episode-length", "1"],
        ["study", "run", "performance", "--out", "s", "--seeds", "1000000000", "--plan"],
        ["study", "run", "performance", "--out", "s", "--workers", "100000", "--plan"],
        ["show", "\udcff"],
        ["\udcff"],
    ],
    ids=lambda arguments: " ".join(arguments)[:60].encode("ascii", "replace").decode(),
)
def test_invalid_arguments_get_one_line_and_leave_no_files(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "--controllers" in arguments:
        monkeypatch.setattr("elites.memory.available_bytes", lambda: 10**9)
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert len(err) < 2100
    assert list(tmp_path.iterdir()) == []
