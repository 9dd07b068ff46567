"""Studies executed by real workers: resumed, isolated from failures, reported."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from elites import ElitesError
from elites.experiments.guards import folder_lock
from elites.paper.presets import make_study
from elites.studies.calibration import (
    LEARNING_SECONDS,
    MIN_EPISODE_LENGTH,
    _choose_episode_length,
    _estimate_sizes,
    measure,
)
from elites.studies.display import StudyDisplay
from elites.studies.execution import Processes, State, execute, update
from elites.studies.plan import make_cost_key, predict_cost
from elites.studies.resources import StudyExecution
from elites.studies.run import _measure, _write_record, run_study

TOML = """
evaluations = {evaluations}
seeds = 2
correct = true
correct_replications = 2

[[tasks]]
task = "qd-hopper"
task_parameters = {{episode_length = 25}}

[[algorithms]]
algorithm = "map-elites"
hyper_parameters = {{initial = 40, batch = 20, hidden = [8]}}
label = "small"
"""
TOO_LARGE = """
[[algorithms]]
algorithm = "cma-map-elites"
hyper_parameters = {es = "full", hidden = [1024, 1024]}
label = "large"
"""
ONE_WORKER = StudyExecution(workers=1, threads=1, checkpoint_seconds=0)
UNMEASURED = StudyExecution(calibrate=False)
KEPT = ("metrics.csv", "archive.npz", "lineage.bin", "corrected.npz")


def results(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name in KEPT
    }


def study_run(path, out, *options):
    program = "import sys; from elites.cli import main; sys.exit(main())"
    arguments = ["study", "run", path, "--out", out, "--no-calibrate", "--checkpoint-seconds", 0, *options]
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(folder, count):
    """Until a run has logged so many generations."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        for path in folder.rglob("metrics.csv"):
            if path.read_bytes().count(b"\n") > count:
                return
        time.sleep(0.02)
    raise AssertionError("no run has begun")


