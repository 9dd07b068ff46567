"""Code for other processors than this one: narrower vectors, and another instruction set."""

import ctypes

import jax
import llvmlite.binding as llvm
import numpy as np
import pytest

from elites.native import compile_function, compiled, perceptron
from elites.native.compiled import Host, allocate_aligned, detect_host
from elites.native.emit import emit
from elites.native.perceptron import Perceptron
from elites.native.trace import trace
from tests.native.test_mutations import examples, pendulum
from tests.native.test_tasks import differ

SIZES = (5, 40, 21, 3)
WIDTHS = {"AVX2": ("haswell", "avx2", 8, True), "SSE": ("nehalem", "sse4.2", 4, False)}


@pytest.fixture(params=WIDTHS)
def narrow(request, monkeypatch):
    """A processor without AVX-512, and perhaps without AVX and fused products."""
    name, feature, lanes, fuses = WIDTHS[request.param]
    if not llvm.get_host_cpu_features().get(feature):
        pytest.skip(f"this processor has no {feature}")
    other = Host(name, "", lanes, fuses)
    detect_host()  # initialises LLVM
    for module in (compiled, perceptron):
        monkeypatch.setattr(module, "detect_host", lambda: other)
    return other


def step_results():
    step, arguments, expected = pendulum()
    made = compile_function(step, *examples(arguments), fused=True)
    return made, made(*arguments), expected


def outputs(width):
    """Of a perceptron with weights that do not depend on the width of vectors."""
    made, random = Perceptron(SIZES, width), np.random.default_rng(0)
    weights = allocate_aligned((made.numbers,)).view(np.float32)
    inputs, results = (allocate_aligned((size, width)).view(np.float32) for size in (SIZES[0], SIZES[-1]))
    inputs[:] = random.normal(size=(SIZES[0], 1))
    for layer, (at, biases) in enumerate(made.layout[:-1]):
        rows, columns = SIZES[layer : layer + 2]
        matrix, last = random.normal(size=(rows, columns)), layer == len(SIZES) - 2
        matrix, across = (matrix.T, made.padded[layer]) if last else (matrix, made.padded[layer + 1])
        for k, row in enumerate(matrix):
            weights[at + k * across :][: len(row)] = row
        weights[biases:][:columns] = random.normal(size=columns)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(made.address)
    for lane in range(width):
        call(weights.ctypes.data, inputs.ctypes.data, results.ctypes.data, lane, 0)
    return results.T


def test_a_step_has_the_bits_of_wider_vectors(narrow, monkeypatch):
    """Rounding depends on fused products, not on the width."""
    made, ours, expected = step_results()
    assert made.lanes == narrow.lanes
    assert not differ(ours, expected, 1e-5).any()
    monkeypatch.undo()
    _, wide, _ = step_results()
    if narrow.fuses == detect_host().fuses:
        for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(wide), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_a_perceptron_has_the_numbers_of_wider_vectors(narrow, monkeypatch):
    """The sums of the last layer have another order."""
    ours = outputs(narrow.lanes)
    assert (ours == ours[0]).all()
    monkeypatch.undo()
    np.testing.assert_allclose(ours[0], outputs(detect_host().lanes)[0], rtol=1e-5, atol=1e-5)


def test_code_for_arm(monkeypatch):
    """LLVM makes object code of a step and of a perceptron; it is not run here."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple("aarch64-linux-gnu")
    except RuntimeError as error:
        pytest.skip(f"LLVM is without this processor: {error}")
    machine = target.create_target_machine(cpu="neoverse-n1", opt=2, codemodel="jitdefault")
    monkeypatch.setattr(perceptron, "detect_host", lambda: Host("neoverse-n1", "", 4, True))
    monkeypatch.setattr(perceptron, "compile_ir", lambda ir: ir.encode())
    monkeypatch.setattr(
        perceptron, "LoadedCode", lambda code, name: type("Text", (), {"address": code.decode()})
    )
    step, arguments, _ = pendulum()
    program = trace(step, *examples(arguments))[0].fuse_products()
    for ir in (emit(program, 4), Perceptron(SIZES, 4).address):
        module = llvm.parse_assembly(ir)
        module.triple = "aarch64-linux-gnu"
        module.verify()
        assert machine.emit_object(module)[:4] == b"\x7fELF"
        assert "fmla" in machine.emit_assembly(module)
