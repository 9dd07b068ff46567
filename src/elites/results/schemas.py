"""The schema of every file that is read. Readers use only what was checked here.

An error is one line: the file, the field as `$.path`, and what is allowed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from elites.errors import ElitesError
from elites.files import MAX_FLOAT32, ArraySpec, make_one_line, open_file
from elites.metrics.contribution import BY_OPERATOR, find_operators
from elites.metrics.metric import BY_NAME, GENERATION_METRICS
from elites.options import Physics
from elites.policies.layout import parameter_count

MAX_RECORD_BYTES = 64 * 2**20
MAX_DEPTH = 32  # levels of nested values
MAX_METRIC = 1e45  # a sum of numbers in the range of float32
MAX_COUNT = 2.0**53

_STORAGE = {"deep-grid": ("keep_members",)}  # hyper-parameters that change what is kept, not the result

Name = Annotated[str, Meta(min_length=1)]
Whole = Annotated[int, Meta(ge=0, lt=2**62)]
Positive = Annotated[int, Meta(ge=1, lt=2**31)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Number = Annotated[float, Meta(ge=-MAX_FLOAT32, le=MAX_FLOAT32)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


def result_parameters(algorithm: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of an algorithm, without those that only change what is kept."""
    kept = _STORAGE.get(algorithm, ())
    return {name: value for name, value in parameters.items() if name not in kept}


class StartRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The archive that a run began with."""

    archive: Name  # its path when the run began
    elites: Positive
    digest: Name


class RunRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `config.json`: names and plain values."""

    algorithm: Name
    task: Name
    evaluations: Positive = 1_000_000
    seed: Seed = 0
    snapshots: Whole = 0
    log_every: Positive = 1
    correct_every: Whole = 0
    correct_replications: Positive = 50
    correct_redraw: bool = False
    hyper_parameters: dict[str, Any] = {}
    task_parameters: dict[str, Any] = {}
    metrics: list[str] = []  # further ones, by their import paths
    physics: Physics | None = None  # of a task in JAX; null in runs before the choice: xla
    start: StartRecord | None = None  # the archive that replaced random genomes
    versions: dict[str, str | None] = {}

    @property
    def title(self) -> str:
        return f"{self.algorithm} on {self.task}, seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        """All but the versions, as `RunConfig` takes them."""
        settings: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in settings.items() if name != "versions"}


class LoggerRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry of a logger in `loggers.json`."""

    named: bool  # whether it was given by its name, so that a resumed run can go on with it
    remembered: dict[str, str] = {}  # values that the logger itself returned


class GroupRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `group.json`."""

    seeds: Annotated[list[Seed], Meta(min_length=1)]

    def __post_init__(self) -> None:
        repeated = [seed for seed, times in Counter(self.seeds).items() if times > 1]
        if repeated:
            raise ValueError(f"seeds contains {repeated[0]} more than once; seeds must be unique")


class ChoiceRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task or an algorithm of a study."""

    name: Name
    parameters: dict[str, Any] = {}
    label: str = ""


class StudyRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `study.json`."""

    name: str = ""
    tasks: list[ChoiceRecord] = []
    algorithms: list[ChoiceRecord] = []
    evaluations: Whole = 0
    seeds: Whole = 0
    first_seed: Whole = 0
    snapshots: Whole = 0
    log_every: Positive = 1
    correct: bool = False
    correct_every: Whole = 0
    correct_replications: Whole = 0
    metrics: list[str] = []
    physics: Physics | None = None
    reference: str = ""


class Pace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of a run in `measured.json`: of generations in one program, or of episodes and the rest."""

    start_s: Seconds
    generation_s: Seconds | None = None
    learning_s: Seconds | None = None
    steps_per_s: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    random_length: Annotated[float, Meta(ge=0, le=1e12)] | None = None

    def __post_init__(self) -> None:
        parts = (self.learning_s, self.steps_per_s, self.random_length)
        if None in parts if self.generation_s is None else any(part is not None for part in parts):
            raise ValueError(
                "a pace has start_s with generation_s, or with learning_s, steps_per_s and random_length"
            )

    def fields(self) -> dict[str, float]:
        """The fields that are given."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


class TaskAbout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a task in an archive."""

    name: Name
    parameters: dict[str, Any] = {}
    qd_offset: Number
    descriptor_names: Annotated[list[str], Meta(min_length=1)]
    descriptor_phrase: str = "contact of {}"


