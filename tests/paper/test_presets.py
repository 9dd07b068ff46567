"""The paper's studies, and parts of them."""

import pytest

from elites import TASKS, ElitesError
from elites.paper.presets import STUDIES, SUITES, find_suite, make_study


def test_the_studies_have_the_runs_of_the_paper():
    """Runs of each study: tasks, algorithms and replications of SPEC section 6."""
    sizes = {name: len(make_study(name).jobs()) for name in STUDIES}
    assert sizes == {
        "performance": 8 * 6 * 20,
        "reproducibility": 4 * 5 * 20,
        "ablation": 4 * 5 * 10,
        "contribution": 4 * 20,
    }
    ablation = make_study("ablation")
    assert [choice.parameters["p_evo"] for choice in ablation.algorithms] == [0, 0.25, 0.5, 0.75, 1]
    assert all(study.evaluations == 1_000_000 for study in map(make_study, STUDIES))
    deep = [job for job in make_study("reproducibility").jobs() if "deep-grid" in job.folder]
    assert all(job.redraw and job.correct for job in deep)
    assert not any(job.correct for job in make_study("performance").jobs())


@pytest.mark.parametrize("suite", ["brax", "mujoco"])
@pytest.mark.parametrize("name", STUDIES)
def test_the_grid_of_another_suite_is_the_same(name, suite):
    original, other = make_study(name), make_study(name, suite=suite)
    assert [choice.name for choice in other.tasks] == [
        choice.name.replace("qd-", f"{suite}-").replace("walker", "walker2d") for choice in original.tasks
    ]
    assert {choice.name for choice in other.tasks} <= TASKS.keys()
    assert other.name == f"{name}-{suite}"
    left_out = {"name": "", "tasks": ()}
    assert {**other.record(), **left_out} == {**original.record(), **left_out}


def test_a_suite_is_only_for_studies_of_the_paper(tmp_path):
    with pytest.raises(ElitesError, match="suite is 'dm'; it must be one of qdgym, brax, mujoco"):
        make_study("ablation", suite="dm")
    with pytest.raises(ElitesError, match=r"suite is brax; .* and mine\.toml names its own tasks"):
        make_study("mine.toml", suite="brax")
    assert find_suite("ablation", ["qd-ant"], ["pga-map-elites"]) is SUITES["qdgym"]
    assert find_suite("ablation-brax", ["brax-ant"], ["pga-map-elites"]) is SUITES["brax"]
    assert find_suite("ablation-mujoco", ["mujoco-ant"], ["pga-map-elites"]) is SUITES["mujoco"]
    assert find_suite("ablation-brax", ["qd-ant"], ["pga-map-elites"]) is None
    assert find_suite("ablation", ["qd-ant"], ["td3"]) is None
    assert find_suite("mine", [], []) is None


def test_a_reference_is_one_of_the_algorithms(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'seeds = 1\ntasks = ["qd-hopper"]\nalgorithms = ["map-elites", "td3"]\nreference = {}\n'
    path.write_text(text.format('"td3"'))
    assert make_study(str(path)).record()["reference"] == "td3"
    assert make_study(str(path), algorithms=["map-elites"]).reference == "td3"  # a part, run first
    for given in ('"qd-pg"', "3"):
        path.write_text(text.format(given))
        with pytest.raises(ElitesError, match=r"reference is .*; it must be one of map-elites, td3"):
            make_study(str(path))


def test_tasks_and_algorithms_of_a_study_can_be_changed():
    study = make_study("ablation", tasks=["qd-ant", "qd-deterministic-ant"], algorithms=["pga-map-elites"])
    assert [choice.name for choice in study.tasks] == ["qd-ant", "qd-deterministic-ant"]
    assert len(study.algorithms) == 5
    study = make_study("ablation", algorithms=["pga-map-elites-p_evo-0.5", "td3"])
    assert [choice.slug() for choice in study.algorithms] == ["pga-map-elites-p_evo-0.5", "td3"]
