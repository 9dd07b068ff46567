import os
import subprocess
import sys

import pytest

from elites import ElitesError
from elites.tasks.qdgym import bullet

EPISODE = """
import numpy as np
from elites import ThreadEvaluator, make_task
task = make_task("qd-ant", episode_length=20)
parameters = np.linspace(-0.1, 0.1, 21256, dtype=np.float32)[None]
with ThreadEvaluator(task, threads=1) as evaluator:
    evaluation = evaluator.evaluate(parameters, [3], transitions=True)
print(repr(evaluation.transitions.rewards[0].sum()))
"""


def run(**environment):
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", EPISODE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split("(")[1].rstrip(")\n")), done.stderr


def test_a_library_without_the_symbols_is_refused():
    with pytest.raises(ElitesError, match="does not export b3MakeCoffee"):
        bullet.bind("b3MakeCoffee", bullet.nothing)


def test_a_missing_model_is_refused(capfd):
    with pytest.raises(ElitesError, match=r"nowhere\.xml: Bullet found"):
        bullet.read_joints("nowhere.xml", 0)


@pytest.mark.slow
def test_interpreted_and_bounds_checked_code_agree_with_compiled_code(tmp_path):
    compiled, quiet = run()
    assert quiet == ""
    interpreted, _ = run(NUMBA_DISABLE_JIT="1")
    checked, _ = run(NUMBA_BOUNDSCHECK="1", ELITES_CACHE=str(tmp_path))
    assert interpreted == pytest.approx(compiled, abs=1e-4)
    assert checked == compiled


@pytest.mark.slow
def test_without_a_writable_cache_it_warns_and_works(tmp_path):
    (tmp_path / "file").touch()
    reward, message = run(ELITES_CACHE=str(tmp_path / "file" / "cache"))
    assert "nothing is cached for the next start" in message
    assert reward == run()[0]
