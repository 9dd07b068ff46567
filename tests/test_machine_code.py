import pytest

from elites.machine_code import Compiler


@pytest.mark.parametrize("changed", ["caller.py", "called.py"])
def test_a_change_in_any_source_compiles_again(tmp_path, monkeypatch, changed):
    monkeypatch.setenv("ELITES_CACHE", str(tmp_path / "cache"))
    sources = [tmp_path / name for name in ("caller.py", "called.py")]
    for source in sources:
        source.write_text("one\n")
    before = Compiler(*map(str, sources)).folder
    assert before == Compiler(*map(str, sources)).folder
    (tmp_path / changed).write_text("two\n")
    assert before != Compiler(*map(str, sources)).folder


def test_episodes_are_compiled_again_when_the_policy_changes():
    """Each file with code of an episode is a source of its compiler."""
    from elites import c_library
    from elites.policies import numba
    from elites.tasks import loops
    from elites.tasks.mujoco import episode as mujoco_episode
    from elites.tasks.mujoco import interface
    from elites.tasks.qdgym import bullet, episode

    shared = (c_library.__file__, loops.__file__, numba.__file__)
    assert episode.compiled.folder == Compiler(episode.__file__, bullet.__file__, *shared).folder
    own = (mujoco_episode.__file__, interface.__file__, *shared, interface.DESCRIPTION)
    assert mujoco_episode.compiled.folder == Compiler(*own).folder
