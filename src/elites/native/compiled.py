"""Machine code of small JAX functions, made by LLVM and kept on disk."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import msgspec
import numpy as np

from elites.cache import make_cache_folder
from elites.errors import require
from elites.native.emit import ENTRY, emit
from elites.native.finite import shorten_program
from elites.native.program import Program, Slot, fingerprint
from elites.native.trace import from_jaxpr, trace_jaxpr

_OPTIONS_OF_TRACING = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_random_seed_offset",
    "jax_legacy_prng_key",
    "jax_enable_custom_prng",
)
LOCK = threading.RLock()  # LLVM's initialisation is not thread-safe
_ALIGNMENT = 64  # bytes


class Code(msgspec.Struct, frozen=True):
    """What the cache keeps: code, and what is needed to call it."""

    code: bytes
    arguments: list[list[Slot]]
    results: list[list[Slot]]
    stored_positions: list[int] | None
    operations: int
    work: int = 0


@dataclass(frozen=True)
class Host:
    """The processor that code is made for."""

    name: str
    features: str
    lanes: int
    """Numbers of 32 bits in a vector register."""
    fuses: bool
    """Whether it has fused multiply-adds."""


@functools.cache
def detect_host() -> Host:
    """This machine's processor."""
    with LOCK:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    available = llvm.get_host_cpu_features()
    lanes = 16 if available.get("avx512f") else 8 if available.get("avx") else 4
    # Otherwise LLVM would use half of a register on some processors.
    features = [available.flatten(), *(["-prefer-256-bit"] if lanes == 16 else [])]
    fuses = lanes == 16 or bool(available.get("fma")) or "aarch64" in llvm.get_default_triple()
    return Host(llvm.get_host_cpu_name(), ",".join(features), lanes, fuses)


def compile_ir(ir: str) -> bytes:
    """Object code for this machine."""
    with LOCK:
        module = llvm.parse_assembly(ir)
        machine = _make_target_machine()
        return bytes(machine.emit_object(module))


def _make_target_machine() -> Any:
    processor = detect_host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=processor.name,
        features=processor.features,
        opt=2,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",  # whole addresses: code and its constants may be far apart in memory
    )


class LoadedCode:
    """Object code in this process. `address` is that of its function."""

    def __init__(self, code: bytes, name: str) -> None:
        with LOCK:
            backing = llvm.parse_assembly("")
            self._engine = llvm.create_mcjit_compiler(backing, _make_target_machine())
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            self.address: int = self._engine.get_function_address(name)


