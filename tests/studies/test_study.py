"""What a study consists of, planned and refused, without running anything."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from elites import ElitesError, cli
from elites.cluster import differing_package
from elites.paper.presets import make_study
from elites.studies import plan, remaining
from elites.studies.cluster import remote_run, write_log
from elites.studies.study import Choice


def test_jobs_are_ordered_by_seed_and_have_their_own_folders():
    study = make_study("ablation", tasks=["qd-hopper"], seeds=2, first_seed=5, evaluations=500)
    jobs = study.jobs()
    assert len({job.folder for job in jobs}) == len(jobs) == 10
    assert [job.configs[0].seed for job in jobs] == [5] * 5 + [6] * 5
    assert jobs[1].folder == "runs/qd-hopper/pga-map-elites-p_evo-0.25/seed-5"
    assert jobs[1].configs[0].hyper_parameters == {"p_evo": 0.25}


TOGETHER = """
seeds = 3
tasks = ["brax-hopper"]

[[algorithms]]
algorithm = "cma-map-elites"

[[algorithms]]
algorithm = "cma-map-elites"
hyper_parameters = {es = "separable"}
"""


def test_replications_that_share_a_program_are_one_job(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOGETHER)
    jobs = {job.folder: job for job in make_study(str(path)).jobs()}
    whole = jobs["runs/brax-hopper/cma-map-elites"]
    assert whole.group
    assert whole.folders == [f"runs/brax-hopper/cma-map-elites/seed-{seed}" for seed in range(3)]
    assert "runs/brax-hopper/cma-map-elites-es-separable/seed-2" in jobs
    assert len(jobs) == 4


def test_seeds_of_a_function_in_jax_are_one_job_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "functions_of_study.py").write_text(
        "import elites, numpy as np\nimport jax.numpy as jnp\n"
        "facts = {'parameters': 3, 'descriptor_bounds': [(-1, 1)], 'cells': 9, 'qd_offset': 0.0}\n"
        "@elites.task(**facts)\n"
        "def traced(vectors):\n    return jnp.sin(vectors).sum(1), vectors[:, :1]\n"
        "@elites.task(**facts)\n"
        "def called(vectors):\n    return np.asarray(np.sin(vectors)).sum(1), vectors[:, :1]\n"
    )
    names = ["functions_of_study:traced", "functions_of_study:called"]
    path = tmp_path / "mine.toml"
    path.write_text(f'seeds = 3\ntasks = {json.dumps(names)}\nalgorithms = ["map-elites"]\n')
    jobs = make_study(str(path)).jobs()
    assert [len(job.configs) for job in jobs if "traced" in job.folder] == [3]
    assert [len(job.configs) for job in jobs if "called" in job.folder] == [1, 1, 1]


def test_only_an_algorithm_that_keeps_members_is_corrected_by_drawing_them(tmp_path, monkeypatch):
    """A hyper-parameter of this name may mean something else to a user's algorithm."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "own_of_study.py").write_text(
        "from dataclasses import dataclass\nimport elites\nfrom elites.algorithms.deep_grid import DeepGrid\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Config(elites.MAPElitesConfig):\n"
        '    keep_members: bool = False\n    """Something else."""\n'
        "class Own(elites.MAPElites):\n    Config = Config\n"
        "class OwnGrid(DeepGrid):\n    pass\n"
    )
    path = tmp_path / "mine.toml"
    path.write_text(
        'seeds = 1\ntasks = ["qd-hopper"]\ncorrect_every = 1000\nevaluations = 2000\n'
        '[[algorithms]]\nalgorithm = "own_of_study:Own"\nhyper_parameters = {keep_members = true}\n'
        '[[algorithms]]\nalgorithm = "own_of_study:OwnGrid"\n'
        "hyper_parameters = {keep_members = true, depth = 2}\n"
        '[[algorithms]]\nalgorithm = "deep-grid"\nhyper_parameters = {depth = 2}\n'
    )
    jobs = make_study(str(path)).jobs()
    assert [job.redraw for job in jobs] == [False, True, False]
    assert [job.configs[0].correct_redraw for job in jobs] == [False, True, False]


