"""Damage of every kind of file: one line that names the file and the field."""

import io
import json
import os
import re
import zipfile

import numpy as np
import pytest

from elites import ElitesError, cli, load_archive, load_corrected, read_table
from elites.files import ArrayFile, ArraySpec, read_arrays, write_arrays
from elites.reports.study.report import report_study
from elites.results.checkpoints import Checkpoints, RunIdentity
from elites.results.folder import GroupFolder, RunFolder
from elites.results.members import load_members
from elites.results.schemas import ARCHIVE, LogMark, Pace, RunRecord
from elites.results.study import StudyFolder
from elites.results.tables import AppendOnlyFile, check_logs
from elites.studies import run as studies
from tests.synthetic_runs import make_run

RECORD = {"algorithm": "map-elites", "task": "qd-walker", "seed": 3}
DEEP = "[" * 100_000 + "]" * 100_000
PACE = {"start_s": 1.0, "generation_s": 2.0}


def refusal(read, *arguments):
    """The message of an error, which is a line and advises nothing unsafe."""
    with pytest.raises(ElitesError) as refused:
        read(*arguments)
    message = str(refused.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 1000
    assert "pickle" not in message
    return message


READERS = {
    "config.json": lambda folder: RunFolder(folder).read_record(),
    "group.json": lambda folder: GroupFolder(folder).seeds(),
    "study.json": lambda folder: StudyFolder(folder).read_record(),
    "measured.json": lambda folder: StudyFolder(folder).read_measured(),
}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", {**RECORD, "seed": "3"}, "Expected `int`, got `str` - at `$.seed`"),
        ("config.json", {**RECORD, "seed": -1}, "Expected `int` >= 0 - at `$.seed`"),
        ("config.json", {**RECORD, "seed": 10**40}, "`$.seed`"),
        ("config.json", {**RECORD, "seed": True}, "Expected `int`, got `bool` - at `$.seed`"),
        ("config.json", {**RECORD, "evaluations": 1e308}, "`$.evaluations`"),
        ("config.json", {**RECORD, "metrics": "a:b"}, "Expected `array`, got `str` - at `$.metrics`"),
        ("config.json", {**RECORD, "metrics": [3]}, "`$.metrics[0]`"),
        ("config.json", {**RECORD, "versions": {"jax": 3}}, "`$.versions[...]`"),
        ("config.json", {**RECORD, "wi\nngs": 2}, "unknown field `wi ngs`"),
        ("config.json", {"task": "qd-walker"}, "missing required field `algorithm`"),
        ("config.json", {**RECORD, "algorithm": ""}, "`$.algorithm`"),
        ("config.json", {**RECORD, "task": "\ud800"}, "surrogates not allowed"),
        ("config.json", [RECORD], "Expected `object`, got `array`"),
        ("group.json", {}, "missing required field `seeds`"),
        ("group.json", {"seeds": []}, "Expected `array` of length >= 1 - at `$.seeds`"),
        ("group.json", {"seeds": [0, 1, 0]}, "seeds contains 0 more than once; seeds must be unique"),
        ("group.json", {"seeds": ["0"]}, "`$.seeds[0]`"),
        ("study.json", {"tasks": [{"name": 3}]}, "Expected `str`, got `int` - at `$.tasks[0].name`"),
        ("study.json", {"tasks": "qd-walker"}, "`$.tasks`"),
        ("measured.json", {"cell": {**PACE, "start_s": "1"}}, "Expected `float`, got `str`"),
        ("measured.json", {"cell": {**PACE, "start_s": float("nan")}}, "Expected `float` >= 0"),
        ("measured.json", {"cell": {**PACE, "start_s": 1e308}}, "Expected `float` <= 1000000000000.0"),
        ("measured.json", {"cell": {"start_s": 1.0}}, "a pace has start_s with generation_s"),
        ("measured.json", {"cell": []}, "`$[...]`"),
    ],
)
def test_a_field_that_does_not_fit_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_text(json.dumps(content))
    error = refusal(READERS[name], tmp_path)
    assert error.startswith(f"{tmp_path / name} is damaged: ")
    assert message in error


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"a": "\xff"}', b'{"a": ' + DEEP.encode() + b"}", b"9" * 5000, b"null", b"NaN"]
)
def test_files_that_are_not_records_are_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert f"{tmp_path / name} is damaged" in refusal(READERS[name], tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_folder_or_a_pipe_in_place_of_a_record_is_refused(name, tmp_path):
    """A pipe is not waited for."""
    (tmp_path / name).mkdir()
    assert "it is a folder, not a file" in refusal(READERS[name], tmp_path)
    (tmp_path / name).rmdir()
    os.mkfifo(tmp_path / name)
    assert "it is not a file" in refusal(READERS[name], tmp_path)


def test_nested_values_within_a_record_have_a_limit(tmp_path):
    content = {**RECORD, "hyper_parameters": {"hidden": json.loads("[" * 40 + "]" * 40)}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert "nested too deep" in refusal(READERS["config.json"], tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with an archive on a grid, and its correction."""
    return make_run(
        tmp_path_factory.mktemp("runs"), "map-elites", "qd-walker", 0, evaluations=200, loss=0.1, cells="grid"
    )


def arrays_of(path):
    with np.load(path) as file:
        return dict(file)


def rewritten(path, target, **changes):
    """A copy of an npz file with other arrays; None leaves one out, and a function changes it."""
    arrays = arrays_of(path)
    for name, change in changes.items():
        arrays[name] = change(arrays[name]) if callable(change) else change
    np.savez(target, **{name: array for name, array in arrays.items() if array is not None})
    return target


def about(**changes):
    def change(text):
        return np.array(json.dumps({**json.loads(str(text)), **changes}))

    return change


def with_first(value):
    def change(array):
        changed = array.copy()
        changed[0] = value
        return changed

    return change


CELLS = [
    ({"centroids": lambda array: array[:-1]}, "grid is"),
    ({"centroids": lambda array: array[:, :1]}, "shape"),
    ({"centroids": with_first(np.nan)}, "centroids holds a number that is not finite"),
    ({"bounds": lambda array: array[:, :1]}, "bounds has shape [2, 1]; it must be [2, 2]"),
    ({"bounds": lambda array: array[:, ::-1]}, "bounds must be a lower and a higher number"),
    ({"grid": np.array([3, 3])}, "grid is [3, 3]; it must be empty, or 2 numbers whose product is"),
    ({"grid": np.array([2.0, 3.0])}, "grid is float64; it must be whole numbers"),
    ({"about": np.array("{}")}, "in about: Object missing required field `format`"),
    ({"about": np.array("[")}, "in about: "),
    ({"about": np.array(DEEP)}, "nested too deep"),
    ({"about": np.array(3)}, "about is int64; it must be text"),
    ({"about": about(format=2)}, "has format 2; this version reads format 1"),
    ({"about": about(evaluations="many")}, "Expected `int`, got `str` - at `$.evaluations`"),
    ({"about": about(wings=2)}, "unknown field `wings`"),
    ({"about": about(task={"name": "a", "qd_offset": 0.0, "descriptor_names": ["x"]})}, "in 1 dimensions"),
    ({"about": about(task={"name": "a", "qd_offset": 1e308, "descriptor_names": []})}, "`$.task.qd_offset`"),
]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *CELLS,
        ({"fitness": None}, "it has no fitness"),
        ({"fitness": lambda array: array[:-1]}, "shape"),
        ({"fitness": lambda array: array.astype(str)}, "it must be floating-point numbers"),
        ({"fitness": with_first(np.nan)}, "fitness holds a number that is not finite"),
        ({"fitness": lambda array: array.astype(float) * 0 + 1e308}, "or too large"),
        ({"descriptor": lambda array: array[:, :, None]}, "descriptor has shape"),
        ({"cell": with_first(-1)}, "cell must be from 0 to"),
        ({"cell": with_first(10**6)}, "cell must be from 0 to"),
        ({"cell": lambda array: array * 0}, "cell contains 0 more than once; a cell has one elite"),
        ({"operator": lambda array: np.arange(len(array))}, "operator is int64; it must be text"),
        ({"operator": lambda array: (array.view(np.uint32) * 0 + 0x7FFFFFFF).view("<U2")}, "not Unicode"),
        ({"parameters": lambda array: array[:, :1]}, "parameters has 1 columns; policy_sizes [1, 1] take 2"),
        ({"seed": with_first(-1)}, "seed must be from 0 to 4294967295"),
        ({"seed": lambda array: array[:, None][:, :0]}, "it must be one number for each elite"),
        ({"policy_sizes": np.array([-4])}, "policy_sizes is [-4]"),
    ],
)
def test_damaged_archives(changes, message, made, tmp_path):
    path = rewritten(made / "archive.npz", tmp_path / "archive.npz", **changes)
    error = refusal(load_archive, path)
    assert str(path) in error
    assert message in error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *CELLS,
        ({"kept": lambda array: array.astype(int)}, "kept is int64; it must be bool"),
        ({"kept": lambda array: array[1:]}, "kept has shape"),
        ({"mean_cell": with_first(-2)}, "mean_cell must be from -1 to"),
        ({"mean_cell": with_first(-1), "kept": with_first(True)}, "mean_cell of kept elites must be from 0"),
        ({"mean_fitness": with_first(np.nan), "kept": with_first(True)}, "mean_fitness of kept elites"),
        ({"fitness": lambda array: array[:, :1], "descriptor": lambda array: array[:, :1]}, "1 replications"),
        ({"qd_score": np.array([1.0])}, "qd_score has shape [1]; it must be []"),
        ({"about": about(replications=0)}, "Expected `int` >= 1 - at `$.replications`"),
    ],
)
def test_damaged_corrections(changes, message, made, tmp_path):
    path = rewritten(made / "corrected.npz", tmp_path / "corrected.npz", **changes)
    error = refusal(load_corrected, path)
    assert str(path) in error
    assert message in error


MEMBERS = {
    "cell": np.array([0, 0, 2]),
    "fitness": np.ones(3, np.float32),
    "parameters": np.ones((3, 2), np.float32),
    "evaluations": np.array(40),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": np.array([2, 0, 0])}, "cell must be numbers from 0 on, in ascending order"),
        ({"cell": np.array([-1, 0, 0])}, "cell must be numbers from 0 on, in ascending order"),
        ({"parameters": np.ones(3, np.float32)}, "parameters has shape [3]"),
        ({"evaluations": np.array("many")}, "it must be whole numbers"),
    ],
)
def test_damaged_members(changes, message, tmp_path):
    path = tmp_path / "members.npz"
    np.savez(path, **MEMBERS)
    assert load_members(path).evaluations == 40
    np.savez(path, **{**MEMBERS, **changes})
    assert message in refusal(load_members, path)


def npz(path, entries, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in entries.items():
            file.writestr(f"{name}.npy", data)
    return path


def npy(array, **header):
    """The bytes of an array with another header."""
    fields = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {**fields, **header})
    return file.getvalue() + array.tobytes()


NUMBERS = {"numbers": ArraySpec("f", ("rows", "*"))}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(np.zeros(9), shape=(10**9,)), "numbers declares 8,000,000,000 bytes; it has 72"),
        (npy(np.zeros(9), shape=(3,)), "numbers declares 24 bytes; it has 72"),
        (npy(np.zeros(0), shape=(0, 10**15)), "without any data"),
        (npy(np.zeros(0), shape=(-1, -9)), "numbers declares"),
        (npy(np.zeros(0), descr="|U0", shape=(10**15,)), "without any data"),
        (npy(np.zeros(9), descr="|O"), "numbers holds object; only numbers and text are read"),
        (npy(np.zeros(9), descr=[("a", "<f8")]), "only numbers and text are read"),
        (npy(np.zeros(9, np.longdouble)), "it must be floating-point numbers"),
        (npy(np.zeros(9))[:-1], "numbers declares 72 bytes; it has 71"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 70_000, "numbers has no header of an array"),
        (b"\x93NUMPY\x03\x00" + npy(np.zeros(9))[8:], "numbers has no header of an array"),
        (b"", "numbers has no header of an array"),
        (b"\x80\x04N.", "numbers has no header of an array"),
    ],
)
def test_arrays_that_differ_from_their_declaration_are_refused(data, message, tmp_path):
    path = npz(tmp_path / "file.npz", {"numbers": data})
    assert message in refusal(read_arrays, path, NUMBERS, "a file of numbers")


def test_a_file_that_declares_more_than_it_holds_is_refused(tmp_path):
    """3 GB of zeros take 3 MB when compressed; smaller files may be compressed by their owners."""
    path = tmp_path / "file.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("numbers.npy", "w") as entry:
        entry.write(npy(np.zeros(0), shape=(10**7,)))
        for _ in range(80):
            entry.write(bytes(10**6))
    assert path.stat().st_size < 10**5
    assert "it declares 80,000,128 bytes; the file has" in refusal(read_arrays, path, NUMBERS, "numbers")
    np.savez_compressed(path, numbers=np.arange(10.0))
    np.testing.assert_array_equal(read_arrays(path, NUMBERS, "numbers")["numbers"], np.arange(10.0))
    data = bytearray(npz(path, {"numbers": npy(np.zeros(9))}).read_bytes())
    size = npy(np.zeros(9)).__len__().to_bytes(4, "little")
    path.write_bytes(data.replace(size, (10**9).to_bytes(4, "little")))
    assert "numbers.npy declares 1,000,000,000 bytes; the file has" in refusal(
        read_arrays, path, NUMBERS, "numbers"
    )


def test_other_byte_orders_and_memory_orders_are_read(tmp_path):
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez(tmp_path / "file.npz", numbers=np.asfortranarray(array))
    values = read_arrays(tmp_path / "file.npz", NUMBERS, "numbers")["numbers"]
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, array)


@pytest.mark.parametrize("name", ["archive.npz", "corrected.npz"])
def test_an_archive_with_any_wrong_byte_is_read_or_refused(name, made, tmp_path):
    """It is read, or refused in one line."""
    whole, path = (made / name).read_bytes(), tmp_path / name
    read, refused = load_archive if name == "archive.npz" else load_corrected, 0
    for place in np.linspace(0, len(whole) - 1, 60).astype(int):
        data = bytearray(whole)
        data[place] ^= 0xFF
        path.write_bytes(data)
        try:
            read(path)
        except ElitesError:
            refused += 1
    assert refused > 50
    for size in np.linspace(0, len(whole) - 1, 20).astype(int):
        path.write_bytes(whole[:size])
        assert str(path) in refusal(read, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("generation", "wings"), "it has no column generation"),
        (("qd_score", "wings"), "it has no column qd_score"),
        (("invalid", "evaluations"), "it has two columns evaluations"),
        (("invalid", "seed"), "it has a column seed, which is not a metric"),
        (("\n2,40,", "\n2,forty,"), "invalid value 'forty'"),
        (("\n2,40,", "\n2,-40,"), "evaluations is not a number from 0 on in every row"),
        (("\n2,40,", "\n2,nan,"), "evaluations is not a number from 0 on in every row"),
        (("\n2,40,", "\n2,1e308,"), "evaluations is not a number from 0 on in every row"),
        (("\n2,40,", "\n2,4,"), "evaluations do not increase"),
        (("\n2,40,", "\n2,,"), "evaluations has an empty cell"),
        (("\n2,40,", "\n2,40,1,"), "columns"),
        (("\n2,40,", "\n2,\udcff40,"), "is damaged"),
    ],
)
def test_damaged_logs(change, message, tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200)
    text = (run / "metrics.csv").read_text()
    assert change[0] in text
    (run / "metrics.csv").write_text(text.replace(*change), errors="surrogateescape")
    error = refusal(RunFolder(run).read_metrics)
    assert str(run / "metrics.csv") in error
    assert message in error


def test_metrics_that_are_too_large_are_refused(tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200)
    lines = (run / "metrics.csv").read_text().splitlines()
    place = lines[0].split(",").index("qd_score")
    row = lines[-1].split(",")
    for number in ("1e308", "inf"):
        row[place] = number
        (run / "metrics.csv").write_text("\n".join([*lines[:-1], ",".join(row), ""]))
        assert "qd_score holds a number beyond 1e+45" in refusal(RunFolder(run).read_metrics)


def test_the_folder_of_a_run_is_read_as_its_metrics(tmp_path):
    (tmp_path / "metrics.csv").write_text("a\n1.5\n")
    np.testing.assert_equal(read_table(tmp_path), {"a": np.array([1.5])})


def test_numbers_in_tables_are_read_exactly(tmp_path):
    numbers = [
        *np.random.default_rng(0).normal(size=100),
        5e-324,
        1.7976931348623157e308,
        -0.0,
        np.inf,
        np.nan,
    ]
    (tmp_path / "table.csv").write_text("a\n" + "".join(f"{float(number)!r}\n" for number in numbers) + "1")
    column = read_table(tmp_path / "table.csv")["a"]
    assert column.tobytes() == np.array(numbers).tobytes()
    column[0] = 0.0  # the caller's own


STATE = {"a": np.arange(3), "b": np.ones((2, 2), np.float32)}
EMPTY = {"a": np.zeros(3, int), "b": np.zeros((2, 2), np.float32)}
PROGRESS = {"evaluations": 40, "environment_steps": [9], "corrected": 0, "elapsed": 1.0, "logs": [{}]}


def identity(**changes):
    return RunIdentity([RunRecord(**{**RECORD, "hyper_parameters": {"batch": 20}, **changes})])


@pytest.fixture
def checkpoints(tmp_path):
    """Two checkpoints."""
    kept = Checkpoints(tmp_path / "checkpoints")
    for generation in (1, 2):
        kept.save(STATE, identity().make_header(generation=generation, **PROGRESS))
    return kept


def header(**changes):
    def change(text):
        fields = {**json.loads(str(text)), **changes}
        return np.array(json.dumps({name: value for name, value in fields.items() if value is not None}))

    return change


@pytest.mark.parametrize(
    "changes",
    [
        {"header": None},
        {"header": np.array("{}")},
        {"header": np.array("[]")},
        {"header": np.array(DEEP)},
        {"header": np.array(3)},
        {"header": header(generation="two")},
        {"header": header(elapsed=float("nan"))},
        {"header": header(elapsed=1e308)},
        {"header": header(logs=None)},
        {"header": header(logs=[])},
        {"header": header(logs=[{"metrics.csv": 9}])},
        {"header": header(environment_steps=[1, 2])},
        {"header": header(wings=2)},
        {"header": header(format=2)},
        {"['a']": None},
        {"['a']": np.arange(4)},
        {"['a']": np.array([0, 1, 2147483647])},
        {"['a']": np.array([{}], object)},
    ],
)
def test_the_checkpoint_before_a_damaged_one_is_taken(changes, checkpoints):
    newest, older = checkpoints.paths()
    rewritten(newest, newest, **changes)
    state, loaded, (problem,) = checkpoints.load(EMPTY, identity())
    assert loaded.generation == 1
    np.testing.assert_array_equal(state["a"], STATE["a"])
    assert str(newest) in problem
    assert "pickle" not in problem
    assert len(problem.splitlines()) == 1
    assert "cannot be used: it has format 2" in problem or "is damaged" in problem
    assert checkpoints.paths() == [older]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 4}, "was written with other settings: seed was 3, is 4; use the earlier settings"),
        ({"hyper_parameters": {"batch": 10}}, "hyper_parameters.batch was 20, is 10"),
        ({"hyper_parameters": {"batch": 20, "wings": 1}}, "hyper_parameters.wings was null, is 1"),
        ({"evaluations": 10}, "evaluations was 1000000, is 10"),
        ({"algorithm": "td3"}, "is a checkpoint of map-elites on qd-walker; this is td3 on qd-walker"),
    ],
)
def test_a_checkpoint_belongs_to_its_configuration(changes, message, checkpoints):
    before = [path.read_bytes() for path in checkpoints.paths()]
    assert message in refusal(checkpoints.load, EMPTY, identity(**changes))
    assert [path.read_bytes() for path in checkpoints.paths()] == before
    assert checkpoints.load(EMPTY, identity(versions={"jax": "0"}))[1].generation == 2


def test_files_that_are_not_checkpoints_are_kept(checkpoints):
    (checkpoints.folder / "notes.txt").write_text("mine")
    checkpoints.clear()
    assert [path.name for path in checkpoints.folder.iterdir()] == ["notes.txt"]


def test_replaced_logs_are_noticed(tmp_path):
    path = tmp_path / "metrics.csv"
    log = AppendOnlyFile(path)
    log.write(b"a,b\n" + b"1,2\n" * 5000)
    mark = log.sync()
    log.write(b"3,4\n")
    log.close()
    whole = path.read_bytes()
    check_logs(tmp_path, {"metrics.csv": mark})
    for other in (
        b"x" + whole[1:],
        whole[: mark.size - 2] + b"9\n" + whole[mark.size :],
        bytes(len(whole) + 9),
    ):
        path.write_bytes(other)
        message = refusal(check_logs, tmp_path, {"metrics.csv": mark})
        assert message == f"{path} does not begin as its checkpoint says; it has changed since then"
        assert path.read_bytes() == other
    path.write_bytes(whole[:-9])
    assert "is shorter than its checkpoint says" in refusal(check_logs, tmp_path, {"metrics.csv": mark})
    path.unlink()
    assert "metrics.csv cannot be continued" in refusal(check_logs, tmp_path, {"metrics.csv": mark})
    assert "has a log '../x'" in refusal(check_logs, tmp_path, {"../x": LogMark(size=0, digest="")})


def test_damaged_times_are_measured_again(tmp_path, monkeypatch):
    home, messages = StudyFolder(tmp_path), []
    home.measured.write_text('{"cell": {"start_s": "soon"}}')
    path = tmp_path / "mine.toml"
    path.write_text('evaluations = 100\nseeds = 1\ntasks = ["qd-walker"]\nalgorithms = ["map-elites"]\n')
    jobs = studies_of(path)
    measurement = {"by_combination": [{"pace": PACE}], "platform": "cpu", "available": 1}
    monkeypatch.setattr(studies, "measure", lambda *_: measurement)
    measured = studies._measure(tmp_path, jobs, True, messages.append, keep=True)
    assert [cell["pace"] for cell in measured.by_combination.values()] == [PACE]
    assert re.fullmatch(r".*measured\.json is damaged: .*; it is measured again", messages[0])
    assert list(home.read_measured().values()) == [Pace(**PACE)]


def studies_of(path):
    from elites.paper.presets import make_study

    return make_study(str(path)).jobs()


@pytest.mark.usefixtures("undrawn")
def test_damaged_runs_do_not_stop_reports_or_summaries(made, tmp_path, capsys):
    runs = [
        make_run(tmp_path, "map-elites", "qd-walker", seed, evaluations=200, loss=0.1, cells="grid")
        for seed in range(4)
    ]
    (runs[1] / "config.json").write_bytes(b"\xff")
    (runs[2] / "metrics.csv").write_bytes(bytes(10**5))
    rewritten(runs[3] / "archive.npz", runs[3] / "archive.npz", cell=with_first(10**6))
    rewritten(runs[3] / "corrected.npz", runs[3] / "corrected.npz", about=np.array("{}"))
    (tmp_path / "study.json").write_text('{"tasks": 3}')
    text = report_study(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    for said in (text, page):
        assert "2 runs" in said
        assert f"{runs[1] / 'config.json'} is damaged" in said
        assert "map-elites on qd-walker, seed 2 is left out" in said
        assert "Corrected values of map-elites on qd-walker, seed 3 are left out" in said
        assert "Labels of the study are left out" in said
    (runs[0] / "corrected.npz").write_bytes(b"")
    assert cli.main(["show", str(runs[0])]) == 0
    assert (
        f"or is damaged: File is not a zip file; `elites correct {runs[0]}` makes it"
        in capsys.readouterr().out
    )


def test_an_empty_archive_and_infinite_values_are_read(made, tmp_path):
    """Nothing was found yet; an episode was not finite; a loss of what was 0."""
    none = {name: lambda array: array[:0] for name, kind in ARCHIVE.items() if kind.shape[:1] == ("elites",)}
    assert len(load_archive(rewritten(made / "archive.npz", tmp_path / "archive.npz", **none)).fitness) == 0
    changes = {"fitness": with_first(np.inf), "kept": with_first(False), "qd_score_loss": np.array(-np.inf)}
    correction = load_corrected(rewritten(made / "corrected.npz", tmp_path / "corrected.npz", **changes))
    assert correction.losses.qd_score == -np.inf
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200, loss=0.5, corrected_along=2)
    path = run / "corrections.csv"
    path.write_text(path.read_text().replace("0.5,0.5,0.5,", "inf,inf,inf,"))
    assert np.isinf(RunFolder(run).read_corrections()["qd_score_loss"]).all()


def test_arrays_are_written_as_they_are_read(made, tmp_path):
    load_archive(made).save(tmp_path / "complete.npz")  # with the defaults of what its maker left out
    load_archive(tmp_path / "complete.npz").save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "complete.npz").read_bytes()
    given = json.loads(str(arrays_of(made / "archive.npz")["about"]))
    about = load_archive(made).about
    assert list(about)[: len(given)] == list(given)
    assert list(about["task"])[: len(given["task"])] == list(given["task"])
    write_arrays(tmp_path / "file.npz", {"numbers": np.arange(3.0)})
    with ArrayFile(tmp_path / "file.npz") as file:
        assert file.declared("numbers") == (np.dtype(float), (3,))
