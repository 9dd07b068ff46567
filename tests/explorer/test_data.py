"""What is in the page's file, without a browser."""

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

import elites
from elites import ElitesError, cli
from elites.archives.cells import Cells
from elites.explorer.ancestors import MAX_ANCESTORS
from elites.explorer.blocks import Blocks
from elites.explorer.content import (
    MAX_PARAMETERS,
    Content,
    _encode_differences,
    _snapshot_spans,
    describe_run,
    list_operators,
    read_content,
)
from elites.explorer.explore import make_text
from elites.explorer.gaits import describe_movement, select_episodes
from elites.explorer.page import as_json
from elites.replays.poses import Movement
from elites.reports.study.page import find_explorers
from tests.explorer.archives import logged, replicated, synthetic_archive
from tests.synthetic_runs import make_run, study_of

ARRAYS = (  # of an archive, with a row per elite
    *("parameters", "fitness", "descriptor", "cell", "evaluation", "seed", "generation", "operator"),
    "parents",
)


def decoded(blocks, block):
    """A block, read as the page does."""
    first, length = block["at"] if isinstance(block, dict) else block
    raw = zlib.decompress(base64.b64decode(blocks[first : first + length]), -zlib.MAX_WBITS)
    if not isinstance(block, dict):
        return raw
    planes = np.frombuffer(raw, np.uint8).reshape(np.dtype(block["type"]).itemsize, -1)
    codes = np.ascontiguousarray(planes.T).view(f"<{block['type']}").reshape(block["shape"])
    if block.get("rising"):
        return codes.cumsum()
    if "low" not in block:
        return codes
    low, high = np.array(block["low"]), np.array(block["high"])
    return np.where(codes == 65535, np.nan, low + (high - low) * codes / 65534)


