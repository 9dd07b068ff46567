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
    from elites.policies import numba
    from elites.tasks.qdgym import bullet, episode

    sources = (episode.__file__, bullet.__file__, numba.__file__)
    assert episode.compiled.folder == Compiler(*sources).folder
