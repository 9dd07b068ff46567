import base64
import dataclasses
import html
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import elites
from elites import ElitesError, RunConfig, cli, load_archive
from elites.files import is_partial, remove_partials
from elites.replays import replay as replays
from elites.replays.bullet import BulletCamera, BulletScene
from elites.replays.choice import parse_grid, select_best_per_region
from elites.replays.clip import Clip
from elites.replays.rays import Camera, Shapes
from elites.results.archive import save_archive
from tests.clips import frames, reddish
from tests.experiments.test_gymnasium_runs import task as push

ORANGE = (0.90, 0.45, 0.15)


def quiet(_):
    pass


@pytest.fixture(scope="module")
def hopper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "hopper"
    config = RunConfig(
        algorithm="map-elites",
        task="qd-hopper",
        evaluations=40,
        hyper_parameters={"initial": 40, "batch": 40, "hidden": (8,)},
        task_parameters={"episode_length": 24},
    )
    elites.run(config, folder, execution=elites.Execution(log=quiet))
    return folder


@pytest.fixture(scope="module")
def pushed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "push"
    small = {"initial": 40, "batch": 40, "hidden": (8,)}
    elites.run(
        RunConfig(algorithm="map-elites", task=push(), evaluations=40, hyper_parameters=small),
        folder,
        execution=elites.Execution(log=quiet),
    )
    return folder


def test_the_best_elite_is_drawn_as_it_was_recorded(hopper, capsys):
    assert cli.main(["replay", str(hopper)]) == 0
    out = capsys.readouterr().out.splitlines()
    archive = load_archive(hopper)
    cell, seed, steps, fitness, replayed, contact, again = out[1].split()
    assert (int(cell), int(seed)) == (archive.cell[0], archive.seed[0])
    assert fitness == replayed == f"{archive.fitness[0]:.2f}"
    assert contact == again == f"{archive.descriptor[0, 0]:.3f}"
    assert out[2] == str(hopper / "best.mp4")
    pictures, rate = frames(hopper / "best.mp4")
    assert len(pictures) == int(steps) // 2 + 1
    assert rate == pytest.approx(30.3, abs=0.01)
    assert pictures[0].shape == (360, 480, 3)
    assert all(300 < reddish(picture).sum() < 20_000 for picture in pictures)
    assert (pictures[0] != pictures[-1]).any()
    assert not list(hopper.glob(".*"))


def test_drawing_changes_nothing_in_the_simulation():
    task = elites.make_task("qd-ant", episode_length=15)
    parameters = np.zeros((1, elites.Policy.for_task(task, ()).parameter_count), np.float32)
    parameters[0, ::7] = 0.5
    with elites.ThreadEvaluator(task, hidden=(), threads=1) as evaluator:
        evaluation = evaluator.evaluate(parameters, [5], transitions=True)
    simulator = task.make_simulator()
    camera = BulletCamera(simulator, (64, 48))
    seen = [simulator.begin(5)]
    for action in evaluation.transitions.actions[0, : evaluation.length[0]]:
        camera.take_picture(camera.torso(), 0.0, -10.0, 3.0)
        seen.append(simulator.advance(action)[0])
    simulator.close()
    np.testing.assert_array_equal(seen, evaluation.transitions.observations[0, : evaluation.length[0] + 1])


def test_the_camera_follows(hopper):
    """A robot that is far away is still in the middle."""
    task = elites.make_task("qd-hopper")
    scene = BulletScene(task, 0, np.zeros((20, 3), np.float32), (160, 120))
    for picture in scene.frames([0, 10, 20]):
        _, columns = np.nonzero(reddish(picture))
        assert 60 < columns.mean() < 100


def test_another_seed_is_another_episode(hopper, capsys, tmp_path):
    out = str(tmp_path / "clip.gif")
    assert cli.main(["replay", str(hopper), "--seed", "7", "--out", out, "--size", "80", "60"]) == 0
    _, seed, _, fitness, replayed, *_ = capsys.readouterr().out.splitlines()[1].split()
    assert seed == "7"
    assert fitness != replayed


