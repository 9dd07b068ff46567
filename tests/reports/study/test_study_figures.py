"""Figures beside pictures of how they should look. ELITES_BASELINES=new draws those anew, to be looked at."""

import os
from pathlib import Path

import pytest
from matplotlib.testing.compare import compare_images

from elites.reports import colours
from elites.reports.study import figures
from elites.reports.study.line_styles import choose_line_styles
from tests.synthetic_runs import make_run, study_of

BASELINES = Path(__file__).parent / "baselines"
TOLERANCE = 3.0  # root mean square of the difference, of 255
DPI = 36  # small files; labels can still be read


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 600), ("deep-grid", 500)):
        for seed in range(3):
            make_run(
                folder,
                algorithm,
                "qd-walker",
                seed,
                qd_score=score + 60 * seed,
                evaluations=400,
                loss=0.05 + 0.1 * (algorithm == "deep-grid") + 0.01 * seed,
                corrected_along=4,
            )
    return study_of(folder)


@pytest.fixture(scope="module")
def with_archives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 600)):
        make_run(folder, algorithm, "qd-walker", 0, qd_score=score, evaluations=100, loss=0.2)
    return study_of(folder)


DRAWN = {
    "progress": lambda study: figures.draw_progress(study, "evaluations"),
    "corrected": figures.draw_corrected_progress,
    "losses": lambda study: figures.draw_losses(study, without="deep-grid"),
    "contribution": figures.draw_contribution,
    "archives": lambda study: figures.draw_archives(figures.read_panels(study)[0]),
}


def draw(picture, path):
    figures.fix_layout(picture.figure)
    picture.figure.savefig(path, dpi=DPI, metadata={"Software": None})


@pytest.mark.parametrize("name", DRAWN)
def test_figures_look_as_they_should(name, study, with_archives, tmp_path):
    (picture,) = DRAWN[name](with_archives if name == "archives" else study)
    baseline, made = BASELINES / f"{name}.png", tmp_path / f"{name}.png"
    draw(picture, made)
    if os.environ.get("ELITES_BASELINES") == "new":
        draw(picture, baseline)
    assert compare_images(str(baseline), str(made), tol=TOLERANCE) is None


def test_a_wrong_colour_is_noticed(study, tmp_path, monkeypatch):
    monkeypatch.setitem(colours.ALGORITHMS, "pga-map-elites", colours.ALGORITHMS["map-elites"])
    (picture,) = DRAWN["progress"](study)
    draw(picture, tmp_path / "made.png")
    (tmp_path / "baseline.png").write_bytes((BASELINES / "progress.png").read_bytes())
    assert (
        compare_images(str(tmp_path / "baseline.png"), str(tmp_path / "made.png"), tol=TOLERANCE) is not None
    )


def test_one_colour_per_algorithm_and_all_differ(study):
    styles = choose_line_styles(study)
    assert {name: style.colour for name, style in styles.items()} == {
        name: colours.ALGORITHMS[name] for name in ("pga-map-elites", "map-elites", "deep-grid")
    }
    assert len(set(colours.ALGORITHMS.values())) == len(colours.ALGORITHMS)
    assert not set(colours.VARIANTS) & set(colours.ALGORITHMS.values())
