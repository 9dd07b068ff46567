"""Bullet's library and models, from wherever they come."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba import _dynfunc

from elites import ElitesError
from elites.cli import main
from elites.tasks.qdgym import library
from elites.tasks.qdgym.install import install_bullet

EPISODES = Path(__file__).with_name("print_episodes.py")
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory):
    """What `elites install-bullet --folder` fetches."""
    folder = tmp_path_factory.mktemp("bullet") / "files"
    try:
        install_bullet(folder, log=lambda _: None)
    except ElitesError as error:
        if "pip cannot fetch" not in str(error):
            raise
        pytest.skip(str(error))
    return folder


@pytest.fixture
def no_bullet(monkeypatch, tmp_path):
    """As on a Python for which pybullet has no wheel, before anything was fetched."""
    monkeypatch.setitem(sys.modules, "pybullet", None)
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setenv("ELITES_CACHE", str(tmp_path / "cache"))
    return tmp_path


def command(*arguments, **environment):
    """The command in a process of its own, where no pybullet is installed."""
    program = (
        "import sys; sys.modules['pybullet'] = None; "
        "from elites.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def episodes(**environment):
    done = subprocess.run(
        [sys.executable, str(EPISODES)], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_episodes_of_the_installed_and_of_the_fetched_library_agree_to_the_bit(wheel_files):
    if library._installed() is None:
        pytest.skip("only one library is there: pybullet is not installed on this Python")
    fetched = episodes(ELITES_BULLET=str(wheel_files))
    assert len(fetched) == 40
    environment = {**os.environ, "ELITES_BULLET": ""}
    assert fetched == episodes(**environment)


def test_fetched_files_are_found_and_contain_only_what_is_needed(wheel_files, no_bullet, monkeypatch):
    assert library.find_bullet() is None
    monkeypatch.setenv(library.VARIABLE, str(wheel_files))
    assert library.require_bullet() == ("3.2.7", wheel_files / "pybullet.so", wheel_files / "pybullet_data")
    assert library.bullet_version() == "3.2.7"
    assert len([path for path in wheel_files.rglob("*") if path.is_file()]) < 20


def test_the_cache_folder_serves_without_any_variable(wheel_files, no_bullet):
    shutil.copytree(wheel_files, library.default_folder())
    assert library.require_bullet().library == library.default_folder() / "pybullet.so"


def test_a_second_install_needs_no_network(wheel_files, no_bullet, monkeypatch, capsys):
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    assert main(["install-bullet", "--folder", str(wheel_files)]) == 0
    assert "is installed" in capsys.readouterr().out


def test_an_unavailable_wheel_gives_one_line_and_leaves_no_files(no_bullet):
    done = command("install-bullet", "--folder", no_bullet / "new" / "files", **OFFLINE)
    assert done.returncode == 2
    assert re.fullmatch(
        r"elites: there is no pybullet 3\.2\.7 wheel for Python 3\.11 on this platform "
        r"\(.+\) in pip's index; QDGym tasks cannot run without it, Brax and Gymnasium tasks can\n",
        done.stderr,
    )
    assert list(no_bullet.iterdir()) == []


def test_a_folder_that_holds_something_else_is_refused(no_bullet, capsys):
    (no_bullet / "thesis.tex").touch()
    assert main(["install-bullet", "--folder", str(no_bullet)]) == 2
    assert "is not an empty folder; it must be new or empty" in capsys.readouterr().err
    assert (no_bullet / "thesis.tex").exists()


def test_files_that_are_damaged_are_fetched_again_in_the_cache(wheel_files, no_bullet):
    shutil.copytree(wheel_files, library.default_folder())
    (library.default_folder() / "pybullet_data" / "mjcf" / "ant.xml").unlink()
    assert library.find_bullet() is None
    install_bullet(log=lambda _: None)
    assert library.find_bullet() is not None


@pytest.mark.parametrize(
    ("stranger", "message"),
    [
        (_dynfunc.__file__, "does not export b3ConnectPhysicsDirect"),
        (__file__, "Bullet's library cannot be loaded"),
    ],
)
def test_a_different_library_in_the_folder_is_refused(no_bullet, wheel_files, stranger, message):
    other = no_bullet / "other"
    shutil.copytree(wheel_files, other)
    shutil.copy(stranger, other / "pybullet.so")
    done = command("random", "qd-ant", "--controllers", "1", ELITES_BULLET=str(other))
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_bullet_the_command_says_what_to_do_in_one_line(no_bullet):
    done = command("random", "qd-ant", "--controllers", "1", ELITES_BULLET="", ELITES_CACHE=str(no_bullet))
    assert done.returncode == 2
    assert done.stderr == (
        "elites: QDGym tasks need Bullet from pybullet 3.2.7, which is not installed; "
        "`elites install-bullet` fetches it\n"
    )


def test_a_folder_without_bullet_is_named(no_bullet, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, str(no_bullet))
    with pytest.raises(
        ElitesError, match=r"ELITES_BULLET is .*, which holds no Bullet; `elites install-bullet"
    ):
        library.require_bullet()


def test_another_version_of_pybullet_is_refused(wheel_files, no_bullet, monkeypatch):
    other = no_bullet / "other"
    shutil.copytree(wheel_files, other)
    (other / "pybullet-3.2.7.dist-info").rename(other / "pybullet-3.3.0.dist-info")
    metadata = other / "pybullet-3.3.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 3.2.7", "Version: 3.3.0"))
    monkeypatch.setenv(library.VARIABLE, str(other))
    with pytest.raises(ElitesError, match=r"need pybullet 3.2.7, but 3.3.0 is installed"):
        library.require_bullet()
