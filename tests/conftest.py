import os
from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import settings

from elites import Policy, ThreadEvaluator, make_task
from elites.cache import keep_compiled_programs
from elites.tasks.qdgym.library import LIBRARY, VARIABLE, find_bullet

keep_compiled_programs()
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
    return np.asarray(_draw(Policy.of(task))(np.full(len(indices), seed), indices))[:count]


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


@pytest.fixture(autouse=True, scope="module")
def _few_programs_at_a_time():
    """Frees what a module has compiled: a process can hold only so many programs."""
    yield
    jax.clear_caches()
