"""What a terminal and a notebook show while something runs."""

import os
import re
import shutil
import signal
import sys
import time

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import elites
from elites.experiments.display import FRAMES, Bar, Display, in_notebook, show_progress
from elites.experiments.execution import Execution, Report
from elites.experiments.guards import Interrupts
from tests.terminal import CTRL_C, Terminal

BUDGET = 400
RUN = ("run", "map-elites", "tests.slow_tasks:nap", "--initial", 20, "--batch", 20, "--evaluations", BUDGET)
TITLE, STOP_AWAITS = (
    "map-elites on tests.slow_tasks:nap",
    "waiting for the running generation to end (Ctrl-C again",
)


def elapsed(words):
    """The time that has gone by, as it is shown."""
    match = re.search(r"\d+:\d\d:\d\d", words)
    return match and match[0]


def frame(words):
    """What the spinner shows."""
    return "".join(letter for letter in words if letter in FRAMES)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that Ctrl-C has stopped, after a look at its screen all along."""
    folder = tmp_path_factory.mktemp("display") / "run"
    cache = str(folder.parent / "cache")  # empty: compiling takes long enough to be seen
    with Terminal(*RUN, "--out", folder, NAP="2", ELITES_CACHE=cache) as terminal:
        words = terminal.wait(lambda words: "first episodes" in words)
        assert TITLE in words
        assert "compiling" in terminal.written.decode()
        later = terminal.wait(lambda now: elapsed(now) not in (None, elapsed(words)))
        assert "first episodes" in later
        later = terminal.wait(lambda now: frame(now) not in ("", frame(words)))
        assert "first episodes" in later

        terminal.wait(lambda words: "QD-score" in words)
        terminal.resize(60, 30)
        once = (TITLE, "QD-score", "steps/s")
        terminal.wait(lambda words: [words.count(part) for part in once] == [1, 1, 1])
        terminal.wait(lambda words: "first episodes" in words)
        terminal.type(CTRL_C)
        assert f"20 of {BUDGET}" in terminal.wait(
            lambda words: STOP_AWAITS in words
        )  # the second generation runs
        assert terminal.end() == 0
        assert f"40 of {BUDGET}" in terminal.words
        assert [terminal.words.count(part) for part in (TITLE, "QD-score", "stopped after")] == [1, 1, 1]
        assert not any(part in terminal.words for part in ("^C", "waiting", *FRAMES))
        assert not terminal.screen.cursor.hidden
    return folder


def test_a_resumed_run_shows_its_state_and_a_second_ctrl_c_ends_it(stopped, tmp_path):
    folder = shutil.copytree(stopped, tmp_path / "run")
    archive = elites.load_archive(folder)
    standing = f"evaluations {archive.about['evaluations']} of {BUDGET}"
    with Terminal("resume", folder, NAP="60", NO_COLOR="1", columns=80) as terminal:
        words = terminal.wait(lambda words: "QD-score" in words)
        assert standing in words
        assert f"{archive.metrics.qd_score:,.0f}" in words
        assert "episodes" not in words  # nothing has been run yet
        terminal.wait(lambda words: "first episodes" in words)
        terminal.type(CTRL_C)
        terminal.wait(lambda words: STOP_AWAITS in words)
        pressed = time.monotonic()
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert time.monotonic() - pressed < 20  # not after a minute
        assert [terminal.words.count(part) for part in (standing, "QD-score", "interrupted")] == [1, 1, 1]
        assert not any(part in terminal.words for part in ("^C", "waiting", *FRAMES))
        assert not terminal.screen.cursor.hidden
        assert {cell.fg for line in terminal.screen.buffer.values() for cell in line.values()} == {"default"}


def test_a_dumb_terminal_gets_plain_lines(stopped, tmp_path):
    folder = shutil.copytree(stopped, tmp_path / "run")
    evaluations = elites.load_archive(folder).about["evaluations"]
    with Terminal("resume", folder, TERM="dumb", columns=200, lines=50) as terminal:
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.written
        assert f"continuing from {evaluations} of {BUDGET} evaluations: QD-score" in terminal.words
        assert "(seed 0)" in terminal.words
        assert terminal.words.count("compiling") == 1
        assert f"{BUDGET} of {BUDGET} evaluations" in terminal.words


def report(evaluations):
    metrics = {"evaluations": evaluations, "qd_score": 1.0, "max_fitness": 1.0, "coverage": 0.5}
    made = {"made_ga": 20, "new_ga": 3, "improved_ga": 4}
    timings = {"rollouts_s": 1.0, "ask_s": 1.0, "steps_per_s": 1e5}
    return Report({**metrics, **made}, timings, 100, (0,))


class Screen:
    """A terminal within this process."""

    def __init__(self, columns, lines):
        self.screen = pyte.Screen(columns, lines)
        self.screen.set_mode(pyte.modes.LNM)  # a line feed is also a carriage return
        self.stream = pyte.Stream(self.screen)
        self.console = Console(file=self, force_terminal=True, width=columns, height=lines, _environ={})

    def write(self, text):
        self.stream.feed(text)

    def flush(self):
        pass

    def resize(self, columns):
        self.console.width = columns
        self.screen.resize(columns=columns)

    @property
    def text(self):
        return "\n".join(self.screen.display)


ACTIONS = st.one_of(
    st.tuples(st.just("report"), st.integers(0, 99)),
    st.tuples(st.just("phase"), st.sampled_from(["compiling", "writing a checkpoint"])),
    st.tuples(st.just("correction"), st.integers(0, 5000)),
    st.tuples(st.just("log"), st.just("!")),
    st.tuples(st.just("Ctrl-C"), st.just(0)),
    st.tuples(st.just("resize"), st.integers(20, 130)),
)


@settings(max_examples=40)
@given(columns=st.integers(20, 130), lines=st.integers(4, 40), actions=st.lists(ACTIONS, max_size=8))
def test_there_is_always_one_panel(columns, lines, actions):
    screen, logged = Screen(columns, lines), 0
    with Display("§ a run", screen.console) as display:
        for action, value in actions:
            with display._live._lock:  # the thread that draws waits
                if action == "report":
                    display(report(value))
                elif action == "phase":
                    display.show_phase(value)
                elif action == "correction":
                    display.show_correction(value, 5000)
                elif action == "log":
                    display.log(value)
                    logged += 1
                elif action == "Ctrl-C":
                    display.show_stop("waiting for the running generation to end", 1)
                    screen.write("^C")
                else:
                    screen.resize(value)
                display._live.refresh()
                shown = screen.text
            assert shown.count("§") == 1
            assert "^C" not in shown
            assert shown.count("!") <= logged
        ends_early = any(action == "report" for action, _ in actions)
    if lines > 20:
        assert screen.text.count("§") == ends_early
    assert "^C" not in screen.text
    assert not screen.screen.cursor.hidden


def test_lines_are_printed_above_the_panel():
    screen = Screen(100, 30)
    with Bar("§ a bar", screen.console) as bar:
        for number in range(5):
            bar(number, 10)
            bar.log(f"line {number}")
        bar._live.refresh()
        shown = [line.strip() for line in screen.screen.display if line.strip()]
        assert shown[:5] == [f"line {number}" for number in range(5)]
        assert shown[5].startswith("§ a bar")
        assert "4 of 10 episodes" in shown[6]
        assert len(shown) == 7
    assert screen.text.split() == [word for number in range(5) for word in ("line", str(number))]


def test_output_to_a_file_gets_lines(capsys):
    with Display("a run") as display:
        display.show_phase("compiling")
        display.show_phase("first episodes")
        display.show_phase("compiling")
        display(report(20))
        display(report(40))
        display(report(100))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "compiling"
    assert [line.split(" of ")[0] for line in lines[1:]] == ["20", "100"]


def test_custom_callbacks_are_called_in_addition_to_the_display(capsys):
    seen, messages = [], []
    own = Execution(on_generation=seen.append, on_phase=seen.append, log=messages.append)
    with show_progress("a run", own, None) as execution:
        assert execution is own
    with show_progress("a run", own, True) as execution:
        execution.on_phase("compiling")
        execution.on_generation(report(20))
        execution.log("a line")
    assert seen == ["compiling", report(20)]
    assert messages == ["a line"]
    assert capsys.readouterr().out.startswith("compiling\n20 of 100 evaluations")


def test_a_second_ctrl_c_interrupts_at_once():
    calls, before = [], signal.getsignal(signal.SIGINT)

    def send(number):
        os.kill(os.getpid(), number)
        time.sleep(10)  # or until the handler raises an error

    with Interrupts("it", lambda *given: calls.append(given)) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        while not calls:
            time.sleep(0.01)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
    line = "waiting for it to end (Ctrl-C again stops at once)"
    assert calls == [(line, 1), (line, 2)]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_ipython_is_imported_only_in_notebooks(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    assert not in_notebook()
    assert "IPython" not in sys.modules


NOTEBOOK = """
import elites
from tests.slow_tasks import nap

