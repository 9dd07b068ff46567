"""Columns of the log that not every algorithm, generation or version has."""

import csv
import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from elites import (
    ElitesError,
    Execution,
    GenerationMetric,
    Metric,
    RunConfig,
    load_archive,
    read_table,
    resume,
    run,
    show,
    tasks,
)
from elites.algorithms.base import Batch
from elites.evaluation.evaluation import blank_evaluation
from elites.experiments import generation, loop
from elites.experiments.generation import Counts, GreedyEpisodes, Row
from elites.experiments.rows import make_generation_result
from elites.learning.critics import TrainingSums
from elites.metrics.metric import GENERATION_METRICS, Elites
from elites.results.schemas import OPTIONAL
from elites.results.tables import Table, metric_names
from elites.studies.results.reader import read_last_row
from elites.tasks.episode import Ending
from tests.algorithms.test_algorithms import chosen
from tests.toy import POINT

PARENTS = Metric("parents", "parents", ",.0f", lambda elites: np.float32(len(elites.fitness)))


def _filled(generation):
    """The share of the GA's offspring that filled an empty cell."""
    made = generation.counts["made_ga"]
    return generation.counts["new_ga"] / made if made else None


FILLED = GenerationMetric("filled", "cells filled by the GA", ".1%", _filled)
MEAN = Metric("mean_fitness", "mine", ".1f", lambda elites: 0.0)


@pytest.fixture(autouse=True)
def _point(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)


def config(name):
    given = {"algorithm": name, "task": "point", "evaluations": 155, "seed": 3, "physics": "xla"}
    return RunConfig(**given, snapshots=19, hyper_parameters=chosen(name, initial=4, batch=4))