class ArchiveAbout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`about` of an archive."""

    format: int
    algorithm: Name
    hyper_parameters: dict[str, Any] = {}
    task: TaskAbout
    seed: Annotated[int, Meta(ge=-(2**62), lt=2**62)] = 0
    evaluations: Whole
    digest: str | UnsetType = UNSET  # of the elites with their parameters, if these were left out


class CorrectedAbout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`about` of a corrected archive."""

    format: int
    replications: Positive
    seed: Whole = 0
    redraw: bool = False
    physics: Physics | None = None
    archive: str
    algorithm: Name
    hyper_parameters: dict[str, Any] | UnsetType = UNSET
    task: TaskAbout
    run_seed: Annotated[int, Meta(ge=-(2**62), lt=2**62)] = 0
    evaluations: Whole


class LogMark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log at a checkpoint: its bytes, and a digest of its first and last ones."""

    size: Whole
    digest: str


class CheckpointHeader(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The header of a checkpoint, apart from its arrays."""

    format: int
    record: dict[str, Any]  # settings of the run, without its seed
    seeds: Annotated[list[Seed], Meta(min_length=1)]
    digest: str  # of both
    generation: Whole
    evaluations: Whole
    environment_steps: list[Whole]
    corrected: Whole  # evaluations at the last correction
    elapsed: Seconds
    logs: list[dict[str, LogMark]]  # of each run
    pending: list[dict[str, Whole]] = []  # counts of each run since the last row of its log, if there are any
    pending_s: dict[str, Annotated[float, Meta(ge=0)]] = {}  # and the times
    checksums: dict[str, Whole] = {}  # of each array

    def __post_init__(self) -> None:
        for name in ("environment_steps", "logs", *(["pending"] if self.pending else [])):
            if len(getattr(self, name)) != len(self.seeds):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} entries; there are {len(self.seeds)} seeds"
                )


CELLS = {
    "centroids": ArraySpec("f", ("cells", "dimensions")),
    "bounds": ArraySpec("f", ("dimensions", 2)),
    "grid": ArraySpec("i", ("axes",)),
}
ARCHIVE = {
    "parameters": ArraySpec("f", ("elites", "parameters"), allowed="any"),
    "fitness": ArraySpec("f", ("elites",)),
    "descriptor": ArraySpec("f", ("elites", "dimensions")),
    "cell": ArraySpec("i", ("elites",)),
    "evaluation": ArraySpec("i", ("elites",)),
    "seed": ArraySpec("i", ("elites", "*")),
    "generation": ArraySpec("i", ("elites",)),
    "operator": ArraySpec("U", ("elites",)),
    "parents": ArraySpec("i", ("elites", "*")),
    **CELLS,
    "policy_sizes": ArraySpec("i", ("layers",)),
    "about": ArraySpec("U"),
}
ALWAYS_WRITTEN = tuple(BY_NAME[name] for name in ("qd_score", "max_fitness", "coverage"))
"""The metrics that every file has. Others may be missing: files of an older format do not have them."""
SUMMARY = {  # of a corrected archive
    column.name: ArraySpec("f", allowed="any")
    for metric in ALWAYS_WRITTEN
    for column in (metric, metric.loss)
}
CORRECTED = {
    "cell": ArraySpec("i", ("elites",)),
    "original_fitness": ArraySpec("f", ("elites",)),
    "original_descriptor": ArraySpec("f", ("elites", "dimensions")),
    "fitness": ArraySpec("f", ("elites", "replications"), allowed="missing"),
    "descriptor": ArraySpec("f", ("elites", "replications", "dimensions"), allowed="missing"),
    "mean_fitness": ArraySpec("f", ("elites",), allowed="missing"),
    "mean_descriptor": ArraySpec("f", ("elites", "dimensions"), allowed="missing"),
    "mean_cell": ArraySpec("i", ("elites",)),
    "kept": ArraySpec("b", ("elites",)),
    **CELLS,
    **SUMMARY,
    "invalid": ArraySpec("i"),
    "about": ArraySpec("U"),
}
UNFINISHED = {
    "fitness": ArraySpec("f", ("elites", "replications"), allowed="missing"),
    "descriptor": ArraySpec("f", ("elites", "replications", "dimensions"), allowed="missing"),
    "about": ArraySpec("U"),
}
MEMBERS = {
    "cell": ArraySpec("i", ("members",)),
    "fitness": ArraySpec("f", ("members",)),
    "parameters": ArraySpec("f", ("members", "parameters"), allowed="any"),
    "evaluations": ArraySpec("i"),
}

