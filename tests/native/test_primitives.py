"""Every operation against JAX's, over shapes, types and special values."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes
from jax import lax

from elites.native import UnknownPrimitiveError, compile_function, trace
from elites.native.functions import make_functions
from elites.native.program import Graph

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = np.float32(
    [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 1e-3, -7.25, 100.7, 3e9, -3e9, 1e30, -1e38, 3.4e38, 2e-38,
     np.inf, -np.inf, np.nan]
)  # fmt: skip
COMBINATIONS = ("set", "add", "subtract", "multiply", "min", "max")  # what becomes a scatter
INDICES = np.arange(-5, 8).astype(np.int32)


def special(dtype):
    if dtype == "float32":
        return FLOATS
    if dtype == "bool":
        return np.array([False, True])
    limits = np.iinfo(dtype)
    values = {0, 1, 2, 3, 7, 31, 33, limits.max, limits.max - 1, limits.min, limits.min // 2, *range(-4, 0)}
    return np.array(sorted(value for value in values if limits.min <= value <= limits.max), dtype)


def rows(*dtypes):
    """All combinations of special values."""
    columns = zip(*itertools.product(*map(special, dtypes)), strict=True)
    return [np.array(column, dtype) for column, dtype in zip(columns, dtypes, strict=True)]


def both(function, *batches, lanes=None):
    """The results of machine code and of JAX for a batch, as NumPy arrays."""
    examples = [jax.ShapeDtypeStruct(batch.shape[1:], batch.dtype) for batch in batches]

    def listed(*arguments):
        return (function(*arguments),)

    ours = compile_function(listed, *examples, lanes=lanes)(*batches)[0]
    theirs = jax.tree.leaves(jax.jit(jax.vmap(function))(*batches))
    return ours, [np.asarray(array) for array in theirs]


def agree(function, *batches, lanes=None):
    """Both are the same to the last bit, but for the sign of a zero and for the bits of NaN."""
    for ours, theirs in zip(*both(function, *batches, lanes=lanes), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(flushed(ours), flushed(theirs))


def flushed(array):
    """With zeros for subnormal numbers, which XLA makes of most of them on a CPU."""
    return np.where(np.abs(array) < np.finfo(np.float32).tiny, 0, array) if array.dtype.kind == "f" else array


ARITHMETIC = (lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min)
COMPARISONS = (lax.lt, lax.le, lax.gt, lax.ge, lax.eq, lax.ne)
BITWISE = (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)


@pytest.mark.parametrize("dtype", ["float32", *INTEGERS])
def test_arithmetic_and_comparisons_agree_with_jax(dtype):
    agree(lambda a, b: [f(a, b) for f in (*ARITHMETIC, *COMPARISONS)], *rows(dtype, dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_bit_operations_agree_with_jax(dtype):
    shifts = () if dtype == "bool" else SHIFTS
    agree(lambda a, b: [lax.bitwise_not(a), *(f(a, b) for f in (*BITWISE, *shifts))], *rows(dtype, dtype))


def test_functions_of_one_argument_agree_with_jax():
    functions = (lax.neg, lax.abs, lax.sign, lax.sqrt, lax.floor, lax.ceil, lax.is_finite, lax.square)
    away, even = lax.RoundingMethod.AWAY_FROM_ZERO, lax.RoundingMethod.TO_NEAREST_EVEN
    agree(lambda x: [*(f(x) for f in functions), lax.round(x, away), lax.round(x, even)], *rows("float32"))
    for dtype in ("int32", "int8"):
        agree(lambda x: [lax.neg(x), lax.abs(x), lax.sign(x), lax.integer_pow(x, 3)], *rows(dtype))
    agree(lambda x: [lax.sign(x), lax.integer_pow(x, 5)], *rows("uint32"))


def test_signs_of_zeros_agree_with_jax():
    zeros = np.float32([0, -0.0, 1, -1])
    (ours,), (theirs,) = both(lambda x: lax.sign(x) * jnp.abs(x), zeros)
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
    (ours,), (theirs,) = both(lambda x: -x, zeros)
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


@pytest.mark.parametrize("dtype", ["float32", "bool", *INTEGERS])
def test_conversions_agree_with_jax(dtype):
    agree(lambda x: [x.astype(other) for other in ("float32", "bool", *INTEGERS)], *rows(dtype))


def test_bitcasts_agree_with_jax():
    agree(
        lambda x: [
            lax.bitcast_convert_type(lax.bitcast_convert_type(x, t), "float32") for t in ("int32", "uint32")
        ],
        FLOATS,
    )
    agree(lambda x: lax.bitcast_convert_type(x, "int32"), FLOATS[~np.isnan(FLOATS)])


def test_selection_agrees_with_jax():
    three = np.repeat([0, 1, 2], 7).astype(np.int32)
    x = np.arange(21, dtype=np.float32)
    agree(lambda which, x: [lax.select_n(which, x, 2 * x, x + 1), jnp.where(which > 1, x, -x)], three, x)
    agree(lambda x: jnp.clip(x, -1.5, 2), FLOATS)
    agree(lambda x, y: lax.clamp(y, x, y + 1), *rows("float32", "float32"))


@pytest.mark.parametrize("power", [-3, -1, 0, 2, 7])
def test_integer_powers_agree_with_jax(power):
    (ours,), (theirs,) = both(lambda x: lax.integer_pow(x, power), FLOATS)
    np.testing.assert_allclose(flushed(ours), theirs, rtol=1e-6)


def shaped(draw, dtype, least=0, most=3):
    shape = draw(array_shapes(min_dims=least, max_dims=most, max_side=3))
    size = 3 * int(np.prod(shape))
    values = draw(st.lists(st.sampled_from(list(special(dtype))), min_size=size, max_size=size))
    return np.array(values, dtype).reshape(3, *shape)


@st.composite
def arrays(draw, least=0, most=3, dtypes=("float32", "int32", "bool", "uint8")):
    return shaped(draw, draw(st.sampled_from(dtypes)), least, most)


@settings(max_examples=25)
@given(arrays(least=2), st.data())
def test_changes_of_shape_agree_with_jax(x, data):
    axes = data.draw(st.permutations(range(x.ndim - 1)))
    axis = axes[0]
    length = x.shape[1 + axis]
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, length)] * 2)))
    pads = [
        (data.draw(st.integers(-1, 2)), data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2)))
        for _ in axes
    ]

    def function(x):
        return [
            x.transpose(axes),
            x.reshape(-1),
            jnp.flip(x, axis),
            lax.slice_in_dim(x, low, high, 2 if high - low > 1 else 1, axis),
            jnp.concatenate([x, x], axis),
            jnp.stack([x, x], axis),
            jnp.tile(x, (2, *[1] * (x.ndim - 1))),
            jnp.broadcast_to(x, (2, *x.shape)),
            jnp.expand_dims(x, axis),
            *jnp.split(x, [1], axis),
            lax.pad(x, x.reshape(-1)[0], pads),
        ]

    agree(function, x)


@settings(max_examples=20)
@given(arrays(least=1, dtypes=("int32", "uint8", "bool")), st.data())
def test_reductions_of_integers_agree_with_jax(x, data):
    axes = tuple(data.draw(st.sets(st.integers(0, x.ndim - 2), min_size=1)))
    names = ("reduce_and", "reduce_or", "reduce_xor") if x.dtype == bool else trace._REDUCTIONS
    agree(lambda x: [getattr(lax, name)(x, axes) for name in names], x)
    if x.dtype != bool:
        whole = data.draw(st.booleans())
        agree(lambda x: [getattr(lax, name)(x, axes[0], reverse=whole) for name in trace._CUMULATIVE], x)


@settings(max_examples=15)
@given(arrays(least=1, dtypes=("float32",)), st.data())
def test_reductions_of_floats_agree_with_jax(x, data):
    axis = data.draw(st.integers(0, x.ndim - 2))
    agree(lambda x: [jnp.max(x, axis), jnp.min(x, axis), jnp.argmax(x, axis), jnp.argmin(x, axis)], x)
    agree(lambda x: [lax.cummax(x, axis), lax.cummin(x, axis, reverse=True)], x)
    moderate = np.where(np.abs(x) < 1e9, x, np.float32(1))
    for ours, theirs in zip(*both(lambda x: [x.sum(axis), jnp.cumsum(x, axis)], moderate), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e3)
    for ours, theirs in zip(*both(lambda x: [x.prod(axis), jnp.cumprod(x, axis)], moderate), strict=True):
        np.testing.assert_allclose(flushed(ours), flushed(theirs), rtol=1e-6)


@settings(max_examples=20)
@given(
    st.integers(0, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31),
    st.sampled_from(["float32", "int32", "uint8"]),
)  # fmt: skip
def test_products_agree_with_jax(batch, sums, rows_, columns, seed, dtype):
    random = np.random.default_rng(seed)
    shared, summed = (2,) * batch, (3,) * sums
    scale = 1 if dtype == "float32" else 20
    a = scale * random.normal(size=(4, *shared, rows_, *summed))
    b = scale * random.normal(size=(4, *summed, *shared, columns))
    a, b = ((array if scale == 1 else array.astype(np.int32)).astype(dtype) for array in (a, b))
    left = tuple(range(batch + 1, batch + 1 + sums)), tuple(range(sums))
    shares = tuple(range(batch)), tuple(range(sums, sums + batch))
    (ours,), (theirs,) = both(lambda a, b: lax.dot_general(a, b, (left, shares)), a, b)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@settings(max_examples=15)
@given(
    arrays(least=1, most=2, dtypes=("float32", "int32")),
    st.sampled_from(["fill", "clip", "promise_in_bounds"]),
)
def test_dynamic_indices_agree_with_jax(x, mode):
    at = INDICES if mode != "promise_in_bounds" else np.zeros(13, np.int32)
    many = np.resize(x, (len(at), *x.shape[1:]))
    row = np.ones(x.shape[2:], x.dtype)
    dropped = {"fill": "drop"}.get(mode, mode)

    def function(x, i):
        return [
            x.at[i].get(mode=mode),
            x.at[jnp.stack([i, i - 1, i * 0])].get(mode=mode),
            x.at[i].set(row, mode=dropped),
            x.at[jnp.stack([i, i * 0])].add(row, mode=dropped),
            *(getattr(x.at[i], combine)(row + row, mode=dropped) for combine in COMBINATIONS),
            lax.dynamic_slice_in_dim(x, i, 1),
            lax.dynamic_update_slice_in_dim(x, row[None], i, 0),
        ]

    agree(function, many, at)


def test_constant_indices_agree_with_jax():
    x = np.arange(3 * 24, dtype=np.float32).reshape(3, 4, 3, 2)
    rows_, columns = np.array([[3, 0], [1, 1]]), np.array([2, 0])

    def function(x):
        return [
            x[rows_, columns],
            x[:, columns],
            x[rows_[0], :, 1],
            x[jnp.array([0, 9, -1])],
            jnp.take_along_axis(x, jnp.ones((4, 1, 2), int), 1),
            jax.vmap(lambda row, k: row[k])(x[:2], columns),
            x.at[rows_, columns].add(1.0),
            x.at[:, columns].set(5.0),
            x.at[jnp.array([0, 0]), 1].add(jnp.ones((2, 2))),
            jax.ops.segment_sum(x, jnp.array([0, 2, 0, 1]), 3),
            jax.vmap(lambda row, k: row.at[k].set(7.0))(x[:2], columns),
        ]

    agree(function, x)


@pytest.mark.parametrize(("length", "reverse"), [(0, False), (1, True), (3, True), (90, False), (90, True)])
def test_loops_over_arrays_agree_with_jax(length, reverse):
    """The longest stays a loop."""
    xs = np.random.default_rng(0).integers(-9, 9, (5, length, 2)).astype(np.int32)

    def turn(carry, x):
        total, fixed, seven = carry
        total = 3 * total + fixed * x
        return (total, fixed, seven), total + seven

    def function(fixed, *xs):
        start = jnp.zeros(2, int), fixed, jnp.int32(7)
        return lax.scan(turn, start, xs[0] if xs else jnp.zeros((0, 2), int), reverse=reverse)

    fixed = np.arange(10, dtype=np.int32).reshape(5, 2)
    agree(function, fixed, *([xs] if length else []))


def test_a_loop_in_a_loop_agrees_with_jax():
    def inner(x):
        return lax.fori_loop(0, 300, lambda i, x: (5 * x + i) % 1001, x)

    agree(lambda x: lax.fori_loop(0, 200, lambda i, x: inner(x) ^ i, x), np.arange(20, dtype=np.int32))


def test_each_lane_leaves_a_while_loop_on_its_own():
    def function(x):
        def going(now):
            return (now[0] != 1) & (now[1] < 100)

        def turn(now):
            n, steps = now
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

        return lax.while_loop(going, turn, (x, 0))

    agree(function, np.arange(1, 28, dtype=np.int32))


def test_a_while_loop_with_a_known_length_agrees_with_jax():
    agree(lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1], FLOATS)


def test_conditions_agree_with_jax():
    which = np.array([-1, 0, 1, 2, 3, 1], np.int32)
    branches = (lambda x: x + 1, lambda x: x * 0.5, lambda x: -x)
    agree(lambda i, x: lax.switch(i, branches, x), which, np.arange(6, dtype=np.float32))
    agree(lambda x: lax.cond(x > 0, lambda x: x, lambda x: 2 * x, x), FLOATS)


def test_functions_in_functions_agree_with_jax():
    @jax.custom_vjp
    def cubed(x):
        return x * x * x

    cubed.defvjp(lambda x: (cubed(x), x), lambda x, g: (g,))
    wave = jax.checkpoint(lambda x: jnp.floor(x) * 3)

    def function(x):
        ours = jax.jit(wave)(x), jax.nn.relu(x), cubed(x)
        return [*ours, jax.grad(lambda x: wave(x) * x + jax.nn.relu(x) * x)(x)]

    agree(function, np.float32([-2.5, 0, 0.75, 3]))


def test_a_key_that_a_loop_carries_is_refused():
    def function(seed):
        def turn(_, key):
            return jax.random.split(key, 1)[0]

        return (jax.random.key_data(lax.fori_loop(0, 1000, turn, jax.random.key(seed))),)

    with pytest.raises(UnknownPrimitiveError, match=r"^a random key that a loop carries"):
        compile_function(function, jnp.uint32(0))


def test_random_numbers_agree_with_jax():
    def function(seed):
        key = jax.random.key(seed)
        a, b = jax.random.split(key)
        c = jax.random.fold_in(b, seed)
        return jax.random.bits(a, (3,)), jax.random.uniform(c, (2, 2)), jax.random.key_data(c)

    agree(function, np.array([0, 1, 7, 2**32 - 1], np.uint32))
    (ours,), (theirs,) = both(
        lambda seed: jax.random.normal(jax.random.key(seed), (50,)), np.arange(40, dtype=np.uint32)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 16, 32])
def test_any_number_of_lanes_agrees_with_jax(lanes):
    def function(x, n):
        return jnp.sin(x) * n, x > 0, lax.fori_loop(0, 3000, lambda i, n: (n * 3 + i) % 1009, n)

    x = np.linspace(-4, 4, 37, dtype=np.float32)
    ours, theirs = both(function, x, np.arange(37, dtype=np.int32), lanes=lanes)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_unknown_operation_is_reported_with_its_name():
    with pytest.raises(UnknownPrimitiveError, match=r"^JAX's operation lgamma cannot be compiled$"):
        compile_function(lambda x: (lax.lgamma(x),), jnp.float32(0))
    with pytest.raises(
        UnknownPrimitiveError, match=r"^an array of bfloat16 cannot be compiled; use bool, int8"
    ):
        compile_function(lambda x: (x,), jax.ShapeDtypeStruct((2,), jnp.bfloat16))


NOT_MADE = {
    "checkpoint": "the name of remat2 in other versions of JAX",
    "closed_call": "made by JAX's own transformations",
    "copy_p": "the name of copy in other versions of JAX",
    "core_call": "made by JAX's own transformations",
    "expand_dims": "JAX makes broadcast_in_dim",
    "pjit": "the name of jit in other versions of JAX",
}


def every_operation(x, n, seed):
    """All that the tracer knows, for three floats between 0 and 1, three small integers, and a seed."""
    two = (
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "max",
        "min",
        "pow",
        "atan2",
        *(f.__name__ for f in COMPARISONS),
    )
    one = ("neg", "abs", "sign", "sqrt", "floor", "ceil", "is_finite", "square", "round")
    series = [name for name in make_functions(Graph()) if name not in two]
    square, key = jnp.outer(x, x), jax.random.fold_in(jax.random.split(jax.random.key(seed))[0], 3)
    words = jax.random.key_data(key)
    turn = jax.custom_vjp(lambda x: 2 * x)
    turn.defvjp(lambda x: (turn(x), x), lambda x, g: (g,))
    return [
        *(getattr(lax, name)(x) for name in (*one, *series)),
        *(getattr(lax, name)(x, x[::-1]) for name in two),
        *(f(n, n[::-1]) for f in (*BITWISE, *SHIFTS)),
        ~n,
        lax.clamp(0.3, x, 0.5),
        lax.integer_pow(x, 3),
        jax.grad(lambda y: (y * y + y)[0])(x),  # add_any
        n.astype(jnp.float32),
        lax.bitcast_convert_type(x, jnp.int32),
        jnp.where(x > 0.5, x, -x),
        *(getattr(lax, name)(n, (0,)) for name in trace._REDUCTIONS),
        *(getattr(lax, name)(x) for name in trace._CUMULATIVE),
        *(getattr(x.at[n[0]], combine)(x[1]) for combine in COMBINATIONS),
        (jnp.argmax(x), jnp.argmin(x), square @ x, x[n], lax.dynamic_slice(x, n[:1], (2,))),
        lax.dynamic_update_slice(x, x[:1], n[:1]),
        (square.T, jnp.tile(x, 2), jnp.stack([x, x]), jnp.unstack(x), jnp.split(x, 3), jnp.flip(x)),
        (jnp.concatenate([x, x]), square.reshape(-1), jnp.pad(x, 1), square[1], jnp.arange(3)[n[0]] + n),
        (jnp.copy(x), jax.device_put(x), lax.stop_gradient(x), lax.optimization_barrier(x)),
        lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x - 1),
        (jax.jit(jnp.sin)(x), jax.checkpoint(jnp.sin)(x), jax.nn.relu(x), turn(x)),
        lax.cond(x[0] > 0.5, lambda x: x, lambda x: 2 * x, x),
        lax.scan(lambda total, x: (total + x, total), 0.0, x),
        lax.while_loop(lambda m: m[0] < 9, lambda m: m * 2, n + 1),
        (words, jax.random.bits(jax.random.wrap_key_data(words), (2,))),
    ]


def test_every_operation_that_the_tracer_knows(monkeypatch):
    """Each is in a function that agrees with JAX; one that is added without a test is named."""
    seen, read = set(), trace._Tracer._equation

    def equation(self, equation, arrays):
        seen.add(equation.primitive.name)
        return read(self, equation, arrays)

    random = np.random.default_rng(0)
    x, n = random.uniform(0.05, 0.95, (20, 3)).astype(np.float32), random.integers(0, 3, (20, 3), np.int32)
    batches = x, n, np.arange(20, dtype=np.uint32)
    for ours, theirs in zip(*both(every_operation, *batches), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(trace._Tracer, "_equation", equation)
    trace.trace(lambda *arguments: (every_operation(*arguments),), *(batch[0] for batch in batches))
    tables = (trace._CALLS, trace._SAME, trace._REDUCTIONS, trace._CUMULATIVE, trace._SCATTERS)
    known = {*trace._Tracer().scalar, *(name for table in tables for name in table)}
    known |= {name.removeprefix("_do_") for name in dir(trace._Tracer) if name.startswith("_do_")}
    assert known - seen - set(NOT_MADE) == set()
