"""Damage to files: bytes, JSON, arrays, tables and TOML; then a command that reads them."""

import io
import json
import random
import shutil
import struct
import zipfile
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.lib import format as npy

from tests.fuzz.harness import Case
from tests.fuzz.seeds import STOP

LONG, ODD = "x" * 300, "a$b<_\n[red]"
HOSTILE = (
    *(None, True, False, 0, -1, 1, 3, 10**9, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan")),
    *(
        float("inf"),
        float("-inf"),
        "",
        "text",
        "5",
        LONG,
        ODD,
        "\u0000",
        "\ud800",
        "é",
        "../..",
        [],
        {},
        [[]],
    ),
    *([None], [1e308], ["a", 1], {"a": 1}, [0] * 1000, {"": None}),
)


class Touch:
    """An object that leaves a file behind when it is unpickled."""

    def __reduce__(self):
        return (open, ("unpickled", "w"))


# Bytes


@dataclass(frozen=True)
class Damage:
    """A change to a file, by what it does and where."""

    path: str
    what: str
    where: float = 0.0  # a share of the file
    value: Any = None

    def __repr__(self):
        value = repr(self.value)
        return f"{self.path}: {self.what} at {self.where:.3g}" + (f" {value[:60]}" if self.value else "")

    def __call__(self, folder):
        path = folder / self.path
        if self.what == "a folder":
            path.unlink()
            path.mkdir()
        elif self.what == "a full folder":
            path.unlink()
            path.mkdir()
            (path / "kept").write_text("kept")
        elif self.what in ("a loop", "a link to nothing", "a link to a folder"):
            path.unlink()
            target = {"a loop": path.name, "a link to nothing": "nothing", "a link to a folder": "."}[
                self.what
            ]
            path.symlink_to(target)
        elif self.what == "gone":
            path.unlink()
        else:
            path.write_bytes(self._bytes(path.read_bytes()))

    def _bytes(self, data):
        at = min(int(self.where * len(data)), max(0, len(data) - 1))
        match self.what:
            case "cut":
                return data[:at]
            case "flipped":
                return (
                    data[:at] + bytes([data[at] ^ (1 << (self.value or 0) % 8)]) + data[at + 1 :]
                    if data
                    else b""
                )
            case "inserted":
                return data[:at] + self.value + data[at:]
            case "replaced":
                return self.value
            case "repeated":
                return data + data
        raise AssertionError(self.what)


RAW = (
    b"\xff\xfe\x00", b"\xe9", b"\x00", b"[" * 100_000, b'{"a":' * 50_000, b"\n", b"\xef\xbb\xbf", b"1e999",
    b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"null", b"[]", b"{}", b"9" * 5000, b"\r\n\r\n", b'"', b",,,,,",
)  # fmt: skip
SHARES = st.integers(0, 2**32 - 1).map(lambda number: round(random.Random(number).random(), 4))  # evenly


def damaged_bytes(path):
    return st.one_of(
        st.sampled_from(
            ["a folder", "a full folder", "a loop", "a link to nothing", "a link to a folder", "gone"]
        ).map(lambda what: Damage(path, what)),
        st.builds(Damage, st.just(path), st.just("cut"), SHARES),
        st.builds(Damage, st.just(path), st.just("flipped"), SHARES, st.integers(0, 7)),
        st.builds(
            Damage, st.just(path), st.sampled_from(["inserted", "replaced"]), SHARES, st.sampled_from(RAW)
        ),
        st.builds(Damage, st.just(path), st.just("replaced"), st.just(0.0), st.binary(max_size=40)),
        st.just(Damage(path, "repeated")),
    )


# Plain values


def spots(value, at=()):
    """The paths to everything in a value."""
    yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from spots(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:5]):
            yield from spots(item, (*at, index))


def changed(value, at, change):
    """A copy with what is at a path replaced by `change` of it; left out if that is `...`."""
    if not at:
        return change(value)
    key, *rest = at
    made = dict(value) if isinstance(value, dict) else list(value)
    item = changed(value[key], rest, change)
    if item is ...:
        del made[key]
    else:
        made[key] = item
    return made


