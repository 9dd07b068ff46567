"""Values for every option of every command, from the option's own type: of that type, and hostile ones."""

import dataclasses
import types
import typing
from pathlib import Path

from hypothesis import strategies as st

from elites.algorithms import ALGORITHMS
from elites.cli import COMMANDS
from elites.cli.run import make_run_command
from elites.cli.study import STUDY_COMMANDS
from elites.tasks import TASKS
from tests.fuzz.files import DEEP, LONG, ODD, RUN
from tests.fuzz.harness import Case

SIZES = {  # of each algorithm: small enough to take no time
    "hidden": "4", "initial": "20", "batch": "10", "critic_hidden": "4", "training_batch": "8",
    "buffer_size": "400", "critic_steps": "2", "pg_steps": "2", "emitters": "2", "emitter_batch": "4",
    "depth": "2", "pairs": "3", "chunk": "3", "centre_samples": "2", "samples": "2", "random_steps": "20",
    "evaluate_every": "2", "stored_descriptors": "50", "candidates": "20", "neighbours": "3",
}  # fmt: skip
STOP = {"max_hours": "1e-9", "threads": "1", "checkpoint_seconds": "0", "evaluations": "40", "out": "new"}
HOPPER = {"cells": "2", "episode_length": "20"}
PUSH = {
    "cells": "16",
    "descriptor": "tests.outside:up",
    "episode_length": "20",
    "qd_offset": "0",
    "patience": "5",
}
# 127.0.0.1:1 is refused at once. No argument of a process can hold a null byte.
WORDS = (
    "", "text", "nan", "5", LONG, ODD, "é", "\udcff", "-", "--", "[red]", "a,b", "1e308", "0x10", "$HOME",
    "~", "{}", "[1", "..", "/dev/null", "/dev/full", "nowhere/at/all", "mine.toml", "out", "127.0.0.1:1",
    "os:getcwd", "tests.toy:POINT", "tests.toy:nothing", "tests.outside:words", "tests.outside:vague",
)  # fmt: skip
INTEGERS = (
    "0", "-1", "1", "2", "7", "1000000", "1000000000", str(2**31), str(2**32), str(2**63),
    "1" + "0" * 30, "9" * 5000,
)  # fmt: skip
FLOATS = ("0", "-1", "0.5", "1", "inf", "-inf", "nan", "1e308", "1e-320", "-0.0", "1e999", "1e9")
LARGE = {"1000000", "1000000000", "1e9", "1e308", str(2**31), str(2**32)}


@dataclasses.dataclass(frozen=True)
class Base:
    """A command that works: what precedes its options, and options that keep it small."""

    words: tuple[str, ...]
    command: type
    options: dict
    seed: str = "study"


def bases():
    """At least one for each command; `install-bullet` would fetch files."""
    for name in ALGORITHMS:
        command = make_run_command(name)
        own = {field.name for field in dataclasses.fields(command)}
        sizes = {option: value for option, value in SIZES.items() if option in own}
        yield Base(("run", name, "qd-hopper"), command, {**sizes, **STOP, **HOPPER}, "")
        taken = {**sizes, **STOP, **HOPPER, "out": "out"}  # good options end in an error, too: quickly
        yield Base(("run", name, "qd-hopper"), command, taken, "study")
    command = make_run_command("map-elites")
    sizes = {option: SIZES[option] for option in ("hidden", "initial", "batch")}
    yield Base(("run", "map-elites", "tests.toy:POINT"), command, {**sizes, **STOP, "cells": "16"}, "")
    yield Base(("run", "map-elites", "gym:tests.outside:push"), command, {**sizes, **STOP, **PUSH}, "")
    few = {"controllers": "3", "threads": "1"}
    yield Base(("random", "qd-hopper"), COMMANDS["random"], {**few, **HOPPER}, "")
    yield Base(("random", "gym:tests.outside:push"), COMMANDS["random"], {**few, **PUSH}, "")
    yield Base(("resume", "plain"), COMMANDS["resume"], {"threads": "1", "max_hours": "1e-9"}, "stopped")
    yield Base(("resume", "group"), COMMANDS["resume"], {"threads": "1", "max_hours": "1e-9"}, "stopped")
    yield Base(("correct", RUN), COMMANDS["correct"], {"replications": "2", "threads": "1"})
    yield Base(("correct", DEEP), COMMANDS["correct"], {"replications": "2", "threads": "1", "seed": "1"})
    yield Base(("show", RUN), COMMANDS["show"], {})
    yield Base(("show", RUN), COMMANDS["show"], {"film": "new.gif", "size": "3 3"})
    yield Base(("replay", RUN), COMMANDS["replay"], {"steps": "2", "size": "32 32", "out": "new.gif"})
    yield Base(("tasks",), COMMANDS["tasks"], {})
    yield Base(("algorithms",), COMMANDS["algorithms"], {})
    plan = {"out": "out", "workers": "1", "threads": "1", "calibrate": False, "plan": True}
    yield Base(("study", "run", "mine.toml"), STUDY_COMMANDS["run"], plan)
    yield Base(("study", "merge", "out"), STUDY_COMMANDS["merge"], {"out": "new"})
    yield Base(("study", "report", "out"), STUDY_COMMANDS["report"], {})


