"""Robots in MuJoCo, drawn from the exact replay of their episodes, by MuJoCo's renderer and by ours."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elites
from elites import ElitesError, RunConfig, cli, load_archive
from elites.replays import offscreen as offscreen_module
from elites.replays.models import ModelShapes, PosedScene, find_floor
from elites.replays.mujoco import MujocoScene, Recorder
from elites.replays.offscreen import open_renderer
from elites.replays.poses import read_robot, record
from elites.replays.rays import FIELD_OF_VIEW
from elites.replays.solids import BOX, CYLINDER, ELLIPSOID, Solid, fit_outline, intersect
from tests.clips import frames, reddish
from tests.explorer.test_data import parts
from tests.explorer.test_poses import controllers, rotate

KINDS = {
    int(mujoco.mjtGeom.mjGEOM_BOX): BOX,
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): CYLINDER,
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): ELLIPSOID,
}
MODEL = """
<mujoco>
  <default><geom rgba=".9 .4 .1 1"/></default>
  <asset><mesh name="wedge" vertex="0 0 0  .6 0 0  0 .4 0  0 0 .5  .6 0 .2  .3 .4 .1"/></asset>
  <worldbody>
    <light directional="true" pos="0 0 5"/>
    <geom type="plane" size="20 20 1" pos="0 0 -.3" rgba=".5 .5 .5 1"/>
    <geom type="box" size=".1 1 .5" pos="-1.5 1 .2" rgba=".5 .5 .5 1"/>
    <body pos="0 0 .5"><freejoint/>
      <geom type="box" size=".3 .2 .1" euler="10 20 30"/>
      <geom type="cylinder" size=".15 .3" pos=".8 0 0" euler="60 20 0"/>
      <geom type="ellipsoid" size=".3 .15 .1" pos="-.8 0 .1" euler="0 20 50"/>
      <geom type="mesh" mesh="wedge" pos="0 .8 0" euler="0 10 20"/>
      <geom type="capsule" size=".1 .2" pos="0 -.6 0" euler="90 20 0"/>
      <geom type="cylinder" size=".25 .03" pos=".5 0 .7" euler="70 0 20"/>
      <geom name="foot" type="sphere" size=".15" pos="0 0 .4" group="3"/>
      <geom type="sphere" size="3" group="3"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(autouse=True)
