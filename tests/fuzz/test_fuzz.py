import os

import pytest

from tests.fuzz.explore import KINDS, explore, make_fuzzer
from tests.fuzz.harness import Case, Ending, lost, problem
from tests.fuzz.options import BASES, arguments_of

CASES = int(os.environ.get("FUZZ_CASES", "50"))  # always the same ones; `make fuzz` runs others


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    fuzzer = make_fuzzer(tmp_path_factory.mktemp("fuzz"), tmp_path_factory.mktemp("findings"))
    yield fuzzer
    fuzzer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_case_ends_in_success_or_one_line(kind, fuzzer):
    explore(fuzzer, CASES, kinds=[kind])
    findings = fuzzer.report()
    fuzzer.findings.clear()
    assert not findings, findings


@pytest.mark.parametrize("base", BASES, ids=lambda base: " ".join(base.words))
def test_the_base_of_each_case_is_a_valid_command(base):
    """Otherwise every case would be refused for the same reason."""
    from elites.cli import parse

    parse(arguments_of(base, base.options))


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        (Ending(status=2, stderr="elites: no\n"), None),
        (Ending(status=2, stderr="elites: no\nand no\n"), "2 lines of error"),
        (Ending(status=2), "0 lines of error"),
        (Ending(status=0), None),
        (Ending(status=0, stderr="Traceback (most recent call last)\nA: b"), "traceback printed"),
        (Ending(escaped='File "/src/elites/a.py", line 3, in b\nKeyError: 3'), "KeyError in elites/a.py:b"),
        (Ending(killed="hangs"), "hangs"),
    ],
)
def test_endings_are_classified(ending, cause):
    failure = problem(Case("", ("show", "out")), ending, [])
    assert (failure is None) == (cause is None)
    assert cause is None or cause in failure[0]


def test_lost_files_are_found():
    before = {"run/metrics.csv": ("file", b"1"), "run/archive.png": ("file", b"2")}
    after = {"run/metrics.csv": ("file", b""), "run/archive.png": ("file", b"3")}
    assert lost("show", 0, before, after) == ["run/metrics.csv"]
    assert lost("resume", 0, before, after) == []
    assert lost("resume", 2, before, after) == ["run/metrics.csv", "run/archive.png"]