def quiet(_):
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of an algorithm, and its reports; made once for all tests."""

    @functools.cache
    def made(name):
        folder, reports = tmp_path_factory.mktemp("runs") / name, []
        run(config(name), folder, execution=Execution(log=quiet, on_generation=reports.append))
        return folder, reports

    return made


def test_the_greedy_actors_fitness_is_that_of_its_evaluation(finished):
    folder, _ = finished("pga-map-elites")
    table, count = read_table(folder / "metrics.csv"), 0
    np.testing.assert_array_equal(np.isfinite(table["greedy_fitness"]), table["made_greedy"] == 1)
    for snapshot in (folder / "snapshots").iterdir():
        archive = load_archive(snapshot)
        by_greedy = archive.operator == "greedy"
        rows = np.searchsorted(table["generation"], archive.generation[by_greedy])
        np.testing.assert_array_equal(table["greedy_fitness"][rows], archive.fitness[by_greedy])
        count += by_greedy.sum()
    assert count > 0
    with (folder / "metrics.csv").open() as file:
        cells = [row["greedy_fitness"] for row in csv.DictReader(file)]
    assert [cell == "" for cell in cells] == (table["made_greedy"] == 0).tolist()


@given(
    st.lists(st.floats(-1000, 1000, width=32), min_size=6, max_size=6),
    st.lists(st.sampled_from(list(Ending)), min_size=6, max_size=6),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_greedy_episodes_are_summed_over_rounds_unless_they_are_invalid(fitness, endings, operators):
    algorithm = config("pga-map-elites").make_algorithm()
    functions = generation.Generation(algorithm, 2)
    blank = blank_evaluation(POINT, np.zeros((2, 3), np.uint32), transitions=False)
    ending, operator = np.array(endings, np.uint8).reshape(2, 3), np.array(operators).reshape(2, 3)
    evaluation = blank._replace(
        fitness=np.where(ending > Ending.TRUNCATED, np.nan, np.array(fitness, np.float32).reshape(2, 3)),
        ending=ending,
    )
    batch = Batch(jnp.zeros((2, 3, 1)), jnp.asarray(operator), jnp.zeros((2, 3, 2)))
    greedy = functions.make_zero_counts().greedy
    for _ in range(2):
        greedy = functions._add_greedy_episodes(greedy, batch, evaluation)
    counted = (operator == algorithm.operators.index("greedy")) & (ending <= Ending.TRUNCATED)
    np.testing.assert_array_equal(greedy.episodes, 2 * counted.sum(1))
    np.testing.assert_allclose(
        greedy.fitness, 2 * np.where(counted, evaluation.fitness, 0).sum(1), rtol=1e-4, atol=1e-3
    )


def test_values_are_means_or_missing():
    sums = TrainingSums(*np.array([[2, 0], [6.0, 0.0], [10.0, 0.0]]))
    greedy, none = GreedyEpisodes(*np.array([[2, 0], [8.0, 0.0]])), np.zeros(2)
    fitness = np.array([[1.0, -np.inf, 3.0], [-np.inf] * 3], np.float32)
    row = Row(Counts(none, none, none, sums, greedy), fitness, fitness[..., None], none, none)

    def values(row, index):
        elites = Elites(fitness[index][fitness[index] > -np.inf], np.empty((0, 1)), 3, 0.0)
        result = make_generation_result(row, index, elites, {})
        return [metric.compute_value(result) for metric in GENERATION_METRICS]

    assert OPTIONAL == ("mean_fitness", "critic_loss", "mean_q", "greedy_fitness")
    assert values(row, 0) == [2.0, 3.0, 5.0, 4.0]
    assert values(row, 1) == [None] * 4
    diverged = row._replace(counts=row.counts._replace(training=sums._replace(loss=np.array([np.nan, 0.0]))))
    assert np.isnan(values(diverged, 0)[1])  # training went wrong, and says so


def test_a_metric_of_the_generation_is_a_column_a_scalar_and_a_panel(finished, monkeypatch, tmp_path):
    folder, (whole, _) = tmp_path / "run", finished("map-elites")
    own = dataclasses.replace(config("map-elites"), metrics=(f"{__name__}:FILLED", f"{__name__}:PARENTS"))
    reports = []
    limited = Execution(max_hours=1e-9, checkpoint_seconds=0, log=quiet, on_generation=reports.append)
    assert not run(own, folder, execution=limited).finished
    assert [metric.name for metric in reports[0].shown_metrics[-2:]] == ["parents", "filled"]
    assert resume(folder, Execution(log=quiet)).finished
    table, plain = read_table(folder / "metrics.csv"), read_table(whole / "metrics.csv")
    columns = list(plain)
    columns.insert(columns.index("mean_fitness"), "parents")
    columns.insert(columns.index("invalid"), "filled")
    assert list(table) == columns
    for name, column in plain.items():
        np.testing.assert_array_equal(column, table[name])
    expected = np.where(table["made_ga"] > 0, table["new_ga"] / np.maximum(table["made_ga"], 1), np.nan)
    np.testing.assert_array_equal(table["filled"], expected)
    assert np.isnan(expected).any()
    assert np.isfinite(expected).any()
    events = EventAccumulator(str(folder))
    events.Reload()
    known = np.isfinite(expected)  # there is no scalar of an empty cell
    assert [event.step for event in events.Scalars("filled")] == table["evaluations"][known].tolist()
    panels = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: panels.append(figure))
    text = show(folder)
    labels = [axes.get_ylabel() for figure in panels for axes in figure.axes]
    assert {"cells filled by the GA", "parents", "QD-score", "mean fitness"} <= set(labels)
    assert not {"critic loss", "mean Q", "fitness of the greedy actor"} & set(labels)  # nothing is trained
    assert f"cells filled by the GA {expected[-1]:.1%}" in " ".join(text.split())


def test_a_run_of_an_earlier_version_keeps_its_columns(finished, monkeypatch, tmp_path):
    folder, (whole, _) = tmp_path / "run", finished("map-elites")
    limited = Execution(max_hours=1e-9, checkpoint_seconds=0, log=quiet)
    with monkeypatch.context() as earlier_version:
        earlier_version.setattr("elites.experiments.config.GENERATION_METRICS", ())
        assert not run(config("map-elites"), folder, execution=limited).finished
    assert not (set(OPTIONAL) & set(read_table(folder / "metrics.csv")))
    assert resume(folder, Execution(log=quiet)).finished
    earlier, table = read_table(folder / "metrics.csv"), read_table(whole / "metrics.csv")
    assert list(earlier) == [name for name in table if name not in OPTIONAL]
    for name, column in earlier.items():
        np.testing.assert_array_equal(column, table[name])
    assert (folder / "archive.npz").read_bytes() == (whole / "archive.npz").read_bytes()
    assert "QD-score" in show(folder)


@given(st.lists(st.tuples(st.floats(-1e30, 1e30), st.none() | st.floats(-1e30, 1e30)), min_size=1))
def test_empty_cells_are_read_as_nan(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tables") / "metrics.csv"
    table = Table(path, ["qd_score", "mean_q"])
    for one, other in rows:
        table.append({"qd_score": one, "mean_q": other})
    table.file.close()
    columns = read_table(path)
    assert columns["qd_score"].tolist() == [one for one, _ in rows]
    expected = np.array([np.nan if other is None else other for _, other in rows])
    np.testing.assert_array_equal(columns["mean_q"], expected)


def test_other_cells_may_not_be_empty(finished, tmp_path):
    log = finished("map-elites")[0] / "metrics.csv"
    lines = log.read_text().splitlines()
    names, *rows = (line.split(",") for line in lines)
    _, last = read_last_row(log)
    assert "critic_loss" not in last
    assert last["evaluations"] == 155
    for column in ("qd_score", "made_ga"):
        damaged = [*rows[-1]]
        damaged[names.index(column)] = ""
        (tmp_path / "metrics.csv").write_text("\n".join([*lines[:-1], ",".join(damaged), ""]))
        with pytest.raises(ElitesError, match=f"is damaged: {column} has an empty cell"):
            read_table(tmp_path / "metrics.csv")
        with pytest.raises(ElitesError, match="is damaged"):
            read_last_row(tmp_path / "metrics.csv")


def test_reports_show_only_metrics_of_the_archive():
    assert metric_names(["generation", "qd_score", *OPTIONAL, "made_ga"]) == ["qd_score"]


def test_a_metric_may_not_have_the_name_of_such_a_column():
    with pytest.raises(ElitesError, match="metrics is mean_fitness; it must be unique: each name"):
        RunConfig(algorithm="map-elites", task="point", metrics=(f"{__name__}:MEAN",))


def test_reports_to_callbacks_have_none_where_a_cell_is_empty(finished):
    folder, reports = finished("pga-map-elites")
    first, last = reports[0].metrics, reports[-1].metrics
    assert first["critic_loss"] is None
    assert last["critic_loss"] == read_table(folder / "metrics.csv")["critic_loss"][-1]
    assert loop._compute_median([None, 2.0, 4.0]) == 3.0
    assert loop._compute_median([None, None]) is None
    assert loop._compute_median([1, 3]) == 2
