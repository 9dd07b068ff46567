"""Archives at a prompt: their length, text and picture, their elites, and their table."""

import dataclasses
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from elites import Controller, ElitesError, load_archive, load_corrected, make_task, plot_archive
from tests.synthetic_runs import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs"), "map-elites", "qd-walker", 0, loss=0.25)


@pytest.fixture(scope="module")
def archive(folder):
    return load_archive(folder)


def empty(archive):
    count = len(archive)
    arrays = {
        field.name: getattr(archive, field.name)
        for field in dataclasses.fields(archive)
        if field.name != "about"
    }
    of_elites = {name: array[:0] for name, array in arrays.items() if array.ndim and len(array) == count}
    return dataclasses.replace(archive, **of_elites)


def test_length_and_text_describe_the_archive(archive, folder):
    assert len(archive) == len(archive.fitness) == 512
    assert str(archive).startswith("<512 elites in 1024 cells: QD-score ")
    assert str(archive).endswith("; map-elites on qd-walker, 1,000 evaluations>")
    assert len(str(archive)) < 200
    corrected = load_corrected(folder)
    assert len(corrected) == 512
    assert str(corrected).startswith("<512 of 512 elites after 2 replications: QD-score ")
    assert len(str(corrected)) < 200


def test_elites_are_numbered_best_first(archive):
    best, last = archive[0], archive[-1]
    assert (best.index, best.cell, best.fitness) == (0, archive.cell[0], archive.fitness[0])
    assert last.index == 511
    assert [elite.fitness for elite in archive] == archive.fitness.tolist()
    assert best.descriptor == tuple(archive.descriptor[0].tolist())
    assert (best.seed, best.operator, best.parents) == (0, "ga", (-1, -1))
    assert isinstance(best.policy(), Controller)
    assert len(repr(best)) < 250
    with pytest.raises(IndexError, match="index is 512; the archive has 512 elites"):
        archive[512]
    with pytest.raises(TypeError):
        archive[1:3]
    several = dataclasses.replace(archive, seed=np.stack([archive.seed, archive.seed + 1], axis=1))
    assert several[3].seed == (3, 4)


@given(descriptor=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_an_elite_is_found_by_its_cell_and_by_a_descriptor(archive, descriptor):
    nearest = archive.at(descriptor=descriptor)
    distances = np.linalg.norm(archive.descriptor - np.array(descriptor), axis=1)
    assert distances[nearest.index] == pytest.approx(distances.min())
    assert archive.at(cell=nearest.cell) == nearest
    assert archive.at(cell=np.int32(nearest.cell)).index == nearest.index


def test_distances_are_in_ranges_of_the_bounds(archive):
    moved = dataclasses.replace(
        archive,
        bounds=np.array([[-3.0, 3], [-300, 300]]),
        descriptor=np.tile([[2.9, 0]], (512, 1)).astype(np.float32),
    )
    moved.descriptor[7] = [0, 30]
    assert moved.at(descriptor=(0, 0)).index == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"at\(\) takes either a cell or a descriptor"),
        ({"cell": 3, "descriptor": (0, 0)}, r"at\(\) takes either a cell or a descriptor"),
        ({"cell": 1024}, "cell is 1024; it must be from 0 to 1023"),
        ({"cell": -1}, "cell is -1; it must be from 0 to 1023"),
        ({"cell": 1.5}, "cell is 1.5; it must be a whole number"),
        ({"descriptor": 0.5}, r"descriptor is \(0.5,\); it must be 2 numbers"),
        ({"descriptor": (0.5, 2)}, r"descriptor is \(0.5, 2.0\); it must be within 0 to 1, 0 to 1"),
        ({"descriptor": (0.5, np.nan)}, r"descriptor is \(0.5, nan\); it must be within"),
    ],
)
def test_missing_elites_get_one_line(given, message, archive):
    with pytest.raises(ElitesError, match=message):
        archive.at(**given)


def test_an_empty_cell_names_the_nearest(archive):
    free = next(cell for cell in range(1024) if cell not in archive.cell)
    with pytest.raises(ElitesError, match=rf"cell {free} is empty; the nearest cell with an elite is \d+"):
        archive.at(cell=free)


def test_the_table_has_a_row_for_each_elite(archive, folder):
    table = archive.to_dataframe()
    assert table.index.name == "elite"
    names = make_task("qd-walker").descriptor_names
    expected = ["cell", "fitness", *names, "evaluation", "seed", "generation", "operator"]
    assert list(table.columns) == [*expected, "parent_1", "parent_2"]
    np.testing.assert_array_equal(table["fitness"], archive.fitness)
    np.testing.assert_array_equal(table[list(names)], archive.descriptor)
    corrected = load_corrected(folder)
    table = corrected.to_dataframe()
    np.testing.assert_array_equal(table["mean_fitness"], corrected.mean_fitness)
    np.testing.assert_array_equal(table["share_in_own_cell"], corrected.compute_spread().own_cell)
    np.testing.assert_array_equal(table[list(names)], corrected.mean_descriptor)


@given(names=st.tuples(*[st.sampled_from(["fitness", "cell", "x", "x 2", "seed"])] * 2))
def test_dimensions_of_any_names_have_columns_of_their_own(archive, names):
    about = {**archive.about, "task": {**archive.about["task"], "descriptor_names": names}}
    table = dataclasses.replace(archive, about=about).to_dataframe()
    assert len(set(table.columns)) == len(table.columns) == 10
    np.testing.assert_array_equal(table["fitness"], archive.fitness)
    np.testing.assert_array_equal(table.iloc[:, 2:4], archive.descriptor)


def picture_of(archive):
    data, about = archive._repr_png_()
    image = Image.open(io.BytesIO(data))
    assert about["width"] < image.size[0]  # finer than it is shown
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("task", ["qd-hopper", "qd-walker", "qd-ant"])
def test_a_notebook_shows_a_picture_of_either_archive(task, tmp_path):
    folder = make_run(tmp_path, "map-elites", task, 0, loss=0.25)
    original, corrected = picture_of(load_archive(folder)), picture_of(load_corrected(folder))
    assert len(np.unique(original.reshape(-1, 3), axis=0)) > 100
    assert (original != corrected).any()


def test_it_is_plotted_into_given_axes(archive):
    figure = Figure()
    axes = figure.add_subplot()
    assert archive.plot(axes, limits=(0, 2000), cmap="magma") is axes
    _, bar = figure.axes
    assert bar.get_ylim() == (0, 2000)
    assert bar.get_ylabel() == "fitness"
    assert "QD-score " in axes.get_title()


def test_it_is_plotted_into_a_new_figure_of_pyplot(archive, folder):
    from matplotlib import pyplot

    axes = archive.plot()
    assert axes.figure.number in pyplot.get_fignums()
    pyplot.close(axes.figure)
    for options, label in (({}, "mean fitness"), ({"colour": "spread"}, "deviation of fitness")):
        axes = load_corrected(folder).plot(**options)
        assert axes.figure.axes[1].get_ylabel() == label
        pyplot.close(axes.figure)
    with pytest.raises(ElitesError, match="colour is operator, which only the original archive has"):
        load_corrected(folder).plot(Figure().add_subplot(), colour="operator")


def test_an_empty_archive_has_no_picture(archive):
    none = empty(archive)
    assert len(none) == 0
    assert str(none).startswith("<0 elites in 1024 cells")
    assert none._repr_png_() is None
    assert none.to_dataframe().empty
    for use in (none.plot, lambda: none.at(cell=3), lambda: plot_archive(none)):
        with pytest.raises(ElitesError, match="the archive is empty"):
            use()
