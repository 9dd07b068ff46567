"""The loggers of runs that advance together. A failing logger does not end a run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elites.errors import ElitesError, format_error
from elites.files import make_one_line
from elites.loggers import Choice, find_logger, name_loggers
from elites.loggers.logger import LoggedRun, Logger
from elites.loggers.tensorboard import TensorBoard
from elites.results.folder import RunFolder, find_group
from elites.results.schemas import LoggerRecord
from elites.results.tables import Logs

TENSORBOARD = "tensorboard"


class Loggers:
    """TensorBoard and all other loggers by name, each with an object for every run.

    A logger that fails is closed for all runs, with one line for the user.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._open: dict[str, list[Logger]] = {}

    @property
    def has_others(self) -> bool:
        """Whether there are loggers in addition to TensorBoard."""
        return bool(self._open.keys() - {TENSORBOARD})

    def open(self, name: str, begin: Callable[[list[Logger]], None]) -> None:
        """Opens a logger. `begin` is called with a list, to which it adds a logger for each run."""
        self._open[name] = []
        self._guard(name, lambda: begin(self._open[name]))

    def log_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Logs a row of each run."""
        self._each(lambda logger, index: logger.log_row(rows[index]))

    def log_pictures(self, evaluations: int, pictures: Sequence[bytes]) -> None:
        """Logs a picture of each run's archive."""
        self._each(lambda logger, index: logger.log_picture(evaluations, pictures[index]))

    def close(self, finished: bool = False) -> None:
        """Closes all that are open."""
        self._each(lambda logger, _: logger.close(finished))
        self._open = {}

    def _each(self, act: Callable[[Logger, int], None]) -> None:
        def act_on_all(loggers: list[Logger]) -> None:
            for index, logger in enumerate(loggers):
                act(logger, index)

        for name, loggers in list(self._open.items()):
            self._guard(name, functools.partial(act_on_all, loggers))

    def _guard(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except (Exception, SystemExit) as error:
            self._log(
                f"logger {name} failed: {make_one_line(format_error(error))}; the run goes on without it"
            )
            for logger in self._open.pop(name):
                with contextlib.suppress(Exception, SystemExit):
                    logger.close(False)


def open_loggers(
    folders: Sequence[RunFolder],
    logs: Sequence[Logs],
    choices: Sequence[Choice],
    evaluations: int,
    log: Callable[[str], None],
) -> Loggers:
    """Opens TensorBoard, the chosen loggers, and those with a name that the runs had before."""
    loggers = Loggers(log)
    logger_records = [_read(folder, log) for folder in folders]
    runs = [_run(folder, evaluations) for folder in folders]

    def begin_tensorboard(opened: list[Logger]) -> None:
        for run, own in zip(runs, logs, strict=True):
            opened.append(TensorBoard(own.events))
            opened[-1].open(run({}))

    def begin(name: str, choice: Choice, opened: list[Logger]) -> None:
        make = find_logger(choice)
        for folder, run, records in zip(folders, runs, logger_records, strict=True):
            opened.append(make())
            before = records[name].remembered if name in records else {}
            memory = {str(key): str(value) for key, value in (opened[-1].open(run(before)) or {}).items()}
            records[name] = LoggerRecord(named=isinstance(choice, str), remembered=memory)
            folder.write_loggers(records)
            if "url" in memory:
                log(f"{name}: {memory['url']}")

    loggers.open(TENSORBOARD, begin_tensorboard)
    chosen: dict[str, Choice] = {name: name for name, record in logger_records[0].items() if record.named}
    for name, choice in (chosen | name_loggers(choices)).items():
        loggers.open(name, functools.partial(begin, name, choice))
    return loggers


def _read(folder: RunFolder, log: Callable[[str], None]) -> dict[str, LoggerRecord]:
    try:
        return folder.read_loggers()
    except ElitesError as error:
        log(f"{error}; loggers start new logs")
        return {}


def _run(folder: RunFolder, evaluations: int) -> Callable[[Mapping[str, str]], LoggedRun]:
    """A function from the values that a logger remembers to the LoggedRun that it receives."""
    record, group, own = folder.read_record(), find_group(folder.path), folder.path.resolve().name
    return lambda remembered: LoggedRun(
        folder=folder.path,
        name=own if group is None else f"{group.path.name}/{own}",
        group=None if group is None else group.path.name,
        config={**record.settings(), "versions": record.versions},
        evaluations=evaluations,
        remembered=remembered,
    )
