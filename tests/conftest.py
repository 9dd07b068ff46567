import io
import os
from collections import Counter
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

from elites import Policy, ThreadEvaluator, make_task
from elites.cache import collect_garbage_rarely, keep_compiled_programs
from elites.tasks.qdgym.library import LIBRARY, VARIABLE, find_bullet

keep_compiled_programs()
collect_garbage_rarely()
if (bullet := find_bullet()) is not None and VARIABLE not in os.environ and bullet.library.name == LIBRARY:
    os.environ[VARIABLE] = str(bullet.library.parent)  # for tests with a cache folder of their own
settings.register_profile("elites", deadline=None, derandomize=True)  # compiling may fall into any example
settings.load_profile("elites")

ROBOTS = ("walker", "halfcheetah", "ant", "hopper")


@cache
def _draw(policy):
    return jax.jit(jax.vmap(lambda seed, index: policy.init(jax.random.fold_in(jax.random.key(seed), index))))


def controllers(task, count, seed=0):
    """Random controllers, always the same ones."""
    indices = np.arange(100 if count > 16 else 16)  # few shapes to compile
    return np.asarray(_draw(Policy.for_task(task))(np.full(len(indices), seed), indices))[:count]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with long tests come first, then those with many tests, so that all workers end together."""
    tests = Counter(item.path for item in items)
    long = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-long[item.path], -tests[item.path], item.path))


@pytest.fixture(scope="session")
def evaluators():
    """Evaluators shared by the tests, by task name and threads."""
    made = {}

    def get(name, threads=2):
        if (name, threads) not in made:
            made[name, threads] = ThreadEvaluator(make_task(name), threads=threads)
        return made[name, threads]

    yield get
    for evaluator in made.values():
        evaluator.close()


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made but not drawn, which takes most of their time: for tests of something else."""
    picture = io.BytesIO()
    Image.new("RGB", (1, 1)).save(picture, "png")

    def savefig(figure, target, **_):
        if hasattr(target, "write"):
            target.write(picture.getvalue())
        else:
            Path(target).write_bytes(picture.getvalue())

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)
    monkeypatch.setattr("elites.reports.study.figures.fix_layout", lambda figure: None)


@pytest.fixture(autouse=True, scope="module")
def _few_programs_at_a_time():
    """Frees what a module has compiled: a process can hold only so many programs."""
    yield
    jax.clear_caches()