def test_folders_are_distinguished():
    for label in ("\N{GREEK SMALL LETTER ALPHA}", "calm walker", "\N{GREEK SMALL LETTER BETA}_2", "v1.5"):
        assert Choice("map-elites", label=label).slug() == label.replace(" ", "-")
    offsets = {Choice("qd-ant", {"qd_offset": value}).slug() for value in (-500, 500)}
    assert offsets == {"qd-ant-qd_offset--500", "qd-ant-qd_offset-500"}
    assert Choice("map-elites", {"hidden": [16, 16]}).slug() == "map-elites-hidden-16-16"
    assert Choice("gym:Pendulum-v1").slug() == "gym-Pendulum-v1"
    assert Choice("deep-grid", {"keep_members": True}).slug() == "deep-grid"  # only more is kept
    assert Choice("mine:Own", {"keep_members": True}).slug() == "mine-Own-keep_members-True"
    odd = [Choice("x", label=label).slug() for label in ("a/b", "a?b", "a*b", "???", "..", "---", "../../x")]
    assert len(set(odd)) == len(odd)
    for slug in (*odd, Choice("x", label="é" * 300).slug(), Choice("x", label="y" * 300).slug()):
        assert 0 < len(slug.encode()) <= 100
        assert "/" not in slug
        assert slug.strip(".")


OWN = """
evaluations = 300
seeds = 2
tasks = ["qd-hopper", {task = "qd-walker", task_parameters = {noise = 0.05}, label = "calm walker"}]

[[algorithms]]
algorithm = "map-elites"
hyper_parameters = {batch = 50, hidden = [16, 16]}
"""


def test_the_studies_of_fidelity_compare_two_variants_of_one_algorithm():
    folder = Path(__file__).parents[2] / "docs" / "fidelity"
    names = {path.stem for path in folder.glob("*.toml")}
    assert names == {"critics", "qd-pg", "es", "ga", "td3"}
    for name in names:
        configs = [job.configs[0] for job in make_study(str(folder / f"{name}.toml")).jobs()]
        assert len({config.algorithm for config in configs}) == 1
        assert len({json.dumps(config.hyper_parameters) for config in configs}) == 2


