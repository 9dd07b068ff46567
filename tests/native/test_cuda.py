"""Kernels for GPUs. There is none here: PTX is read, and the same LLVM IR runs on the CPU in its place."""

import ctypes
import re
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import Execution, RunConfig, correct, make_task, run, tasks
from elites.evaluation import kernels
from elites.evaluation.device import rollout
from elites.evaluation.kernels import make_kernel, make_kernel_functions
from elites.native import compile_function
from elites.native.compiled import LoadedCode, compile_ir, detect_host
from elites.native.cuda import (
    HANDLER,
    CudaError,
    Function,
    choose_target,
    compile_kernel,
    compile_ptx,
    emit_handler,
)
from elites.native.emit import ENTRY, emit_kernel
from elites.native.trace import trace
from elites.policies import Policy
from tests.native.test_tasks import ROBOTS, actions, start, stepping
from tests.toy import POINT, PointTask

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3
)  # cuLaunchKernel
CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)  # cuCtxPushCurrent, cuCtxPopCurrent
PLACE = ("tid", "ntid", "ctaid")


class CpuDriver:
    """Runs kernels on the CPU, one thread after the other."""

    platform = "cpu"
    has_streams = False
    target = "cpu"

    def __init__(self):
        self.context = id(self)  # kernels are shared by context
        self.device = f"driver{self.context}"
        self.place = (ctypes.c_uint32 * len(PLACE))()
        self.functions = {}
        self.launches = []
        self.error = 0
        self.keep = LAUNCH(self.run), CONTEXT(lambda context: 0)
        self.launch, self.push = (ctypes.cast(one, ctypes.c_void_p).value for one in self.keep)
        self.pop = self.push

    def compile(self, ir, exact):
        ir = ir.replace("ptx_kernel ", "").replace(" addrspace(1)", "")
        for k, name in enumerate(PLACE):
            of = f"@llvm.nvvm.read.ptx.sreg.{name}.x"
            at = f"inttoptr (i64 {ctypes.addressof(self.place) + 4 * k} to ptr)"
            read = f"define i32 @{name}() {{\n  %read = load volatile i32, ptr {at}\n  ret i32 %read\n}}"
            ir = ir.replace(f"declare i32 {of}()", read).replace(of, f"@{name}")
        return compile_ir(ir)

    def load(self, code, pointers):
        made = LoadedCode(code, ENTRY)
        self.functions[made.address] = made, pointers
        return Function(made.address, 0, 0, "")

    def run(self, function, grid, _1, _2, block, _3, _4, shared, stream, parameters, extra):
        self.launches.append((grid, block, stream))
        if self.error:
            return self.error
        _, pointers = self.functions[function]
        values = ctypes.cast(parameters, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)))
        arguments = [values[k][0] for k in range(pointers + 1)]
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))(function)
        for at in range(grid * block):
            self.place[:] = at % block, block, at // block
            call(*arguments)
        return 0


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    """Code for the CPU has addresses of this process."""
    monkeypatch.setenv("ELITES_CACHE", str(tmp_path))


def check_ptx(text):
    assert f".visible .entry {ENTRY}(" in text
    assert ".extern" not in text
    assert not re.search(r"\bcall\b", text)
    # No product may be fused with a sum, no division be approximate, no subnormal number be lost.
    assert not re.search(r"\b(add|sub|mul)\.f(32|64)\b", text)
    assert not re.search(r"\.(approx|full|ftz)\b", text)


@pytest.mark.parametrize("name", ROBOTS)
def test_ptx_of_robots(name):
    task = make_task(name)
    _, example = start(task, 1)
    program, _ = trace(stepping(task), example, jnp.zeros(task.action_size))[0].remove_dead_state()
    assert not any(
        program.graph.nodes[at].op == "fma" and program.graph.nodes[at].dtype == "float32"
        for at in program.find_live_nodes()
    )
    text = compile_ptx(emit_kernel(program), "sm_90", exact=True)
    check_ptx(text)
    assert "fma.rn.f32" not in text
    assert ".maxntid" in text


