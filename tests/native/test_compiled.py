"""The program that is built, and the cache of machine code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from elites import ElitesError
from elites.native import compile_function, compiled
from elites.native.trace import trace
from tests.native.test_primitives import every_operation


def operations(function, *examples):
    return trace(function, *examples)[0].count_operations()


X = jnp.zeros((), jnp.float32)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: (x + (jnp.arange(3.0).sum() - 3), x * 1 / 1, lax.neg(lax.neg(x))), 0),
        (lambda x: ((x + 1) * (1 + x),), 2),  # shared
        (lambda x: (jnp.where(jnp.arange(2) == 1, x, 0.0)[1],), 0),
        (lambda x: (jnp.zeros(4).at[2].set(x)[2], [jnp.sin(x)][1:]), 0),
        (lambda x: (x * 0, x - x), 2),  # NaN stays
        (lambda x: (jnp.array([[0.0, 1], [1, 0]]) @ jnp.stack([x, x]),), 2),
    ],
)
def test_simplification_leaves_these_operations(function, left):
    assert operations(function, X) == left


def test_a_loop_carries_only_what_changes_and_is_needed():
    """The constant is folded, the invariant computed before the loop, and the unused sum left out."""

    def turn(i, now):
        x, unused, constant, fixed = now
        for _ in range(30):
            x = jnp.sqrt(jnp.abs(x)) * constant + fixed * fixed
        return x, unused + x, constant, fixed

    def function(x, fixed):
        return (lax.fori_loop(0, 1000, turn, (x, jnp.float32(0), jnp.float32(1), fixed))[0],)

    program, _, _ = trace(function, X, X)
    live = [program.graph.nodes[at] for at in program.find_live_nodes()]
    assert sum(node.op == "param" for node in live) == 1
    assert [node.block for node in live if node.op == "mul"] == [0]  # before the loop
    assert program.count_operations() == 3 * 30 + 1


def test_a_value_unchanged_only_in_the_first_iteration_is_carried():
    def turn(i, now):
        _, b, x = now
        return b, x + i, 3 * x

    def function(x):
        return (lax.fori_loop(0, 3000, turn, (jnp.int32(0), jnp.int32(0), x)),)

    x = np.arange(1, 6, dtype=np.int32)
    ours = compile_function(function, jnp.int32(0))(x)[0]
    for mine, other in zip(ours, jax.vmap(function)(x)[0], strict=True):
        np.testing.assert_array_equal(mine, other)


def test_the_last_row_fills_the_last_block():
    """Other numbers could keep a loop from ending."""
    made = compile_function(lambda x: (x + 1,), jnp.int32(0), lanes=4)
    np.testing.assert_array_equal(made.pack(0, [np.arange(1, 7, dtype=np.int32)])[1, 0], [5, 6, 6, 6])


def test_a_step_keeps_the_state_that_later_steps_need():
    """b is needed for a, and c for b; d and e are needed for nothing."""

    def step(state, action):
        a, b, c, d, e = state
        return jnp.stack([a + b, b + c, c * 2, e, d + a]), a + action

    program, _, _ = trace(step, jnp.zeros(5), X)
    smaller, kept = program.remove_dead_state()
    assert kept == [0, 1, 2]
    assert smaller.count_operations() == 4


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELITES_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(compiled, "compile_ir", lambda ir: made.append(ir) or compile_ir(ir))
    return tmp_path / "native", made


compile_ir = compiled.compile_ir


def flip_middle(content):
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]


def test_code_is_made_once(cache):
    folder, made = cache
    constant = np.float32([1, 2])

    def build(scale=3.0, lanes=4):
        return compile_function(lambda x: (jax.nn.relu(x) * jnp.asarray(constant) * scale,), X, lanes=lanes)

    expected = build()(np.float32([1, -1]))[0][0]
    np.testing.assert_array_equal(expected, [[3, 6], [0, 0]])
    np.testing.assert_array_equal(build()(np.float32([1, -1]))[0][0], expected)
    assert len(made) == 1
    build(scale=4.0)
    build(lanes=8)
    constant[0] = 5  # hidden in the function
    np.testing.assert_array_equal(build()(np.float32([1, -1]))[0][0], [[15, 6], [0, 0]])
    assert len(made) == 4
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-7], lambda content: b"", flip_middle],
)
def test_damaged_code_is_made_again(cache, damage):
    folder, made = cache

    def build():
        return compile_function(lambda x: (x + 1,), X)

    build()
    file = next(folder.iterdir())
    file.write_bytes(damage(file.read_bytes()))
    assert build()(np.float32([1]))[0][0] == 2
    build()
    assert len(made) == 2


def test_the_key_has_the_parameters_of_operations(cache):
    _, made = cache
    for axis in (0, 1):
        x = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
        ours = compile_function(lambda x, axis=axis: (lax.cumsum(x, axis),), jnp.zeros((2, 2)))(x)[0][0]
        np.testing.assert_array_equal(ours, np.cumsum(x, axis + 1))
    assert len(made) == 2


def test_the_key_is_the_same_in_every_process():
    """No part of it is the address of an object, for any operation that is known."""
    x, n, seed = jnp.zeros(3), jnp.zeros(3, int), jnp.uint32(0)
    described = b"\n".join(compiled._serialise_jaxpr(jax.make_jaxpr(every_operation)(x, n, seed)))
    assert b"threefry_split" in described
    assert b" at 0x" not in described


def test_lanes_must_be_positive():
    with pytest.raises(ElitesError, match=r"^lanes is 0; it must be at least 1$"):
        compile_function(lambda x: (x,), X, lanes=0)


def test_products_are_rounded_together_with_their_sums():
    def function(x, y, z):
        shared = y * z
        return x * y + z, x * x - z, z - y * y, shared + 1, shared

    program, _, _ = trace(function, X, X, X)
    assert (
        program.count_operations() - program.fuse_products().count_operations() == 3
    )  # the shared one stays
    x, y, z = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    z[:10] = -(x * y)[:10]  # what is left is the rounding of the product
    fused = compile_function(function, X, X, X, fused=True)(x, y, z)
    a, b, c = (array.astype(np.longdouble) for array in (x, y, z))
    expected = [a * b + c, a * a - c, c - b * b]
    for ours, theirs in zip(fused, expected, strict=False):
        np.testing.assert_array_equal(ours[0], theirs.astype(np.float32))
    assert (fused[0][0][:10] != 0).any()
    plain = compile_function(function, X, X, X)(x, y, z)
    assert not plain[0][0][:10].any()
    np.testing.assert_array_equal(fused[3][0], plain[3][0])


def test_code_with_a_known_name_is_found_without_tracing(cache):
    examples = []

    def example():
        examples.append(X)
        return X

    def compiled_as(name, **options):
        return compile_function(lambda x: (x * 2 + 1,), example, cache_name=name, **options)

    made = compiled_as("double")
    again = compiled_as("double")
    assert len(examples) == 1
    values = np.float32([1, 2, 3])
    assert made(values)[0][0].tolist() == again(values)[0][0].tolist() == [3, 5, 7]
    compiled_as("double", lanes=4)
    compiled_as("another")
    assert len(examples) == 3


def test_a_damaged_name_is_made_again(cache):
    compile_function(lambda x: (x * 2,), X, cache_name="twice")
    (file,) = cache[0].glob("*.key")
    for content in (b"", file.read_bytes()[:-1], bytes(100)):
        file.write_bytes(content)
        [[doubled]] = compile_function(lambda x: (x * 2,), X, cache_name="twice")(np.float32([1, 2, 3]))
        assert doubled.tolist() == [2, 4, 6]


def test_the_work_of_a_call_counts_each_iteration():
    def function(x):
        def inner(_, y):
            return y * 1.5 + x

        return (jax.lax.fori_loop(0, 5000, inner, x * x),)

    program = trace(function, X)[0]
    assert program.count_operations() == 3
    assert program.count_work() == 1 + 5000 * 2
