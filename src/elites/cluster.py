"""Ray, which is installed by the extra `cluster`: reached when asked for, quietly, and telling nobody."""

from __future__ import annotations

import logging
import os
import socket
from importlib.util import find_spec
from typing import Any

from elites.errors import ElitesError
from elites.versions import package_version

ANSWER_SECONDS = 10.0
OF_SOME_TASKS = ("gymnasium", "mujoco")


def require_ray() -> None:
    """Says which extra to install where Ray is missing."""
    if find_spec("ray") is None:
        raise ElitesError("--cluster needs Ray, which is not installed: pip install 'elites[cluster]'")


def connect(address: str) -> Any:
    """The module `ray`, connected to the cluster at this address."""
    require_ray()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        return ray
    _refuse_silent(address)
    _quiet(ray)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            include_dashboard=False,
            namespace="elites",
        )
    except (ConnectionError, RuntimeError, ValueError, AssertionError, TimeoutError, OSError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ElitesError(
            f"no Ray cluster can be reached at {address!r} ({why}); `ray start --head` begins one"
        ) from None
    return ray


def _quiet(ray: Any) -> None:
    """Ray prints the log of a lost machine into the driver's output, and has no option against it.

    What a person should know of a lost machine is told by whoever had given it work.
    """
    worker = ray._private.worker
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *arguments, **named: None


def _refuse_silent(address: str) -> None:
    """Ray itself would try again for many minutes where nobody answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if address != "auto":
            raise ElitesError(f"cluster is {address!r}; it must be HOST:PORT, ray://HOST:PORT or auto")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ElitesError(
            f"no Ray cluster answers at {address!r} ({error}); `ray start --head` begins one"
        ) from None


def versions() -> dict[str, str | None]:
    """What an episode's result may depend on; all machines must agree in it."""
    return {name: package_version(name) for name in ("elites", "numpy", "numba", "pybullet", *OF_SOME_TASKS)}


def differing(ours: dict[str, str | None], theirs: dict[str, str | None]) -> str | None:
    """The first package in which machines do not agree, None if they do.

    What only some tasks need may be missing on either: a task that needs it says so itself.
    """
    for name, own in ours.items():
        other = theirs.get(name)
        if own != other and not (name in OF_SOME_TASKS and None in (own, other)):
            return name
    return None


def nodes(ray: Any) -> list[dict[str, Any]]:
    """The machines that are there, with what they offer."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
