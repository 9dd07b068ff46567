"""The connection to a Ray cluster. Ray comes with the extra `cluster`; its log and its statistics are off."""

from __future__ import annotations

import logging
import os
import socket
from importlib.util import find_spec
from typing import Any

from elites.errors import ElitesError
from elites.versions import package_version

ANSWER_SECONDS = 10.0
OPTIONAL = ("gymnasium", "mujoco")  # packages that only some tasks need


def require_ray() -> None:
    """Raises an error that names the extra to install if Ray is missing."""
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
    _require_answer(address)
    _silence(ray)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            include_dashboard=False,
            namespace="elites",
        )
    except (ConnectionError, RuntimeError, ValueError, AssertionError, TimeoutError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ElitesError(
            f"no Ray cluster can be reached at {address!r} ({reason}); `ray start --head` starts one"
        ) from None
    return ray


def _silence(ray: Any) -> None:
    """Keeps Ray from printing the log of a lost machine, for which it has no option.

    The code that gave work to the machine reports its loss.
    """
    worker = ray._private.worker
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *arguments, **named: None


def _require_answer(address: str) -> None:
    """Raises an error if nothing answers at the address, where Ray itself would retry for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if address != "auto":
            raise ElitesError(f"cluster is {address!r}; it must be HOST:PORT, ray://HOST:PORT or auto")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ElitesError(
            f"no Ray cluster answers at {address!r} ({error}); `ray start --head` starts one"
        ) from None


def read_versions() -> dict[str, str | None]:
    """Versions of the packages that results depend on: all machines must have the same."""
    return {name: package_version(name) for name in ("elites", "numpy", "numba", "pybullet", *OPTIONAL)}


def differing_package(ours: dict[str, str | None], theirs: dict[str, str | None]) -> str | None:
    """The first package with different versions on two machines; None if all are the same.

    An optional package may be missing on either machine: a task that needs it reports that itself.
    """
    for name, our_version in ours.items():
        other = theirs.get(name)
        if our_version != other and not (name in OPTIONAL and None in (our_version, other)):
            return name
    return None


def list_machines(ray: Any) -> list[dict[str, Any]]:
    """The machines of the cluster with at least one core."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
