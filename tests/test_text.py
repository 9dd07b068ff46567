import numpy as np
import pytest
from rich.console import Console

from elites.experiments import display
from elites.experiments.display import Bar, Display
from elites.experiments.execution import Report
from elites.text import MAX_NAME_BYTES, make_file_name, make_folder_name, make_printable, shorten

NAMES = [
    "$x",
    "$\\frac{<b>_^",
    "a\nb\x1b[31m",
    "[red]x[/red]",
    "{x}",
    "_x",
    "x" * 300,
    "\udcff",
    "über",
    ":smile:",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_one_short_line(name):
    shown = shorten(name)
    assert shown.isprintable()
    assert len(shown) <= 60
    assert make_printable(shown) == shown
    shown.encode()


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert shorten("abcdefghijklmnop", 9) == "abcdef…op"
    assert shorten("abc", 9) == "abc"


@pytest.mark.parametrize("named", [make_folder_name, make_file_name])
def test_different_names_have_different_files(named):
    odd = [*NAMES, "$x$", "x" * 301, "\n", "ü", "x y"]
    names = [named(name) for name in odd]
    assert len(set(names)) == len(odd)
    assert all(0 < len(name.encode()) <= MAX_NAME_BYTES and "/" not in name for name in names)
    assert named("qd-walker") == "qd-walker"


@pytest.mark.parametrize("name", NAMES)
def test_displays_show_names_as_they_are(name):
    console = Console(force_terminal=True, width=400, color_system=None)
    with console.capture() as captured, Bar(name, console) as bar:
        bar(1, 2)
        bar.log(name)
        Display(name, console)
    shown = captured.get()
    assert make_printable(name.split("\n")[0])[:20] in shown
    assert "\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" not in shown


@pytest.mark.parametrize("burst", [1, 20], ids=["one by one", "in bursts"])
def test_the_rate_is_correct_with_any_timing_of_reports(burst, monkeypatch):
    """1000 evaluations per second: a report each 0.1 s, or twenty of them at once each 2 s."""
    console, clock = Console(force_terminal=False, width=400), [0.0]
    monkeypatch.setattr(display.time, "perf_counter", lambda: clock[0])
    with console.capture() as captured:
        view = Display("a run", console)
        for number in range(400):
            if number % burst == 0:
                clock[0] = 100 + 0.1 * (number + burst)
            clock[0] += 1e-4
            metrics = {
                "evaluations": 100 * (number + 1),
                "qd_score": 1.0,
                "max_fitness": 1.0,
                "coverage": 0.5,
            }
            view(Report(metrics, {}, 10**6, (0,)))
    first, *lines = captured.get().splitlines()
    assert "/s" not in first  # nothing is known about the pace yet
    rates = [float(line.split("evaluations, ")[1].split("/s")[0]) for line in lines]
    assert len(rates) >= 2
    np.testing.assert_allclose(rates, 1000, rtol=0.15)