def workers_of(folder):
    """Processes that work in this folder."""
    pids = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and b"elites.studies.worker" in Path(f"/proc/{entry}/cmdline").read_bytes():
                places = [os.readlink(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")]
                if any(place.startswith(str(folder)) for place in places):
                    pids.append(int(entry))
        except OSError:
            continue
    return pids


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A study with two runs, and one whose two runs cannot be made."""
    folder = tmp_path_factory.mktemp("undisturbed")
    path = folder / "mine.toml"
    path.write_text(TOML.format(evaluations=1200) + TOO_LARGE)
    process = study_run(path, folder / "out", "--workers", 2)
    out, err = process.communicate()
    return path, folder / "out", process.returncode, out, err


def test_a_failed_run_is_reported_and_stops_no_other(undisturbed):
    _, folder, code, out, err = undisturbed
    assert code == 1, err
    assert "mine" in out.splitlines()[1]
    assert "4: 2 of each, 1,200 evaluations a run" in out
    assert out.count("finished in") == 2
    failures = [line for line in out.splitlines() if " failed: " in line]
    assert len(failures) == 2
    assert all("/large/seed-" in line and " GB" in line for line in failures)
    assert "2 of 4 jobs failed; the same command tries them again" in out
    assert len(results(folder)) == 2 * len(KEPT)
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_a_study_that_was_stopped_and_killed_ends_the_same(undisturbed, tmp_path, capsys):
    _, whole, *_ = undisturbed
    own, folder = tmp_path / "mine.toml", tmp_path / "out"
    own.write_text(TOML.format(evaluations=1200))
    process = study_run(own, folder, "--workers", 2)
    wait_for_rows(folder, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "stopped; the same command continues" in out
    assert workers_of(folder) == []

    (before,) = {json.loads(record.read_text())["evaluations"] for record in folder.rglob("config.json")}
    assert before == 1200
    rows = max(log.read_bytes().count(b"\n") for log in folder.rglob("metrics.csv"))
    process = study_run(own, folder, "--workers", 1)
    wait_for_rows(folder, rows + 2)
    process.kill()
    process.communicate()
    limit = time.monotonic() + 20
    while workers_of(folder) and time.monotonic() < limit:
        time.sleep(0.05)
    assert workers_of(folder) == [], "workers end with whoever started them"

    out, err = study_run(own, folder, "--workers", 2).communicate()
    assert "`elites study report" in out, out + err
    assert results(folder) == {name: data for name, data in results(whole).items() if "/small/" in name}
    assert run_study(make_study(str(own)), folder) == []
    assert "is finished: 2 runs" in capsys.readouterr().out


def test_a_worker_that_is_killed_is_replaced(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOML.format(evaluations=600).replace("seeds = 2", "seeds = 1"))
    jobs = make_study(str(path)).jobs()
    pool, killed, ended = Processes(tmp_path / "out", ONE_WORKER), [], []

    def kill_once(states):
        if not killed and states[0].done > 100:
            killed.append(pool._running[jobs[0].folder].pid)
            os.kill(killed[0], signal.SIGKILL)

    (state,) = execute(jobs, pool, kill_once, ended.append)
    assert killed
    assert (state.stage, state.tries) == ("finished", 0)
    assert ended == [state]


def test_earlier_progress_is_shown_from_the_start():
    class Pool:
        started = ()

        def has_room(self):
            return True

        def start(self, job):
            self.started += (job,)

        def events(self):
            return [(job, {"kind": "done", "finished": True}) for job in self.started if seen]

        def close(self):
            pass

    seen, jobs = [], make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=1000).jobs()
    display = StudyDisplay(Path("nowhere"), 0, Console(width=100))

    def show(states):
        display(states)
        seen.append((states[0].stage, display.done, display.total))

    execute(jobs, Pool(), show, lambda state: None, evaluations_so_far=lambda job: 250)
    assert seen == [("running", 0.25, 1), ("finished", 1, 1)]


def message_on(state):
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        StudyDisplay(Path("nowhere"), 0, console).report_end(state)
    return captured.get()


def test_values_of_seeds_that_train_together_are_called_medians():
    study = make_study("contribution", suite="brax", tasks=["brax-hopper"], seeds=3, evaluations=1000)
    (job,) = study.jobs()
    state = State(job, "finished", metrics={"qd_score": 1234.0}, seconds=5)
    assert "median of seeds 0 to 2: QD-score 1,234" in message_on(state)
    console = Console(width=110, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(StudyDisplay(Path("nowhere"), 0, console).make_table([state]))
    assert "seeds that train together: medians" in captured.get()
    (single,) = make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=1000).jobs()
    assert "median" not in message_on(State(single, "finished", metrics={"qd_score": 1.0}, seconds=5))


def test_a_worker_that_is_killed_while_stopping_has_not_finished():
    """SIGTERM before the worker has its handler: it is gone without a word."""
    (job,) = make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=1000).jobs()
    gone = {"kind": "lost", "error": "its worker was ended by SIGTERM"}
    state = State(job, "running", tries=2)
    update(state, gone, stopping=True)
    assert state.stage == "stopped"
    assert message_on(state).endswith("seed-0 stopped; the same command continues it\n")
    state = State(job, "running")
    update(state, gone, stopping=False)
    assert (state.stage, message_on(state)) == ("waiting", "")
    update(state, {"kind": "progress", "done": 200, "total": 1000}, stopping=False)
    update(state, gone, stopping=True)
    assert "stopped after 200 evaluations" in message_on(state)


def test_a_run_that_was_only_corrected_is_reported_as_such():
    (job,) = make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=1000).jobs()
    state = State(job, "running")
    update(state, {"kind": "correcting", "done": 5, "total": 10}, stopping=False)
    update(state, {"kind": "done", "finished": True}, stopping=False)
    assert message_on(state).endswith("its archive was corrected\n")


def test_times_are_measured_once(tmp_path):
    path, messages = tmp_path / "mine.toml", []
    path.write_text(TOML.format(evaluations=1200) + TOO_LARGE)
    jobs = make_study(str(path)).jobs()
    measured = _measure(tmp_path, jobs, True, messages.append, keep=True)
    small, large = (measured.by_combination[make_cost_key(job.configs[0])] for job in jobs[:2])
    assert small["pace"]["steps_per_s"] > 100
    assert 1 <= small["pace"]["random_length"] <= 25
    assert small["pace"]["start_s"] > small["pace"]["learning_s"] > 0
    assert (small["elites"], small["generations"], small["episode_length"]) == (1000, 60, 25)
    assert "pace" not in large
    assert predict_cost(tmp_path, jobs, measured, 1).seconds is None  # nobody knows how long those would take
    assert messages[:2] == ["measuring episodes of qd-hopper", "measuring a generation of map-elites"]
    again = _measure(tmp_path, jobs[:1], True, messages.append, keep=True)
    assert again.by_combination[make_cost_key(jobs[0].configs[0])]["pace"] == small["pace"]


def test_a_combination_that_cannot_be_measured_is_named(monkeypatch):
    """Its physics is chosen within the measurement, where it may not be available."""

    def unavailable(task, *_):
        if task.name == "qd-walker":
            return None, ""
        raise ElitesError("no GPU here")

    monkeypatch.setattr("elites.evaluation.physics.choose_physics", unavailable)
    settings = [{"algorithm": "map-elites", "task": task} for task in ("qd-hopper", "qd-walker", "qd-ant")]
    messages = []
    measured = measure({"configs": settings, "seeds": [1, 1, 1], "calibrate": False}, messages.append)
    assert messages == ["map-elites on qd-hopper: no GPU here", "map-elites on qd-ant: no GPU here"]
    assert [cell["needs"] > 0 for cell in measured["by_combination"]] == [False, True, False]


def test_the_plan_alone_writes_nothing(tmp_path, capsys):
    study = make_study("ablation", tasks=["qd-hopper"], algorithms=["pga-map-elites-p_evo-1.0"], seeds=3)
    run_study(study, tmp_path / "out", UNMEASURED, only_plan=True)
    out = capsys.readouterr().out
    assert "3: 3 of each, 1,000,000 evaluations a run" in out
    assert "not measured" in out
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    run_study(study, tmp_path / "out", UNMEASURED, only_plan=True)
    assert list((tmp_path / "out").iterdir()) == []


def test_too_little_space_is_reported_before_anything_starts(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    study = make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=1000, log_every=7)
    assert study.jobs()[0].configs[0].log_every == 7
    with pytest.raises(
        ElitesError, match=r"the study takes up to .*, but only 1\.0 MB are free on the disk of"
    ):
        run_study(study, tmp_path / "out", UNMEASURED)
    assert list((tmp_path / "out").iterdir()) == []
    assert run_study(study, tmp_path / "out", UNMEASURED, only_plan=True) == []


def test_a_folder_in_use_is_reported_before_anything_is_measured(tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("measured for nothing")

    monkeypatch.setattr("elites.studies.run.measure", never)
    study = make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=1000)
    with folder_lock(tmp_path), pytest.raises(ElitesError, match="is being run by another process"):
        run_study(study, tmp_path)


def test_running_a_part_later_keeps_all_labels(tmp_path):
    path, messages = tmp_path / "mine.toml", []
    path.write_text(TOML.format(evaluations=1200) + TOO_LARGE)
    _write_record(tmp_path, make_study(str(path)), messages.append)
    _write_record(tmp_path, make_study(str(path), algorithms=["large"], seeds=1), messages.append)
    record = json.loads((tmp_path / "study.json").read_text())
    assert [choice["label"] for choice in record["algorithms"]] == ["small", "large"]
    assert (len(record["tasks"]), record["seeds"]) == (1, 1)
    _write_record(tmp_path, make_study(str(path), algorithms=["td3"]), messages.append)
    record = json.loads((tmp_path / "study.json").read_text())
    assert [choice["name"] for choice in record["algorithms"]] == ["map-elites", "cma-map-elites", "td3"]
    assert messages == []
    (tmp_path / "study.json").write_text("{")
    _write_record(tmp_path, make_study(str(path)), messages.append)
    assert len(json.loads((tmp_path / "study.json").read_text())["algorithms"]) == 2
    assert "study.json is damaged" in messages[0]


def test_an_archive_has_at_most_as_many_elites_as_evaluations():
    """What a correction and an archive take at most."""
    sizes = {}
    for evaluations in (200, 1200, 5000):
        study = make_study("contribution", tasks=["qd-hopper"], seeds=1, evaluations=evaluations)
        config = study.jobs()[0].configs[0]
        sizes[evaluations] = _estimate_sizes(config, config.make_algorithm())
    assert [size["elites"] for size in sizes.values()] == [200, 1000, 1000]
    archives = [size["archive_bytes"] for size in sizes.values()]
    assert archives[0] == pytest.approx(archives[1] / 5, rel=0.01)
    assert archives[1] == archives[2]
    assert sizes[200]["corrected_bytes"] == sizes[1200]["corrected_bytes"] / 5


class TestTable:
    """What a terminal shows."""

    def states(self, count):
        jobs = make_study("ablation", tasks=["qd-hopper"], seeds=count, evaluations=1000).jobs()
        states = [State(job, total=1000) for job in jobs]
        states[0].stage, states[0].done = "running", 430
        states[0].metrics = {"qd_score": 1234.0, "max_fitness": 56.7, "coverage": 0.25}
        states[1].stage, states[2].stage = "finished", "failed"
        states[3].stage, states[3].done = "correcting", 100
        return states

    def shown(self, states, height):
        console = Console(width=110, height=height, force_terminal=True, color_system=None)
        display = StudyDisplay(Path("nowhere"), 7, console)
        with console.capture() as captured:
            console.print(display.make_table(states), display.format_totals(states))
        return captured.get()

    def test_every_run_has_a_row(self):
        text = self.shown(self.states(2), 40)
        lines = text.splitlines()
        assert sum("qd-hopper/pga-map-elites-p_evo" in line for line in lines) == 10
        row = next(line for line in lines if "p_evo-0.0 " in line)
        assert "43%" in row
        assert "1,234" in row
        assert "25.0%" in row
        assert "8 finished, 1 running, 1 correcting, 6 waiting, 1 failed" in text

    def test_phases_before_the_first_generation_are_reported(self):
        states = self.states(2)
        states[4].stage = "running"
        states[4].total = 0
        update(states[4], {"kind": "phase", "phase": "compiling"}, stopping=False)
        assert self.shown(states, 40).count("compiling") == 1

    def test_many_runs_share_rows(self):
        text = self.shown(self.states(20), 30)
        assert len(text.splitlines()) < 15
        assert "43%" in text
        assert "FAILED" in text
        assert "c10%" in text
        assert text.count("·") == 100 - 4

    def test_if_there_are_too_many_runs_only_active_ones_have_a_row(self):
        jobs = make_study("performance", seeds=2).jobs()  # 8 tasks, 6 algorithms
        states = [State(job, total=1000) for job in jobs]
        states[3].stage, states[70].stage, states[5].stage = "running", "failed", "finished"
        text = self.shown(states, 24)
        lines = text.splitlines()
        assert len(lines) <= 24
        assert sum("/" in line for line in lines) == 2
        assert "and 46 more" in text
        for state in states:
            state.stage = "running"
        text = self.shown(states, 24)
        assert len(text.splitlines()) <= 24
        assert "and 31 more" in text


def test_long_episodes_are_shortened_where_only_learning_is_measured():
    (job,) = make_study("performance", tasks=["qd-ant"], algorithms=["map-elites-es"], seeds=1).jobs()
    algorithm = job.configs[0].make_algorithm()
    episodes = [r.policies * r.episodes for r in (*algorithm.opening[0], *2 * algorithm.generation)]
    length = _choose_episode_length(algorithm, 5000.0)
    assert length is not None
    assert sum(episodes) * length <= 5000.0 * LEARNING_SECONDS or length == MIN_EPISODE_LENGTH
    assert _choose_episode_length(algorithm, 1e9) is None


class FakePool:
    """Workers that work until they are stopped: each reports once a turn, and at most so many at once."""

    def __init__(self, most, turns):
        self.most, self.turns, self.running, self.stopped = most, turns, {}, False

    def has_room(self):
        return len(self.running) < self.most

    def start(self, job):
        assert not self.stopped
        self.running[job.folder] = (job, self.turns)

    def events(self):
        events = []
        for folder, (job, left) in list(self.running.items()):
            self.running[folder] = (job, left - 1)
            if self.stopped or left == 0:
                del self.running[folder]
                events.append((job, {"kind": "done", "finished": left == 0}))
        return events

    def stop(self):
        self.stopped = True

    def close(self):
        assert not self.running


def test_after_the_time_limit_nothing_starts_and_all_runs_stop():
    jobs = make_study("contribution", tasks=["qd-hopper"], seeds=6, evaluations=1000).jobs()
    turns, ended = iter(range(100)), []
    states = execute(jobs, FakePool(2, 3), lambda _: None, ended.append, lambda: next(turns) >= 6)
    assert [state.stage for state in states] == ["finished"] * 2 + ["stopped"] * 2 + ["waiting"] * 2
    assert len(ended) == 4
    states = execute(jobs, FakePool(2, 3), lambda _: None, ended.append)
    assert {state.stage for state in states} == {"finished"}


def test_a_study_stops_at_its_time_limit_and_goes_on_to_the_same_end(undisturbed, tmp_path):
    _, whole, *_ = undisturbed
    own, folder = tmp_path / "mine.toml", tmp_path / "out"
    own.write_text(TOML.format(evaluations=1200))
    process = study_run(own, folder, "--workers", 1, "--max-hours", 1e-6)
    out, err = process.communicate()
    assert process.returncode == 0, err
    lines = out.splitlines()
    assert lines[-2:] == [
        "the time limit is reached: 0 s (--max-hours)",
        "stopped; the same command continues",
    ]
    assert results(folder) == {}
    jobs, shown, ended = make_study(str(own)).jobs(), [], []

    def begun():
        return any(state.done > 100 for states in shown[-1:] for state in states)

    states = execute(jobs, Processes(folder, ONE_WORKER), shown.append, ended.append, begun)
    assert [state.stage for state in states] == ["stopped", "waiting"]
    states = execute(jobs, Processes(folder, replace(ONE_WORKER, workers=2)), shown.append, ended.append)
    assert [state.stage for state in states] == ["finished", "finished"]
    assert results(folder) == {name: data for name, data in results(whole).items() if "/small/" in name}


FUNCTION = """
import elites


@elites.task(parameters=4, descriptor_bounds=[(-1, 1)])
def sphere(vectors):
    return 1 - (vectors**2).mean(axis=1), vectors[:, :1]
"""


@pytest.mark.slow
def test_a_study_of_a_function_is_measured(tmp_path):
    (tmp_path / "balls.py").write_text(FUNCTION)
    (tmp_path / "mine.toml").write_text(
        'evaluations = 150\nseeds = 2\ntasks = ["balls:sphere"]\nalgorithms = ["map-elites"]\n'
    )
    program = "import sys; from elites.cli import main; sys.exit(main())"
    arguments = ["study", "run", "mine.toml", "--out", "out", "--plan"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "with episodes as short as those of random controllers" in done.stdout