@pytest.mark.parametrize("script", ["table.py", "curves.py"])
def test_the_tables_of_fidelity_are_the_output_of_their_scripts(script, tmp_path):
    docs = Path(__file__).parents[2] / "docs"
    command = [sys.executable, docs / "fidelity" / script, tmp_path / "figure.png"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed in (docs / "fidelity.md").read_text()
    assert (tmp_path / "figure.png").exists() == (script == "curves.py")


def test_a_custom_study(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    study = make_study(str(path), seeds=3)
    assert (study.name, study.seeds, study.evaluations) == ("mine", 3, 300)
    folders = {job.folder for job in study.jobs()}
    assert "runs/calm-walker/map-elites-batch-50-hidden-16-16/seed-2" in folders
    walker = next(job for job in study.jobs() if "walker" in job.folder).configs[0]
    assert walker.make_task().noise == 0.05
    assert walker.make_algorithm().config.hidden == (16, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks = [", "is not a TOML file"),
        ("tasks = ['qd-ant']", "has no algorithms"),
        ("wings = 2", "has a field 'wings'; a study has name, tasks, algorithms, evaluations, seeds"),
        ("tasks = 'qd-ant'\nalgorithms = ['td3']", "it must be a list"),
        ("tasks = [3]\nalgorithms = ['td3']", "it must be names or tables"),
        ("tasks = []\nalgorithms = ['td3']", "tasks is empty"),
        ("tasks = ['qd-worm']\nalgorithms = ['td3']", "unknown task 'qd-worm'"),
        ("tasks = ['qd-ant']\nalgorithms = ['td4']", "unknown algorithm 'td4'"),
        ("tasks = ['qd-ant', 'qd-ant']\nalgorithms = ['td3']", "tasks contains qd-ant twice"),
        ("tasks = ['qd-ant']\nalgorithms = [{algorithm = 'td3', wings = 2}]", "have a field 'wings'"),
        ("tasks = ['qd-ant']\nalgorithms = [{hyper_parameters = {}}]", "algorithm in"),
        (
            "tasks = ['qd-ant']\nalgorithms = [{algorithm = 'td3', hyper_parameters = {wings = 2}}]",
            "td3 has no parameter 'wings'",
        ),
        (
            "tasks = ['qd-ant']\nalgorithms = [{algorithm = 'td3', hyper_parameters = {batch = 'x'}}]",
            "batch is 'x'; it must be a whole number",
        ),
        ("seeds = 0\ntasks = ['qd-ant']\nalgorithms = ['td3']", "seeds is 0; it must be from 1 to"),
        ("correct = 1\ntasks = ['qd-ant']\nalgorithms = ['td3']", "correct is 1; it must be true or false"),
        ("evaluations = -5\ntasks = ['qd-ant']\nalgorithms = ['td3']", "evaluations is -5"),
    ],
)
def test_errors_in_a_study_are_reported_in_one_line(text, message, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert cli.main(["study", "run", str(path), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study"], "usage: elites study run STUDY --out DIR"),
        (["study", "walk"], "usage: elites study run STUDY --out DIR"),
        (["study", "run"], "STUDY"),
        (["study", "run", "luck", "--out", "x"], "unknown study 'luck'; the studies are performance"),
        (["study", "run", "no.toml", "--out", "x"], "no.toml does not exist"),
        (["study", "run", "ablation", "--out", "x", "--workers", "0"], "workers is 0"),
        (["study", "run", "ablation", "--out", "x", "--threads", "0"], "threads is 0"),
        (["study", "report", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_wrong_input_gets_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert message in err


def test_without_ray_it_says_which_extra_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("elites.cluster.find_spec", lambda name: None)
    arguments = ["study", "run", "ablation", "--out", str(tmp_path / "out"), "--cluster", "auto"]
    assert cli.main(arguments) == 2
    assert "pip install 'elites[cluster]'" in capsys.readouterr().err
    run = ["run", "map-elites", "qd-hopper", "--out", str(tmp_path / "run"), "--cluster", "auto"]
    assert cli.main(run) == 2
    assert "pip install 'elites[cluster]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def measured(study, **cell):
    sizes = {
        "elites": 1000,
        "generations": 10,
        "archive_bytes": 10**6,
        "log_bytes": 1000,
        "corrected_bytes": 10**5,
        "checkpoint_bytes": 10**7,
        "episode_length": 1000,
        "needs": 10**9,
        "pace": {"steps_per_s": 1000.0, "random_length": 10.0, "learning_s": 2.0, "start_s": 5.0},
        **cell,
    }
    cells = {plan.make_cost_key(job.configs[0]): dict(sizes) for job in study.jobs()}
    return plan.Measurements(cells, "cpu", 8 * 10**9)


def test_an_offset_is_measured_once_for_all_runs_of_a_task(tmp_path, monkeypatch):
    measured = []

    def count(task):
        measured.append(task.name)
        return -5.0, "measured"

    monkeypatch.setattr("elites.evaluation.offset.measure_offset", count)
    path = tmp_path / "mine.toml"
    path.write_text(
        """seeds = 3
        tasks = [{task = "gym:Pendulum-v1", task_parameters = {descriptor = "tests.outside:without_jax"}}]
        algorithms = ["map-elites", "td3"]"""
    )
    study = make_study(str(path))
    assert len(study.jobs()) == len(study.jobs()) == 6
    assert all(job.configs[0].task_parameters["qd_offset"] == -5.0 for job in study.jobs())
    assert measured == ["gym:Pendulum-v1"]


def test_the_cost_of_a_study_is_predicted(tmp_path):
    study = make_study("ablation", tasks=["qd-hopper"], seeds=2, evaluations=1000, correct_replications=10)
    jobs = study.jobs()
    cost = plan.predict_cost(tmp_path, jobs, measured(study), workers=3)
    assert (cost.runs, cost.evaluations, cost.corrections) == (10, 10_000, 10 * 1000 * 10)
    assert cost.disk == 10 * (10**6 + 1000 + 10**5) + 3 * 10**7
    # Of each run 10 generations of 2 s, 1000 + 10 000 episodes of 10 or 1000 steps, and 5 s until it starts:
    # at best only for the first of each algorithm, as what it compiles is kept.
    assert cost.seconds == pytest.approx((5 * 5 + 10 * (20 + 11_000 * 0.01), 10 * (5 + 20 + 11_000.0)))
    text = plan.describe(study, jobs, cost, 0, "this machine")
    assert "10: 2 of each, 1,000 evaluations a run" in text
    later = dataclasses.replace(study, first_seed=7)
    assert "10: 2 of each from seed 7 on, 1,000" in plan.describe(later, jobs, cost, 0, "this machine")
    assert "up to 100,000 episodes, 10 of each elite" in text
    assert "up to 41.0 MB" in text
    assert "22 min 5 s" in text
    assert "1 d 6 h" in text


def test_workers_fit_the_memory():
    study = make_study("ablation", tasks=["qd-hopper"], seeds=2)
    cores = plan.count_cores()
    assert plan.choose_worker_count(study.jobs(), measured(study)) == min(cores, 5)
    assert plan.choose_worker_count(study.jobs(), measured(study, needs=3 * 10**9)) == min(cores, 2)
    assert plan.choose_worker_count(study.jobs(), measured(study, needs=10**11)) == 1


def test_concurrent_runs_need_the_sum_of_their_memory():
    study = make_study("ablation", tasks=["qd-hopper"], seeds=2)
    assert plan.predict_memory(study.jobs(), measured(study), 3) == 3 * (10**9 + plan.WORKER_BYTES)
    assert plan.predict_memory(study.jobs()[:2], measured(study), 3) == 2 * (10**9 + plan.WORKER_BYTES)


def test_a_group_needs_the_memory_of_all_its_runs():
    study = make_study("performance", tasks=["brax-hopper"], algorithms=["map-elites"], seeds=3)
    (job,) = study.jobs()
    assert plan.estimate_job_memory(job, measured(study, needs=10**9)) == 3 * 10**9


def test_the_log_of_a_run_that_failed_on_another_machine_is_kept(tmp_path):
    """The worker of a cluster's machine, without the cluster."""
    (message,) = [
        message for message in remote_run({"what": "run", "config": {}}, {}, 1.0) if "log" in message
    ]
    assert message["kind"] == "failed"
    assert b"Traceback" in message["log"]
    log = tmp_path / "logs" / "one.log"
    write_log(log, message)
    assert log.read_bytes() == message["log"]
    write_log(log, {"kind": "done", "finished": False})
    assert log.exists()
    write_log(log, {"kind": "done", "finished": True})
    assert not log.exists()


def test_versions_are_compared_only_for_packages_of_both_machines():
    ours = {"numpy": "2.0", "gymnasium": "1.0", "mujoco": None}
    assert differing_package(ours, dict(ours)) is None
    assert differing_package(ours, {**ours, "gymnasium": None, "mujoco": "3.0"}) is None
    assert differing_package(ours, {**ours, "gymnasium": "1.1"}) == "gymnasium"
    assert differing_package(ours, {**ours, "numpy": None}) == "numpy"


def test_a_folder_with_other_runs_is_refused(tmp_path):
    study = make_study("ablation", tasks=["qd-hopper"], seeds=1, evaluations=1000)
    job = study.jobs()[0]
    folder = tmp_path / job.folder
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(job.configs[0].record()))
    assert remaining.select_unfinished(tmp_path, study.jobs()) == study.jobs()
    longer = make_study("ablation", tasks=["qd-hopper"], seeds=1, evaluations=2000)
    with pytest.raises(ElitesError, match="has evaluations 1000, not 2000; choose another folder with --out"):
        remaining.select_unfinished(tmp_path, longer.jobs())
    record = {**job.configs[0].record()}
    record["hyper_parameters"] = {**record["hyper_parameters"], "batch": 7}
    (folder / "config.json").write_text(json.dumps(record))
    with pytest.raises(ElitesError, match=r'has hyper_parameters {"batch": 7}, not {"batch": 100}'):
        remaining.select_unfinished(tmp_path, study.jobs())


def test_physics_is_that_of_the_tasks_in_jax(tmp_path):
    choice = {"tasks": ["brax-hopper", "qd-hopper"], "algorithms": ["map-elites"], "seeds": 2}
    jobs = make_study("performance", physics="native", **choice).jobs()
    assert {(config.task, config.physics) for job in jobs for config in job.configs} == {
        ("brax-hopper", "native"),
        ("qd-hopper", None),
    }
    (job,) = (job for job in make_study("performance", **choice).jobs() if job.group)
    for config, own in zip(job.configs, job.folders, strict=True):  # as the runs have recorded it
        (tmp_path / own).mkdir(parents=True)
        (tmp_path / own / "config.json").write_text(json.dumps({**config.record(), "physics": "native"}))
    assert remaining.select_unfinished(tmp_path, [job]) == [job]
    other = next(job for job in make_study("performance", physics="xla", **choice).jobs() if job.group)
    with pytest.raises(
        ElitesError, match='has physics "native", not "xla"; choose another folder with --out'
    ):
        remaining.select_unfinished(tmp_path, [other])
    with pytest.raises(ElitesError, match=r"physics is xla; .* and the study has none"):
        make_study("performance", physics="xla", tasks=["qd-hopper"])


@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 1)])
def test_seeds_that_share_a_program_cannot_be_added_or_left_out(before, after, tmp_path):
    def jobs(seeds):
        choice = {"tasks": ["brax-hopper"], "algorithms": ["map-elites"], "evaluations": 1000}
        return make_study("performance", seeds=seeds, **choice).jobs()

    (job,) = jobs(before)
    for config, own in zip(job.configs, job.folders, strict=True):
        (tmp_path / own).mkdir(parents=True)
        (tmp_path / own / "config.json").write_text(json.dumps(config.record()))
        (tmp_path / own / "metrics.csv").write_text("")
    if job.group:
        (tmp_path / job.folder / "group.json").write_text(json.dumps({"seeds": list(range(before))}))
    assert remaining.select_unfinished(tmp_path, [job]) == [job]
    with pytest.raises(ElitesError, match=r"together and cannot change to seeds? .*; choose another"):
        remaining.select_unfinished(tmp_path, jobs(after))
