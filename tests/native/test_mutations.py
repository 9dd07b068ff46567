"""Mistakes in the compiler are noticed: the comparison of `test_tasks.py` fails for each of them."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from elites import make_task
from elites.native import compile_function, compiled, emit, functions, program, trace
from tests.native.test_tasks import COUNT, actions, differ, start, stepping

TOLERANCE = 1e-5
TURNS = 40  # enough for a loop that is not written out


def swing(state, action):
    """A step of a pendulum above a floor, with the kinds of operations that a robot's step has."""
    angle, speed, height, falling = state

    def frame(_, now):
        angle, speed, height, falling = now
        numbers = jnp.arange(4.0)  # constants that JAX does not fold
        weight = numbers[2] * numbers[3] - numbers[1]
        pull = action[0] * jnp.cos(angle) - 0.3 * speed
        speed = speed + 0.01 * (pull - weight * jnp.sin(angle))
        angle = angle + 0.01 * speed
        bottom = height - 0.2 * jnp.abs(angle) / jnp.sqrt(1 + angle * angle)
        push = jnp.where(bottom < 0.5, 2 * bottom - height / 3, -0.05 * height - 0.4 * falling)
        falling = falling + 0.02 * jnp.maximum(push, -0.03)
        return angle, speed, height + 0.02 * falling, falling

    after = lax.fori_loop(0, TURNS, frame, (angle, speed, height, falling))
    reward = (action * action).sum() - (after[2] + after[3])
    return after, (jnp.stack(after[:2]), reward), (after[2] < 0.5, after[0] > 0)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    """The key of kept code has the compiler's sources, which no mutation here changes."""
    monkeypatch.setattr(compiled, "make_cache_folder", lambda name: None)


@functools.cache
def pendulum():
    random = np.random.default_rng(0)
    states = tuple(random.uniform(low, 1, COUNT).astype(np.float32) for low in (-1, -1, 0, 0))
    action = random.uniform(-1, 1, (COUNT, 2)).astype(np.float32)
    return swing, (states, action), jax.jit(jax.vmap(swing))(states, action)


@functools.cache
def hopper():
    task = make_task("brax-hopper")
    step, arguments = stepping(task), (start(task)[0], actions(task, 1)[0])
    run = jax.jit(jax.vmap(step))
    for action in actions(task, 25):
        arguments = run(*arguments)[0], action  # some have fallen, and feet touch the floor
    return step, arguments, run(*arguments)


def examples(arguments):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), arguments)


def wrong(case):
    """The share of lanes whose results differ from XLA's."""
    step, arguments, expected = case()
    made = compile_function(step, *examples(arguments), fused=True)
    return differ(made(*arguments), expected, TOLERANCE).mean()


def swapped(function):
    return lambda self, condition, yes, no: function(self, condition, no, yes)


def skipped(op):
    """The emitter's method with the first argument as the result of an operation."""
    whole = emit._Emitter.operation

    def operation(self, at):
        node = self.nodes[at]
        if node.op != op:
            return whole(self, at)
        return f"freeze {self.type(at)} {self.operand(node.args[0])}"

    return operation


def shortened(function):
    def repeat_after(self, first, length, init, body):
        return function(self, first, length - 1, init, body)

    return repeat_after


MUTATIONS = {
    "subtraction adds": (emit._PLAIN["f"], "sub", "fadd"),
    "addition subtracts": (emit._PLAIN["f"], "add", "fsub"),
    "division multiplies": (emit._PLAIN["f"], "div", "fmul"),
    "a · b - c has the wrong sign": (emit._FUSED, "fms", 0),
    "c - a · b has the wrong sign": (emit._FUSED, "fnma", 2),
    "less is more": (emit._COMPARED["f"], "lt", "fcmp ogt"),
    "the maximum is the minimum": (emit._INTRINSICS["f"], "max", "minimum"),
    "products are skipped": (emit._Emitter, "operation", skipped("mul")),
    "roots are skipped": (emit._Emitter, "operation", skipped("sqrt")),
    "negation is skipped": (emit._Emitter, "operation", skipped("neg")),
    "the arms of a selection are swapped": (program.Graph, "select", swapped(program.Graph.select)),
    "differences of constants are folded to sums": (program._FOLDED, "sub", np.add),
    "products of constants are folded to sums": (program._FOLDED, "mul", np.add),
    "a loop is a turn too short": (program.Graph, "repeat_after", shortened(program.Graph.repeat_after)),
    "sums are maxima": (trace._REDUCTIONS, "reduce_sum", "max"),
    "series do not alternate": (functions, "_alternating", lambda k: 1 / math.factorial(k)),
}
OF_A_ROBOT = (
    "subtraction adds",
    "a · b - c has the wrong sign",
    "c - a · b has the wrong sign",
    "roots are skipped",
    "the arms of a selection are swapped",
    "differences of constants are folded to sums",
    "a loop is a turn too short",
)


CASES = [
    *(pytest.param(pendulum, name) for name in MUTATIONS),
    *(pytest.param(hopper, name, marks=pytest.mark.slow) for name in OF_A_ROBOT),
]


@pytest.mark.parametrize("case", [pendulum, pytest.param(hopper, marks=pytest.mark.slow)])
def test_without_a_mistake_no_lane_is_wrong(case):
    assert wrong(case) == 0


@pytest.mark.parametrize(("case", "mutation"), CASES)
def test_a_mistake_in_the_compiler_is_noticed(monkeypatch, case, mutation):
    where, what, value = MUTATIONS[mutation]
    (monkeypatch.setitem if isinstance(where, dict) else monkeypatch.setattr)(where, what, value)
    assert wrong(case) > 0.1


def changed(made, at, **changes):
    """A program with another node."""
    graph = program.Graph()
    graph.nodes, graph.depths = list(made.graph.nodes), made.graph.depths
    graph.nodes[at] = graph.nodes[at]._replace(**changes)
    return program.Program(graph, made.inputs, made.outputs)


def test_a_change_of_any_operation_is_noticed(monkeypatch):
    """One that is dropped, so that its first argument is its result, and one with the other sign.

    The series of elementary functions, in float64, are the business of `test_functions.py`.
    """
    step, arguments, _ = pendulum()
    whole = trace.trace(step, *examples(arguments))[0].fuse_products()
    nodes = whole.graph.nodes
    opposite = {"add": "sub", "sub": "add", "fma": "fms", "fms": "fma", "fnma": "fma"}
    unnoticed, tried = [], 0
    for at in sorted(whole.find_live_nodes()):
        node = nodes[at]
        if node.op in ("const", "input", "index", "param", "loop", "out") or node.dtype == "float64":
            continue
        same = [arg for arg in node.args if nodes[arg].dtype == node.dtype]
        mistakes = [{"op": "bits", "args": tuple(same[:1])}] if same else []  # bits of the same type: itself
        mistakes += [{"op": opposite[node.op]}] if node.op in opposite else []
        for mistake in mistakes:
            bad = changed(whole, at, **mistake)
            monkeypatch.setattr(compiled, "emit", lambda _, lanes, short, bad=bad: emit.emit(bad, lanes))
            tried += 1
            if wrong(pendulum) == 0:
                unnoticed.append((node, mistake))
    assert tried > 40
    assert not unnoticed
