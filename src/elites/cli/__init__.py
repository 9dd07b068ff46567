"""The `elites` command: a module per group of subcommands."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Sequence

import tyro

from elites.cache import collect_garbage_rarely
from elites.cli.catalogue import Algorithms, InstallBullet, Tasks
from elites.cli.command import INTERRUPTED, Command, read_first_line
from elites.cli.correct import Correct
from elites.cli.explore import Explore
from elites.cli.help import with_help
from elites.cli.random import Random
from elites.cli.replay import Replay
from elites.cli.run import Resume, RunOptions, make_run_command
from elites.cli.show import Show
from elites.cli.study import STUDY_COMMANDS, StudyRun
from elites.errors import ElitesError, format_error
from elites.options import check_fields
from elites.output import safe_output
from elites.text import shorten
from elites.versions import package_version

LOST, BAD_INPUT = 1, 2  # exit statuses
MAX_MESSAGE_LENGTH = 2000  # characters
STUDY_USAGE = "elites study run STUDY --out DIR, elites study merge DIR … --out DIR, elites study report DIR"
ONLY_PRINT = ("tasks", "algorithms", "random", "show", "-h", "--help", "--version")

COMMANDS: dict[str, type[Command]] = {
    "run": RunOptions,
    "resume": Resume,
    "correct": Correct,
    "show": Show,
    "replay": Replay,
    "explore": Explore,
    "study": StudyRun,
    "tasks": Tasks,
    "algorithms": Algorithms,
    "random": Random,
    "install-bullet": InstallBullet,
}


def describe_commands(command: str | None = None) -> str:
    """The text of `elites --help`, `elites run --help` and `elites study --help`."""
    if command == "run":
        from elites.algorithms import ALGORITHMS

        return _format_listing(
            "elites run ALGORITHM TASK [OPTIONS]",
            "Run an algorithm on a task, one of `elites tasks`.",
            {name: read_first_line(algorithm.Config) for name, algorithm in ALGORITHMS.items()}
            | {"module:Class": "An algorithm of your own."},
            "elites run ALGORITHM --help lists its options.",
        )
    if command == "study":
        return _format_listing(
            STUDY_USAGE,
            "Execute many runs and compare them.",
            {name: read_first_line(action) for name, action in STUDY_COMMANDS.items()},
            "elites study run --help, and so on, list their options.",
        )
    described = {name: read_first_line(command) for name, command in COMMANDS.items()}
    described["run"] = "Run an algorithm on a task: elites run ALGORITHM TASK."
    described["study"] = "Execute many runs and compare them: elites study run, merge, report."
    about = "Evolve collections of diverse, high-performing controllers."
    return _format_listing(
        "elites COMMAND …",
        about,
        described,
        "elites COMMAND --help lists the options of a command, elites --version prints the version.",
    )


def _format_listing(usage: str, about: str, described: dict[str, str], more: str) -> str:
    width = max(map(len, described))
    lines = [f"  {name:<{width}}   {text}" for name, text in described.items()]
    return "\n".join([f"usage: {usage}", "", about, "", *lines, "", more])


def parse(arguments: Sequence[str]) -> Command:
    """The command with its options, checked. Errors are in one line."""
    if not arguments:
        raise ElitesError(f"no command was given; the commands are {', '.join(COMMANDS)}")
    name, *rest = arguments
    if name not in COMMANDS:
        raise ElitesError(f"unknown command {name!r}; the commands are {', '.join(COMMANDS)}")
    program, command, algorithm = f"elites {name}", COMMANDS[name], ""
    if name == "run":
        from elites.algorithms import ALGORITHMS

        if not rest or rest[0].startswith("-"):
            raise ElitesError(f"usage: elites run ALGORITHM TASK; the algorithms are {', '.join(ALGORITHMS)}")
        algorithm, *rest = rest
        program, command = f"{program} {algorithm}", make_run_command(algorithm)
    if name == "study":
        if not rest or rest[0] not in STUDY_COMMANDS:
            raise ElitesError(f"usage: {STUDY_USAGE}")
        action, *rest = rest
        program, command = f"{program} {action}", STUDY_COMMANDS[action]
    if not {"-h", "--help"}.isdisjoint(rest):
        from elites.algorithms import find_algorithm

        command = with_help(command, find_algorithm(algorithm).Config if algorithm else None)
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            parsed = tyro.cli(command, prog=program, args=rest)
    except SystemExit as stopped:
        if stopped.code in (0, None):
            raise
        raise ElitesError(f"{extract_message(message.getvalue())}; see {program} --help") from None
    check_fields(parsed)
    return parsed


def extract_message(box: str) -> str:
    """The message of a box drawn by tyro, without its title, its frame and its help texts."""
    box = box.rpartition("For full helptext")[0] or box
    options = re.findall(r"^[│ ] {5}(\S+) ?(.*?) *│?$", box, re.MULTILINE)  # with their values
    names = [name for name, _ in options]
    text = " ".join(re.sub("[│╭╮╰╯]", " ", box).split())
    _, *sections = (part.strip(" ─") for part in re.split("[─-]{3,}", text))
    kept = [part for part in sections if part and not part.startswith("Argument helptext")]
    message, *more = (part.rstrip(".") for part in kept)
    if message.startswith("Missing from"):
        return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
    if more and more[0].startswith("Perhaps you meant"):
        return f"{message}; perhaps you meant {' or '.join(names)}"
    wrong = re.match(r"""Error parsing (\S+): .*?(?:\[(|["'].*?["'])\]|(["'].*["'])$)""", message)
    if wrong and options:
        given = wrong[2] or wrong[3]
        allowed = re.sub(r"\[(\w+) \[.*", r"\1 …", re.sub(r"\{None\}\||[{}]", "", options[0][1]))
        return f"{wrong[1]} {f'is {given}' if given else 'has no value'}; it must be {allowed}"
    return "; ".join([message, *more])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status.

    It is 0, 1 if a run of a study failed or printed output was lost, 2 after bad input, 130 if it was
    interrupted; a run that stops cleanly has 0. A run continues if its output cannot be written; only a
    command that just prints then fails.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    collect_garbage_rarely()
    with safe_output() as output:
        status = _main(arguments)
        if output is None:
            return status
        output.flush()
        if not output.loss_reason:
            return status
        print(f"elites: the output was lost: {output.loss_reason}", file=sys.stderr)
        return status or (LOST if arguments[0] in ONLY_PRINT else 0)


def _main(arguments: Sequence[str]) -> int:
    try:
        match list(arguments):
            case ["-h" | "--help"]:
                print(describe_commands())
            case ["--version"]:
                print(f"elites {package_version('elites')}")
            case ["run" | "study" as name, "-h" | "--help"]:
                print(describe_commands(name))
            case _:
                command = parse(arguments)
                try:
                    return command.run()
                except SystemExit as error:  # raised by the user's module
                    return _refuse(f"your module called sys.exit: {format_error(error)}")
        return 0
    except ElitesError as error:
        return _refuse(str(error))
    except OSError as error:
        where = f" ({shorten(error.filename, MAX_MESSAGE_LENGTH)})" if error.filename else ""
        return _refuse(f"{error.strerror or error}{where}")
    except (MemoryError, RecursionError, UnicodeError) as error:
        return _refuse(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        print("elites: interrupted", file=sys.stderr)
        return INTERRUPTED


def _refuse(message: str) -> int:
    print(f"elites: {shorten(message, MAX_MESSAGE_LENGTH)}", file=sys.stderr)
    return BAD_INPUT
