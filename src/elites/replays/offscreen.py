"""MuJoCo's own renderer in a separate process, because an OpenGL library may print, hang or crash."""

from __future__ import annotations

import os
import socket
import sys
import weakref
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from elites.child_processes import describe_exit, end_child, end_with_parent, start_child
from elites.errors import ElitesError, describe_error

VARIABLE = "MUJOCO_GL"  # MuJoCo's variable for the library that it draws with
OFF = ("disabled", "disable", "off", "false", "0")
LIBRARIES = ("egl", "osmesa")  # those that need no display
PATIENCE = 60.0  # s for the start, and for a picture
SHADOW = 1024  # pixels; MuJoCo's default takes four times as long without a GPU


def open_renderer(
    model: Any, size: tuple[int, int], view: tuple[float, float, float], field: float
) -> Offscreen | None:
    """MuJoCo's renderer with the first library that can draw here; None if there is none.

    `view` is yaw, pitch and distance; `field` is the vertical field of view in degrees.
    """
    chosen = os.environ.get(VARIABLE, "").lower().strip()
    if chosen in OFF or not sys.platform.startswith("linux"):
        return None
    for library in (chosen,) if chosen else LIBRARIES:
        try:
            return Offscreen(library, model, size, view, field)
        except ElitesError:
            continue
    return None


class Offscreen:
    """The parent's end. One thread at a time may use it."""

    def __init__(
        self,
        library: str,
        model: Any,
        size: tuple[int, int],
        view: tuple[float, float, float],
        field: float,
    ) -> None:
        import mujoco

        self.library, self.size = library, size
        lifeline = os.pipe()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_child(__name__, (theirs.fileno(),), lifeline[0])
        self._channel = Connection(ours.detach())
        self.close = weakref.finalize(self, end_child, self._process, self._channel, lifeline)
        content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
        mujoco.mj_saveModel(model, None, content)
        self._ask((library, content.tobytes(), size, view, field))

    def take_picture(self, coordinates: np.ndarray, target: np.ndarray) -> np.ndarray:
        """A picture `[height, width, 3]` of the model with these coordinates (qpos)."""
        width, height = self.size
        picture = self._ask((coordinates, target))
        return np.frombuffer(picture, np.uint8).reshape(height, width, 3)

    def _ask(self, order: Any) -> bytes:
        try:
            self._channel.send(order)
            if not self._channel.poll(PATIENCE):
                raise self._failure(f"it took more than {PATIENCE:g} s")
            answer = self._channel.recv()
        except (EOFError, ConnectionError):
            self._process.wait()
            raise self._failure(f"its process {describe_exit(self._process.returncode)}") from None
        if isinstance(answer, str):
            raise self._failure(answer)
        return answer  # type: ignore[no-any-return]

    def _failure(self, reason: str) -> ElitesError:
        self.close()
        return ElitesError(
            f"MuJoCo's renderer with {VARIABLE}={self.library} failed: {reason}; "
            f"{VARIABLE}={OFF[0]} draws without it"
        )


def main(channel_file: int, lifeline: int, parent: int, by_main_thread: int) -> None:
    """Draws what the parent asks for, until the parent is gone."""
    end_with_parent(lifeline, parent, by_main_thread)
    null = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(null, output)
    channel = Connection(channel_file)
    try:
        library, content, size, view, field = channel.recv()
        os.environ[VARIABLE] = library
        os.environ.pop("PYOPENGL_PLATFORM", None)  # depends on MUJOCO_GL
        renderer = _MujocoRenderer(content, size, view, field)
        channel.send(b"")
        while True:
            channel.send(renderer.take_picture(*channel.recv()))
    except (EOFError, ConnectionError):
        pass
    except BaseException as error:
        channel.send(describe_error(error))
    os._exit(0)  # at once: the library may have left threads running


class _MujocoRenderer:
    """A model, a camera and MuJoCo's renderer."""

    def __init__(
        self, content: bytes, size: tuple[int, int], view: tuple[float, float, float], field: float
    ) -> None:
        import mujoco

        self._mujoco = mujoco
        self._model = model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": content})
        self._data = mujoco.MjData(model)
        model.vis.global_.offwidth, model.vis.global_.offheight = size
        model.vis.global_.fovy = field
        model.vis.quality.shadowsize = min(SHADOW, model.vis.quality.shadowsize)
        planes = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
        obstacles = (model.body_weldid[model.geom_bodyid] == 0) & ~np.isin(model.geom_type, planes)
        model.geom_rgba[obstacles, 3] *= 0.5  # the robot is seen behind them
        self._renderer = mujoco.Renderer(model, size[1], size[0])
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self._camera = mujoco.MjvCamera()
        yaw, self._camera.elevation, self._camera.distance = view
        self._camera.azimuth = yaw + 90
        self.take_picture(model.qpos0, np.zeros(3))  # fails if it cannot draw

    def take_picture(self, coordinates: np.ndarray, target: np.ndarray) -> bytes:
        self._data.qpos[:] = coordinates
        self._mujoco.mj_fwdPosition(self._model, self._data)
        self._camera.lookat[:] = target
        self._renderer.update_scene(self._data, self._camera)
        return self._renderer.render().tobytes()  # type: ignore[no-any-return]
