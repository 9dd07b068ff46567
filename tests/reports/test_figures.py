import dataclasses

import jax
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread

from elites import ElitesError, load_archive, make_task
from elites.archives.archive import Origin, Solutions, empty_archive, insert
from elites.archives.cells import make_cells, make_grid
from elites.reports.figures import draw_archive, draw_corrected, draw_spread
from elites.reports.maps import compute_voronoi_polygons
from elites.reports.show import draw_progress
from elites.reports.tables import make_losses_table, make_reproducibility_tables
from elites.results.archive import make_saved_archive, save_archive
from elites.results.corrected import ROUNDING, make_corrected_archive


def saved(task, tmp_path, kind="cvt", count=300):
    """An archive of made-up solutions."""
    rng, made = np.random.default_rng(0), make_cells(task, kind)
    descriptor = rng.random((count, task.descriptor_size)).astype(np.float32)
    numbers = np.arange(count, dtype=np.int32)
    solutions = Solutions(
        np.zeros((count, 1), np.float32),
        descriptor.sum(1) * 1000,
        descriptor,
        Origin(numbers, numbers.astype(np.uint32), numbers, numbers % 2, np.full((count, 2), -1, np.int32)),
    )
    empty = empty_archive(len(made.centroids), 1, task.descriptor_size)
    archive, _ = jax.jit(insert)(empty, made.assign(descriptor), solutions)
    about = {
        "algorithm": "map-elites",
        "task": {"name": task.name, "qd_offset": task.qd_offset, "descriptor_names": task.descriptor_names},
        "evaluations": count,
    }
    save_archive(tmp_path / "archive.npz", make_saved_archive(archive, made, ("random", "ga"), (), about))
    return load_archive(tmp_path)


def colours(path):
    """How many there are in a picture, and its shape."""
    red, green, blue = np.moveaxis((imread(path)[..., :3] * 255).astype(int), -1, 0)
    return len(np.unique(red << 16 | green << 8 | blue)), red.shape


HOSTILE = "$\\frac{<b>_^&[red]\n\x1b" + "x" * 300


@pytest.mark.parametrize("name", ["qd-hopper", "qd-ant"])
def test_any_name_is_drawn_as_text(name, tmp_path):
    task = dataclasses.replace(make_task(name), descriptor_names=(HOSTILE,) * make_task(name).descriptor_size)
    archive = saved(task, tmp_path)
    archive.about.update(algorithm=f"_{HOSTILE}$", task={**archive.about["task"], "name": HOSTILE})
    draw_archive(archive, tmp_path / "archive.png")
    steps = np.arange(1.0, 4.0)
    columns = {
        "generation": steps,
        "evaluations": steps,
        "qd_score": steps,
        "max_fitness": steps,
        "coverage": steps / 4,
    }
    operator = {f"{what}__a$b$": steps for what in ("made", "new", "improved")}
    draw_progress({**columns, "$x_$": steps, **operator}, tmp_path / "progress.png", HOSTILE)
    assert all(imread(tmp_path / f"{drawn}.png").std() > 0.05 for drawn in ("archive", "progress"))


@pytest.mark.parametrize("kind", ["cvt", "grid"])
@pytest.mark.parametrize("name", ["qd-hopper", "qd-walker", "qd-ant"])
def test_archives_of_every_dimension_are_drawn(name, kind, tmp_path):
    archive = saved(make_task(name), tmp_path, kind)
    draw_archive(archive, tmp_path / "archive.png")
    count, shape = colours(tmp_path / "archive.png")
    assert min(shape) > 400
    assert count > 50  # a colour scale, not a blank page


def test_titles_say_where_squares_are_bins(tmp_path, monkeypatch):
    """Where squares are not cells: in three dimensions or more without a grid."""
    titles = []
    monkeypatch.setattr(Axes, "set_title", lambda _, text, **__: titles.append(text))
    for name, kind in (("qd-walker", "cvt"), ("qd-ant", "grid"), ("qd-ant", "cvt")):
        draw_archive(saved(make_task(name), tmp_path, kind), tmp_path / "archive.png")
    assert ["squares are bins of descriptor space" in title for title in titles] == [False, False, True]


def test_the_picture_shows_the_fitness(tmp_path):
    """Where fitness is high the map is bright, where it is low it is dark."""
    archive = saved(make_task("qd-walker"), tmp_path, count=20_000)
    draw_archive(archive, tmp_path / "archive.png")
    image = imread(tmp_path / "archive.png")[..., :3].mean(-1)
    height, width = image.shape
    assert image[int(0.2 * height), int(0.65 * width)] > image[int(0.8 * height), int(0.2 * width)] + 0.2


def test_voronoi_cells_tile_the_space():
    for made in (make_cells(make_task("qd-walker")), make_grid((5, 4), [(0, 1), (-1, 3)])):
        areas = []
        for polygon in compute_voronoi_polygons(made.centroids, made.bounds):
            x, y = polygon.T
            areas.append(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2)
        assert sum(areas) == pytest.approx(np.prod(made.bounds[:, 1] - made.bounds[:, 0]))


def test_an_empty_archive_is_reported(tmp_path):
    archive = dataclasses.replace(saved(make_task("qd-walker"), tmp_path), fitness=np.zeros(0))
    with pytest.raises(ElitesError, match="the archive is empty"):
        draw_archive(archive, tmp_path / "archive.png")