def test_several_elites_are_shown_side_by_side(pushed, tmp_path):
    path, shown = elites.replay(pushed, grid="2x3", out=tmp_path / "grid.gif", size=(60, 40))
    archive = load_archive(pushed)
    pictures, rate = frames(path)
    assert pictures[0].shape == (80, 180, 3)
    assert len(pictures) == max(one.length for one in shown) + 1
    assert rate == pytest.approx(20, abs=0.1)  # the environment's own
    assert len(shown) > 1
    for one in shown:
        assert one.fitness == one.recorded_fitness
        np.testing.assert_array_equal(one.descriptor, one.recorded_descriptor)
        assert archive.cell[one.elite] == one.cell


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_notebook_shows_the_clip(suffix, pushed, tmp_path, monkeypatch):
    shown = elites.replay(pushed, out=tmp_path / f"clip{suffix}", size=(60, 40), steps=3)
    page = shown._repr_html_()
    data = re.search(rf'src="data:(?:image|video)/{suffix[1:]};base64,([^"]+)"', page)[1]
    assert base64.b64decode(data) == shown.path.read_bytes()
    assert str(shown) in html.unescape(page)
    assert str(shown).splitlines()[-1] == str(shown.path)
    monkeypatch.setattr(replays, "MAX_INLINE_BYTES", 10)
    assert "data:" not in shown._repr_html_()
    assert "a notebook shows clips of up to" in shown._repr_html_()
    shown.path.unlink()
    assert "No such file" in shown._repr_html_()


