"""Programs without products by zero: the same numbers, whatever is not finite."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import make_task
from elites.native import compile_function, finite, trace
from elites.native.compiled import Code, CompiledFunction, compile_ir
from elites.native.emit import emit
from elites.native.program import OUTERMOST, Graph, Program, Slot
from tests.native.test_tasks import ROBOTS, actions, start, stepping

SPECIAL = np.float32([0, -0.0, 1, -2.5, 1e-30, 1e13, 3e38, -3e38, np.inf, -np.inf, np.nan])
ROWS = np.array(list(itertools.product(SPECIAL, repeat=3)), np.float32)
UNARY, BINARY = ("neg", "abs", "sqrt"), ("add", "sub", "mul", "mul", "mul", "max", "min")
AXIS = jnp.array([0.0, 1.0, 0.0])


@st.composite
def programs(draw):
    """Programs of three numbers with many products by zero, with a loop or without."""
    graph = Graph()
    inputs = [graph.new("input", (), "float32", OUTERMOST, k) for k in range(3)]
    zeros = [graph.const(value, "float32") for value in (0, 0, -0.0)]
    others = [graph.const(value, "float32") for value in (1, -2, 0.3, np.inf, 2.0**-80, 2.0**90)]
    number = st.integers(0, 10**6)

    def extended(values, count):
        values = list(values)
        for _ in range(count):
            op = draw(st.sampled_from((*UNARY, *BINARY, "select")))
            pool = [*values, *values, *zeros, *others]
            first, second = (pool[draw(number) % len(pool)] for _ in range(2))
            if op == "select":
                values.append(graph.select(graph.op("lt", first, second), values[-1], second))
            else:
                values.append(graph.op(op, *((first,) if op in UNARY else (first, second))))
        return values[-3:]

    values = extended(inputs, draw(st.integers(1, 12)))
    if draw(st.booleans()):
        size = draw(st.integers(1, 8))
        kinds = draw(st.integers(0, 2**30))

        def body(index, carried):
            random = np.random.default_rng(kinds)  # the body is built several times
            own = [*inputs, *carried]
            for _ in range(size):
                one, other = own[random.integers(len(own))], own[random.integers(len(own))]
                zero = graph.op("mul", other, zeros[random.integers(3)])
                own.append(graph.op(("add", "sub", "mul")[random.integers(3)], one, zero))
            return None, own[-len(carried) :]

        values = graph.repeat(3, values, body)
    outputs = extended(values, draw(st.integers(1, 6)))
    return Program(graph, (tuple(inputs),), (tuple(outputs),))


def made(program, short):
    arguments, results = [[Slot((3,), "float32")]], [[Slot((len(program.outputs[0]),), "float32")]]
    return CompiledFunction(Code(compile_ir(emit(program, 8, short)), arguments, results, None, 0), 8)


def same_numbers(ours, theirs):
    return np.array_equal(ours, theirs, equal_nan=True)  # signs of zeros do not count


@settings(max_examples=200, deadline=None)
@given(programs())
def test_a_shorter_program_gives_the_same_numbers(program):
    before, finite._MAX_SHARE_LEFT = finite._MAX_SHARE_LEFT, 10.0
    try:
        short = finite.shorten_program(program)
    finally:
        finite._MAX_SHARE_LEFT = before
    if short is not None:
        [ours], [theirs] = made(program, short)([ROWS])[0], made(program, None)([ROWS])[0]
        assert same_numbers(ours, theirs)


def turned(x):
    """Products by the zeros of an axis; each number of x is a factor of some."""
    return (jnp.cross(AXIS, jnp.cross(x, AXIS)) + x[::-1] * jnp.dot(x, AXIS) + jnp.sqrt(jnp.abs(x)) * 0,)


def wrong(program):
    """The rows in which the program of `turned` is not finite in other places than under XLA."""
    [ours], theirs = (
        made(program, finite.shorten_program(program))(ROWS)[0],
        jax.jit(jax.vmap(turned))(ROWS)[0],
    )
    return (np.isfinite(ours) != np.isfinite(theirs)).sum()


def test_each_number_that_is_not_finite_is_noticed(monkeypatch):
    program = trace.trace(turned, jax.ShapeDtypeStruct((3,), jnp.float32))[0]
    assert wrong(program) == 0
    to_check = finite._numbers_to_check(*finite._Rebuild(program).rebuild())
    assert to_check
    monkeypatch.setattr(finite, "_numbers_to_check", lambda program, dropped: set())
    assert wrong(program) > 0


def test_the_bits_of_a_lane_do_not_depend_on_other_lanes():
    made = compile_function(turned, jax.ShapeDtypeStruct((3,), jnp.float32))
    ordinary = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    [[alone]] = made(ordinary)
    mixed = ordinary.copy()
    mixed[::3] = np.nan
    [[beside]] = made(mixed)
    kept = np.arange(40) % 3 > 0
    assert np.array_equal(alone[kept].view(np.uint32), beside[kept].view(np.uint32))
    assert np.isnan(beside[~kept]).all()


def test_a_bound_above_the_largest_number_is_infinite():
    """(x · x)² is infinite at 2^33, although times 2^-80 it would be small again."""

    def function(x):
        small = (x * x) * (x * x) * 2.0**-80
        return jnp.where(small > 1, 1.0, 2.0) + small * 0, x + x * 0 + x * 0 * 0

    values = np.float32([1, 2.0**33, 2.0**40, np.inf, np.nan])
    ours = compile_function(function, jax.ShapeDtypeStruct((), jnp.float32))(values)
    for [mine], theirs in zip(ours, jax.jit(jax.vmap(function))(values), strict=True):
        assert same_numbers(mine, theirs)


def test_a_loop_without_a_length_stays_whole():
    """Its turns may depend on products by zero: this one would not end."""

    def function(x):
        return (jax.lax.while_loop(lambda s: s * 0 == 0, lambda s: s * s + s * 0 + s * 0 * 0, x),)

    example = jax.ShapeDtypeStruct((), jnp.float32)
    assert finite.shorten_program(trace.trace(function, example)[0]) is None
    [[ours]] = compile_function(function, example)(np.float32([2]))
    assert ours.tolist() == [np.inf]


def test_an_empty_result_writes_nothing():
    def function(x):
        return x[:0], turned(x)[0], x[:0]

    made = compile_function(function, jax.ShapeDtypeStruct((3,), jnp.float32))
    arguments, results = made.buffers(1)
    arguments[0].view(np.float32)[:] = np.nan
    beside = [np.full(64, 7, np.uint32) for _ in results]
    results[0], results[2] = beside[0], beside[2]
    made.run(arguments, results)
    assert (beside[0] == 7).all()
    assert (beside[2] == 7).all()
    assert np.isnan(results[1].view(np.float32)).all()


def test_a_program_that_would_not_be_shorter_stays():
    program = trace.trace(lambda x: (x * 2 + 1,), jax.ShapeDtypeStruct((3,), jnp.float32))[0]
    assert finite.shorten_program(program) is None


@pytest.mark.parametrize("name", ROBOTS)
def test_the_shorter_program_of_a_robot_is_used(name):
    """At states that it visits, the guard holds: otherwise each step would be computed twice."""
    task = make_task(name)
    states, example = start(task)
    step = stepping(task)
    arguments = example, jnp.zeros(task.action_size)
    program, takes, gives = trace.trace(step, *arguments)
    short = finite.shorten_program(program)
    assert short.count_operations() < 0.75 * program.count_operations()
    code = Code(compile_ir(emit(short, 8)), takes, [*gives, [Slot((), "float32")]], None, 0)
    guarded, structure = CompiledFunction(code, 8), jax.tree.structure(states)
    for action in actions(task, 40):
        after, *_, [guard] = guarded(states, action)
        assert (guard < finite.GUARD_LIMIT).all()
        states = jax.tree.unflatten(structure, after)