def run(**options):
    hyper_parameters = {"initial": 20, "batch": 20}
    config = elites.RunConfig(
        algorithm="map-elites", task="tests.slow_tasks:nap", evaluations=40, hyper_parameters=hyper_parameters
    )
    return elites.run(config, **options).evaluations
"""


@pytest.mark.filterwarnings("ignore")  # of the packages around the kernel
def test_a_notebook_shows_a_bar(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("NAP", "1")
    shown, hidden = str(tmp_path / "shown"), str(tmp_path / "hidden")
    cells = [NOTEBOOK, f"run(folder={shown!r})", f"%env NAP=0\nrun(folder={hidden!r}, progress=False)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    updates = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, cell, cell_index):
            if message["msg_type"] == "update_display_data":
                updates.append(message["content"]["data"]["text/html"])
            return super().process_message(message, cell, cell_index)

    Client(notebook, timeout=120, kernel_name="python3").execute(cwd=os.getcwd())
    shown, result = notebook.cells[1].outputs
    assert shown.output_type == "display_data"
    html = shown.data["text/html"]
    assert TITLE in html
    assert 'value="1.0000"' in html
    assert "finished" in html
    assert "QD-score" in html
    assert len({elapsed(update) for update in updates}) >= 3
    assert any("first episodes" in update for update in updates)
    assert result.data["text/plain"] == "40"
    assert not any(output.output_type == "display_data" for output in notebook.cells[2].outputs)