def parts(page):
    """The header and the blocks of a page."""
    text = page.read_text()
    header = re.search(r'<script type="application/json" id="header">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(header), re.search(r'id="blocks">(.*?)</script>', text, re.DOTALL)[1]


def test_the_page_has_every_number_of_the_archive(walker, tmp_path):
    page = elites.explore(walker, out=tmp_path / "page.html", gaits="none")
    header, blocks = parts(page)
    (run,) = header["runs"]
    archive, corrected = elites.load_archive(walker), elites.load_corrected(walker)
    for name in ("cell", "fitness", "descriptor", "evaluation", "generation", "seed", "parents"):
        np.testing.assert_array_equal(decoded(blocks, run["elites"][name]), getattr(archive, name))
    operators = [one["name"] for one in header["operators"]]
    codes = decoded(blocks, run["elites"]["operator"])
    assert [operators[code] for code in codes] == archive.operator.tolist()
    np.testing.assert_allclose(decoded(blocks, run["centroids"]), archive.centroids, atol=1e-5)
    np.testing.assert_allclose(decoded(blocks, run["corrected"]["mean"]), corrected.mean_fitness, rtol=1e-6)
    np.testing.assert_array_equal(decoded(blocks, run["corrected"]["kept"]), corrected.kept)
    np.testing.assert_allclose(
        decoded(blocks, run["corrected"]["stays"]), corrected.compute_spread().own_cell, rtol=1e-6
    )
    least, most = (decoded(blocks, run["corrected"][name])[:, None] for name in ("least", "most"))
    changes = decoded(blocks, run["corrected"]["samples"])[0].T
    samples = least + (most - least) * changes.cumsum(1) / 254
    assert (np.abs(samples - np.sort(corrected.fitness)) <= (most - least) / 254 * 0.51 + 1e-3).all()
    assert run["past"]["moments"] == [500, 1000, 1400]
    assert [curve["label"] for curve in run["curves"]] == ["QD-score", "max-fitness", "coverage"]


def test_snapshots_have_each_solution_once(walker):
    content, blocks = read_content(walker), Blocks()
    past = describe_run(content, list_operators([content]), blocks)["past"]
    read = {name: decoded(blocks.text(), block) for name, block in past.items() if name != "moments"}
    for number, snapshot in enumerate(content.snapshots):
        there = (read["first"] <= number) & (read["last"] >= number)
        kept = read["since"] <= number
        for name in ("evaluation", "cell", "fitness"):
            shown = [*read[name][there], *getattr(content.archive, name)[kept]]
            assert sorted(shown) == sorted(getattr(snapshot, name))
    assert len(read["fitness"]) < sum(len(snapshot.fitness) for snapshot in content.snapshots) / 2


def test_a_solution_that_left_and_returned_is_stored_twice():
    archive = synthetic_archive(cells=32)
    away = {name: getattr(archive, name)[1:] for name in ARRAYS}
    snapshots = [archive, replace(archive, **away), archive]
    spans = [(stay.first, stay.last) for stay in _snapshot_spans(snapshots) if stay.row == 0]
    assert spans == [(0, 0), (2, 2)]
    assert len(_snapshot_spans(snapshots)) == len(archive.fitness) + 1


def test_too_many_snapshots_are_thinned(monkeypatch):
    archive = synthetic_archive(cells=32)
    snapshots = [
        replace(
            archive, evaluation=archive.evaluation + 1000 * at, about={**archive.about, "evaluations": at}
        )
        for at in range(1, 9)
    ]
    monkeypatch.setattr("elites.explorer.content.MAX_PAST_SOLUTIONS", 3 * len(archive.fitness))
    content, blocks = Content(Path("run"), archive, snapshots=snapshots), Blocks()
    past = describe_run(content, list_operators([content]), blocks)["past"]
    assert past["moments"] == [4, 8]


def test_the_best_elites_have_their_parameters_in_the_page():
    archive = synthetic_archive(cells=64)
    wide = np.arange(len(archive.fitness) * 20_000, dtype=np.float32).reshape(-1, 20_000)
    for parameters, rows in ((archive.parameters, len(archive.fitness)), (wide, 2)):
        content, blocks = Content(Path("run"), replace(archive, parameters=parameters)), Blocks()
        block = describe_run(content, list_operators([content]), blocks)["parameters"]
        np.testing.assert_array_equal(decoded(blocks.text(), block), parameters[:rows])


def test_a_name_with_markup_is_text(make_folder, tmp_path):
    archive = synthetic_archive(cells=64, task="</script><script>alert(1)</script>")
    page = elites.explore(make_folder(archive), out=tmp_path / "page.html", gaits="none")
    text = page.read_text()
    assert "<script>alert" not in text
    header, _ = parts(page)
    assert header["runs"][0]["task"] == archive.about["task"]["name"]
    assert as_json({"a": float("nan"), "b": ["<!--", np.inf]}) == '{"a": null, "b": ["\\u003c!--", null]}'


def test_nothing_is_loaded_from_elsewhere(walker, tmp_path):
    text = elites.explore(walker, out=tmp_path / "page.html", gaits="none").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"https?://[^\s\"'`]+", text.split('id="blocks"')[0]) == []
    scripts = text.split('id="blocks"')[1]
    assert set(re.findall(r"https?://[^\s\"'`]+", scripts)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "page.pdf"], "out is page.pdf; it must end in .html"),
        (["--out", "nowhere/page.html"], "out is nowhere/page.html; its folder must exist"),
        (["--gaits", "some"], "gaits"),
        (["--serve", "--out", "page.html"], "--serve and --out cannot be combined"),
        (["--serve", "--port", "99999"], "port is 99999; it must be from 0 to 65,535"),
        (["/nowhere"], "/nowhere holds no run"),
    ],
)
def test_bad_input_gets_one_line(arguments, message, walker, capsys):
    folders = [] if arguments[0].startswith("/") else [str(walker)]
    assert cli.main(["explore", *folders, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_empty_archive_is_refused(make_folder):
    archive = synthetic_archive(cells=64)
    empty = {name: getattr(archive, name)[:0] for name in ARRAYS}
    with pytest.raises(ElitesError, match="the archive is empty"):
        elites.explore(make_folder(replace(archive, **empty)), gaits="none")


def test_a_correction_of_another_archive_is_not_shown(make_folder):
    archive = synthetic_archive(cells=64)
    folder = make_folder(archive, replicated(replace(archive, fitness=archive.fitness + 1), 5))
    content = read_content(folder)
    assert content.corrected is None
    assert f"elites correct {folder}" in content.uncorrected_reason


def test_ancestors_come_from_snapshots(walker):
    content, blocks = read_content(walker), Blocks()
    header = describe_run(content, list_operators([content]), blocks)
    known = {int(one) for snapshot in content.snapshots for one in snapshot.evaluation}
    ancestors = set(decoded(blocks.text(), header["ancestors"]["evaluation"]).tolist())
    assert ancestors <= known - set(content.archive.evaluation.tolist())
    assert header["missing_parents_reason"] == "replaced since and not recorded"


def described(folder):
    content, blocks = read_content(folder), Blocks()
    operators = list_operators([content])
    header = describe_run(content, operators, blocks)
    arrays = {name: block for name, block in header["ancestors"].items() if name != "count"}
    columns = {name: decoded(blocks.text(), block) for name, block in arrays.items()}
    return header, columns, operators


def test_with_a_log_the_lineage_of_every_elite_is_complete(make_folder):
    folder = make_folder(synthetic_archive(cells=64))
    logged(folder, 1000)
    log, archive = elites.load_lineage(folder), elites.load_archive(folder)
    header, columns, operators = described(folder)
    assert header["missing_parents_reason"] == "which did not enter the archive"
    rows = log.find_rows(columns["evaluation"])
    for name in ("cell", "generation", "parents"):
        np.testing.assert_array_equal(columns[name], getattr(log, name)[rows])
    assert [operators[code] for code in columns["operator"]] == log.operator[rows].tolist()
    np.testing.assert_allclose(columns["fitness"][:, 0], log.fitness[rows], atol=0.02)
    lines = {int(one) for own in archive.evaluation for one in log.trace_first_parents(own).evaluation}
    others = {int(one) for row in log.find_rows(sorted(lines)) for one in log.parents[row] if one >= 0}
    assert set(columns["evaluation"].tolist()) == (lines | others) - set(archive.evaluation.tolist())

    (folder / "lineage.bin").write_bytes(b"{}\n")
    header, columns, _ = described(folder)
    assert header["ancestors"]["count"] == 0
    assert "lineage.bin is damaged: its first line" in header["missing_parents_reason"]


def test_a_page_of_ten_thousand_cells_stays_small(make_folder, tmp_path, monkeypatch):
    """With 50 replications, a log of lineages, and room for the parameters of a few controllers.

    Cells are found by a tree: XLA without optimisation takes a minute for half a million replications.
    """
    monkeypatch.setattr(
        Cells, "assign_in_parts", lambda cells, places: cKDTree(cells.centroids).query(places)[1]
    )
    folder = make_folder(synthetic_archive(cells=10_000, filled=1.0, kind="scattered"))
    logged(folder, 300_000)
    content = read_content(folder)
    page = make_text([replace(content, corrected=replicated(content.archive))], "none")
    room = 4 / 3 * 4 * MAX_PARAMETERS
    assert len(page.encode()) + room < 2_000_000
    path = tmp_path / "page.html"
    path.write_text(page)
    assert parts(path)[0]["runs"][0]["ancestors"]["count"] == MAX_ANCESTORS


def test_truncated_lineages_have_equal_depth_and_are_reported(make_folder, monkeypatch):
    folder = make_folder(synthetic_archive(cells=64))
    logged(folder, 1000)
    first = set(elites.load_archive(folder).parents[:, 0].tolist())
    monkeypatch.setattr("elites.explorer.ancestors.MAX_ANCESTORS", 20)
    header, columns, _ = described(folder)
    assert "elites.load_lineage has all" in header["missing_parents_reason"]
    assert header["ancestors"]["count"] == 20
    assert set(columns["evaluation"].tolist()) < first  # one step of all lines comes before the second of any


def test_a_page_of_a_real_run_has_ancestors_that_were_replaced(tmp_path):
    elites.optimise(
        lambda vectors: (-(vectors**2).sum(1), np.clip(vectors[:, :1], 0, 1)),
        evaluations=600,
        folder=tmp_path / "run",
        parameters=4,
        descriptor_bounds=[(0, 1)],
        cells=8,
        hyper_parameters={"initial": 20, "batch": 20},
        progress=False,
    )
    _, columns, _ = described(tmp_path / "run")
    archive, log = elites.load_archive(tmp_path / "run"), elites.load_lineage(tmp_path / "run")
    replaced, living = set(columns["evaluation"].tolist()), set(archive.evaluation.tolist())
    lines = {
        one for elite in archive for one in log.trace_first_parents(elite.evaluation).evaluation.tolist()
    }
    assert lines - living
    assert lines <= replaced | living
    assert not replaced & living


def test_a_study_report_links_to_explorers(tmp_path):
    runs = [make_run(tmp_path / "a b", "map-elites", "qd-hopper", seed, archive=True) for seed in (0, 1)]
    elites.explore(runs[1], gaits="none")
    ((label, address),) = find_explorers(study_of(tmp_path / "a b"), tmp_path / "a b" / "report")
    assert label == "qd-hopper, map-elites, seed 1"
    assert address == "../map-elites-qd-hopper-1-/explorer.html"


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=40))
def test_quantised_numbers_are_close(values):
    blocks, numbers = Blocks(), np.array(values)[:, None]
    block = blocks.add_quantised(np.concatenate([numbers, -3 * numbers], 1))
    back = decoded(blocks.text(), block)
    finite = numbers[np.isfinite(numbers)]
    span = np.ptp(finite) if len(finite) else 0.0
    np.testing.assert_allclose(back[:, :1], numbers, atol=span / 65534 * 0.51 + 1e-9)
    np.testing.assert_allclose(back[:, 1:], -3 * numbers, atol=3 * span / 65534 * 0.51 + 1e-9)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_replications_survive_as_differences(d, replications, elites, seed):
    codes = np.random.default_rng(seed).integers(0, 256, (elites, replications, d)).astype(np.uint8)
    changes = _encode_differences(codes).T
    back = changes.copy()
    back[..., 0] = changes[..., 0].cumsum(1).astype(np.uint8)
    back[:, 1:, 1:] += changes[:, :1, 1:]
    for one, other in zip(codes, back, strict=True):
        assert sorted(map(tuple, one)) == sorted(map(tuple, other))


