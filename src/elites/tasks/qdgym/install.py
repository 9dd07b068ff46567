"""Downloads Bullet's library and models where pybullet has no wheel for this Python."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from elites.errors import ElitesError
from elites.files import convert_os_errors, sync_folder
from elites.tasks.qdgym.library import (
    DATA,
    LIBRARY,
    MODELS,
    VARIABLE,
    VERSION,
    Bullet,
    default_folder,
    find_bullet,
    find_bullet_in,
)

WHEEL_PYTHON = "3.11"  # the last Python that pybullet has wheels for
KEPT = (f"{DATA}/__init__.py", *(f"{DATA}/{model}" for model in MODELS), "pybullet-*.dist-info/*")
CHECK = (  # binds every C function that episodes call, and has Bullet read every model
    "from elites.tasks.qdgym import simulator, robots\n"
    "for robot in robots.ROBOTS: simulator.read_anatomy(robot)"
)


def install_bullet(folder: Path | None = None, log: Callable[[str], None] = print) -> Bullet:
    """Installs Bullet's files into a folder, by default in the cache, and returns their paths.

    Existing files are kept, and then no network is needed. The folder appears complete or not at all.
    """
    present = find_bullet() if folder is None else find_bullet_in(folder)
    if present is not None and present.version == VERSION:
        log(f"Bullet of pybullet {VERSION} is installed: {present.library}")
        return present
    folder = default_folder() if folder is None else folder
    if folder != default_folder() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ElitesError(f"{folder} is not an empty folder; it must be new or empty")
    log(f"downloading the pybullet {VERSION} wheel with pip (about 100 MB, once)")
    with convert_os_errors(f"Bullet cannot be put into {folder}"), tempfile.TemporaryDirectory() as scratch:
        wheel = _download(Path(scratch))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bullet-") as staging:
            staged = Path(staging) / "bullet"
            _unpack(wheel, staged)
            _check(staged)
            shutil.rmtree(folder, ignore_errors=True)  # empty, or a damaged earlier one in the cache
            staged.replace(folder)
        sync_folder(folder.parent)
    bullet = find_bullet_in(folder)
    assert bullet is not None, "checked before it was moved"
    log(f"Bullet of pybullet {VERSION} is installed: {bullet.library}")
    if folder != default_folder():
        log(f"set {VARIABLE}={folder.resolve()} to use it")
    return bullet


def _download(scratch: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ElitesError(
            "pip is needed to fetch Bullet, and this Python has none; `python -m ensurepip` adds it"
        )
    command = (
        *(sys.executable, "-m", "pip", "download", f"pybullet=={VERSION}", "--no-deps", "--quiet"),
        *("--only-binary", ":all:", "--python-version", WHEEL_PYTHON, "--dest", str(scratch)),
        *("--disable-pip-version-check", "--no-input"),
    )
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    consequence = "QDGym tasks cannot run without it, Brax and Gymnasium tasks can"
    if "No matching distribution" in done.stderr and not re.search("Retrying|connection", done.stderr):
        raise ElitesError(
            f"there is no pybullet {VERSION} wheel for Python {WHEEL_PYTHON} on this platform "
            f"({sysconfig.get_platform()}) in pip's index; {consequence}"
        )
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise ElitesError(f"pip cannot fetch the pybullet {VERSION} wheel ({lines[-1]}); {consequence}")


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        libraries = [name for name in names if re.fullmatch(r"pybullet\.[^/]*\.(so|pyd)", name)]
        if len(libraries) != 1:
            raise ElitesError(
                f"{wheel.name} holds {len(libraries)} libraries of pybullet where one is expected"
            )
        archive.extractall(
            folder, [name for name in names if any(fnmatch.fnmatch(name, kept) for kept in KEPT)]
        )
        with archive.open(libraries[0]) as source, (folder / LIBRARY).open("wb") as target:
            shutil.copyfileobj(source, target)
    if sys.platform == "linux" and (strip := shutil.which("strip")):  # debug symbols are 130 of its 140 MB
        subprocess.run([strip, "--strip-unneeded", str(folder / LIBRARY)], check=True, capture_output=True)


def _check(folder: Path) -> None:
    bullet = find_bullet_in(folder)
    if bullet is None or bullet.version != VERSION:
        raise ElitesError(f"the wheel that pip fetched is not a complete pybullet {VERSION}")
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, VARIABLE: str(folder)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ElitesError(f"the library of the pybullet {VERSION} wheel does not work here: {lines[-1]}")
