"""QDGym's robots, drawn by Bullet's own software renderer in the simulated world itself.

Drawing does not change that world: the episode is the evaluator's, bit for bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elites.replays.scene import SmoothTarget
from elites.tasks.qdgym import QDGymTask, episode
from elites.tasks.qdgym import bullet as b3
from elites.tasks.qdgym.simulator import QDGymSimulator

SOFTWARE = 1 << 16  # Bullet's number for its software renderer
UP = 2  # the z axis
NEAR, FAR = 0.1, 60.0
FIELD_OF_VIEW = 50.0  # vertical, in degrees
PACE = 0.1  # of the camera: share of the distance per step
VIEWS = {"ant.xml": (35.0, -25.0, 3.2, 0.4)}  # yaw and pitch in degrees, distance, height of the target
COLOUR, FOOT_COLOUR = (0.90, 0.45, 0.15, 1.0), (0.15, 0.25, 0.45, 1.0)
SIDE = (0.0, -12.0, 3.0, 0.75)  # the other robots move in a plane

_real, _address = ctypes.c_float, ctypes.c_ssize_t


class _Image(ctypes.Structure):
    """b3CameraImageData."""

    _fields_ = (
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("rgba", ctypes.POINTER(ctypes.c_ubyte)),
        ("depth", ctypes.c_void_p),
        ("segmentation", ctypes.c_void_p),
    )


def _external(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Bullet with float arguments, which `bullet.external` does not support."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, b3.library.library))


class BulletCamera:
    """Takes pictures of a simulator's world."""

    def __init__(self, simulator: QDGymSimulator, size: tuple[int, int]) -> None:
        self.world, self.anatomy, self.size = simulator.world, simulator.anatomy, size
        matrix = ctypes.c_float * 16
        self._view, self._projection = matrix(), matrix()
        project = _external("b3ComputeProjectionMatrixFOV", None, _real, _real, _real, _real, _address)
        project(FIELD_OF_VIEW, size[0] / size[1], NEAR, FAR, ctypes.addressof(self._projection))
        self._look = _external(
            "b3ComputeViewMatrixFromYawPitchRoll",
            *(None, _address, _real, _real, _real, _real, ctypes.c_int, _address),
        )
        self._request = _external("b3InitRequestCameraImage", _address, _address)
        self._matrices = _external(
            "b3RequestCameraImageSetCameraMatrices", None, _address, _address, _address
        )
        self._resolution = _external(
            "b3RequestCameraImageSetPixelResolution", None, _address, ctypes.c_int, ctypes.c_int
        )
        self._renderer = _external("b3RequestCameraImageSelectRenderer", None, _address, ctypes.c_int)
        self._shadow = _external("b3RequestCameraImageSetShadow", None, _address, ctypes.c_int)
        self._submit = _external("b3SubmitClientCommand", ctypes.c_int, _address, _address)
        self._process = _external("b3ProcessServerStatus", _address, _address)
        self._image = _external("b3GetCameraImageData", None, _address, _address)
        self._state = _external("b3RequestActualStateCommandInit", _address, _address, ctypes.c_int)
        self._actual = _external("b3GetStatusActualState2", ctypes.c_int, *[_address] * 13)
        self._pointers = (_address * 2)()
        self._paint()

    def _paint(self) -> None:
        """Colours the robot: the models have no colours."""
        begin = _external("b3InitUpdateVisualShape2", _address, _address, *[ctypes.c_int] * 3)
        colour = _external("b3UpdateVisualShapeRGBAColor", None, _address, _address)
        feet = set(self.anatomy.contacts[self.anatomy.feet].tolist())
        for link in range(-1, self.anatomy.links):
            rgba = (ctypes.c_double * 4)(*(FOOT_COLOUR if link in feet else COLOUR))
            command = begin(self.world.client, self.world.body, link, -1)
            colour(command, ctypes.addressof(rgba))
            self._submit(self.world.client, command)
            self._process(self.world.client)

    def torso(self) -> np.ndarray:
        """The position of the robot's torso."""
        client = self.world.client
        self._submit(client, self._state(client, self.world.body))
        base, links = (ctypes.addressof(self._pointers) + 8 * index for index in range(2))
        self._actual(self._process(client), 0, 0, 0, 0, 0, base, 0, 0, 0, 0, links, 0)
        link = self.anatomy.torso
        start = self._pointers[0] if link < 0 else self._pointers[1] + 7 * 8 * link  # poses are seven doubles
        return np.array((ctypes.c_double * 3).from_address(start))

    def take_picture(self, target: np.ndarray, yaw: float, pitch: float, distance: float) -> np.ndarray:
        """A picture `[height, width, 3]` of the surroundings of the target."""
        client = self.world.client
        at = (ctypes.c_float * 3)(*target)
        self._look(ctypes.addressof(at), distance, yaw, pitch, 0.0, UP, ctypes.addressof(self._view))
        command = self._request(client)
        self._matrices(command, ctypes.addressof(self._view), ctypes.addressof(self._projection))
        self._resolution(command, *self.size)
        self._renderer(command, SOFTWARE)
        self._shadow(command, 0)  # shadows would double the time
        self._submit(client, command)
        self._process(client)
        image = _Image()
        self._image(client, ctypes.addressof(image))
        return np.ctypeslib.as_array(image.rgba, (image.height, image.width, 4))[..., :3].copy()


class BulletScene:
    """An episode of a QDGym task, given by its seed and the controller's actions."""

    seconds = episode.TIME_STEP
    threaded = True

    def __init__(self, task: QDGymTask, seed: int, actions: np.ndarray, size: tuple[int, int]) -> None:
        self.task, self.seed, self.actions, self.size = task, seed, actions, size
        self.steps = len(actions)

    def frames(self, steps: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        simulator = QDGymSimulator(self.task)
        try:
            camera, follow = BulletCamera(simulator, self.size), SmoothTarget(PACE)
            yaw, pitch, distance, height = VIEWS.get(self.task.robot.model, SIDE)
            simulator.begin(self.seed)
            wanted_steps = set(steps)
            for step in range(max(wanted_steps, default=-1) + 1):
                if step:
                    simulator.advance(np.ascontiguousarray(self.actions[step - 1]))
                x, y, _ = camera.torso()
                target = follow(np.array([x, y, height]))
                if step in wanted_steps:
                    yield camera.take_picture(target, yaw, pitch, distance)
        finally:
            simulator.close()
