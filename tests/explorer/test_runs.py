"""Pages of real small runs of each kind, and the server."""

import io
import json
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

import elites
from elites import RunConfig, cli
from elites.explorer.explore import serve
from tests.browser import on_map
from tests.experiments.test_gymnasium_runs import task as push

SMALL = {"initial": 40, "batch": 40, "hidden": (8,)}


def quiet(_):
    pass


def made(folder, task, physics=None, replications=3, **parameters):
    config = RunConfig(
        algorithm="map-elites",
        task=task,
        evaluations=80,
        snapshots=2,
        hyper_parameters=SMALL,
        task_parameters=parameters,
        physics=physics,
    )
    elites.run(config, folder, execution=elites.Execution(log=quiet))
    if replications:
        elites.correct(folder, replications=replications, log=quiet)
    return folder


def use_everything(browser):
    """Every view, colour and tab of an open page, the slider, the pointer and the keyboard."""
    keys = (
        "Array.from(document.querySelectorAll('%s [data-key]:not([aria-disabled=true])'), "
        "(button) => button.dataset.key)"
    )
    views, tabs = browser.run(keys % "#views"), browser.run(keys % "#tabs")
    assert "recorded" in views
    assert len(tabs) >= 3
    for view in views:
        browser.press_button(f"#views [data-key={view}]")
        assert browser.run("state.view") == view
    browser.press("1")
    for colour in browser.run("Array.from(byId('colours').options, (option) => option.value)"):
        browser.run(f"byId('colours').value = '{colour}', byId('colours').dispatchEvent(new Event('change'))")
        browser.settle()
        assert browser.run("state.colour") == colour
    elite = browser.run("runs[0].count") - 1
    x, y = on_map(browser, elite)
    browser.move(x, y)
    assert browser.run("state.hover.elite") == elite
    browser.click(x, y)
    assert browser.run("state.chosen.elite") == elite
    browser.press("p")
    assert browser.run("state.pins.length") == 1
    for tab in tabs:
        browser.press_button(f"#tabs [data-key={tab}]")
        assert browser.run("state.tab") == tab
        assert browser.run("byId('detail').childElementCount") > 0
    if browser.run("runs[0].moments.length") > 1:
        browser.run("byId('moment').value = byId('moment').min")
        browser.run("byId('moment').dispatchEvent(new Event('input'))")
        browser.settle()
        assert browser.run("state.moment") is not None
    browser.prefer(prefers_color_scheme="dark")
    browser.settle()
    browser.prefer(prefers_color_scheme="light")
    assert browser.problems == []


