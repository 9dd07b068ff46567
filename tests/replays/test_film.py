"""A film of an archive that fills, from snapshots of a made-up run."""

import dataclasses

import numpy as np
import pytest

from elites import ElitesError, RunConfig, cli, draw_film
from elites.reports import maps
from elites.results.folder import RunFolder
from tests.clips import frames
from tests.synthetic_runs import make_run, synthetic_archive


def filled(folder, task, count=5):
    """A run with snapshots: each has more elites and is better."""
    run = RunFolder(make_run(folder, "map-elites", task, 0, evaluations=1000))
    whole = synthetic_archive(RunConfig(algorithm="map-elites", task=task, evaluations=1000), 1000)
    for step in range(1, count + 1):
        run.write_snapshot(1000 * step // count, part(whole, step / count, 1000 * step // count))
    run.write_archive(whole)
    return run


def part(archive, share, evaluations):
    """Every so many elites of an archive, with that share of their fitness."""
    kept = np.flatnonzero(np.arange(len(archive.cell)) % 10 < 10 * share)
    names = (
        "parameters",
        "fitness",
        "descriptor",
        "cell",
        "evaluation",
        "seed",
        "generation",
        "operator",
        "parents",
    )
    arrays = {name: getattr(archive, name)[kept] for name in names}
    arrays["fitness"] = (share * arrays["fitness"]).astype(np.float32)
    return dataclasses.replace(archive, **arrays, about={**archive.about, "evaluations": evaluations})


@pytest.fixture(scope="module")
def walker(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("walker"), "qd-walker")


def shares(picture):
    """The parts of a picture that are grey, as empty cells are, and that have a colour."""
    channels = picture.astype(int)
    grey = (np.abs(channels - 232) < 6).all(-1)
    return grey.mean(), (np.ptp(channels, axis=-1) > 40).mean()


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_the_archive_fills_on_one_scale(ending, walker, tmp_path):
    progress = []
    path = draw_film(
        walker.path, tmp_path / f"film{ending}", size=(4, 3.2), on_frame=lambda *done: progress.append(done)
    )
    pictures, rate = frames(path)
    # The last one stays; a GIF says so with its duration.
    assert (len(pictures), round(rate, 3)) == ((7, 2) if ending == ".mp4" else (5, 0.667))
    assert progress == [(number, 5) for number in range(1, 6)]
    assert pictures[0].shape == (320, 400, 3)
    grey, coloured = zip(*map(shares, pictures[:5]), strict=True)
    assert list(grey) == sorted(grey, reverse=True)
    assert list(coloured) == sorted(coloured)
    assert coloured[4] > 2 * coloured[0]
    key = [picture[60:, 345:].astype(int) for picture in pictures]  # numbers at the colour bar
    assert np.ptp(key[0]) > 100
    assert all(np.abs(one - key[-1]).mean() < 3 for one in key)


def test_scales_cover_all_snapshots(walker, tmp_path, monkeypatch):
    scales = []
    monkeypatch.setattr(
        "elites.reports.figures.draw_map", lambda *drawn: (scales.append(drawn[2]), maps.draw_map(*drawn))
    )
    draw_film(walker.path, tmp_path / "film.gif", size=(3, 3))
    assert len({scale.ends for scale in scales}) == 1
    low, high = scales[0].ends
    assert low < 10
    assert 950 < high <= 1000


@pytest.mark.parametrize("task", ["qd-hopper", "qd-ant"])
def test_other_dimensions_and_colours(task, tmp_path):
    run = filled(tmp_path, task, 2)
    out = tmp_path / "film.gif"
    draw_film(run.path, out, colour="operator", size=(5, 3))
    pictures, _ = frames(out)
    assert (pictures[0] != pictures[-1]).any()


def test_a_later_archive_is_the_last_picture(tmp_path):
    run = filled(tmp_path, "qd-walker", 2)
    later = run.read_archive()
    run.write_archive(dataclasses.replace(later, about={**later.about, "evaluations": 2000}))
    progress = []
    draw_film(run.path, tmp_path / "film.gif", size=(3, 3), on_frame=lambda *done: progress.append(done))
    assert progress[-1] == (3, 3)


def test_a_film_that_cannot_be_made_gets_one_line(walker, tmp_path, capsys):
    def refused(*options, run=walker.path):
        assert cli.main(["show", str(run), *map(str, options)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        return err

    assert "film is film.avi; it must end in .mp4 or .gif" in refused("--film", "film.avi")
    message = refused("--film", tmp_path / "film.gif", "--colour", "spread")
    assert "colour is spread; that of a film must be fitness, operator or generation" in message
    assert "cannot write /nowhere/film.gif" in refused("--film", "/nowhere/film.gif")
    bare = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=100, archive=True)
    message = refused("--film", tmp_path / "film.gif", run=bare)
    assert f"a film takes two snapshots or more; {bare} has 0: see `elites run … --snapshots`" in message
    assert not list(tmp_path.glob("*.gif"))
    filled(tmp_path / "other", "qd-hopper").snapshot_path(200).rename(walker.snapshot_path(300))
    try:
        with pytest.raises(
            ElitesError, match=r"0000000300.npz has other cells than .*; they are not of one run"
        ):
            draw_film(walker.path, tmp_path / "film.gif")
    finally:
        walker.snapshot_path(300).unlink()


def test_show_makes_the_film(walker, tmp_path, capsys):
    out = tmp_path / "film.gif"
    assert cli.main(["show", str(walker.path), "--film", str(out), "--size", "3", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert out.exists()
    assert (walker.path / "profile.png").exists()
