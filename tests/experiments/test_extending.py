"""What docs/your-own-algorithm.md promises, with its own code: through the command line."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import elites
from elites import cli, load_archive, load_corrected, load_lineage, read_table
from elites.metrics.metric import load_metric

DOCUMENT = Path(__file__).parents[2] / "docs" / "your-own-algorithm.md"
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
MODULES = dict(
    zip(
        ("two_lines", "spread", "swing", "arm", "loop"),
        (code for language, code in BLOCKS if language == "python"),
        strict=True,
    )
)
SMALL = ["--evaluations", "70", "--initial", "20", "--batch", "20", "--hidden", "8"]
SHORT = [*SMALL, "--episode-length", "40"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the document's modules, where the command is given."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget(*MODULES, "mistakes")
    yield tmp_path
    forget(*MODULES, "mistakes")


def forget(*modules):
    cli.run.make_run_command.cache_clear()
    for name in modules:
        sys.modules.pop(name, None)


def uninstall(folder, *modules):
    """As on a machine that has the results alone."""
    for name in modules:
        (folder / f"{name}.py").unlink()
    forget(*modules)


@pytest.fixture
def command(here, capsys, undrawn):
    """Runs the command line. Returns what it printed."""

    def run(line, *more):
        assert cli.main([*shlex.split(line), *more]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run


@pytest.fixture
def refusal(here, capsys):
    """Runs the command line, which refuses. Returns the one line that says why."""

    def run(line, *more):
        assert cli.main([*shlex.split(line), *more]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return run


def same(first, second):
    """Whether two folders hold the same results, bit for bit."""
    archives = [load_archive(folder) for folder in (first, second)]
    names = ("parameters", "fitness", "descriptor", "cell", "seed", "operator", "parents")
    equal = [np.array_equal(*(getattr(archive, name) for archive in archives)) for name in names]
    logs = ("metrics.csv", "lineage.bin")
    return all(equal) and all(Path(first, log).read_bytes() == Path(second, log).read_bytes() for log in logs)


def commands(beginning):
    """The commands of a block of the document, without their comments."""
    block = next(code for _, code in BLOCKS if code.startswith(beginning))
    return [line.partition("#")[0].removeprefix("elites ") for line in block.splitlines()]


def test_a_custom_algorithm_works_with_every_command(command, refusal, here):
    assert len(MODULES["two_lines"].splitlines()) <= 60
    running, resuming, correcting, showing, replaying = commands("elites run two_lines")
    options = [*SHORT[2:], "--evaluations", "70", "--threads", "2"]
    running = running.replace("--evaluations 20000", "")

    assert "--sigma3" in help_of("two_lines:TwoLines")
    assert "sigma3 is -1.0; it must be at least 0" in refusal("run two_lines:TwoLines qd-hopper --sigma3 -1")

    out = command(running.replace("runs/two-lines", "runs/undisturbed"), *options)
    assert "two_lines:TwoLines on qd-hopper, seed 0" in out
    assert "stopped after 20 evaluations" in command(running, *options, "--max-hours", "1e-9")
    command(resuming)
    assert same("runs/undisturbed", "runs/two-lines")

    record = (here / "runs/two-lines/config.json").read_text()
    assert '"algorithm": "two_lines:TwoLines"' in record
    assert '"sigma3": 0.2' in record
    table = read_table(here / "runs/two-lines/metrics.csv")
    assert table["made_two_lines"].tolist() == [0, 10, 10, 0]  # the last ten offspring are those of the GA
    assert table["made_ga"].tolist() == [0, 10, 10, 10]
    assert (table["new_two_lines"] + table["improved_two_lines"]).sum() > 0
    archive = load_archive("runs/two-lines")
    assert (archive.parents[archive.operator == "two_lines"] >= 0).all()
    lineage = load_lineage("runs/two-lines")
    np.testing.assert_array_equal(
        lineage.select_rows(lineage.find_rows(archive.evaluation)).cell, archive.cell
    )
    assert all(lineage.trace_first_parents(elite.evaluation).operator[-1] == "random" for elite in archive)

    uninstall(here, "two_lines")
    assert "two_lines" in refusal(resuming)
    assert "corrected by 2 replications" in command(correcting, "--replications", "2")
    out = command(showing)
    assert "two_lines " in re.search("elites found by .*", out)[0]
    assert "the luckiest elites" in out
    command(replaying, "--steps", "4", "--size", "64", "64")
    assert (here / "runs/two-lines/best.mp4").stat().st_size > 500


def help_of(algorithm):
    from contextlib import redirect_stdout
    from io import StringIO

    text = StringIO()
    with redirect_stdout(text), pytest.raises(SystemExit):
        cli.main(["run", algorithm, "--help"])
    return text.getvalue()


MISTAKES = """
import elites
from elites.algorithms import MAPElites