def _our_renderer(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")


@pytest.fixture(scope="module")
def hopper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "hopper"
    config = RunConfig(
        algorithm="map-elites",
        task="mujoco-hopper",
        evaluations=40,
        hyper_parameters={"initial": 40, "batch": 40, "hidden": (8,)},
        task_parameters={"episode_length": 30},
    )
    elites.run(config, folder, execution=elites.Execution(log=lambda _: None))
    return folder


@pytest.fixture(scope="module")
def model():
    made = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(made)
    mujoco.mj_forward(made, data)
    return made, data


def test_the_best_elite_is_drawn_as_it_was_recorded(hopper, capsys):
    assert cli.main(["replay", str(hopper)]) == 0
    out = capsys.readouterr().out.splitlines()
    _, _, steps, fitness, replayed, contact, again = out[1].split()
    assert fitness == replayed == f"{load_archive(hopper).fitness[0]:.2f}"
    assert contact == again
    pictures, rate = frames(hopper / "best.mp4")
    assert len(pictures) == int(steps) // 4 + 1
    assert rate == pytest.approx(31.25, abs=0.01)
    assert all(300 < reddish(picture).sum() < 20_000 for picture in pictures)
    assert (pictures[0] != pictures[-1]).any()


def test_several_elites_are_replayed_bit_for_bit(hopper, tmp_path):
    path, shown = elites.replay(hopper, grid="1x3", out=tmp_path / "grid.gif", size=(60, 40), steps=8)
    assert frames(path)[0][0].shape == (40, 180, 3)
    assert len(shown) > 1
    for one in shown:
        assert one.fitness == one.recorded_fitness
        np.testing.assert_array_equal(one.descriptor, one.recorded_descriptor)


@pytest.mark.parametrize("name", ["hopper", "swimmer", "ant-trap"])
def test_poses_are_those_of_the_episode(name):
    task = elites.make_task(f"mujoco-{name}", episode_length=60)
    parameters, seeds = controllers(task, 2), [5, 6]
    movements = list(record(task, (8,), parameters, seeds, steps=40, every=2, physics=None))
    with elites.ThreadEvaluator(task, hidden=(8,), threads=1) as evaluator:
        evaluation = evaluator.evaluate(parameters, seeds, transitions=True)
    robot, simulator = read_robot(task), task.make_simulator()
    floor = -0.1 if name == "swimmer" else 0.0
    for index, movement in enumerate(movements):
        steps = min(40, evaluation.length[index])
        assert (movement.length, len(movement.positions)) == (steps, steps // 2 + 1)
        observation, fitness = simulator.begin(seeds[index]), 0.0
        for step in range(steps + 1):
            if step:
                action = evaluation.transitions.actions[index, step - 1]
                observation, reward, _ = simulator.advance(action)
                fitness += reward
            np.testing.assert_array_equal(observation, evaluation.transitions.observations[index, step])
            if step % 2 == 0:
                place, turn = simulator.data.xpos[1], simulator.data.xquat[1]
                np.testing.assert_array_equal(movement.positions[step // 2, 0], place - [0, 0, floor])
                np.testing.assert_array_equal(movement.rotations[step // 2, 0], turn)
                np.testing.assert_array_equal(movement.contacts[step // 2], simulator.contacts > 0)
        assert movement.fitness == np.float32(fitness)
        if name == "hopper":
            (foot,) = (limb for limb in robot.limbs if limb.foot == 0)
            place, turn = movement.positions[1:, foot.body], movement.rotations[1:, foot.body]
            ends = [place + rotate(turn, end) for end in (foot.start, foot.end)]
            height = np.min(ends, 0)[:, 2] - foot.radius
            touches = movement.contacts[1:, 0]
            assert touches.any()
            assert (height[touches] < 0.002).all()  # contacts are soft: the foot sinks in
            assert (height[~touches] > 0).all()


def test_the_page_has_the_movements(hopper, tmp_path):
    header, _ = parts(elites.explore(hopper, out=tmp_path / "page.html", gaits="all"))
    (run,) = header["runs"]
    assert run["no_movement_reason"] == ""
    assert len(run["gaits"]["elites"]) == len(load_archive(hopper).fitness)
    assert [limb["foot"] for limb in run["gaits"]["limbs"]] == [-1, -1, -1, 0]
    assert run["gaits"]["rate"] == pytest.approx(31.25)


def test_walls_are_outlined_in_the_page():
    task = elites.make_task("mujoco-ant-trap")
    robot = read_robot(task)
    edges = [limb for limb in robot.limbs if limb.body == robot.bodies - 1]
    assert len(edges) == 12 * len(task.walls)
    for number, (x, y, half_x, half_y) in enumerate(task.walls):
        ends = np.array([end for limb in edges[12 * number : 12 * number + 12] for end in limb[1:3]])
        np.testing.assert_allclose(ends.min(0), [x - half_x, y - half_y, 0], atol=1e-6)
        np.testing.assert_allclose(ends.max(0), [x + half_x, y + half_y, 2], atol=1e-6)


unit = st.floats(-1, 1).map(lambda value: round(value, 3))
triples = st.tuples(unit, unit, unit).map(np.array)


@given(
    st.sampled_from(sorted(KINDS)),
    st.tuples(*[st.floats(0.1, 2)] * 3).map(np.array),
    *[triples] * 4,
)
def test_rays_hit_solids_at_the_points_of_mujoco(kind, size, centre, turn, place, ray):
    """`mju_rayGeom` is MuJoCo's own function for the distance of a geom along a ray."""
    quaternion, matrix = np.array([1.0, *turn]), np.zeros(9)
    mujoco.mju_normalize4(quaternion)
    mujoco.mju_quat2Mat(matrix, quaternion)
    ray, place = (vector + np.array([0, 0, 1e-4]) for vector in (ray, place))
    origin = centre + 5 * place / np.linalg.norm(place)
    rays = np.array([ray, centre + 0.3 * ray - origin])
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    scale = size[[0, 0, 1]] if KINDS[kind] is CYLINDER else size
    solid = Solid(KINDS[kind], scale, centre, matrix.reshape(3, 3), 4.0, np.zeros(3), False)
    far, normal = intersect(solid, origin, rays)
    for index, one in enumerate(rays):
        expected = mujoco.mju_rayGeom(centre, matrix, size, origin, one, kind)
        if np.isfinite(far[index]) and expected > 0:
            assert far[index] == pytest.approx(expected, abs=1e-5)
            assert normal[index] @ one < 1e-6
            assert np.linalg.norm(normal[index]) == pytest.approx(1)
        else:  # a ray that grazes the surface may be judged either way
            nearest = centre - origin - ((centre - origin) @ one) * one
            assert np.isfinite(far[index]) == (expected > 0) or np.linalg.norm(nearest) > 0.09


@given(st.integers(0, 2**32 - 1))
def test_an_outline_is_the_convex_hull_of_its_points(seed):
    points = np.random.default_rng(seed).normal(size=(30, 3))
    form = fit_outline(points)
    outside = points @ form.normals.T - form.offsets
    assert outside.max() <= 1e-12
    np.testing.assert_allclose(outside.max(0), 0, atol=1e-12)  # each plane touches a point
    np.testing.assert_allclose(np.linalg.norm(form.normals, axis=1), 1)


@given(st.sampled_from(["box", "ellipsoid", "cylinder"]), st.tuples(*[st.floats(0.05, 1)] * 3))
def test_capsules_of_the_page_fill_their_geoms(kind, size):
    text = f'<geom type="{kind}" size="{size[0]} {size[1]} {size[2]}"/>'
    made = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody><body><freejoint/>{text}</body></worldbody></mujoco>"
    )
    half = np.array([size[0], size[0], size[1]] if kind == "cylinder" else size)
    limbs = ModelShapes(made, [1], {}).limbs()
    low = np.min([np.minimum(limb.start, limb.end) - limb.radius for limb in limbs], 0)
    high = np.max([np.maximum(limb.start, limb.end) + limb.radius for limb in limbs], 0)
    np.testing.assert_allclose(low, -high, atol=1e-9)
    thin, wide, long = np.sort(half)
    thickness = max(thin, 0.1 * wide)
    axis = np.argsort(half, kind="stable")
    np.testing.assert_allclose(high[axis[:2]], [thickness, wide], rtol=1e-6)
    assert high[axis[2]] <= max(long, thickness) + 1e-9
    assert high[axis[2]] >= 0.6 * long


def test_feet_are_drawn_even_in_groups_that_are_hidden(model):
    made, _ = model
    foot = made.geom("foot").id
    limbs = ModelShapes(made, [1, 0], {foot: 0}).limbs()
    assert [limb.radius for limb in limbs if limb.foot == 0] == [0.15]
    assert max(limb.radius for limb in limbs) < 1  # not the ball around all


def test_with_an_unknown_library_the_small_renderer_is_used(model, monkeypatch, capfd):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    assert open_renderer(model[0], (64, 48), (0.0, 0.0, 3.0), FIELD_OF_VIEW) is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("chosen", "works", "tried"),
    [("", "osmesa", ["egl", "osmesa"]), ("", "", ["egl", "osmesa"]), ("osmesa", "egl", ["osmesa"])],
)
def test_osmesa_is_tried_where_egl_fails(chosen, works, tried, model, monkeypatch):
    asked = []

    def start(library, *_):
        asked.append(library)
        if library != works:
            raise ElitesError("no such library")
        return library

    monkeypatch.setenv("MUJOCO_GL", chosen)
    monkeypatch.setattr(offscreen_module, "Offscreen", start)
    opened = open_renderer(model[0], (64, 48), (0.0, 0.0, 3.0), FIELD_OF_VIEW)
    assert asked == tried
    assert opened == (works if works in tried else None)


@pytest.fixture
def offscreen(model, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL")
    renderer = open_renderer(model[0], (240, 180), (35.0, -25.0, 4.0), FIELD_OF_VIEW)
    if renderer is None:
        pytest.skip("MuJoCo's renderer needs EGL or OSMesa")
    yield renderer
    renderer.close()


@pytest.mark.parametrize("qpos", [[0, 0, 0.5, 1, 0, 0, 0], [0.2, -0.1, 0.6, 0.9, 0.1, -0.3, 0.3]])
def test_both_renderers_cover_the_same_pixels(qpos, offscreen, model, capfd):
    """The robot, with a geom of each kind, covers the same pixels."""
    made, _ = model
    target, below = np.array([0.0, 0.0, 0.8]), np.array([0, 0, find_floor(made)])
    turn = np.array(qpos[3:]) / np.linalg.norm(qpos[3:])
    positions, rotations = np.array([[qpos[:3], np.zeros(3)]]) - below, np.array([[turn, [1, 0, 0, 0]]])
    view = (35.0, -25.0, 4.0, 0.8)
    scene = PosedScene(ModelShapes(made, [1, 0], {}), positions, rotations, 0.01, view, offscreen.size)
    pictures = scene.picture(0, target), offscreen.take_picture(np.array(qpos), target + below)
    ours, theirs = (picture.max(-1) > 1.5 * picture.min(-1) + 8.0 for picture in pictures)  # what is not grey
    assert theirs.sum() > 1000
    assert (ours & theirs).sum() > 0.9 * (ours | theirs).sum()
    assert capfd.readouterr() == ("", "")


def test_a_killed_renderer_is_reported(offscreen, model):
    offscreen._process.kill()
    with pytest.raises(ElitesError, match=r"failed: its process was killed by SIGKILL; MUJOCO_GL=disabled"):
        offscreen.take_picture(model[1].qpos, np.zeros(3))


def test_a_clip_by_mujocos_renderer(offscreen, hopper, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(PosedScene, "picture", None)  # ours is not used
    path, (shown,) = elites.replay(hopper, out=tmp_path / "clip.gif", size=(720, 500), steps=8)
    assert shown.fitness == shown.recorded_fitness
    pictures, _ = frames(path)
    assert [picture.shape for picture in pictures] == [(500, 720, 3)] * 2  # beyond MuJoCo's usual size
    assert (pictures[0] != pictures[1]).any()
    assert capfd.readouterr() == ("", "")


def test_a_camera_follows_the_robot():
    task = elites.make_task("mujoco-swimmer", episode_length=40)
    recorder = Recorder(task)
    episode = recorder.record_episode(0, np.zeros((3, 2), np.float32))
    far = episode._replace(positions=episode.positions + np.array([700.0, 300.0, 0.0]))
    pictures = [
        next(MujocoScene(recorder, one, (160, 120), None).frames([2])).astype(int) for one in (episode, far)
    ]
    recorder.close()
    assert reddish(pictures[0]).sum() > 100
    np.testing.assert_array_equal(reddish(pictures[0]), reddish(pictures[1]))
