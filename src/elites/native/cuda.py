"""Small pure JAX functions as kernels of NVIDIA's GPUs: one thread per robot, called by JAX's programs.

A function's program becomes PTX text, which LLVM makes and the driver compiles: no toolkit is needed. XLA
calls a handler in machine code, which launches the kernel on XLA's stream.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import numpy as np

from elites.errors import ElitesError
from elites.native.compiled import LOCK, Code, LoadedCode, compile_ir, detect_host, load_or_make_code
from elites.native.emit import ENTRY, MAX_THREADS, emit_kernel
from elites.native.program import Slot, fingerprint

TRIPLE = "nvptx64-nvidia-cuda"
THREADS = 32  # of a block: few robots are spread over many processors
HANDLER = "elites_handler"
_TARGETS = (70, 75, 80, 86, 89, 90)  # compute capabilities that PTX is made for; it runs on later GPUs too
_FASTER = {  # instructions that do not round to the nearest number
    "(add|sub|mul)": r"\1.f32", "div": "div.full.f32", "sqrt": "sqrt.approx.f32", "rcp": "rcp.approx.f32"
}  # fmt: skip
_LOG_BYTES = 16_384
# Constants of the driver's interface
_REGISTERS, _LOCAL_BYTES = 4, 3  # CUfunction_attribute
_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES, _VERBOSE = 3, 4, 5, 6, 12  # CUjit_option
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute: compute capability


class CudaError(ElitesError):
    """An error of the driver."""


class Function(NamedTuple):
    """A kernel that the driver has loaded."""

    handle: int
    registers: int
    local_bytes: int  # of a thread, for what registers cannot hold
    log: str


class Driver(Protocol):
    """Loads and launches kernels."""

    platform: str  # XLA's name
    has_streams: bool
    device: str  # its name, the same in every process
    target: str  # sm_90
    context: int
    push: int  # addresses of cuCtxPushCurrent, cuCtxPopCurrent and cuLaunchKernel
    pop: int
    launch: int

    def compile(self, ir: str, exact: bool) -> bytes:
        """Code of a kernel in LLVM IR, to be kept on disk. `exact` is as in `compile_ptx`."""

    def load(self, code: bytes, pointers: int) -> Function:
        """The kernel of such code, which takes this number of pointers and a count."""


class CudaDriver:
    """NVIDIA's driver, in the context that JAX uses on a device."""

    platform = "CUDA"
    has_streams = True

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"NVIDIA's driver is not installed: {error}") from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.device = f"gpu{ordinal}"
        self._do("cuInit", ctypes.c_uint(0))
        self._do("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        capability = [self._number("cuDeviceGetAttribute", kind, device) for kind in (_MAJOR, _MINOR)]
        self.target = choose_target(*capability)
        self.version = self._number("cuDriverGetVersion")
        self.context = int(context.value or 0)
        self.push, self.pop, self.launch = (
            int(ctypes.cast(self._library[name], ctypes.c_void_p).value or 0)
            for name in ("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernel")
        )

    def compile(self, ir: str, exact: bool) -> bytes:
        """PTX."""
        return compile_ptx(ir, self.target, exact=exact).encode()

    def load(self, code: bytes, pointers: int) -> Function:
        """See `Driver.load`. An error contains the messages of the driver's compiler.

        The kernel is launched once without robots, because the driver may then allocate memory for it. That
        is not allowed later, while XLA records a command buffer.
        """
        module, function, before = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        info, error = (ctypes.create_string_buffer(_LOG_BYTES) for _ in range(2))
        options = {
            _INFO_LOG: ctypes.addressof(info),
            _INFO_BYTES: _LOG_BYTES,
            _ERROR_LOG: ctypes.addressof(error),
            _ERROR_BYTES: _LOG_BYTES,
            _VERBOSE: 1,
        }
        self._do("cuCtxPushCurrent_v2", ctypes.c_void_p(self.context))
        try:
            self._do(
                "cuModuleLoadDataEx",
                ctypes.byref(module),
                ctypes.c_char_p(code),
                ctypes.c_uint(len(options)),
                (ctypes.c_int * len(options))(*options),
                (ctypes.c_void_p * len(options))(*options.values()),
                log=error,
            )
            self._do("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(ENTRY.encode()))
            registers, local = (
                self._number("cuFuncGetAttribute", kind, function) for kind in (_REGISTERS, _LOCAL_BYTES)
            )
            nothing = ctypes.c_uint64(0)
            values = (ctypes.c_void_p * (pointers + 1))(*[ctypes.addressof(nothing)] * (pointers + 1))
            sizes = [ctypes.c_uint(size) for size in (1, 1, 1, THREADS, 1, 1, 0)]
            self._do("cuLaunchKernel", function, *sizes, None, values, None)
            self._do("cuCtxSynchronize")
        finally:
            self._do("cuCtxPopCurrent_v2", ctypes.byref(before))
        return Function(int(function.value or 0), registers, local, info.value.decode(errors="replace"))

    def _number(self, name: str, *arguments: Any) -> int:
        """The value that a function writes to its first argument."""
        result = ctypes.c_int()
        self._do(name, ctypes.byref(result), *arguments)
        return result.value

    def _do(self, name: str, *arguments: Any, log: Any = None) -> None:
        code = self._library[name](*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._library["cuGetErrorName"](ctypes.c_int(code), ctypes.byref(text))
        message = (text.value or b"an unknown error").decode()
        more = "" if log is None else f"\n{log.value.decode(errors='replace')}"
        raise CudaError(f"{name} failed: {message} ({code}){more}")


@functools.cache
def find_jax_driver() -> CudaDriver:
    """The driver of JAX's first GPU."""
    try:
        device = jax.local_devices(backend="gpu")[0]  # JAX makes its context first
    except RuntimeError as error:
        raise CudaError(f"JAX has no GPU: {error}") from None
    return CudaDriver(int(getattr(device, "local_hardware_id", None) or 0))


def choose_target(major: int, minor: int) -> str:
    """LLVM's name of the GPUs that PTX is made for, which runs on those of this compute capability."""
    fit = [number for number in _TARGETS if number <= 10 * major + minor]
    if not fit:
        raise CudaError(f"a GPU of compute capability {major}.{minor}; 7.0 or later is needed")
    return f"sm_{fit[-1]}"


def compile_ptx(ir: str, target: str, *, exact: bool = False) -> str:
    """PTX of a kernel in LLVM IR.

    If it is `exact`, every operation rounds as on a CPU. Otherwise the driver may fuse a product with a sum,
    which rounds once, and quotients and roots may be wrong by two units in the last place: that is twice as
    fast, mostly because a kernel of fewer instructions stays in the GPU's cache.
    """
    with LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=target, opt=2)
        layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "{TRIPLE}"\n'
        module = llvm.parse_assembly(layout + ir)
        module.verify()
        text = str(machine.emit_assembly(module))
    if not exact:
        for instruction, faster in _FASTER.items():
            text = re.sub(rf"\b{instruction}\.rn\.f32\b", faster, text)
    return text


# XLA's call frame, and what it points to, in words of 8 bytes: `xla/ffi/api/c_api.h`
_EXTENSION, _API, _CONTEXT, _ARGUMENTS, _RESULTS = 1, 2, 3, 9, 14  # XLA_FFI_CallFrame
_METADATA = 3  # XLA_FFI_Metadata_Extension
_CREATE_ERROR, _GET_STREAM = 6, 10  # XLA_FFI_Api
_DATA, _SIZES = 3, 5  # XLA_FFI_Buffer
_VERSION, _TRAITS = 24, 32  # bytes: XLA_FFI_Metadata
_MIN_API_VERSION, _FIT_FOR_COMMAND_BUFFERS, _INTERNAL = (0, 1), 1, 13
_STREAM_BYTES, _ERROR_BYTES_OF_ARGUMENTS = 32, 28  # XLA_FFI_Stream_Get_Args, XLA_FFI_Error_Create_Args


def emit_handler(driver: Driver, function: int, inputs: int, outputs: int, threads: int) -> str:
    """LLVM IR of a handler that XLA calls with a call frame: it launches a kernel for all robots.

    The first argument is the state, `[numbers, robots]`.
    """
    pointers = inputs + outputs
    message = b"launching a kernel failed with the driver's error 000\0"
    text = "".join(f"\\{byte:02x}" for byte in message)
    lines = [
        f'@message = internal global [{len(message)} x i8] c"{text}"',
        f"define ptr @{HANDLER}(ptr %frame) {{",
        "start:",
        *_emit_word("extension", "frame", _EXTENSION),
        "  %asked = icmp ne ptr %extension, null",  # there is no other extension
        "  br i1 %asked, label %announce, label %run",
        "announce:",  # at the handler's registration
        *_emit_word("metadata", "extension", _METADATA),
        *(
            line
            for k, (offset, value) in enumerate(
                (
                    (_VERSION, _MIN_API_VERSION[0]),
                    (_VERSION + 4, _MIN_API_VERSION[1]),
                    (_TRAITS, _FIT_FOR_COMMAND_BUFFERS),
                )
            )
            for line in (
                f"  %announced{k} = getelementptr i8, ptr %metadata, i64 {offset}",
                f"  store i32 {value}, ptr %announced{k}",
            )
        ),
        "  ret ptr null",
        "run:",
        f"  %values = alloca [{pointers + 1} x i64]",
        f"  %parameters = alloca [{pointers + 1} x ptr]",
        "  %before = alloca ptr",
        "  %request = alloca [4 x i64]",
        *_emit_word("api", "frame", _API),
        *_emit_word("context", "frame", _CONTEXT),
        *_emit_word("arguments", "frame", _ARGUMENTS),
        *_emit_word("results", "frame", _RESULTS),
    ]
    for k in range(pointers):
        source, position = ("arguments", k) if k < inputs else ("results", k - inputs)
        lines += [
            *_emit_word(f"buffer{k}", source, position),
            *_emit_word(f"data{k}", f"buffer{k}", _DATA),
            f"  %number{k} = ptrtoint ptr %data{k} to i64",
        ]
    lines += [
        *_emit_word("sizes", "buffer0", _SIZES),
        "  %size = getelementptr i64, ptr %sizes, i64 1",
        f"  %number{pointers} = load i64, ptr %size",
    ]
    for k in range(pointers + 1):
        lines += [
            f"  %value{k} = getelementptr i64, ptr %values, i64 {k}",
            f"  store i64 %number{k}, ptr %value{k}",
            f"  %parameter{k} = getelementptr ptr, ptr %parameters, i64 {k}",
            f"  store ptr %value{k}, ptr %parameter{k}",
        ]
    lines += [
        f"  %none = icmp eq i64 %number{pointers}, 0",
        "  br i1 %none, label %done, label %some",
        "some:",
        *(_emit_stream() if driver.has_streams else ["  br label %launch"]),
        "launch:",
        f"  %stream = phi ptr {'[%got, %has_stream]' if driver.has_streams else '[null, %some]'}",
        f"  %more = add i64 %number{pointers}, {threads - 1}",
        f"  %blocks.wide = udiv i64 %more, {threads}",
        "  %blocks = trunc i64 %blocks.wide to i32",
        f"  %pushed = call i32 {_at(driver.push)}(ptr {_at(driver.context)})",
        f"  %launched = call i32 {_at(driver.launch)}(ptr {_at(function)}, i32 %blocks, i32 1, i32 1, "
        f"i32 {threads}, i32 1, i32 1, i32 0, ptr %stream, ptr %parameters, ptr null)",
        f"  %popped = call i32 {_at(driver.pop)}(ptr %before)",
        "  %first = icmp ne i32 %pushed, 0",
        "  %code = select i1 %first, i32 %pushed, i32 %launched",
        "  %well = icmp eq i32 %code, 0",
        "  br i1 %well, label %done, label %failed",
        "done:",
        "  ret ptr null",
        "failed:",
        *_emit_digits(len(message) - 2),
        *_emit_request(_ERROR_BYTES_OF_ARGUMENTS, "@message", "error"),
        "  %kind = getelementptr i64, ptr %request, i64 3",
        f"  store i64 {_INTERNAL}, ptr %kind",
        *_emit_word("create", "api", _CREATE_ERROR),
        "  %error = call ptr %create(ptr %request)",
        "  ret ptr %error",
        "}",
    ]
    return "\n".join(lines)


def _emit_word(name: str, pointer: str, position: int) -> list[str]:
    """A word of a structure, as a pointer."""
    return [
        f"  %{name}.at = getelementptr i64, ptr %{pointer}, i64 {position}",
        f"  %{name} = load ptr, ptr %{name}.at",
    ]


def _at(address: int) -> str:
    return f"inttoptr (i64 {address} to ptr)"


def _emit_request(size: int, what: str, name: str) -> list[str]:
    """The arguments of a function of XLA's: their size, no extension, and a pointer."""
    return [
        f"  store i64 {size}, ptr %request",
        f"  %{name}.extension = getelementptr i64, ptr %request, i64 1",
        f"  store i64 0, ptr %{name}.extension",
        f"  %{name}.what = getelementptr i64, ptr %request, i64 2",
        f"  store ptr {what}, ptr %{name}.what",
    ]


def _emit_stream() -> list[str]:
    """Requests the stream from XLA. If XLA returns an error, the handler returns it."""
    return [
        *_emit_request(_STREAM_BYTES, "%context", "asking"),
        "  %answer = getelementptr i64, ptr %request, i64 3",
        "  store i64 0, ptr %answer",
        *_emit_word("get", "api", _GET_STREAM),
        "  %refused = call ptr %get(ptr %request)",
        "  %got = load ptr, ptr %answer",
        "  %is_refused = icmp ne ptr %refused, null",
        "  br i1 %is_refused, label %no_stream, label %has_stream",
        "no_stream:",
        "  ret ptr %refused",
        "has_stream:",
        "  br label %launch",
    ]


def _emit_digits(last: int) -> list[str]:
    """Writes the number of the driver's error into the message, with its last digit at index `last`."""
    lines, rest = [], "%code"
    for k in range(3):
        lines += [
            f"  %digit{k} = urem i32 {rest}, 10",
            f"  %rest{k} = udiv i32 {rest}, 10",
            f"  %letter{k}.wide = add i32 %digit{k}, {ord('0')}",
            f"  %letter{k} = trunc i32 %letter{k}.wide to i8",
            f"  %letter{k}.at = getelementptr i8, ptr @message, i64 {last - k}",
            f"  store i8 %letter{k}, ptr %letter{k}.at",
        ]
        rest = f"%rest{k}"
    return lines


class Kernel:
    """A step as an operation of JAX's programs on a GPU, for a batch of robots.

    `stored_positions` are the positions in the state that are stored; None: all of them.
    """

    def __init__(self, code_record: Code, driver: Driver, threads: int) -> None:
        self.arguments = code_record.arguments
        self.results = code_record.results
        self.stored_positions = code_record.stored_positions
        self.operations = code_record.operations
        inputs, outputs = len(code_record.arguments), len(code_record.results)
        self.function = driver.load(code_record.code, inputs + outputs)
        parts = [code_record.code, repr((threads, driver.target, driver.device)).encode()]
        self.name = f"elites_{fingerprint(parts)}"
        ir = emit_handler(driver, self.function.handle, inputs, outputs, threads)
        self._handler = LoadedCode(compile_ir(ir), HANDLER)
        capsule = jax.ffi.pycapsule(ctypes.c_void_p(self._handler.address))
        jax.ffi.register_ffi_target(self.name, capsule, platform=driver.platform)

    def __call__(self, state: jax.Array, *rows: jax.Array) -> list[jax.Array]:
        """The next state, `[numbers, n]` words as `pack` makes them, and the other results, `[n, numbers]`.

        The other arguments are `[n, numbers]` too.
        """
        count = state.shape[1]
        shapes = [
            jax.ShapeDtypeStruct(state.shape, state.dtype),
            *(
                jax.ShapeDtypeStruct((count, sum(slot.size for slot in slots)), _dtype(slots))
                for slots in self.results[1:]
            ),
        ]
        call = jax.ffi.ffi_call(self.name, shapes, input_output_aliases={0: 0})
        return list(call(state, *rows))

    def pack(self, state: Any) -> jax.Array:
        """The arrays `[n, …]` of a state as `[numbers, n]` words."""
        leaves = jax.tree.leaves(state)
        words = jnp.concatenate([_words(leaf).reshape(len(leaf), -1) for leaf in leaves], axis=1)
        return (words if self.stored_positions is None else words[:, np.array(self.stored_positions, int)]).T

    def unpack(self, words: jax.Array) -> list[jax.Array]:
        """The arrays `[n, …]` of a whole state."""
        assert self.stored_positions is None
        ends = np.cumsum([slot.size for slot in self.results[0]])[:-1]
        return [
            _numbers(part.T, slot.dtype).reshape(-1, *slot.shape)
            for part, slot in zip(jnp.split(words, ends, axis=0), self.results[0], strict=True)
        ]


_KERNELS: dict[Any, Kernel] = {}  # XLA keeps their handlers


def compile_kernel(
    function: Callable[..., Any],
    *examples: Any,
    driver: Driver,
    whole: bool = False,
    threads: int = THREADS,
    exact: bool = False,
) -> Kernel:
    """A step, a function of pytrees of arrays, as a kernel. Its first argument and first result are a state.

    Only the numbers of the state that later steps need are stored, or with `whole` all of them. The other
    arguments and results each have arrays of one type. `exact` is as in `compile_ptx`.
    Raises UnknownPrimitiveError, with the operation's name, if an operation is not supported.
    """
    assert 1 <= threads <= MAX_THREADS
    code_record = load_or_make_code(
        function,
        *examples,
        state=not whole,
        fused=True,
        target=(driver.platform, driver.target, exact),
        make=lambda program, short: driver.compile(emit_kernel(program, short), exact),
    )
    detect_host()  # LLVM for the handler
    key = fingerprint([code_record.code]), driver.platform, driver.context, threads
    with LOCK:
        if key not in _KERNELS:
            _KERNELS[key] = Kernel(code_record, driver, threads)
        return _KERNELS[key]


def _dtype(slots: Sequence[Slot]) -> Any:
    """The type of a group's words."""
    kinds = {
        np.dtype(slot.dtype) if np.dtype(slot.dtype).itemsize == 4 else np.dtype("int32") for slot in slots
    }
    assert len(kinds) <= 1, kinds
    return kinds.pop() if kinds else np.dtype("float32")


def _words(array: jax.Array) -> jax.Array:
    if array.dtype.itemsize < 4:
        array = array.astype(jnp.int32)
    return jax.lax.bitcast_convert_type(array, jnp.uint32)


def _numbers(words: jax.Array, dtype: str) -> jax.Array:
    if np.dtype(dtype).itemsize < 4:
        return words.astype(dtype)
    return jax.lax.bitcast_convert_type(words, jnp.dtype(dtype))
