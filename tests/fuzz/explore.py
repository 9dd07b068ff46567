"""All kinds of cases, and how many of each."""

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.fuzz.files import damaged_centroids, damaged_files, with_encoding
from tests.fuzz.harness import Fuzzer, describe
from tests.fuzz.options import hostile_options, hostile_words
from tests.fuzz.seeds import make_seeds

KINDS = {  # shares of all cases
    "files": (with_encoding(damaged_files()), 0.5),
    "options": (with_encoding(hostile_options()), 0.33),
    "words": (with_encoding(hostile_words()), 0.16),
    "centroids": (damaged_centroids(), 0.01),
}


def make_fuzzer(scratch, keep):
    """A fuzzer with its prepared folders."""
    keep.mkdir(parents=True, exist_ok=True)
    fuzzer = Fuzzer(scratch, scratch / "seeds", keep)
    make_seeds(fuzzer)
    return fuzzer


def explore(fuzzer, cases, seed=None, kinds=tuple(KINDS)):
    """Runs so many cases; always the same ones without a seed. What goes wrong stops nothing."""
    for kind in kinds:
        strategy, share = KINDS[kind]
        _explore(fuzzer, strategy, max(1, round(cases * share)), seed)


def _explore(fuzzer, strategy, cases, seed):
    done = set()

    @settings(
        max_examples=5 * cases,  # many are the same
        phases=[Phase.generate],
        database=None,
        derandomize=seed is None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attempt(case):
        line = describe(case)
        if len(done) < cases and line not in done:
            done.add(line)
            fuzzer.run(case)

    (attempt if seed is None else seeded(seed)(attempt))()