def nested(depth):
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@dataclass(frozen=True)
class Edit:
    """A change of a plain value: of a JSON file, of what a file of arrays says about itself, of TOML."""

    spot: float  # a share of all paths
    what: str
    value: Any = None

    def __repr__(self):
        return f"{self.what} {str(self.value)[:60]!r} at {self.spot:.4g}"

    def apply(self, record):
        paths = list(spots(record))
        at = paths[min(int(self.spot * len(paths)), len(paths) - 1)]

        def change(item):
            match self.what:
                case "removed":
                    return ... if at else {}
                case "foreign":
                    return {**item, "foreign": self.value} if isinstance(item, dict) else [item, self.value]
                case "renamed" if isinstance(item, dict) and item:
                    first, *_ = item
                    return {("odd" if key == first else key): kept for key, kept in item.items()}
                case "shorter" if isinstance(item, list | str):
                    return item[:-1]
                case "longer" if isinstance(item, list | str):
                    return item + item[:1]
                case "as text":
                    return str(item)
                case "in a list":
                    return [item]
                case "nested":
                    return nested(200)
            return self.value

        return changed(record, at, change)


EDITS = st.builds(
    Edit,
    SHARES,
    st.sampled_from(
        [
            "set",
            "set",
            "set",
            "removed",
            "foreign",
            "renamed",
            "shorter",
            "longer",
            "as text",
            "in a list",
            "nested",
        ]
    ),
    st.sampled_from(HOSTILE),
)


@dataclass(frozen=True)
class JsonDamage:
    path: str
    edits: tuple[Edit, ...]

    def __repr__(self):
        return f"{self.path}: {self.edits}"

    def __call__(self, folder):
        path = folder / self.path
        record = json.loads(path.read_bytes())
        for edit in self.edits:
            record = edit.apply(record)
        path.write_text(json.dumps(record))


def damaged_json(path):
    return st.builds(JsonDamage, st.just(path), st.lists(EDITS, min_size=1, max_size=2).map(tuple))


# Files of arrays


