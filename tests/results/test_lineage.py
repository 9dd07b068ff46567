"""The log of lineages: its file, and ancestors found in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites import ElitesError, Status, load_lineage
from elites.results.lineage import RECORD, Lineage, encode_header, encode_records
from elites.results.tables import Logs

OPERATORS = ("random", "ga")


def written(path, rows, operators=OPERATORS):
    """A file of these records: dictionaries with what differs from a random controller in cell 0."""
    records = np.zeros(len(rows), RECORD)
    records["parents"], records["generation"], records["status"] = -1, 1, Status.NEW
    for record, row in zip(records, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    path.write_bytes(encode_header(operators) + records.tobytes())
    return path


@pytest.fixture
def log(tmp_path):
    rows = [
        {"evaluation": 0, "fitness": 1.5},
        {"evaluation": 3, "cell": 7},
        {"evaluation": 4, "parents": (3, 0), "operator": 1, "generation": 2, "status": Status.IMPROVED},
        {"evaluation": 9, "parents": (4, 4), "operator": 1, "generation": 3, "status": Status.STORED},
    ]
    return written(tmp_path / "lineage.bin", rows)


def test_a_log_is_read_as_it_was_written(log):
    for path in (log, str(log.parent)):
        lineage = load_lineage(path)
        assert lineage.evaluation.tolist() == [0, 3, 4, 9]
        assert lineage.operator.tolist() == ["random", "random", "ga", "ga"]
        assert lineage.parents.tolist() == [[-1, -1], [-1, -1], [3, 0], [4, 4]]
        assert lineage.cell.tolist() == [0, 7, 0, 0]
        assert lineage.fitness.tolist() == [1.5, 0, 0, 0]
        assert lineage.status.tolist() == [Status.NEW, Status.NEW, Status.IMPROVED, Status.STORED]
    assert lineage.trace_first_parents(9).evaluation.tolist() == [9, 4, 3]
    assert lineage.find_ancestors(9).evaluation.tolist() == [4, 3, 0]
    assert len(lineage.find_ancestors(np.int32(0))) == 0
    with pytest.raises(ElitesError, match="evaluation is 5; it must be the number of a solution"):
        lineage.trace_first_parents(5)


@given(st.binary(max_size=RECORD.itemsize - 1))
def test_an_incomplete_record_is_left_out(tmp_path_factory, more):
    path = written(tmp_path_factory.mktemp("cut") / "lineage.bin", [{"evaluation": 2}])
    path.write_bytes(path.read_bytes() + more)
    assert load_lineage(path).evaluation.tolist() == [2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"evaluation": 4}, "evaluations do not increase"),
        ({"parents": (9, -1)}, "a parent is not an earlier evaluation"),
        ({"parents": (-2, -1)}, "a parent is not an earlier evaluation"),
        ({"cell": -1}, "a cell or a generation is negative"),
        ({"operator": 2}, "an operator is none of random, ga"),
        ({"status": Status.REJECTED}, "a record is not of an offspring that entered the archive"),
        ({"fitness": np.nan}, "a record is not of an offspring that entered the archive"),
    ],
)
def test_damaged_records_get_one_line(row, message, tmp_path):
    path = written(tmp_path / "lineage.bin", [{"evaluation": 4}, {"evaluation": 8, **row}])
    with pytest.raises(ElitesError) as error:
        load_lineage(path)
    assert str(error.value) == f"{path} is damaged: {message}"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x00\xff" * 40_000,
        b"[]\n",
        b'{"lineage": 1}\n',
        b'{"lineage": 1, "operators": []}\n',
        b'{"lineage": 1, "operators": [3]}\n',
    ],
)
def test_a_file_without_the_header_is_reported(header, tmp_path):
    path = tmp_path / "lineage.bin"
    path.write_bytes(header)
    with pytest.raises(ElitesError) as error:
        load_lineage(path)
    assert str(error.value) == f"{path} is damaged: its first line is not the header of a log of lineages"


def test_a_later_format_and_a_missing_file_are_reported(log):
    log.write_bytes(log.read_bytes().replace(b'"lineage": 1', b'"lineage": 2'))
    with pytest.raises(ElitesError, match="has format 2; this version reads format 1"):
        load_lineage(log)
    log.unlink()
    with pytest.raises(ElitesError, match=r"lineage\.bin does not exist: runs of an older format"):
        load_lineage(log.parent)


@given(st.lists(st.sampled_from(Status), max_size=20))
def test_only_offspring_that_entered_are_written(statuses):
    words = np.arange(7 * len(statuses), dtype=np.int32).reshape(-1, 7)
    words[:, -1] = 1 + 256 * np.array(statuses, np.int32)
    records = np.frombuffer(encode_records(words), RECORD)
    entered = [status in (Status.NEW, Status.IMPROVED, Status.STORED) for status in statuses]
    assert records["evaluation"].tolist() == words[entered, 0].tolist()
    assert records["status"].tolist() == np.array(statuses)[entered].tolist()
    assert (records["operator"] == 1).all()


@st.composite
def families(draw):
    """For each offspring its two parents: earlier ones, ones that are not in the log, or none."""
    count = draw(st.integers(1, 30))
    return [(draw(st.integers(-1, row - 1)), draw(st.integers(-1, row - 1))) for row in range(count)]


@given(families(), st.sets(st.integers(0, 29)))
def test_ancestors_are_found_along_both_parents(family, missing):
    present = [row for row in range(len(family)) if row not in missing]
    parents = np.array([family[row] for row in present]).reshape(-1, 2)
    none = np.zeros(len(present))
    lineage = Lineage(np.array(present, int), parents, none, none, none, none, none)

    def above(row):
        known = {parent for parent in family[row] if parent in present}
        return known.union(*map(above, known))

    for row in present:
        assert lineage.find_ancestors(row).evaluation.tolist() == sorted(above(row), reverse=True)
        line = lineage.trace_first_parents(row).evaluation.tolist()
        assert line[0] == row
        assert line[1:] == [family[child][0] for child in line[:-1]]
        assert family[line[-1]][0] not in present


def words_of(*evaluations):
    words = np.zeros((len(evaluations), 7), np.int32)
    words[:, 0], words[:, 1:3], words[:, -1] = evaluations, -1, 256 * Status.NEW
    return words


def test_a_log_continues_from_its_checkpoint_and_an_earlier_run_without_one(tmp_path):
    def open_logs(marks):
        return Logs(tmp_path, ["generation"], ["generation"], (), OPERATORS, marks)

    with open_logs({}) as logs:
        logs.add_offspring(words_of(0, 1))
        marks = logs.sync()
        logs.add_offspring(words_of(2, 3))
    with open_logs(marks) as logs:
        logs.add_offspring(words_of(2))
        assert load_lineage(tmp_path).evaluation.tolist() == [0, 1, 2]
    (tmp_path / "lineage.bin").unlink()
    with open_logs({name: mark for name, mark in marks.items() if name != "lineage.bin"}) as logs:
        logs.add_offspring(words_of(2))
        assert "lineage.bin" not in logs.sync()
    assert not (tmp_path / "lineage.bin").exists()