class CompiledFunction:
    """A function that runs on blocks of lanes.

    `stored_positions`, if the first argument and the first result are a state, are the positions in it that
    are stored.
    """

    def __init__(self, code_record: Code, lanes: int) -> None:
        self.lanes = lanes
        self.arguments = code_record.arguments
        self.results = code_record.results
        self.stored_positions = code_record.stored_positions
        self.operations, self.work = code_record.operations, code_record.work
        self.code_bytes = len(code_record.code)
        self._code = LoadedCode(code_record.code, ENTRY)
        self.address = self._code.address
        pointers = [ctypes.c_void_p] * (len(code_record.arguments) + len(code_record.results))
        self._call = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(self.address)

    def size(self, slots: Sequence[Slot], state: bool) -> int:
        """The numbers of an argument or result in memory."""
        return (
            len(self.stored_positions)
            if state and self.stored_positions is not None
            else sum(slot.size for slot in slots)
        )

    def buffers(self, blocks: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Empty memory for the arguments and the results: 32-bit words `[blocks, numbers, lanes]`."""
        return (
            [
                allocate_aligned((blocks, self.size(slots, k == 0), self.lanes))
                for k, slots in enumerate(self.arguments)
            ],
            [
                allocate_aligned((blocks, self.size(slots, k == 0), self.lanes))
                for k, slots in enumerate(self.results)
            ],
        )

    def run(self, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Computes all blocks, without the GIL. The arrays are those of `buffers`.

        The array of a state may be both argument and result.
        """
        pointers = [array.ctypes.data for array in (*arguments, *results)]
        self._call(*pointers, len(arguments[0] if arguments else results[0]))

    def __call__(self, *arguments: Any) -> list[list[np.ndarray]]:
        """The arrays `[n, …]` of each result, for arguments whose arrays are `[n, …]`."""
        import jax

        leaves = [[np.asarray(leaf) for leaf in jax.tree.leaves(argument)] for argument in arguments]
        count = len(leaves[0][0])
        packed = [self.pack(position, arrays) for position, arrays in enumerate(leaves)]
        _, results = self.buffers(len(packed[0]))
        self.run(packed, results)
        return [self.unpack(position, result, count) for position, result in enumerate(results)]

    def pack(self, position: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """An argument's arrays `[n, …]` as the memory of blocks; the last row fills the last block."""
        count = len(arrays[0])
        rows = np.concatenate([_words(np.asarray(array)).reshape(count, -1) for array in arrays], axis=1)
        if position == 0 and self.stored_positions is not None:
            rows = rows[:, self.stored_positions]
        blocks = -(-count // self.lanes)
        rows = np.concatenate([rows, np.repeat(rows[-1:], blocks * self.lanes - count, axis=0)])
        packed = allocate_aligned((blocks, rows.shape[1], self.lanes))
        packed[:] = rows.reshape(blocks, self.lanes, -1).transpose(0, 2, 1)
        return packed

    def unpack(self, position: int, packed: np.ndarray, count: int) -> list[np.ndarray]:
        """A result's memory as arrays `[n, …]`. Not for a state, which may be stored only in part."""
        assert position > 0 or self.stored_positions is None
        rows = packed.transpose(0, 2, 1).reshape(-1, packed.shape[1])[:count]
        ends = np.cumsum([slot.size for slot in self.results[position]])[:-1]
        parts = np.split(rows, ends, axis=1)
        return [
            _numbers(part, slot.dtype).reshape(count, *slot.shape)
            for part, slot in zip(parts, self.results[position], strict=True)
        ]


def compile_function(
    function: Callable[..., Any],
    *examples: Any,
    lanes: int | None = None,
    state: bool = False,
    fused: bool = False,
    cache_name: str | None = None,
) -> CompiledFunction:
    """Compiles a function of pytrees of arrays, which returns a tuple of such pytrees, to machine code.

    With `state`, the first argument and the first result are the state before and after a step. Numbers that
    no later step needs are left out of it. With `fused`, multiply-adds are fused if the processor can do
    that, as under XLA.

    An example may also be a function that returns the example. `cache_name` identifies the function and its
    examples in all processes. With it, cached code is found without tracing.
    Raises UnknownPrimitiveError, with the operation's name, if an operation is not supported.
    """
    width = detect_host().lanes if lanes is None else lanes
    require(width >= 1, "lanes", width, "at least 1")
    code = load_or_make_code(
        function,
        *examples,
        state=state,
        fused=fused and detect_host().fuses,
        target=(width, detect_host()),
        cache_name=cache_name,
        make=lambda program, short: compile_ir(emit(program, width, short)),
    )
    return CompiledFunction(code, width)


def load_or_make_code(
    function: Callable[..., Any],
    *examples: Any,
    state: bool,
    fused: bool,
    target: Any,
    make: Callable[[Program, Program | None], bytes],
    cache_name: str | None = None,
) -> Code:
    """The code that `make` makes from a function's program and its shorter one, or the cached code.

    `target` is everything else that the code depends on. `cache_name` is as in `compile_function`.
    """
    import jax

    folder = make_cache_folder("native")
    settings = state, fused, target, llvmlite.__version__, jax.__version__
    compiler = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    alias = None
    if folder is not None and cache_name is not None:
        config = [getattr(jax.config, option, None) for option in _OPTIONS_OF_TRACING]
        alias = (
            folder / f"{fingerprint([cache_name.encode(), repr((settings, config)).encode(), *compiler])}.key"
        )
        if (key := _read_key(alias)) and (code := _cached(folder / f"{key}.bin")):
            return code
    closed, arguments, results = trace_jaxpr(function, *(one() if callable(one) else one for one in examples))
    key = fingerprint([*_serialise_jaxpr(closed), repr((arguments, results, settings)).encode(), *compiler])
    code = None if folder is None else _cached(folder / f"{key}.bin")
    if code is None:
        program, inputs, outputs = from_jaxpr(closed, arguments, results)
        stored_positions = None
        if state:
            program, stored_positions = program.remove_dead_state()
        short = shorten_program(program)
        if fused:
            program = program.fuse_products()
            short = short and short.fuse_products()
        work = (short or program).count_work()
        code = Code(make(program, short), inputs, outputs, stored_positions, program.count_operations(), work)
        if folder is not None:
            _keep(folder / f"{key}.bin", msgspec.msgpack.encode(code))
    if alias is not None:
        _keep(alias, key.encode())
    return code


def allocate_aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Memory for 32-bit words, at the beginning of a vector register."""
    count = int(np.prod(shape)) * 4
    raw = np.zeros(count + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + count].view(np.uint32).reshape(shape)


def _words(array: np.ndarray) -> np.ndarray:
    if array.dtype.itemsize < 4:
        array = array.astype(np.int32)
    return np.ascontiguousarray(array).view(np.uint32)


def _numbers(words: np.ndarray, dtype: str) -> np.ndarray:
    if np.dtype(dtype).itemsize < 4:
        return words.astype(dtype)
    return np.ascontiguousarray(words).view(dtype)


def _read_kept(file: Path) -> bytes | None:
    """The content of a cached file; None if there is none, or if it is damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return content[32:] if content[:32].decode("ascii", "replace") == fingerprint([content[32:]]) else None


def _read_key(file: Path) -> str | None:
    content = _read_kept(file)
    return None if content is None else content.decode("ascii", "replace")


def _cached(file: Path) -> Code | None:
    content = _read_kept(file)
    try:
        return None if content is None else msgspec.msgpack.decode(content, type=Code)
    except msgspec.MsgspecError:
        return None


def _keep(file: Path, content: bytes) -> None:
    temporary = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        temporary.write_bytes(fingerprint([content]).encode() + content)
        os.replace(temporary, file)
    except OSError:
        temporary.unlink(missing_ok=True)


def _serialise_jaxpr(closed: Any, seen: dict[int, int] | None = None) -> Iterator[bytes]:
    """All of a jaxpr, as bytes that are the same in every process. `seen` has the ids of earlier jaxprs."""
    from jax.extend import core

    seen = {} if seen is None else seen
    if id(closed) in seen:
        yield f"as {seen[id(closed)]}".encode()
        return
    seen[id(closed)] = len(seen)
    jaxpr, consts = (closed.jaxpr, closed.consts) if hasattr(closed, "consts") else (closed, ())
    numbers: dict[Any, int] = {}

    def name(variable: Any) -> Any:
        if isinstance(variable, core.Literal):
            return np.asarray(variable.val).tobytes(), str(variable.aval)
        return numbers.setdefault(variable, len(numbers)), str(variable.aval)

    for const in consts:
        array = np.asarray(const)
        yield repr((array.shape, array.dtype.str)).encode() + array.tobytes()
    yield repr([[name(variable) for variable in part] for part in (jaxpr.constvars, jaxpr.invars)]).encode()
    for equation in jaxpr.eqns:
        yield equation.primitive.name.encode()
        yield repr(
            [[name(variable) for variable in part] for part in (equation.invars, equation.outvars)]
        ).encode()
        for key, value in sorted(equation.params.items()):
            values = value if isinstance(value, tuple | list) else (value,)
            if any(hasattr(one, "eqns") or hasattr(one, "jaxpr") for one in values):
                yield key.encode()
                for one in values:
                    yield from _serialise_jaxpr(one, seen)
            elif key not in _NOT_PART_OF_THE_RESULT:
                yield key.encode()
                for one in values:  # long arrays are shortened in their text
                    yield one.tobytes() if isinstance(one, np.ndarray) else _text(one).encode()
    yield repr([name(variable) for variable in jaxpr.outvars]).encode()


def _text(value: Any) -> str:
    """A value as text. For functions of JAX, such as those of random numbers, it is free of addresses."""
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == "jax":
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


_NOT_PART_OF_THE_RESULT = {"jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "name", "ctx_mesh"}