@pytest.fixture(scope="module")
def hopper(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs") / "hopper", "qd-hopper", episode_length=40)


def test_a_robot_walks_in_the_page(hopper, browser, tmp_path, capsys):
    page = tmp_path / "hopper.html"
    assert cli.main(["explore", str(hopper), "--out", str(page), "--gaits", "all"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(page)
    archive = elites.load_archive(hopper)
    browser.resize(1280, 800)
    browser.prefer(prefers_reduced_motion="no-preference")
    browser.problems.clear()
    browser.open(page)
    assert browser.run("Object.keys(runs[0].header.gaits.elites).length") == len(archive.fitness)
    assert browser.run("runs[0].moments.length") == 2
    browser.wait("mainStage.shown.length === 4")  # the best elite with three replications
    heights = browser.run(
        "limbsAt(runs[0].header.gaits.limbs, mainStage.shown[0].gait, 0, false).map((limb) => limb.centre[2])"
    )
    assert heights == pytest.approx([1.25, 0.825, 0.35, 0.1], abs=0.02)  # torso to foot, standing
    time = browser.run("clock.time")
    browser.wait(f"clock.time > {time} + 0.05")
    browser.run("clock.playing = false")
    browser.prefer()
    browser.press("ArrowRight")
    assert browser.run("mainStage.shown.length") > 0
    use_everything(browser)


def test_replications_are_left_out_beyond_the_limit(hopper, browser, tmp_path, monkeypatch):
    monkeypatch.setattr("elites.explorer.gaits.MAX_SECONDS", 1e-9)
    browser.problems.clear()
    browser.open(elites.explore(hopper, out=tmp_path / "hopper.html", gaits="all"))
    counts = browser.run("Object.values(runs[0].header.gaits.elites).map((all) => all.length)")
    assert len(counts) == len(elites.load_archive(hopper).fitness)
    assert sorted(counts)[-2:] == [1, 2]
    without = counts.index(1)
    browser.run(f"change({{chosen: {{run: 0, elite: {without}}}}})")
    browser.wait("mainStage.caption.textContent.includes('its replications are not in this page')")
    assert browser.problems == []


@pytest.mark.parametrize(
    ("task", "physics", "replications"), [("brax-hopper", "native", 0), ("mujoco-hopper", None, 2)]
)
def test_a_robot_of_another_simulator_walks_in_the_page(task, physics, replications, browser, tmp_path):
    folder = made(tmp_path / "run", task, physics=physics, replications=replications, episode_length=40)
    browser.resize(1280, 800)
    browser.prefer(prefers_reduced_motion="no-preference")
    browser.problems.clear()
    browser.open(elites.explore(folder))
    browser.wait(f"mainStage.shown.length === {1 + replications}")
    frames, heights = browser.run(
        "(({gait}) => [gait.frames, limbsAt(runs[0].header.gaits.limbs, gait, 0, false).map("
        "(limb) => limb.centre[2])])(mainStage.shown[0])"
    )
    assert frames > 2
    assert heights == pytest.approx([1.25, 0.825, 0.35, 0.1], abs=0.03)  # torso to foot, standing
    time = browser.run("clock.time")
    browser.wait(f"clock.time > {time} + 0.05")
    browser.run("clock.playing = false")
    browser.prefer()
    assert browser.run("mainStage.message.hidden")
    use_everything(browser)


def test_the_page_plays_the_replayed_poses(hopper, browser, tmp_path):
    """What the page decodes is what the exact replay gave, up to its quantisation."""
    from elites.replays.poses import record

    page = elites.explore(hopper, out=tmp_path / "hopper.html", gaits="best")
    archive = elites.load_archive(hopper)
    browser.problems.clear()
    browser.open(page)
    task = elites.make_task("qd-hopper", episode_length=40)
    for elite in browser.run("Object.keys(runs[0].header.gaits.elites)")[:3]:
        row = int(elite)
        (movement,) = record(
            task,
            (8,),
            archive.parameters[row : row + 1],
            [int(archive.seed[row])],
            **{"steps": 304, "every": 2, "physics": None},
        )
        shown = f"loadGait(runs[0], {row}).then((gait) => Array.from(gait.%s))"
        positions = np.array(browser.run(shown % "positions")).reshape(movement.positions.shape)
        np.testing.assert_allclose(positions, movement.positions, atol=1e-4)
        rotations = np.array(browser.run(shown % "rotations")).reshape(movement.rotations.shape)
        np.testing.assert_allclose(np.abs((rotations * movement.rotations).sum(-1)), 1, atol=1e-4)
        contacts = np.array(browser.run(shown % "contacts"))
        np.testing.assert_array_equal(contacts & 1, movement.contacts[:, 0])
    assert browser.problems == []


def test_an_environment_is_shown_as_it_draws_itself(browser, tmp_path):
    folder = tmp_path / "push"
    config = RunConfig(algorithm="map-elites", task=push(), evaluations=40, hyper_parameters=SMALL)
    elites.run(config, folder, execution=elites.Execution(log=quiet))
    browser.problems.clear()
    browser.open(elites.explore(folder))
    browser.wait("!mainStage.clip.hidden && mainStage.clip.naturalWidth > 0")
    assert browser.run("mainStage.message.hidden")
    shown = browser.run("Object.keys(runs[0].header.clips).map(Number)")
    assert 0 in shown
    without = next(elite for elite in range(browser.run("runs[0].count")) if elite not in shown)
    browser.run(f"change({{chosen: {{run: 0, elite: {without}}}}})")
    browser.wait("mainStage.caption.textContent.includes('the nearest elite with a movement')")
    use_everything(browser)
    browser.open(elites.explore(folder, gaits="none"))
    browser.wait("mainStage.message.textContent.includes('without movements')")
    assert browser.problems == []


def test_a_page_of_vectors_without_an_environment(browser, tmp_path):
    from tests.experiments.test_extending import FACTS, QUIET, in_numpy

    folder = tmp_path / "vectors"
    elites.optimise(in_numpy, **FACTS, evaluations=250, folder=folder, execution=QUIET)
    browser.problems.clear()
    browser.open(elites.explore(folder))
    browser.wait("mainStage.message.textContent.includes('without an environment')")
    assert "archive.parameters[0]" in browser.run("document.querySelector('#facts').innerText")
    saved = browser.run(
        "makeNpy(runs[0], 3).then((blob) => blob.arrayBuffer()).then((raw) => [...new Uint8Array(raw)])"
    )
    parameters = np.load(io.BytesIO(bytes(saved)))
    np.testing.assert_array_equal(parameters, elites.load_archive(folder).parameters[3])
    assert "elites replay" not in browser.run("document.querySelector('#facts').innerText")
    use_everything(browser)


@pytest.fixture(scope="module")
def address(hopper):
    addresses, ready = [], threading.Event()

    def on_ready(where):
        addresses.append(where)
        ready.set()

    thread = threading.Thread(target=serve, args=(hopper,), kwargs={"on_ready": on_ready}, daemon=True)
    thread.start()
    assert ready.wait(60)
    return addresses[0]


def answer(address, body=None, **headers):
    request = urllib.request.Request(address, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_served_page_evaluates_an_elite_again(address, hopper, browser):
    assert address.startswith("http://127.0.0.1:")
    body = json.dumps({"run": 0, "elite": 1, "seed": 7}).encode()
    status, text = answer(f"{address}evaluate", body)
    assert status == 200
    archive, task = elites.load_archive(hopper), elites.make_task("qd-hopper", episode_length=40)
    with elites.ThreadEvaluator(task, hidden=(8,), threads=1) as evaluator:
        expected = evaluator.evaluate(archive.parameters[1:2], [7])
    result = json.loads(text)
    assert result["fitness"] == expected.fitness[0]
    assert result["length"] == expected.length[0]

    browser.problems.clear()
    browser.open(address)
    saved = browser.run(
        "makeNpy(runs[0], 2).then((blob) => blob.arrayBuffer()).then((raw) => [...new Uint8Array(raw)])"
    )
    np.testing.assert_array_equal(np.load(io.BytesIO(bytes(saved))), archive.parameters[2])
    browser.wait("mainStage.shown.length === 4")
    browser.run("byId('again').click()")
    browser.wait("mainStage.shown.length === 5")
    assert "seed 1: fitness" in browser.run("byId('facts').innerText")
    outside = [one for one in browser.problems if not one.startswith(f"request of {address}")]
    assert [one for one in outside if "favicon" not in one] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"run": 1, "elite": 0, "seed": 0}', "run is 1; it must be below 1"),
        (b'{"run": 0, "elite": 99999, "seed": 0}', "elite is 99999"),
        (b'{"run": 0, "elite": 0, "seed": -1}', "seed"),
        (b'{"run": 0, "elite": 0, "seed": 0, "task": "os:system"}', "task"),
        (b"not json", "JSON"),
        (b"[" * 900, "object"),
        (b" " * 2000, "at most 1000 bytes"),
    ],
)
def test_requests_are_checked(address, body, message):
    status, text = answer(f"{address}evaluate", body)
    assert status == 400
    assert message in json.loads(text)["error"]
    assert answer(f"{address}parameters", body)[0] == 400


def test_other_pages_cannot_reach_the_server(address):
    root = address.rsplit("/", 2)[0]
    port = root.rsplit(":", 1)[1]
    body = b'{"run": 0, "elite": 0, "seed": 0}'
    assert answer(address)[0] == 200
    assert answer(f"{root}/")[0] == 404
    assert answer(f"{root}/{'a' * 32}/")[0] == 404
    assert answer(f"{address}../archive.npz")[0] == 404
    assert answer(address, Host=f"evil.example:{port}")[0] == 404
    assert answer(f"{address}evaluate", body, Origin="https://evil.example")[0] == 404
    assert answer(f"{root}/evaluate", body)[0] == 404
    assert answer(f"{root}/parameters", body)[0] == 404