@pytest.mark.parametrize("target", ["sm_70", "sm_80", "sm_90"])
def test_ptx_of_all_functions(target):
    """None of them needs a library."""

    def function(x, y, i):
        made = [
            getattr(jnp, name)(x) for name in ("sin", "cos", "tan", "exp", "log", "log1p", "expm1", "cbrt")
        ]
        made += [jnp.tanh(x), jnp.sinh(x), jnp.cosh(x), jax.lax.rsqrt(x), jax.lax.erf_inv(x), jnp.power(x, y)]
        made += [jnp.arctan2(x, y), jnp.arccos(x), jnp.floor(x), jnp.ceil(x), jnp.round(x), jax.lax.round(x)]
        made += [x % y, jnp.maximum(x, y), jnp.minimum(x, y), x / y, x.astype(jnp.int8).astype(jnp.float32)]
        turns = jax.lax.while_loop(lambda i: i < 7, lambda i: i * 2, i)
        loop = jax.lax.fori_loop(0, 5000, lambda k, z: z * y + k, x)
        return x, jnp.stack([*made, loop]), jnp.stack([turns // 3, turns % 5, abs(i), i >> 2])

    zero = jnp.float32(0)
    program, _, _ = trace(function, zero, zero, jnp.int32(0))
    check_ptx(compile_ptx(emit_kernel(program), target, exact=True))


def test_a_kernel_may_be_approximate():
    def function(x, y):
        return (jnp.sqrt(x * y + 1) / y + 1 / x,)

    program, _, _ = trace(function, jnp.float32(0), jnp.float32(0))
    exact, faster = (compile_ptx(emit_kernel(program), "sm_90", exact=exact) for exact in (True, False))
    for instruction in ("mul.rn.f32", "add.rn.f32", "div.rn.f32", "sqrt.rn.f32", "rcp.rn.f32"):
        assert instruction in exact
        assert instruction not in faster
    for instruction in ("mul.f32", "add.f32", "div.full.f32", "sqrt.approx.f32", "rcp.approx.f32"):
        assert instruction in faster


def test_targets():
    assert [choose_target(*capability) for capability in [(7, 0), (8, 7), (9, 0), (10, 0)]] == [
        "sm_70",
        "sm_86",
        "sm_90",
        "sm_90",
    ]
    with pytest.raises(CudaError, match=r"6\.1; 7\.0 or later"):
        choose_target(6, 1)


@pytest.mark.parametrize("name", ROBOTS)
def test_one_lane_and_a_kernel_give_the_numbers_of_vectors(name):
    task = make_task(name)
    states, example = start(task, 40)
    action = actions(task, 1, 40)[0]
    zeros = jnp.zeros(task.action_size)
    vectors, lane = (
        compile_function(stepping(task), example, zeros, lanes=lanes, fused=True)
        for lanes in (detect_host().lanes, 1)
    )
    expected = vectors(states, action)
    for ours, theirs in zip(lane(states, action), expected, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)
    kernel = make_kernel(task, CpuDriver())
    _, observation, reward, terminated, descriptor = jax.jit(kernel)(kernel.pack(states), action)
    np.testing.assert_array_equal(observation, expected[1][0])
    np.testing.assert_array_equal(reward[:, 0], expected[1][1])
    np.testing.assert_array_equal(terminated[:, 0] != 0, expected[2][0])
    np.testing.assert_array_equal(descriptor, expected[2][1])


@dataclass(frozen=True, kw_only=True)
class Wanderer(PointTask):
    """Its state has a random key, a whole number and a flag; its descriptor is where it ends."""

    def reset(self, seed):
        position, observation = super().reset(seed)
        return (position, jax.random.key(seed), jnp.int8(-3), position[0] > 0), observation

    def step(self, state, action):
        position, key, count, right = state
        key, now = jax.random.split(key)
        after = super().step(position + 0.01 * jax.random.normal(now, (2,)), action)
        return after._replace(state=(after.state, key, count + 1, ~right))

    def episode_descriptor(self, mean, state):
        position, _, count, right = state
        return jnp.stack([position[0] + count, jnp.where(right, mean[1], -1)])


WANDERER = Wanderer(**{field.name: getattr(POINT, field.name) for field in fields(POINT)})


@pytest.mark.parametrize("task", [POINT, WANDERER], ids=["mean", "end"])
def test_episodes_of_a_kernel(task):
    """Inside a loop of a program, with robots that do not fill the last block."""
    driver = CpuDriver()
    functions = make_kernel_functions(task, driver, threads=4)
    policy = Policy.for_task(task, (8,))
    parameters = jax.vmap(policy.init)(jax.random.split(jax.random.key(0), 5))
    seeds = jnp.arange(10, dtype=jnp.uint32).reshape(5, 2)

    def run(functions):
        return jax.jit(
            lambda parameters: rollout(task, policy, parameters, seeds, transitions=True, functions=functions)
        )(parameters)

    ours, theirs = run(functions), run(None)
    assert set(driver.launches) == {(3, 4, None)}
    assert len(driver.launches) == task.episode_length
    assert len(np.unique(theirs.ending)) == 2
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_a_run_with_a_kernel(tmp_path, monkeypatch):
    driver, lines = CpuDriver(), []
    monkeypatch.setattr(kernels, "find_jax_driver", lambda: driver)
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    config = RunConfig(
        algorithm="map-elites",
        task="point",
        physics="cuda",
        evaluations=40,
        hyper_parameters={"initial": 20, "batch": 20, "hidden": (8,)},
    )
    assert run(config, tmp_path / "run", execution=Execution(log=lines.append)).finished
    assert lines[0] == "physics: a CUDA kernel"
    launched = len(driver.launches)
    assert launched == 2 * POINT.episode_length
    corrected = correct(tmp_path / "run", replications=2, log=lines.append)
    assert corrected.about["physics"] == "cuda"
    assert len(driver.launches) > launched
    again = correct(tmp_path / "run", replications=2, physics="xla", log=lines.append)
    assert again.about["physics"] is None
    np.testing.assert_allclose(again.fitness, corrected.fitness, rtol=1e-4, atol=1e-5)


def add(state, more):
    return state + more, state


def test_an_error_of_the_driver_becomes_an_error_of_xla():
    driver = CpuDriver()
    kernel = compile_kernel(add, jnp.float32(0), jnp.float32(0), driver=driver)
    state, more = jnp.zeros((1, 3), jnp.uint32), jnp.ones((3, 1))
    np.testing.assert_array_equal(jax.jit(kernel)(state, more)[1], jnp.zeros((3, 1)))
    driver.error = 701
    with pytest.raises(Exception, match="driver's error 701"):
        jax.block_until_ready(jax.jit(kernel)(state, more))


def test_without_robots_no_kernel_is_launched():
    driver = CpuDriver()
    kernel = compile_kernel(add, jnp.float32(0), jnp.float32(0), driver=driver)
    jax.block_until_ready(jax.jit(kernel)(jnp.zeros((1, 0), jnp.uint32), jnp.zeros((0, 1))))
    assert not driver.launches


def test_the_stream_is_requested_from_xla():
    """On a CPU it has none, and says so."""
    driver = CpuDriver()
    driver.has_streams = True
    kernel = compile_kernel(add, jnp.float32(0), jnp.float32(0), driver=driver)
    with pytest.raises(Exception, match="is not available"):
        jax.block_until_ready(jax.jit(kernel)(jnp.zeros((1, 3), jnp.uint32), jnp.ones((3, 1))))
    assert not driver.launches


WORDS = ctypes.c_int64


def words(*values):
    return (WORDS * len(values))(*values)


def test_the_kernel_is_launched_on_the_stream():
    """A call frame made by hand, as XLA's on a GPU."""
    driver = CpuDriver()
    driver.has_streams = True
    made = LoadedCode(
        driver.compile("define ptx_kernel void @elites_program() {\n  ret void\n}", False), ENTRY
    )
    driver.functions[made.address] = made, 2
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(WORDS))
    def get_stream(request):
        seen.append(request[:3])
        request[3] = 4321

    api = words(*[0] * 10, ctypes.cast(get_stream, ctypes.c_void_p).value)
    sizes = words(5, 100)
    buffers = [words(48, 0, 11, 1000 * k, 2, ctypes.addressof(sizes)) for k in (1, 2)]
    lists = [words(ctypes.addressof(buffer)) for buffer in buffers]
    frame = words(*[0] * 22)
    frame[2], frame[3] = ctypes.addressof(api), 77
    frame[9], frame[14] = (ctypes.addressof(one) for one in lists)
    handler = LoadedCode(compile_ir(emit_handler(driver, made.address, 1, 1, 64)), HANDLER)
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handler.address)
    assert call(ctypes.addressof(frame)) is None
    assert seen == [[32, 0, 77]]
    assert driver.launches == [(2, 64, 4321)]


def test_the_handler_declares_command_buffer_support():
    metadata, driver = words(*[-1] * 6), CpuDriver()
    extension = words(32, 1, 0, ctypes.addressof(metadata))
    frame = words(*[0] * 22)
    frame[1] = ctypes.addressof(extension)
    handler = LoadedCode(compile_ir(emit_handler(driver, 1, 1, 1, 32)), HANDLER)
    assert (
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handler.address)(ctypes.addressof(frame)) is None
    )
    assert list(np.frombuffer(metadata, np.int32)[6:9]) == [0, 1, 1]  # the version, and the trait