def turned(generator, frames, bodies):
    """Rotations that change a little from frame to frame, with signs that may jump."""
    steps = generator.normal(0, 0.05, (frames, bodies, 4)).cumsum(0) + np.array([1, 0, 0, 0])
    signs = generator.choice([-1, 1], (frames, bodies, 1))
    return signs * steps / np.linalg.norm(steps, axis=-1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_movements_survive_compression(frames, bodies, seed):
    generator = np.random.default_rng(seed)
    positions = generator.normal(0, 0.1, (frames, bodies, 3)).cumsum(0)
    rotations, contacts = turned(generator, frames, bodies), generator.random((frames, 4)) < 0.5
    blocks = Blocks()
    entry = describe_movement(Movement(positions, rotations, contacts, frames - 1, 0.0), 300, blocks)
    raw = np.frombuffer(decoded(blocks.text(), entry["at"]), np.uint8)
    count = 7 * bodies * frames
    changes = (raw[:count].astype(np.int64) << 8) + raw[count : 2 * count]
    codes = changes.reshape(7 * bodies, frames).cumsum(1).cumsum(1) & 0xFFFF
    codes = codes.T.reshape(frames, bodies, 7)
    back = np.array(entry["low"]) + np.array(entry["span"]) * codes[..., :3] / 65535
    np.testing.assert_allclose(back, positions, atol=np.ptp(positions) / 65535 + 2e-6)
    signed = np.where(codes[..., 3:] > 32767, codes[..., 3:] - 65536, codes[..., 3:]) / 32767
    same = np.abs((signed * rotations).sum(-1))  # q and -q are one rotation
    np.testing.assert_allclose(same, 1, atol=1e-4)
    assert ((signed[1:] * signed[:-1]).sum(-1) > 0).all()
    bits = raw[2 * count :]
    np.testing.assert_array_equal((bits[:, None] >> np.arange(4)) & 1, contacts)


def test_elites_of_all_regions_have_a_recorded_movement_first():
    archive = synthetic_archive()
    content = Content(None, archive, replicated(archive, 5))
    best = select_episodes(content, "best")
    assert best.own[0] == (0, int(archive.seed[0]))
    shown = [elite for elite, _ in best.own]
    assert shown == sorted(set(shown))
    assert len(shown) <= 64
    assert [elite for elite, _ in best.ghosts] == 3 * shown
    everyone = select_episodes(content, "all")
    assert [elite for elite, _ in everyone.own] == list(range(len(archive.fitness)))
    others = sorted(set(range(len(archive.fitness))) - set(shown))
    assert [elite for elite, _ in everyone.ghosts] == shown + others + 2 * shown + 2 * others
    assert set(best.ghosts) < set(everyone.ghosts)
    assert len(set(everyone.ghosts)) == 3 * len(archive.fitness)