BASES = tuple(bases())
QUICK = tuple(base for base in BASES if base.words[0] != "run" or base.seed or base.words[1] == "map-elites")


def options_of(command):
    """The options of a command with their types; arguments without a name are not among them."""
    hints = typing.get_type_hints(command, include_extras=True)
    return {
        field.name: hints[field.name]
        for field in dataclasses.fields(command)
        if not any("Positional" in repr(mark) for mark in getattr(hints[field.name], "__metadata__", ()))
    }


def values(hint):
    """Texts for an option of this type: a list of words; True and False for a flag."""
    if typing.get_origin(hint) is typing.Annotated:
        plain, *marks = typing.get_args(hint)
        limits = [limit for mark in marks for limit in _limits(mark)]
        return values(plain) if not limits else st.one_of(values(plain), st.sampled_from(limits))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return values(next(one for one in typing.get_args(hint) if one is not type(None)))
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from([*typing.get_args(hint), *WORDS]).map(lambda word: [word])
    if typing.get_origin(hint) is tuple:
        (first, *_) = typing.get_args(hint)
        one = values(first).map(lambda words: words[0])
        return st.one_of(st.lists(one, max_size=5), st.just(["1"] * 200), st.just(["0.5"] * 400))
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.sampled_from([*INTEGERS * 2, *FLOATS, *WORDS[:4]]).map(lambda word: [word])
    if hint is float:
        return st.sampled_from([*FLOATS * 3, *WORDS[:4], *INTEGERS[-4:]]).map(lambda word: [word])
    assert hint in (str, Path), hint
    return st.sampled_from(WORDS).map(lambda word: [word])


def _limits(mark):
    """The ends of a range and what lies beyond them."""
    ends = [end for end in (getattr(mark, "low", None), getattr(mark, "high", None)) if end is not None]
    return [[str(end + beyond)] for end in ends for beyond in (-1, 0, 1)]


def arguments_of(base, options):
    """The words of a command line."""
    words = list(base.words)
    for name, value in options.items():
        flag = {"start": "from", "loggers": "log"}.get(name, name.replace("_", "-"))
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(value.split() if isinstance(value, str) else value)]
    return tuple(words)


@st.composite
def hostile_options(draw):
    """A command that works but for one or two options."""
    base = draw(st.sampled_from((*BASES, *QUICK * 6)))
    known, options = options_of(base.command), dict(base.options)
    changed = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=2)) if known else []
    given = []
    for name in changed:
        options[name] = draw(values(known[name]))
        given += options[name] if isinstance(options[name], list) else []
    large = base.words[0] in ("run", "random", "correct", "replay") and bool(LARGE & set(given))
    return Case(base.seed, arguments_of(base, options), large=large)


@st.composite
def hostile_words(draw):
    """Commands, algorithms, tasks and folders that are not there, or are something else."""
    word = st.sampled_from(WORDS)
    task = st.one_of(
        st.sampled_from([*TASKS, "gym:", "gym:Nothing-v0", "gym:CartPole-v1", "gym:a:b:c", "function:x"]),
        word,
    )
    folder = st.one_of(
        word, st.sampled_from(["out", "mine.toml", "out/study.json", RUN + "/archive.npz", ".", "/"])
    )
    small = ("--evaluations", "20", "--out", "new", "--max-hours", "1e-9", "--hidden", "2")
    words = draw(
        st.one_of(
            st.tuples(st.sampled_from(["show", "correct", "resume", "replay"]), folder),
            st.tuples(
                st.just("study"),
                st.just("report"),
                st.one_of(word, st.sampled_from(["mine.toml", "/dev/null"])),
            ),
            st.tuples(st.just("study"), st.just("run"), word, st.just("--out"), folder, st.just("--plan")),
            st.tuples(st.just("run"), word, task).map(lambda words: (*words, *small)),
            st.tuples(st.just("run"), st.just("map-elites"), word).map(lambda words: (*words, *small)),
            st.tuples(st.just("random"), word),
            st.lists(word, max_size=3).map(tuple),
            st.tuples(st.sampled_from([*COMMANDS]), st.sampled_from(["-h", "--help", "--nothing", "--out"])),
        )
    )
    return Case("study", tuple(words))