class Settings:
    pass

class WrongConfig(elites.MAPElites):
    Config = Settings

class WrongOperator(elites.MAPElites):
    def ask(self, state, key, round):
        return state, self.make_batch(gaa=self.ga(state.archive, key, round.policies))

class TooMany(elites.MAPElites):
    def ask(self, state, key, round):
        return state, self.make_random_batch(key, round.policies + 1)
"""


def test_mistakes_in_a_custom_algorithm_are_reported_in_one_line(refusal, here):
    (here / "mistakes.py").write_text(MISTAKES)
    small = "arm:arm --evaluations 40 --initial 20 --batch 20 --cells 16"
    error = refusal("run mistakes:WrongConfig arm:arm --out no")
    assert (
        "Config of 'mistakes:WrongConfig' is <class 'mistakes.Settings'>; it must be a subclass of" in error
    )
    error = refusal(f"run mistakes:WrongOperator {small} --out operator")
    assert "WrongOperator has no operator 'gaa'; its operators are random, ga" in error
    error = refusal(f"run mistakes:TooMany {small} --out many")
    assert re.search(
        r"TooMany made genomes of shape \[21, \d+\] in the round 'random'; it must be \[20, ", error
    )
    error = refusal("run mistakes:Nothing arm:arm --out no")
    assert error.endswith(
        "has no object 'Nothing'; its objects are Settings, WrongConfig, WrongOperator, TooMany\n"
    )


def test_a_custom_algorithm_is_listed_by_its_path(command):
    out = command("algorithms two_lines:TwoLines")
    assert re.search(r"^  --sigma3 +0\.\d+$", out, re.MULTILINE)
    assert "pga-map-elites" not in out


def test_seeds_of_a_custom_algorithm_give_the_same_as_each_alone(command):
    run = "run two_lines:TwoLines qd-hopper --sigma3 0.2"
    command(run, *SHORT, "--seeds", "2", "--out", "both")
    command(run, *SHORT, "--seed", "1", "--out", "alone")
    assert same("both/seed-1", "alone")


def test_a_custom_algorithm_joins_a_study(command, here):
    toml = next(code for language, code in BLOCKS if language == "toml")
    small = "hyper_parameters = {initial = 20, batch = 20, hidden = [8]"
    toml = toml.replace("20_000", "60").replace("seeds = 5", "seeds = 1")
    toml = toml.replace('"qd-hopper"', '{task = "qd-hopper", task_parameters = {episode_length = 40}}')
    toml = toml.replace('"map-elites"', f'{{algorithm = "map-elites", {small}}}}}')
    toml = toml.replace("hyper_parameters = {sigma3", f"{small}, sigma3")
    own = 'metrics = ["spread:spread", "spread:accepted"]\ncorrect = true\ncorrect_replications = 2\n'
    (here / "lines.toml").write_text(own + toml)
    running, reporting = commands("elites study run lines")
    assert (
        len(re.findall(r"finished in .*, spread of descriptors 0\.\d{3}", command(running, "--no-calibrate")))
        == 2
    )
    runs = here / "studies" / "lines" / "runs" / "qd-hopper-episode_length-40"
    assert load_archive(runs / "two-lines" / "seed-0").about["hyper_parameters"]["sigma3"] == 0.2
    uninstall(here, "two_lines")
    assert "2 runs, 1 task, 2 algorithms" in command(reporting)
    page = (here / "studies/lines/report/index.html").read_text()
    assert "two_lines:TwoLines" in page
    table = pyarrow.parquet.read_table(here / "studies/lines/report/metrics.parquet")
    assert np.isfinite(table["spread"].to_numpy()).all()  # the metrics of one's own
    assert np.isfinite(table["accepted"].to_numpy()).all()
    assert "accepted offspring" in page
    assert "spread of descriptors loss" in page
    final = (here / "studies/lines/report/tables/final.csv").read_text()
    _, after, lost = load_corrected(runs / "two-lines" / "seed-0").compare_metric(
        load_metric("spread:spread")
    )
    for column, value in (("corrected_spread", after), ("spread_loss", lost)):
        (median,) = re.findall(rf"^qd-hopper,two lines,{column},.*$", final, re.MULTILINE)
        assert str(value) in median
    assert (here / "studies/lines/report/figures/contribution-two-lines-TwoLines.png").exists()


def test_a_custom_metric_is_a_column_and_is_shown(command, here):
    running = commands("elites run map-elites qd-hopper --metrics")[0].replace("--evaluations 20000", "")
    out = command(running, *SHORT)
    progress, summary = out.split("map-elites on qd-hopper")
    assert re.search(r"spread of descriptors 0\.\d{3},", progress)  # with its label and its format
    assert re.search(r"spread of descriptors +0\.\d{3}\n", summary)
    logged = read_table(here / "runs/spread/metrics.csv")["spread"]
    descriptor = load_archive("runs/spread").descriptor
    assert logged[-1] == pytest.approx(descriptor.std(axis=0).mean(), rel=1e-5)
    assert re.search(r"accepted offspring +\d+\.\d%\n", summary)
    assert "accepted" not in command("correct runs/spread --replications 1 --threads 1")
    uninstall(here, "spread")
    assert re.search(r"spread +0\.\d+\n", command("show runs/spread"))
    assert re.search("left out: .*'spread'", command("correct runs/spread --replications 2 --threads 1"))


def test_the_result_of_each_seed_has_a_custom_metric(command):
    out = command("run map-elites qd-hopper --metrics spread:spread --seeds 2 --out both", *SHORT)
    values = re.findall(r"^both/seed-\d: .*, spread of descriptors (0\.\d{3})$", out, re.MULTILINE)
    logged = (read_table(f"both/seed-{seed}")["spread"][-1] for seed in range(2))
    assert values == [f"{value:.3f}" for value in logged]


def test_a_metric_is_refused_in_one_line(refusal):
    run = "run map-elites qd-hopper --metrics"
    assert "metric 'spread:_spread' is not an elites.Metric" in refusal(f"{run} spread:_spread")
    assert "has no object 'nothing'" in refusal(f"{run} spread:nothing")
    assert "each name may be given only once" in refusal(f"{run} spread:spread spread:spread")


def test_a_custom_task_is_identified_by_its_path(command, here):
    running = commands("elites run pga-map-elites swing")[0].replace("pga-map-elites", "map-elites")
    options = [*SMALL[2:], "--evaluations", "40", "--episode-length", "30", "--threads", "1"]
    running = running.replace("--evaluations 2000", "")
    command(running, *options, "--max-hours", "1e-9")
    out = command("resume runs/swing", "--threads", "1")
    assert "map-elites on swing:swing" in out
    assert "upright" in out
    command("correct runs/swing --replications 2 --threads 1")


def test_a_task_in_jax_is_known_by_its_path(command):
    run = "run map-elites tests.toy:POINT --evaluations 60 --initial 20 --batch 20 --hidden 8 --seeds 2"
    command(run, "--out", "undisturbed")
    command(run, "--out", "stopped", "--max-hours", "1e-9")
    command("resume stopped")
    assert same("undisturbed/seed-1", "stopped/seed-1")
    assert "corrected by 2 replications" in command("correct stopped/seed-0 --replications 2")


@pytest.mark.parametrize("algorithm", ["map-elites", "cma-map-elites"])
def test_a_function_resumes_to_the_same_bits(command, algorithm):
    run = f"run {algorithm} arm:arm --evaluations 450 --cells 64 --snapshots 3"
    command(run, "--out", "undisturbed")
    assert "stopped after 100 evaluations" in command(run, "--out", "stopped", "--max-hours", "1e-9")
    command("resume stopped")
    assert same("undisturbed", "stopped")
    archive = load_archive("stopped")
    assert archive.about["evaluations"] == 450
    assert archive.about["task"]["descriptor_names"] == ["x", "y"]
    assert np.abs(archive.descriptor).max() <= 1
    assert len(archive.fitness) > 20
    assert "x " in command("show stopped")


def test_a_noisy_function_is_corrected(command, here):
    running, correcting = commands("elites run map-elites arm:arm")[1:]
    running = running.replace("--evaluations 20000", "--evaluations 300")
    command(running)
    assert "corrected by 20 replications" in command(correcting, "--replications", "20")
    corrected = elites.load_corrected("runs/shaky")
    archive = load_archive("runs/shaky")
    noiseless = -archive.parameters.std(axis=1)
    assert np.abs(archive.fitness - noiseless).mean() == pytest.approx(0.1 * np.sqrt(2 / np.pi), rel=0.3)
    spread = corrected.fitness.std(axis=1)
    assert spread.mean() == pytest.approx(0.1, rel=0.2)
    uninstall(here, "arm")
    assert "the luckiest elites" in command("show runs/shaky")


@pytest.mark.parametrize("algorithm", ["pga-map-elites", "qd-pg", "td3"])
def test_algorithms_that_train_controllers_refuse_a_function(refusal, here, algorithm):
    error = refusal(f"run {algorithm} arm:arm --out refused")
    assert f"{algorithm} trains controllers in an environment; arm:arm has none. map-elites, map-el" in error
    assert "map-elites-es and cma-map-elites can optimise it" in error
    assert not (here / "refused").exists()


def test_a_function_cannot_be_replayed_but_has_random_vectors(command, refusal):
    command("run map-elites arm:arm --evaluations 100 --out run")
    assert "there is nothing to draw" in refusal("replay run")
    out = command("random arm:arm --controllers 20")
    assert re.search(r"^arm:arm: 20 vectors, 20 evaluations, \d+ evaluations/s$", out, re.MULTILINE)
    assert "descriptor  x " in out
    assert "'episode_length'" in refusal("run map-elites arm:arm --episode-length 3 --out no")


def test_the_documented_loop_runs(here):
    code = MODULES["loop"].replace("evaluations=20000", "evaluations=300").replace("range(100)", "range(3)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+ elites, \d+ new in the last batch$", done.stdout, re.MULTILINE)


BOUNDS = [(-1, 1), (-1, 1)]
FACTS = {"parameters": 4, "descriptor_bounds": BOUNDS, "cells": 64, "qd_offset": -4}
QUIET = elites.Execution(log=lambda _: None)


def in_numpy(vectors):
    assert isinstance(vectors, np.ndarray)
    return -np.square(vectors).sum(axis=1), np.tanh(vectors[:, :2])


def in_jax(vectors):
    import jax.numpy as jnp

    assert not isinstance(vectors, np.ndarray)  # it is traced
    return -jnp.square(vectors).sum(axis=1), jnp.tanh(vectors[:, :2])


@pytest.mark.parametrize("algorithm", ["map-elites", "cma-map-elites"])
def test_functions_in_numpy_and_jax_fill_an_archive(algorithm):
    archives = [
        elites.optimise(function, **FACTS, algorithm=algorithm, evaluations=400, execution=QUIET)
        for function in (in_numpy, in_jax)
    ]
    for archive in archives:
        assert archive.about["evaluations"] == 400
        assert len(archive.fitness) > 20
        assert (np.diff(archive.fitness) <= 0).all()
        assert np.allclose(archive.fitness, -np.square(archive.parameters).sum(axis=1), rtol=1e-5, atol=1e-6)
    # The same first vectors; later ones may differ by what rounds differently.
    assert archives[0].metrics.coverage == pytest.approx(archives[1].metrics.coverage, abs=0.1)


def test_a_function_that_can_be_imported_is_resumed_and_corrected(tmp_path):
    once = elites.Execution(log=lambda _: None, max_hours=1e-9)
    elites.optimise(in_numpy, **FACTS, evaluations=250, folder=tmp_path / "stopped", execution=once)
    assert elites.resume(tmp_path / "stopped", QUIET).finished
    elites.optimise(in_numpy, **FACTS, evaluations=250, folder=tmp_path / "undisturbed", execution=QUIET)
    assert same(tmp_path / "stopped", tmp_path / "undisturbed")
    corrected = elites.correct(tmp_path / "stopped", replications=2)
    assert corrected.losses.qd_score == pytest.approx(0, abs=1e-6)  # nothing is random


def test_non_finite_vectors_do_not_enter_the_archive(tmp_path):
    def half(vectors):
        fitness, places = in_numpy(vectors)
        return np.where(vectors[:, 0] > 0, np.nan, fitness), places

    archive = elites.optimise(half, **FACTS, evaluations=300, folder=tmp_path / "run", execution=QUIET)
    assert (archive.descriptor[:, 0] <= 0).all()
    assert np.isfinite(archive.fitness).all()
    assert read_table(tmp_path / "run" / "metrics.csv")["invalid"].sum() > 30


@pytest.mark.parametrize("traced", [False, True])
def test_wrong_shapes_are_named(traced):
    def wrong(vectors):
        fitness, places = (in_jax if traced else in_numpy)(vectors)
        return fitness[:, None], places

    with pytest.raises(elites.ElitesError, match=r"fitness \[100, 1\] .* must be \[100\] and \[100, 2\]"):
        elites.optimise(wrong, **FACTS, evaluations=300, execution=QUIET)


@pytest.mark.parametrize("algorithm", ["map-elites", "cma-map-elites"])
def test_a_custom_loop_fills_an_archive(tmp_path, algorithm):
    optimiser = elites.Optimiser(**FACTS, algorithm=algorithm)
    for _ in range(4):
        vectors = optimiser.ask()
        assert vectors.shape == (100, 4)
        status = optimiser.tell(*in_numpy(vectors))
        assert status.shape == (100,)
    archive = optimiser.archive()
    assert optimiser.evaluations == archive.about["evaluations"] == 400
    assert len(archive.fitness) > 20
    archive.save(tmp_path / "archive.npz")
    assert np.array_equal(load_archive(tmp_path / "archive.npz").fitness, archive.fitness)


def test_a_custom_loop_gives_the_result_of_optimise():
    optimiser = elites.Optimiser(**FACTS, seed=3)
    for _ in range(7):
        optimiser.tell(*in_numpy(optimiser.ask()))
    whole = elites.optimise(in_numpy, **FACTS, seed=3, evaluations=700, execution=QUIET)
    assert np.array_equal(optimiser.archive().parameters, whole.parameters)


def test_a_loop_refuses_wrong_calls_and_shapes():
    optimiser = elites.Optimiser(**FACTS)
    with pytest.raises(elites.ElitesError, match="tell was called without ask"):
        optimiser.tell(np.zeros(100), np.zeros((100, 2)))
    optimiser.ask()
    with pytest.raises(elites.ElitesError, match="ask was called twice"):
        optimiser.ask()
    with pytest.raises(elites.ElitesError, match=r"descriptors are \[100, 3\]; they must be \[100\] and"):
        optimiser.tell(np.zeros(100), np.zeros((100, 3)))
    status = optimiser.tell(np.full(100, np.nan), np.zeros((100, 2)))
    assert (status == elites.Status.REJECTED).all()
    assert not len(optimiser.archive().fitness)


def optimise(**arguments):
    return elites.optimise(in_numpy, **arguments, evaluations=200, execution=QUIET)


def task(**arguments):
    return elites.task(**arguments)(in_numpy)


@pytest.mark.parametrize("take", [optimise, elites.Optimiser, task])
def test_arguments_that_do_not_describe_a_function_are_named(take):
    with pytest.raises(
        elites.ElitesError, match=r"parameters and descriptor_bounds are required; desc\w+ is m"
    ):
        take(parameters=4)
    with pytest.raises(elites.ElitesError, match=r"are required; parameters is missing$"):
        take(descriptor_bounds=BOUNDS)
    message = (
        r"^unknown argument sigma0; hyper-parameters go into hyper_parameters, and .* by parameters, des"
    )
    with pytest.raises(elites.ElitesError, match=message):
        take(**FACTS, sigma0=0.2)


@pytest.mark.parametrize("take", [optimise, elites.Optimiser])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": elites.MAPElites}, "algorithm is <class .*MAPElites'>; it must be a name, or module:"),
        ({"seed": -1}, "seed is -1; it must be from 0 to"),
        ({"seed": 1.5}, r"seed is 1\.5; it must be a whole number"),
        ({"algorithm": "qd-pg"}, "qd-pg trains controllers in an environment; .* and cma-map-elites can op"),
        (
            {"algorithm": "map-elites-es", "hyper_parameters": {"normalise": True}},
            "normalise is True; it must be false: .* has no observations",
        ),
        ({"grid": (8, 8)}, "grid can only be set with archive=grid; archive is cvt"),
        (
            {"hyper_parameters": {"archive": "grid"}},
            "cells can only be set with archive=cvt; archive is grid",
        ),
    ],
)
def test_algorithms_that_cannot_optimise_a_function_are_refused(take, changes, message):
    with pytest.raises(elites.ElitesError, match=message):
        take(**{**FACTS, **changes})


@pytest.mark.parametrize("algorithm", ["map-elites-sampling", "map-elites-es"])
def test_a_loop_refuses_algorithms_that_repeat_evaluations(algorithm):
    with pytest.raises(
        elites.ElitesError, match=f"{algorithm} evaluates a vector several times: use elites."
    ):
        elites.Optimiser(**FACTS, algorithm=algorithm)


def test_a_grid_archive_of_a_function():
    facts = {"parameters": 4, "descriptor_bounds": BOUNDS, "hyper_parameters": {"archive": "grid"}}
    assert optimise(**facts, grid=(3, 3)).cell.max() < 9
    assert elites.Optimiser(**facts, grid=(3, 3)).algorithm.cells.centroids.shape == (9, 2)


def test_optimise_records_custom_metrics(here):
    optimise(**FACTS, metrics=("spread:spread",), folder=here / "run")
    assert np.isfinite(read_table(here / "run")["spread"]).all()


def test_a_custom_metric_is_on_the_figure_of_a_correction_and_on_the_page(here):
    from elites.explorer.blocks import Blocks
    from elites.explorer.content import describe_run, list_operators, read_content
    from elites.reports.figures import draw_corrected

    optimise(**FACTS, metrics=("spread:spread",), folder=here / "run")
    corrected = elites.correct(here / "run", replications=2)
    title = draw_corrected(corrected, metric_paths=("spread:spread",)).get_suptitle()
    assert "coverage loss" in title
    assert "spread of descriptors loss" in title
    assert "spread of descriptors loss" not in draw_corrected(corrected).get_suptitle()
    content = read_content(here / "run")
    curves = describe_run(content, list_operators([content]), Blocks())["curves"]
    assert "spread of descriptors" in [curve["label"] for curve in curves]


def test_any_number_of_operators_can_be_drawn(tmp_path):
    from elites.reports.show import draw_progress

    counts = {f"{what}_{name}": np.arange(3) for name in "abcdefg" for what in ("made", "new", "improved")}
    metrics = {"generation": np.arange(3), "evaluations": np.arange(3), "coverage": np.ones(3), **counts}
    draw_progress(metrics, tmp_path / "progress.png", "seven operators")
    assert (tmp_path / "progress.png").stat().st_size > 10_000