def replicated(archive, tmp_path):
    """The archive with made-up replications: the better an elite, the more it was luck."""
    rng, shape = np.random.default_rng(1), (len(archive.cell), 8)
    luck = 0.2 * archive.fitness[:, None] * rng.random(shape)
    moves = rng.normal(0, 0.03, (*shape, archive.descriptor.shape[1]))
    about = {**archive.about, "replications": 8, "redraw": False}
    return make_corrected_archive(
        archive,
        (archive.fitness[:, None] - luck).astype(np.float32),
        np.clip(archive.descriptor[:, None] + moves, 0, 1).astype(np.float32),
        about,
    )


@pytest.mark.parametrize("name", ["qd-hopper", "qd-walker", "qd-ant"])
def test_corrected_archives_are_drawn_beside_the_original_and_their_spread_as_maps(name, tmp_path):
    corrected = replicated(saved(make_task(name), tmp_path, count=3000), tmp_path)
    draw_corrected(corrected, tmp_path / "corrected.png")
    draw_spread(corrected, tmp_path / "spread.png")
    for path in (tmp_path / "corrected.png", tmp_path / "spread.png"):
        count, shape = colours(path)
        assert min(shape) > 800
        assert count > 50


def test_both_archives_are_on_one_colour_scale(tmp_path):
    """What lost half of its fitness is darker than the original, in the same place of its own half."""
    archive = saved(make_task("qd-walker"), tmp_path, count=5000)
    about = {**archive.about, "replications": 1, "redraw": False}
    corrected = make_corrected_archive(
        archive, archive.fitness[:, None] / 2, archive.descriptor[:, None], about
    )
    draw_corrected(corrected, tmp_path / "corrected.png")
    image = imread(tmp_path / "corrected.png")[..., :3].mean(-1)
    height, width = image.shape
    row = slice(int(0.28 * height), int(0.36 * height))
    before = image[row, int(0.36 * width) : int(0.40 * width)].mean()
    after = image[row, int(0.81 * width) : int(0.85 * width)].mean()
    assert before > after + 0.1


def test_the_tables_name_the_most_reproducible_and_the_luckiest(tmp_path):
    archive = saved(make_task("qd-walker"), tmp_path)
    fitness = np.repeat(archive.fitness[:, None], 4, 1)
    descriptor = np.repeat(archive.descriptor[:, None], 4, 1)
    fitness[7:] -= 50  # the first seven keep their fitness
    fitness[20] -= 800
    descriptor[:3, 0] = np.abs(descriptor[:3, 0] - 0.5)  # the first three do not keep their cell
    about = {**archive.about, "replications": 4, "redraw": False}
    corrected = make_corrected_archive(archive, fitness, descriptor, about)
    lines = make_reproducibility_tables(corrected).splitlines()
    reproducible, lucky = lines[2:12], lines[14:24]
    assert [int(line.split()[0]) for line in reproducible] == archive.cell[3:13].tolist()
    assert int(lucky[0].split()[0]) == archive.cell[20]
    assert "corrected by 4 replications of each of" in make_losses_table(corrected)
    assert not corrected.invalid
    fitness[0, 0] = np.nan
    assert "; 1 elite left out because an episode gave NaN" in make_losses_table(
        make_corrected_archive(archive, fitness, descriptor, about)
    )


def test_a_loss_by_rounding_is_explained(tmp_path):
    archive = saved(make_task("qd-deterministic-walker"), tmp_path)
    about = {**archive.about, "replications": 4, "redraw": False}
    same = np.repeat(archive.fitness[:, None], 4, 1), np.repeat(archive.descriptor[:, None], 4, 1)

    def explains(change, replications=4):
        corrected = make_corrected_archive(
            archive, (same[0] + change)[:, :replications], same[1][:, :replications], about
        )
        return f"the loss comes from {ROUNDING}; native" in make_losses_table(corrected)

    one, noise = np.zeros_like(same[0]), np.zeros_like(same[0])
    one[5], noise[5, 2] = -100, -100
    assert explains(one)
    assert not explains(0)
    assert not explains(1e-6 * np.abs(same[0]))  # means of equal episodes, as in MAP-Elites-sampling
    assert not explains(noise)
    assert not explains(one, replications=1)  # it could be noise
    one[7] = np.nan
    assert explains(one)


def test_progress_is_drawn(tmp_path):
    rows = np.arange(1, 50.0)
    names = (
        "qd_score",
        "max_fitness",
        "coverage",
        "made_ga",
        "new_ga",
        "improved_ga",
        "made_x",
        "new_x",
        "improved_x",
    )
    draw_progress(
        {"generation": rows, "evaluations": rows, **dict.fromkeys(names, rows)},
        tmp_path / "progress.png",
        "a run",
    )
    plain = imread(tmp_path / "progress.png")
    assert plain.shape[0] > 400
    metrics = {"generation": rows, "evaluations": rows, **dict.fromkeys(names, rows)}
    corrections = {"evaluations": rows[::7], **dict.fromkeys(names, rows[::7] / 2)}
    draw_progress(metrics, tmp_path / "progress.png", "a run", corrections)
    assert (imread(tmp_path / "progress.png") != plain).any()
    with pytest.raises(ElitesError, match="no generation has been logged"):
        draw_progress({"evaluations": rows[:0]}, tmp_path / "progress.png", "a run")