def test_elites_are_spread_over_the_descriptor_space(pushed):
    archive = dataclasses.replace(
        load_archive(pushed),
        descriptor=np.array([[-2, -2], [-2.5, -2.5], [2, 2.9], [0.5, 0.5], [3, -3]], np.float32),
        fitness=np.array([5, 4, 3, 2, 1.0]),
        cell=np.array([4, 7, 9, 11, 13]),
    )
    # The first dimension runs to the right, the second upwards.
    assert select_best_per_region(archive, (2, 2)) == [None, 2, 0, 4]
    assert select_best_per_region(archive, (1, 3)) == [0, 3, 2]
    line = dataclasses.replace(archive, bounds=archive.bounds[:1], descriptor=archive.descriptor[:, :1])
    assert select_best_per_region(line, (2, 2)) == [0, None, 3, 2]
    assert parse_grid("2x5") == (2, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cell", "100"], "cell is 100; it must be from 0 to 63"),
        (["--cell", "EMPTY"], "is empty; the nearest cell with an elite is"),
        (["--descriptor", "0.5"], "descriptor is (0.5,); it must be 2 numbers"),
        (["--descriptor", "0.5", "7"], "descriptor is (0.5, 7.0); it must be within -3 to 3, -3 to 3"),
        (["--grid", "3"], "grid is '3'; it must be rows x columns, such as 3x3"),
        (["--grid", "90x90"], "at most 64 in all"),
        (["--grid", "2x2", "--cell", "3"], "cell and grid cannot be combined"),
        (["--best", "--cell", "3"], "--best cannot be combined with --cell, --descriptor or --grid"),
        (["--out", "film.avi"], "out is film.avi; it must end in .mp4 or .gif"),
        (["--out", "/nowhere/film.gif"], "cannot write /nowhere/film.gif: No such file or directory"),
        (["--seed", "-1"], "seed is -1; it must be from 0 to 4,294,967,295"),
        (["--steps", "0"], "steps is 0; it must be from 1 to"),
        (["--size", "8", "8"], "size is 8; it must be from 32 to 4,096"),
    ],
)
def test_invalid_choices_get_one_line(arguments, message, pushed, capsys):
    filled = set(load_archive(pushed).cell.tolist())
    empty = next(cell for cell in range(64) if cell not in filled)
    given = [str(empty) if word == "EMPTY" else word for word in arguments]
    assert cli.main(["replay", str(pushed), *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err


def test_a_folder_without_a_run_gets_one_line(tmp_path, capsys):
    assert cli.main(["replay", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_an_environment_that_cannot_draw_is_reported(pushed, tmp_path):
    blind = tmp_path / "blind"
    blind.mkdir()
    record = json.loads((pushed / "config.json").read_text())
    record["task"] = "gym:tests.outside:blind"
    (blind / "config.json").write_text(json.dumps(record))
    save_archive(blind / "archive.npz", load_archive(pushed))
    with pytest.raises(ElitesError, match=r"cannot be drawn with render_mode='rgb_array': .*TypeError"):
        elites.replay(blind)
    assert not (blind / "best.mp4").exists()


def test_an_environment_that_raises_while_it_draws_is_reported(pushed, tmp_path):
    troubled = tmp_path / "troubled"
    troubled.mkdir()
    record = json.loads((pushed / "config.json").read_text())
    record["task_parameters"]["environment_options"] = {"trouble": "drawn"}
    (troubled / "config.json").write_text(json.dumps(record))
    save_archive(troubled / "archive.npz", load_archive(pushed))
    with pytest.raises(ElitesError, match="could not be drawn: RuntimeError: no canvas"):
        elites.replay(troubled)


def test_a_failed_clip_keeps_the_old_one(tmp_path):
    path = tmp_path / "clip.gif"
    path.write_bytes(b"old")
    picture = np.zeros((32, 32, 3), np.uint8)

    def draw():
        with Clip(path, 10.0) as clip:
            clip.add(picture)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        draw()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["clip.gif"]


def test_files_of_a_killed_replay_are_removed_by_the_next_one(tmp_path):
    """By the next replay of the same clip, or by what goes on with the run."""
    program = """
import os, signal, sys
from pathlib import Path
import numpy as np
from elites.replays.clip import Clip
for name in ("best.mp4", "best.gif"):
    clip = Clip(Path(sys.argv[1]) / name, 10.0).__enter__()
    clip.add(np.zeros((32, 32, 3), np.uint8))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program, tmp_path]).returncode == -signal.SIGKILL
    assert all(map(is_partial, tmp_path.iterdir()))
    assert len(list(tmp_path.iterdir())) == 2
    with Clip(tmp_path / "best.mp4", 10.0) as clip:
        clip.add(np.zeros((32, 32, 3), np.uint8))
    assert len(frames(tmp_path / "best.mp4")[0]) == 1
    remove_partials(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["best.mp4"]


def test_rays_hit_solids():
    """A sphere and a capsule where they are known to be seen, the near one before the far one."""
    camera = Camera((200, 100), yaw=0.0, pitch=0.0, distance=5.0)
    target = np.array([0.0, 0.0, 2.0])
    red, blue = (255.0, 0.0, 0.0), (0.0, 0.0, 255.0)
    shapes = Shapes(
        start=np.array([[0.0, 0.0, 2.0], [-2.0, 2.0, 2.0]]),
        end=np.array([[0.0, 0.0, 2.0], [2.0, 2.0, 2.0]]),
        radius=np.array([0.5, 0.25]),
        colour=np.array([red, blue]),
    )
    picture = camera.take_picture(shapes, target).astype(int)
    is_red, is_blue = (picture[..., axis] > picture.sum(-1) - picture[..., axis] for axis in (0, 2))
    focus = 50 / np.tan(np.radians(25))
    rows, columns = np.nonzero(is_red)
    assert abs(len(rows) - np.pi * (focus * 0.5 / 5) ** 2) < 0.05 * len(rows)
    assert abs(rows.mean() - 49.5) < 1
    assert abs(columns.mean() - 99.5) < 1
    assert not is_blue[50, 100]  # behind the sphere
    assert is_blue[50, 72]
    assert is_blue[50, 128]
    assert np.ptp(np.nonzero(is_blue)[1]) == pytest.approx(2 * focus * 2.25 / 7, abs=4)