Decoded = TypeVar("Decoded")


def read_record(path: Path, kind: type[Decoded]) -> Decoded | None:
    """A record in a JSON file; None if there is no such file."""
    try:
        with open_file(path) as file:
            data = file.read(MAX_RECORD_BYTES + 1)
        if len(data) > MAX_RECORD_BYTES:
            raise ValueError(f"it has more than {MAX_RECORD_BYTES:,} bytes")
        return convert(parse(data), kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is damaged: {make_one_line(error)}") from None


def parse(data: bytes | str) -> Any:
    """The value of a JSON text. ValueError says what is wrong with it."""
    try:
        value = json.loads(data)  # bytes are UTF-8, whatever the locale
        _check_plain(value, 0)
    except RecursionError:
        raise ValueError(f"it is nested too deep; {MAX_DEPTH} levels are allowed") from None
    return value


def _check_plain(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        value.encode()  # an error for half of a surrogate pair
    elif isinstance(value, dict):
        for key, entry in value.items():
            key.encode()
            _check_plain(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check_plain(entry, depth + 1)


def convert(value: Any, kind: type[Decoded]) -> Decoded:
    """A value as a record. ValueError names the field that does not fit."""
    return msgspec.convert(value, kind)


def read_about(
    path: Path, text: np.ndarray, kind: type[ArchiveAbout | CorrectedAbout], version: int
) -> dict[str, Any]:
    """`about` of an npz file, checked; optional fields that are missing have their defaults."""
    try:
        about = parse(str(text))
        written = about.get("format") if isinstance(about, dict) else None
        if isinstance(written, int) and written != version:
            raise ElitesError(f"{path} has format {written}; this version reads format {version}")
        checked = convert(about, kind)
    except ValueError as error:
        raise ElitesError(f"{path} is damaged: in about: {make_one_line(error)}") from None
    complete: dict[str, Any] = msgspec.to_builtins(checked)
    task: dict[str, Any] = {**about["task"], **_missing(complete["task"], about["task"])}
    return {**about, "task": task, **_missing(complete, about)}


def _missing(complete: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in complete.items() if name not in given}


def check_archive(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Raises an error if the arrays of an archive contradict each other."""
    cells = _check_cells(path, arrays, about)
    _check_range(path, "cell", arrays["cell"], 0, cells)
    filled, elites = np.unique(arrays["cell"], return_counts=True)
    repeated = filled[elites > 1]
    if len(repeated):
        raise ElitesError(
            f"{path} is damaged: cell contains {repeated[0]} more than once; a cell has one elite"
        )
    seed = arrays["seed"]
    _check_range(path, "seed", seed, 0, 2**32)
    if seed.ndim > 2 or (len(seed) and not seed.size):
        raise ElitesError(
            f"{path} is damaged: seed has shape {list(seed.shape)}; "
            "it must be one number for each elite, or one for each of its episodes"
        )
    sizes = [int(size) for size in arrays["policy_sizes"]]
    if sizes and (len(sizes) < 2 or min(sizes) < 1):
        raise ElitesError(
            f"{path} is damaged: policy_sizes is {sizes}; it must be empty, or two numbers from 1 on"
        )
    if "parameters" in arrays:
        width = arrays["parameters"].shape[1]
        if "digest" in about and width:
            raise ElitesError(f"{path} is damaged: about has a digest, as if parameters had been left out")
        if "digest" not in about and sizes and width != parameter_count(tuple(sizes)):
            raise ElitesError(
                f"{path} is damaged: parameters has {width} columns; "
                f"policy_sizes {sizes} take {parameter_count(tuple(sizes))}"
            )


def check_corrected(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Raises an error if the arrays of a corrected archive contradict each other."""
    cells, kept = _check_cells(path, arrays, about), arrays["kept"]
    _check_range(path, "cell", arrays["cell"], 0, cells)
    _check_range(path, "mean_cell", arrays["mean_cell"], -1, cells)
    _check_range(path, "mean_cell of kept elites", arrays["mean_cell"][kept], 0, cells)
    for name in ("mean_fitness", "mean_descriptor"):
        if not (np.abs(arrays[name][kept]) <= MAX_FLOAT32).all():
            raise ElitesError(f"{path} is damaged: {name} of kept elites is not finite, or too large")
    if arrays["fitness"].shape[1] != about["replications"]:
        raise ElitesError(
            f"{path} is damaged: fitness has {arrays['fitness'].shape[1]} replications, "
            f"about has {about['replications']}"
        )


def check_members(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises an error if members are not in the order of their cells."""
    cell = arrays["cell"]
    if len(cell) and (cell[0] < 0 or (np.diff(cell) < 0).any()):
        raise ElitesError(f"{path} is damaged: cell must be numbers from 0 on, in ascending order")


def _check_cells(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> int:
    """Raises an error if the cells contradict each other. Returns their number."""
    cells, dimensions = arrays["centroids"].shape
    names, grid = about["task"]["descriptor_names"], [int(count) for count in arrays["grid"]]
    if not cells or len(names) != dimensions:
        raise ElitesError(
            f"{path} is damaged: centroids has shape {[cells, dimensions]}; "
            f"it must be a cell or more in {len(names)} dimensions"
        )
    low, high = arrays["bounds"].T
    if not (low < high).all():
        raise ElitesError(f"{path} is damaged: bounds must be a lower and a higher number for each dimension")
    if grid and (len(grid) != dimensions or min(grid) < 1 or math.prod(grid) != cells):
        raise ElitesError(
            f"{path} is damaged: grid is {grid}; "
            f"it must be empty, or {dimensions} numbers whose product is {cells}"
        )
    return int(cells)


def _check_range(path: Path, name: str, numbers: np.ndarray, low: int, end: int) -> None:
    if numbers.size and (numbers.min() < low or numbers.max() >= end):
        raise ElitesError(f"{path} is damaged: {name} must be from {low} to {end - 1}")


COUNTS = ("generation", "evaluations", "environment_steps", "gradient_steps", "invalid")
OPTIONAL = tuple(  # columns of `metrics.csv` whose cells may be empty; earlier logs do not have them
    metric.name for metric in GENERATION_METRICS
)
REQUIRED = (  # columns of `metrics.csv`
    *("generation", "evaluations", "environment_steps"),
    *(metric.name for metric in ALWAYS_WRITTEN),
)
CORRECTION = (  # columns of `corrections.csv`
    "evaluations",
    *(column.name for metric in ALWAYS_WRITTEN for column in (metric, metric.loss)),
)
RESERVED = ("task", "algorithm", "variant", "seed", "elapsed_s")  # columns of reports, not of a log
TIMING = ("elapsed_s",)  # columns of `timings.csv`


def is_count(column: str) -> bool:
    """Whether a column of `metrics.csv` counts something; the others are metrics."""
    return column in COUNTS or column.startswith(BY_OPERATOR)


def is_sum(column: str) -> bool:
    """Whether a column of `metrics.csv` counts something since the previous row."""
    return column == "invalid" or column.startswith(BY_OPERATOR)


def check_columns(path: Path, columns: Iterable[str], required: Iterable[str] = REQUIRED) -> None:
    """Raises an error if a column is missing or occurs twice. Each operator has three columns."""
    columns = list(columns)
    operators = find_operators(columns)
    needed = [*required, *(f"{prefix}{name}" for name in operators for prefix in BY_OPERATOR)]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ElitesError(f"{path} is damaged: it has no column {missing[0]}")
    if reserved := [name for name in columns if required == REQUIRED and name in RESERVED]:
        raise ElitesError(f"{path} is damaged: it has a column {reserved[0]}, which is not a metric")
    if duplicates := [name for place, name in enumerate(columns) if name in columns[:place]]:
        raise ElitesError(f"{path} is damaged: it has two columns {make_one_line(duplicates[0])}")


def check_table(path: Path, table: Mapping[str, np.ndarray], required: Iterable[str] = REQUIRED) -> None:
    """Raises an error if the columns of a log are not what a run writes."""
    check_columns(path, table, required)
    for name, column in table.items():
        if is_count(name) and not ((column >= 0) & (column <= MAX_COUNT)).all():
            raise ElitesError(
                f"{path} is damaged: {make_one_line(name)} is not a number from 0 on in every row"
            )
        # Losses and the user's own metrics may be infinite.
        numbers = column if name in REQUIRED else column[np.isfinite(column)]
        if (np.abs(numbers) > MAX_METRIC).any():
            raise ElitesError(
                f"{path} is damaged: {make_one_line(name)} holds a number beyond {MAX_METRIC:g}"
            )
    if "evaluations" in table and (np.diff(table["evaluations"]) < 0).any():
        raise ElitesError(f"{path} is damaged: evaluations do not increase")
