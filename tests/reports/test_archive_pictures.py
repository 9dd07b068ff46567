"""Pictures of archives, by what is in them: bars, colours and lines rather than pixels."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colormaps
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread

from elites import ElitesError, RunConfig, make_corrected_archive
from elites.metrics.metric import compute_archive_profile
from elites.reports.colours import OPERATORS
from elites.reports.contents import MAX_OPERATORS, list_operators, make_correction_maps
from elites.reports.figures import draw_archive, draw_corrected, draw_parallel, draw_profile, draw_spread
from elites.reports.maps import EMPTY
from elites.reports.parallel import MAX_LINES, select_shown_elites
from tests.synthetic_runs import synthetic_archive

NAMES = ("random", "ga", "pg")


def collect_elites(task, kind="cvt"):
    """Elites with fitness up to 1000, found by three operators in ten generations."""
    archive = synthetic_archive(RunConfig(algorithm="pga-map-elites", task=task), 1000, kind)
    numbers = np.arange(len(archive.cell))
    return dataclasses.replace(
        archive, generation=1 + numbers % 10, operator=np.array(NAMES)[np.minimum(numbers % 4, 2)]
    )


def with_outlier(archive, fitness=1e6):
    changed = archive.fitness.copy()
    changed[0] = fitness
    return dataclasses.replace(archive, fitness=changed)


def replicated(archive):
    """The first half reproduces; the others lose half of their fitness and move."""
    count = len(archive.cell)
    fitness = np.repeat(archive.fitness[:, None].astype(np.float32), 4, 1)
    descriptor = np.repeat(archive.descriptor[:, None], 4, 1)
    fitness[count // 2 :, :2] = 0
    descriptor[count // 2 :, 0] = 1 - descriptor[count // 2 :, 0]
    return make_corrected_archive(archive, fitness, descriptor)


def colour_bar(figure):
    """Its label and its limits."""
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    return bar.get_ylabel(), bar.get_ylim()


def face_colours(axes):
    """The colour of each cell of a Voronoi map."""
    return axes.collections[0].get_facecolors()


@pytest.mark.parametrize("kind", ["cvt", "grid"])
def test_one_dimension_is_a_profile_with_the_count_of_elites(kind):
    archive = collect_elites("qd-hopper", kind)
    figure = draw_archive(archive)
    axes = figure.axes[0]
    highest, quartiles, median = (patch.get_data() for patch in axes.patches)
    assert len(highest.values) == 50
    assert np.allclose(highest.edges, np.linspace(0, 1, 51), atol=1e-3)
    bin_of = np.searchsorted(highest.edges, archive.descriptor[:, 0], side="right") - 1
    own = [archive.fitness[bin_of == number] for number in range(50)]
    assert np.allclose(highest.values, [values.max() for values in own])
    assert np.allclose(median.values, [np.median(values) for values in own])
    assert (quartiles.baseline <= median.values).all()
    assert (median.values <= quartiles.values).all()
    assert highest.baseline < archive.fitness.min()
    (strip,) = axes.child_axes
    cells, counts = (patch.get_data().values for patch in strip.patches)
    assert counts.tolist() == [len(values) for values in own]
    assert cells.tolist() == [20] * 50
    assert strip.get_ylabel() == "elites in\n20 cells"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["highest", "quartiles", "median"]
    assert len(figure.axes) == 1  # no colour bar: the axis has the values


def test_an_outlier_does_not_flatten_a_profile():
    figure = draw_archive(with_outlier(collect_elites("qd-hopper")))
    axes = figure.axes[0]
    assert axes.get_ylim()[1] < 1100
    assert axes.texts[0].get_text() == "up to percentile 98; highest value 1,000,000"
    assert draw_archive(collect_elites("qd-hopper"), limits=(0, 10)).axes[0].get_ylim() == pytest.approx(
        (-0.4, 10.4)
    )


def test_an_outlier_does_not_blacken_a_map():
    archive = collect_elites("qd-walker")
    lucky = draw_archive(with_outlier(archive))
    assert colour_bar(draw_archive(archive))[0] == "fitness"
    assert colour_bar(lucky)[0] == "fitness\n(up to percentile 98; highest value 1,000,000)"
    low, high = colour_bar(lucky)[1]
    assert high < 1000
    drawn = face_colours(lucky.axes[0])[archive.cell]
    expected = colormaps["viridis"]((archive.fitness - low) / (high - low))
    assert np.allclose(drawn[1:], expected[1:], atol=0.02)
    assert drawn[0] == pytest.approx(colormaps["viridis"](1.0))
    everything = draw_archive(with_outlier(archive), percentiles=(0, 100))
    assert colour_bar(everything)[1][1] == 1e6
    assert np.ptp(face_colours(everything.axes[0])[archive.cell[1:]], axis=0).max() < 0.01  # black


def test_empty_cells_are_grey_and_colours_are_as_asked():
    archive = collect_elites("qd-walker")
    figure = draw_archive(archive, cmap="magma", limits=(200, 400))
    colours = face_colours(figure.axes[0])
    empty = np.setdiff1d(np.arange(len(colours)), archive.cell)
    assert (colours[empty] == to_rgba(EMPTY)).all()
    assert colour_bar(figure)[1] == (200, 400)
    assert colour_bar(figure)[0].startswith("fitness\n(values from ")
    beyond = archive.cell[archive.fitness > 400]
    assert np.allclose(colours[beyond], colormaps["magma"](1.0))
    by_generation = draw_archive(archive, colour="generation")
    assert colour_bar(by_generation) == ("generation", (1, 10))
    assert len(np.unique(face_colours(by_generation.axes[0])[archive.cell], axis=0)) == 10


@pytest.mark.parametrize("task", ["qd-walker", "qd-hopper", "qd-ant"])
def test_operators_have_a_colour_each_and_a_legend(task):
    archive = collect_elites(task)
    figure = draw_archive(archive, colour="operator")
    (axes,) = figure.axes
    legend = axes.get_legend()
    counts = {name: int((archive.operator == name).sum()) for name in NAMES}
    assert [text.get_text() for text in legend.get_texts()] == [f"{name}: {counts[name]}" for name in NAMES]
    assert [patch.get_facecolor() for patch in legend.get_patches()] == [
        to_rgba(OPERATORS[name]) for name in NAMES
    ]
    if task == "qd-walker":
        drawn = face_colours(axes)[archive.cell]
        assert np.allclose(drawn, [to_rgba(OPERATORS[name]) for name in archive.operator])
    if task == "qd-hopper":
        stacked = axes.patches[1:]
        sums = [(patch.get_data().values - patch.get_data().baseline).sum() for patch in stacked]
        assert sums == list(counts.values())
        assert [patch.get_facecolor() for patch in stacked] == [to_rgba(OPERATORS[name]) for name in NAMES]


def test_the_rarest_of_very_many_operators_are_grouped():
    archive = collect_elites("qd-walker")
    names = np.array([f"op{number:03d}" for number in range(len(archive.cell))])
    names[: len(names) // 2] = "mine"
    operators = list_operators([dataclasses.replace(archive, operator=names)])
    assert len(operators) == MAX_OPERATORS + 1
    assert "mine" in operators
    assert operators[-1] == "others"
    legend = (
        draw_archive(dataclasses.replace(archive, operator=names), colour="operator").axes[0].get_legend()
    )
    counts = [int(text.get_text().rpartition(" ")[2]) for text in legend.get_texts()]
    assert sum(counts) == len(archive.cell)


def test_replications_give_further_colours():
    archive = collect_elites("qd-walker")
    corrected, half = replicated(archive), len(archive.cell) // 2
    maps = make_correction_maps(corrected)
    assert np.allclose(maps["loss"].values[:half], 0)
    assert np.allclose(maps["loss"].values[half:], archive.fitness[half:] / 2)
    assert np.allclose(maps["spread"].values[half:], archive.fitness[half:] / 2)
    assert (maps["own-cell"].values[:half] == 1).all()
    for colour, label in (
        ("own-cell", "share in own cell"),
        ("spread", "deviation of fitness"),
        ("loss", "loss of fitness (recorded - mean)"),
    ):
        figure = draw_archive(archive, colour=colour, corrected=corrected)
        assert colour_bar(figure)[0].split("\n")[0] == label
    assert colour_bar(draw_archive(archive, colour="own-cell", corrected=corrected))[1] == (0, 1)
    with pytest.raises(ElitesError, match="colour loss needs replications of the elites"):
        draw_archive(archive, colour="loss")
    fewer = dataclasses.replace(archive, **{name: getattr(archive, name)[:5] for name in ("cell", "fitness")})
    with pytest.raises(ElitesError, match="the corrected archive has other elites"):
        draw_archive(fewer, colour="loss", corrected=corrected)


def test_corrected_profiles_are_on_one_axis_scale_and_each_has_its_own_note():
    archive = with_outlier(collect_elites("qd-hopper"))
    corrected = replicated(archive)
    original, mean = draw_corrected(corrected).axes
    assert original.get_ylim() == mean.get_ylim()
    assert original.get_ylabel() == "fitness"
    assert mean.get_ylabel() == "mean fitness"
    assert "highest value 1,000,000" in original.texts[0].get_text()
    spread = draw_spread(corrected).axes
    assert [axes.get_ylabel() for axes in spread] == [
        "share in own cell",
        "deviation of fitness",
        "deviation of descriptor",
    ]
    assert all(axes.child_axes for axes in (original, mean, *spread))


def test_own_axes_are_drawn_in(tmp_path):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    archive = collect_elites("qd-walker")
    assert draw_archive(archive, ax=left) is figure
    draw_profile(archive, ax=right)
    assert len(left.collections) == 1
    assert len(right.lines) == 1
    with pytest.raises(ElitesError, match="path and ax cannot be combined"):
        draw_archive(archive, tmp_path / "archive.png", ax=left)


def test_size_and_formats(tmp_path):
    archive = collect_elites("qd-walker")
    for ending, begin in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        draw_archive(archive, tmp_path / f"archive.{ending}", size=(4, 3))
        assert (tmp_path / f"archive.{ending}").read_bytes().startswith(begin)
    assert imread(tmp_path / "archive.png").shape[:2] == (450, 600)
    with pytest.raises(ElitesError, match=r"path is .*archive.doc; it must be a file that ends in .png"):
        draw_archive(archive, tmp_path / "archive.doc")


@pytest.mark.parametrize("kind", ["cvt", "grid"])
def test_parallel_axes_have_a_line_for_each_elite_the_best_on_top(kind):
    archive = collect_elites("qd-ant", kind)
    figure = draw_parallel(archive)
    axes = figure.axes[0]
    (lines,) = axes.collections
    segments = np.array(lines.get_segments())
    assert segments.shape == (len(archive.cell), 5, 2)
    assert np.allclose(segments[-1, :4, 1], archive.descriptor[0], atol=1e-6)
    assert segments[-1, 4, 1] == pytest.approx(1)
    assert np.allclose(lines.get_colors()[-1][:3], colormaps["viridis"](1.0)[:3])
    labels = [label.get_text().replace("\n", " ") for label in axes.get_xticklabels()]
    assert len(labels) == 5
    assert labels[0].startswith("contact of ")
    assert labels[-1] == "fitness"


@given(st.integers(1, 100_000))
def test_a_sample_of_many_elites_includes_the_best_and_the_worst(count):
    shown = select_shown_elites(count)
    assert len(shown) == min(count, MAX_LINES)
    assert (shown[0], shown[-1]) == (0, count - 1)
    assert (np.diff(shown) > 0).all()


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=100))
def test_the_archive_profile_counts_elites_at_least_as_good(fitness):
    levels, counts = compute_archive_profile(np.array(fitness))
    assert (np.diff(levels) > 0).all()
    assert counts.tolist() == [sum(value >= level for value in fitness) for level in levels]
    assert counts[0] == len(fitness)


def test_the_archive_profile_is_drawn_with_the_corrected_one():
    archive = collect_elites("qd-walker")
    corrected = replicated(archive)
    axes = draw_profile(archive, corrected=corrected).axes[0]
    for line, fitness in zip(
        axes.lines, (archive.fitness, corrected.mean_fitness[corrected.kept]), strict=True
    ):
        x, y = line.get_data()
        for level in (0.0, 250.0, 500.0):
            assert y[np.searchsorted(x, level)] == (fitness >= level).sum()
        assert (y[0], y[-1]) == (len(fitness), 0)
    assert len(draw_profile(archive).axes[0].lines) == 1