def declared(shape, dtype="<f8", data=b""):
    """An array's bytes that claim to be of some shape."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + data


def bomb(name, size=3 * 10**9):
    """A file of arrays whose one member is `size` bytes of zeros, in few bytes."""
    header = declared((size // 8,))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begun = packer.compress(header) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(10**6)) + packer.flush(zlib.Z_FULL_FLUSH)
    data = begun + block * (size // 10**6) + packer.flush()
    total, name = len(header) + size, f"{name}.npy".encode()
    fixed = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(data), total, len(name), 0)
    local = b"PK\x03\x04" + fixed + name
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fixed + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    at = len(local) + len(data)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), at, 0)
    return local + data + central + end


ARRAY_CHANGES = (
    "removed", "shorter", "longer", "empty", "as text", "as bytes", "as bool", "as complex", "as float64",
    "as int8", "flat", "one more dimension", "scalar", "filled", "one element", "pickled", "declared",
    "compressed", "bomb", "fortran", "big-endian", "record", "reversed",
)  # fmt: skip


@dataclass(frozen=True)
class ArrayDamage:
    """A change of one array in a file of arrays, or of the JSON in it."""

    path: str
    member: float  # a share of all arrays
    what: str
    value: Any = None

    def __repr__(self):
        return f"{self.path}: array {self.member:.4g} {self.what} {self.value}"

    def __call__(self, folder):
        path = folder / self.path
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        names = list(arrays)
        name = names[min(int(self.member * len(names)), len(names) - 1)]
        if isinstance(self.value, Edit):  # of `about` or `header`
            name = next((key for key in ("about", "header") if key in arrays), name)
        raw = self._change(arrays, name)
        if self.what == "bomb":
            path.write_bytes(bomb(name))
            return
        compression = zipfile.ZIP_DEFLATED if self.what == "compressed" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", compression) as out:
            for key, array in arrays.items():
                file = io.BytesIO()
                npy.write_array(file, np.asanyarray(array), allow_pickle=True)
                out.writestr(f"{key}.npy", raw if key == name and raw is not None else file.getvalue())

    def _change(self, arrays, name):
        array, value = arrays[name], self.value
        if isinstance(value, Edit):
            try:
                record = json.loads(str(array))
            except ValueError:  # a file that says nothing about itself
                arrays[name] = np.array(str(value))
                return None
            arrays[name] = np.array(json.dumps(value.apply(record)))
            return None
        match self.what:
            case "removed":
                del arrays[name]
            case "shorter":
                arrays[name] = array[:-1] if array.ndim else np.array(str(array)[:-1])
            case "longer":
                arrays[name] = np.concatenate([array, array[:1]]) if array.ndim else np.stack([array, array])
            case "empty":
                arrays[name] = array[:0] if array.ndim else np.array([], array.dtype)
            case "as text":
                arrays[name] = array.astype(str)
            case "as bytes":
                arrays[name] = (
                    array.astype(str).astype("S") if array.dtype.kind != "U" else np.array(b"about")
                )
            case "as bool" | "as complex" | "as float64" | "as int8" if array.dtype.kind in "iufb":
                kind = {"as bool": bool, "as complex": complex, "as float64": np.float64, "as int8": np.int8}
                with np.errstate(all="ignore"):
                    arrays[name] = array.astype(kind[self.what])
            case "flat":
                arrays[name] = array.reshape(-1)
            case "one more dimension":
                arrays[name] = array[..., None]
            case "scalar":
                arrays[name] = np.array(value if isinstance(value, int | float | str) else 0)
            case "filled" | "one element" if array.dtype.kind in "iuf" and array.size:
                made = array.copy()
                number = value if isinstance(value, int | float) else -1
                if array.dtype.kind != "f":
                    number = int(np.clip(number, *_range(array.dtype))) if number == number else -1
                with np.errstate(all="ignore"):
                    made[... if self.what == "filled" else (0,) * made.ndim] = _cast(number, array.dtype)
                arrays[name] = made
            case "pickled":
                arrays[name] = np.array([Touch()], object)
            case "declared":
                sizes = ((10**9, 10**3), (10**6, 1), (2**62,), (2**31, 2**31), (-1,), (10**8,))
                return declared(sizes[int(self.member * 997) % len(sizes)], data=bytes(80))
            case "fortran":
                arrays[name] = np.asfortranarray(array)
            case "big-endian" if array.dtype.kind in "iuf":
                arrays[name] = array.astype(array.dtype.newbyteorder(">"))
            case "record":
                arrays[name] = np.zeros(max(1, array.size), [("a", "<f4"), ("b", "<U3")])
            case "reversed":
                arrays[name] = array[::-1].copy() if array.ndim else array
        return None


def _range(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _cast(number, dtype):
    with np.errstate(all="ignore"):
        return np.asarray(number, dtype if dtype.kind != "f" else float).astype(dtype)


NUMBERS = tuple(value for value in HOSTILE if isinstance(value, int | float) and not isinstance(value, bool))


def damaged_arrays(path):
    return st.one_of(
        st.builds(
            ArrayDamage, st.just(path), SHARES, st.sampled_from(ARRAY_CHANGES), st.sampled_from(NUMBERS)
        ),
        st.builds(ArrayDamage, st.just(path), st.just(0.0), st.just("about"), EDITS),
    )


# Tables

CELLS = (
    "text",
    "",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1",
    "0x1",
    "1_0",
    "None",
    "é",
    '"',
    '"a\n',
    "1e999",
    "9" * 400,
)


@dataclass(frozen=True)
class TableDamage:
    path: str
    what: str
    row: float
    column: float
    value: str = ""

    def __repr__(self):
        return f"{self.path}: {self.what} row {self.row:.3g} column {self.column:.3g} {self.value[:30]!r}"

    def __call__(self, folder):
        path = folder / self.path
        rows = [line.split(",") for line in path.read_text().splitlines()]
        row, column = int(self.row * len(rows)), int(self.column * len(rows[0]))
        match self.what:
            case "cell":
                rows[row][column] = self.value
            case "column removed":
                rows = [line[:column] + line[column + 1 :] for line in rows]
            case "column added":
                rows = [[*line, self.value] for line in rows]
            case "column repeated":
                rows = [[*line, line[column]] for line in rows]
            case "cell removed":
                del rows[row][column]
            case "cell added":
                rows[row].append(self.value)
            case "row removed":
                del rows[row]
            case "row repeated":
                rows.insert(row, rows[row])
            case "rows reversed":
                rows[1:] = rows[:0:-1]
            case "header only":
                del rows[1:]
            case "column set":
                for line in rows[1:]:
                    line[column] = self.value
        text = "\n".join(",".join(line) for line in rows) + "\n"
        path.write_text(text)


TABLE_CHANGES = (
    "cell", "cell", "column removed", "column added", "column repeated", "cell removed", "cell added",
    "row removed", "row repeated", "rows reversed", "header only", "column set",
)  # fmt: skip


def damaged_table(path):
    return st.builds(
        TableDamage, st.just(path), st.sampled_from(TABLE_CHANGES), SHARES, SHARES, st.sampled_from(CELLS)
    )


# TOML


def toml(value):
    """A value in TOML's notation, in line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if value is None:
        return "1979-05-27T07:32:00Z"  # TOML has no null, but dates
    return json.dumps(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class TomlDamage:
    path: str
    edits: tuple[Edit, ...]

    def __repr__(self):
        return f"{self.path}: {self.edits}"

    def __call__(self, folder):
        import tomllib

        path = folder / self.path
        record = tomllib.loads(path.read_text())
        for edit in self.edits:
            record = edit.apply(record)
        record = record if isinstance(record, dict) else {"": record}
        text = "".join(f"{json.dumps(str(key))} = {toml(value)}\n" for key, value in record.items())
        path.write_bytes(text.encode(errors="surrogatepass"))


def damaged_toml(path):
    return st.builds(TomlDamage, st.just(path), st.lists(EDITS, min_size=1, max_size=2).map(tuple))


# Cases

RUN, DEEP = "out/runs/hopper/plain/seed-0", "out/runs/hopper/deep/seed-0"
PICTURE = ("--steps", "2", "--size", "32", "32", "--out", "new.gif")
GO_ON = ("--threads", "1", "--max-hours", "1e-9")


def show(folder):
    return ("show", folder)


def correct(folder, *more):
    return ("correct", folder, "--replications", "2", "--threads", "1", *more)


def replayed(folder):
    return ("replay", folder, *PICTURE)


def resume(folder):
    return ("resume", folder, *GO_ON)


FILM = (*show(RUN), "--film", "new.gif", "--size", "3", "3")
REPORT = ("study", "report", "out")
MERGE = ("study", "merge", "out", "--out", "new")
LIGHT = (*MERGE, "--without-parameters")
GO_ON_STUDY = (
    "study",
    "run",
    "mine.toml",
    "--out",
    "out",
    "--workers",
    "1",
    "--threads",
    "1",
    "--no-calibrate",
)
KINDS = {
    ".json": damaged_json,
    ".npz": damaged_arrays,
    ".csv": damaged_table,
    ".toml": damaged_toml,
    ".bin": damaged_bytes,
}

# The prepared folder, the file, and the commands that read it; those that take long are given seldom.
READ = (
    (
        "study",
        f"{RUN}/config.json",
        (show(RUN), correct(RUN), replayed(RUN), resume(RUN), GO_ON_STUDY, MERGE),
        (REPORT,),
    ),
    ("study", f"{RUN}/archive.npz", (show(RUN), correct(RUN), replayed(RUN), resume(RUN), LIGHT), (REPORT,)),
    ("study", f"{RUN}/corrected.npz", (show(RUN), correct(RUN)), (REPORT, LIGHT)),
    ("study", f"{RUN}/metrics.csv", (show(RUN),), (REPORT,)),
    ("study", f"{DEEP}/members.npz", (correct(DEEP, "--redraw", "--seed", "1"),), ()),
    ("study", f"{RUN}/snapshots/0000000010.npz", (correct(RUN, "--snapshot", "10"), FILM), ()),
    ("study", "out/study.json", (MERGE,), ()),
    ("study", "out/measured.json", ((*GO_ON_STUDY, "--plan"),), ((*GO_ON_STUDY, "--seeds", "3", "--plan"),)),
    ("study", "mine.toml", (GO_ON_STUDY,), ((*GO_ON_STUDY, "--plan"),)),
    ("whole", "plain/corrections.csv", (show("plain"),), (("study", "report", "plain"),)),
    ("stopped", "plain/config.json", (resume("plain"),), ()),
    ("stopped", "plain/archive.npz", (resume("plain"),), ()),
    ("stopped", "plain/metrics.csv", (resume("plain"),), ()),
    ("stopped", "plain/corrections.csv", (resume("plain"),), ()),
    ("stopped", "plain/lineage.bin", (resume("plain"),), ()),
    (
        "whole",
        "plain/corrected.unfinished.npz",
        (("correct", "plain", "--replications", "3", "--threads", "1"),),
        (),
    ),
    ("whole", "plain/corrected.npz", (correct("plain"), resume("plain")), (("study", "report", "plain"),)),
    ("stopped", "plain/checkpoints/000000002.npz", (resume("plain"),), ()),
    ("stopped", "learning/checkpoints/000000002.npz", (resume("learning"),), ()),
    ("stopped", "group/group.json", (resume("group"), resume("group/seed-0"), show("group")), ()),
    ("stopped", "group/seed-1/config.json", (resume("group"),), ()),
    ("stopped", "group/checkpoints/000000002.npz", (resume("group"),), ()),
)
READ_SLOWLY = (
    ("study", f"{RUN}/timings.csv", (), (REPORT,)),
    ("study", "out/study.json", (), (REPORT,)),
)


@st.composite
def damaged_files(draw):
    """A file that is damaged, and a command that reads it."""
    seed, path, commands, slow = draw(st.sampled_from((*READ * 8, *READ_SLOWLY)))
    kind = KINDS[path[path.rindex(".") :]]
    change = draw(st.one_of(kind(path), kind(path), damaged_bytes(path)))
    seldom = slow and (not commands or draw(st.integers(0, 39)) == 7)
    often = [arguments for arguments in commands if arguments[0] != "show"]  # drawing takes long
    arguments = draw(st.sampled_from(slow if seldom else (*commands, *often * 3)))
    return Case(seed, arguments, (change,), expected=expected(path, arguments, change))


def expected(path, arguments, change):
    """What must happen where it is known for sure."""
    rereads = arguments[0] == "correct" or (arguments[0] == "study" and arguments[1] != "merge")
    remade = path.endswith(("measured.json", "corrected.npz", "unfinished.npz")) and rereads
    another = arguments[:2] == ("study", "report") and "/runs/" in path  # the other runs are whole
    older = "/checkpoints/" in path
    if getattr(change, "what", "").endswith("folder"):  # a folder is not written over
        remade = False
    return "success" if remade or another or older else ""


CENTROIDS = "16x1-100000-2.npz"


@st.composite
def damaged_centroids(draw):
    """A damaged file in the cache: it can be made again."""
    path = f"cache/centroids/{CENTROIDS}"
    change = draw(st.one_of(damaged_arrays(path), damaged_bytes(path)))
    arguments = (
        *("run", "map-elites", "qd-hopper", "--cells", "16", "--episode-length", "20", "--hidden", "4"),
        *("--initial", "20", "--batch", "10", "--evaluations", "50", "--out", "new", *STOP),
    )
    return Case(
        "",
        arguments,
        (Copied(CENTROIDS), change),
        environment=(("ELITES_CACHE", "{folder}/cache"),),
        expected="success",
    )


@dataclass(frozen=True)
class Copied:
    name: str

    def __call__(self, folder):
        from elites.cache import find_cache_root

        target = folder / "cache" / "centroids"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(find_cache_root() / "centroids" / self.name, target)


def with_encoding(cases):
    """The same cases, some with an output that cannot say everything."""
    encodings = st.sampled_from(["utf-8"] * 6 + ["latin-1", "ascii"])
    return st.builds(lambda case, encoding: replace(case, encoding=encoding), cases, encodings)
