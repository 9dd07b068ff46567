"""A program as LLVM IR: each scalar is a vector with one element per lane, or one number of a thread."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from elites.native.finite import GUARD_LIMIT
from elites.native.program import OUTERMOST, Loop, Program, order_nodes

ENTRY, FALLBACK = "elites_program", "elites_fallback_program"
RARELY = '!0 = !{!"branch_weights", i32 1048575, i32 1}'
_ELEMENTS = {"bool": "i1", "float32": "float", "float64": "double"}
_MEMORY = {"bool": "i32", "int8": "i32", "uint8": "i32", "int16": "i32", "uint16": "i32"}
_PLAIN = {
    "f": {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"},
    "i": {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "div": "sdiv",
        "rem": "srem",
        "shl": "shl",
        "shr": "ashr",
    },
    "u": {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "div": "udiv",
        "rem": "urem",
        "shl": "shl",
        "shr": "lshr",
    },
    "b": {"add": "or", "mul": "and", "max": "or", "min": "and"},
}
_BITWISE = ("and", "or", "xor")
_COMPARED = {
    "f": {"lt": "fcmp olt", "le": "fcmp ole", "eq": "fcmp oeq", "ne": "fcmp une"},
    "i": {"lt": "icmp slt", "le": "icmp sle", "eq": "icmp eq", "ne": "icmp ne"},
    "u": {"lt": "icmp ult", "le": "icmp ule", "eq": "icmp eq", "ne": "icmp ne"},
}
_INTRINSICS = {
    "f": {
        "max": "maximum", "min": "minimum", "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil",
        "round": "round", "round_even": "roundeven", "copysign": "copysign", "fma": "fma",
    },
    "i": {"max": "smax", "min": "smin"},
    "u": {"max": "umax", "min": "umin"},
}  # fmt: skip
_FUSED = {"fms": 2, "fnma": 0}  # which argument of `fma` has the other sign
WORD = 4  # bytes of a number of an argument or a result in memory
STACK = 64  # bytes: a vector that does not stay in a register must not lie in two lines of the cache
MAX_THREADS = 128  # of a kernel's block: few, so that each of them may have all registers
_PLACE = ("tid", "ntid", "ctaid")  # of a thread: in its block, the block's size, the block in the grid


def emit(program: Program, lanes: int, short: Program | None = None) -> str:
    """The text of a module with the function `elites_program`.

    Its arguments are a pointer per group of inputs, a pointer per group of outputs, and a number of blocks of
    lanes. A group in memory is `[blocks, numbers, lanes]`, 4 bytes each: what is narrower is in the lower
    bits. All of a block is read before anything is written, so that a state can be replaced in place.

    `short` is what `shorten_program` makes of it. It is computed first. Lanes in which its guard fails are
    computed again by the program itself. So the bits of a lane do not depend on other lanes.
    """
    return "\n".join(_module(_Emitter, program, lanes, short))


def emit_kernel(program: Program, short: Program | None = None) -> str:
    """The text of a module with the kernel `elites_program`, for NVIDIA's GPUs: one robot per thread.

    Its arguments are those of `emit` with a number of robots instead of blocks. The first group of inputs and
    the first of outputs, the state, are `[numbers, robots]`, so that neighbouring threads read neighbouring
    words; the state can be replaced in place. The other groups are `[robots, numbers]`.
    """
    return "\n".join(_module(_KernelEmitter, program, 1, short))


def _module(kind: type[_Emitter], program: Program, lanes: int, short: Program | None) -> Iterator[str]:
    whole = kind(program, lanes)
    if short is None:
        yield from whole.emit_entry()
        yield from whole.declared.values()
        return
    quick = kind(short, lanes, is_guarded=True)
    yield from quick.emit_entry()
    yield from whole.emit_fallback()
    yield from {**quick.declared, **whole.declared}.values()


def element(dtype: str) -> str:
    """LLVM's type of one number."""
    return _ELEMENTS.get(dtype) or f"i{dtype.lstrip('uint')}"


class _Emitter:
    pointer = "ptr"
    other_arguments: tuple[str, ...] = ()  # of the fallback, in addition to pointers
    fallback_attributes = f"cold noinline alignstack({STACK})"

    def __init__(self, program: Program, lanes: int, *, is_guarded: bool = False) -> None:
        self.program = program
        self.lanes = lanes
        self.guard = program.outputs[-1][0] if is_guarded else None
        self.outputs = program.outputs[:-1] if is_guarded else program.outputs
        self.nodes = program.graph.nodes
        self.blocks = order_nodes(program)
        self.names: dict[int, str] = {}
        self.declared: dict[str, str] = {}
        self.labels = count()
        self.label = "block"  # where code is being added

    def groups(self) -> dict[str, tuple[int, ...]]:
        """The groups of inputs and outputs by the names of their pointers."""
        kinds = ["in"] * len(self.program.inputs) + ["out"] * len(self.outputs)
        groups = (*self.program.inputs, *self.outputs)
        return {f"%{kind}{k}": group for k, (kind, group) in enumerate(zip(kinds, groups, strict=True))}

    def output_groups(self) -> list[tuple[str, tuple[int, ...]]]:
        return list(self.groups().items())[len(self.program.inputs) :]

    def parameters(self) -> str:
        return ", ".join(f"{self.pointer} {name}" for name in self.groups())

    def emit_body(self) -> list[str]:
        """Reads all inputs, computes, and writes all outputs; `%in0.here` is where a group begins."""
        inputs = len(self.program.inputs)
        groups, live = list(self.groups().items()), set(self.blocks.get(OUTERMOST, ()))
        body: list[str] = []
        for pointer, group in groups[:inputs]:
            for k, node in enumerate(group):
                if node in live:
                    body += self.load(f"{pointer}.here", k, node)
        body += self.emit_block(OUTERMOST)
        if self.guard is not None:
            body += self.emit_check()
        for pointer, group in groups[inputs:]:
            for k, node in enumerate(group):
                body += self.store(f"{pointer}.here", k, node)
        if self.guard is not None:
            body += self.emit_merge()
        return body

    def emit_check(self) -> Iterator[str]:
        """Calls the whole program if the guard fails in a lane, and goes on to write results."""
        mask, vector = self.vector("bool"), self.vector("float32")
        limit = self.all_lanes("float32", _literal(np.float32(GUARD_LIMIT)))
        assert self.guard is not None
        yield f"  %holds = fcmp olt {vector} {self.operand(self.guard)}, {limit}"
        if self.lanes > 1:
            reduce = self.declare("i1", f"llvm.vector.reduce.and.v{self.lanes}i1", [mask])
            yield f"  %all_hold = call i1 @{reduce}({mask} %holds)"
        else:
            yield "  %all_hold = freeze i1 %holds"
        yield "  br i1 %all_hold, label %write, label %fallback, !prof !0"
        yield "fallback:"
        # Its results are merged if there are several lanes, and final if not.
        names, inputs = list(self.groups()), len(self.program.inputs)
        kind = "scratch" if self.lanes > 1 else "here"
        places = [
            *(f"{name}.here" for name in names[:inputs]),
            *(f"{name}.{kind}" for name in names[inputs:]),
        ]
        arguments = [*(f"{self.pointer} {place}" for place in places), *self.other_arguments]
        yield f"  call void @{FALLBACK}({', '.join(arguments)})"
        yield f"  br label %{'write' if self.lanes > 1 else 'merged'}"
        yield "write:"
        self.label = "write"

    def emit_merge(self) -> Iterator[str]:
        """Replaces the results of lanes in which the guard failed."""
        if self.lanes == 1:
            yield "  br label %merged"
        else:
            yield "  br i1 %all_hold, label %merged, label %merge0, !prof !0"
            words, mask = self.vector_of("i32"), self.vector("bool")
            outputs = [(name, group) for name, group in self.output_groups() if group]
            before = "write"
            for k, (name, group) in enumerate(outputs):
                then = f"merge{k + 1}" if k + 1 < len(outputs) else "merged"
                at, size = f"%m{k}", self.lanes * WORD
                yield f"merge{k}:"
                yield f"  {at} = phi i64 [0, %{before}], [{at}.next, %merge{k}]"
                yield f"  {at}.bytes = mul i64 {at}, {size}"
                for source in ("here", "scratch"):
                    yield f"  {at}.{source} = getelementptr i8, ptr {name}.{source}, i64 {at}.bytes"
                    yield f"  {at}.{source}.word = load {words}, ptr {at}.{source}, align {WORD}"
                yield f"  {at}.word = select {mask} %holds, {words} {at}.here.word, {words} {at}.scratch.word"
                yield f"  store {words} {at}.word, ptr {at}.here, align {WORD}"
                yield f"  {at}.next = add i64 {at}, 1"
                yield f"  {at}.more = icmp slt i64 {at}.next, {len(group)}"
                yield f"  br i1 {at}.more, label %merge{k}, label %{then}"
                before = f"merge{k}"
        yield "merged:"
        self.label = "merged"

    def emit_scratch(self) -> Iterator[str]:
        """Memory for the results of the fallback."""
        if self.guard is not None and self.lanes > 1:
            for name, group in self.output_groups():
                yield f"  {name}.scratch = alloca [{len(group)} x {self.vector_of('i32')}], align {STACK}"

    def emit_fallback(self) -> Iterator[str]:
        """A function that computes one block by the whole program; it is rarely called."""
        arguments = [*(f"{self.pointer} {name}.here" for name in self.groups()), *self.other_arguments]
        yield f"define internal void @{FALLBACK}({', '.join(arguments)}) {self.fallback_attributes} {{"
        yield "start:"
        yield "  br label %block"
        yield "block:"
        yield from self.emit_body()
        yield "  ret void"
        yield "}"

    def emit_entry(self) -> Iterator[str]:
        yield f"define void @{ENTRY}({self.parameters()}, i64 %blocks) alignstack({STACK}) {{"
        yield "start:"
        yield from self.emit_scratch()
        yield "  %some = icmp sgt i64 %blocks, 0"
        yield "  br i1 %some, label %block, label %end"
        yield "block:"
        body = self.emit_body()
        yield f"  %number = phi i64 [0, %start], [%next, %{self.label}]"
        for pointer, group in self.groups().items():
            yield f"  {pointer}.offset = mul i64 %number, {len(group) * self.lanes * WORD}"
            yield f"  {pointer}.here = getelementptr i8, ptr {pointer}, i64 {pointer}.offset"
        yield from body
        yield "  %next = add i64 %number, 1"
        yield "  %more = icmp slt i64 %next, %blocks"
        yield "  br i1 %more, label %block, label %end"
        yield "end:"
        yield "  ret void"
        yield "}"
        if self.guard is not None:
            yield RARELY

    def address(self, name: str, pointer: str, position: int) -> Iterator[str]:
        """Sets `name` to the address of a number in a group."""
        yield f"  {name} = getelementptr i8, ptr {pointer}, i64 {position * self.lanes * WORD}"

    def vector(self, dtype: str) -> str:
        return self.vector_of(element(dtype))

    def vector_of(self, one: str) -> str:
        return one if self.lanes == 1 else f"<{self.lanes} x {one}>"

    def all_lanes(self, dtype: str, value: str) -> str:
        """A constant."""
        return value if self.lanes == 1 else f"splat ({element(dtype)} {value})"

    def type(self, node: int) -> str:
        return self.vector(self.nodes[node].dtype)

    def operand(self, node: int) -> str:
        if node not in self.names:
            constant = self.nodes[node]
            assert constant.op == "const", constant
            self.names[node] = self.all_lanes(constant.dtype, _literal(constant.value))
        return self.names[node]

    def load(self, pointer: str, position: int, node: int) -> Iterator[str]:
        dtype = self.nodes[node].dtype
        name = self.names[node] = f"%v{node}"
        stored = self.vector_of(_MEMORY.get(dtype, element(dtype)))
        yield from self.address(f"{name}.at", pointer, position)
        loaded = name if dtype not in _MEMORY else f"{name}.word"
        yield f"  {loaded} = load {stored}, {self.pointer} {name}.at, align {WORD}"
        if dtype == "bool":
            yield f"  {name} = icmp ne {stored} {loaded}, zeroinitializer"
        elif dtype in _MEMORY:
            yield f"  {name} = trunc {stored} {loaded} to {self.vector(dtype)}"

    def store(self, pointer: str, position: int, node: int) -> Iterator[str]:
        dtype, value, at = self.nodes[node].dtype, self.operand(node), f"%s{next(self.labels)}"
        stored = self.vector_of(_MEMORY.get(dtype, element(dtype)))
        if dtype in _MEMORY:
            yield f"  {at}.word = zext {self.vector(dtype)} {value} to {stored}"
            value = f"{at}.word"
        yield from self.address(at, pointer, position)
        yield f"  store {stored} {value}, {self.pointer} {at}, align {WORD}"

    def emit_block(self, block: int) -> Iterator[str]:
        for at in self.blocks.get(block, []):
            node = self.nodes[at]
            if node.op == "loop":
                yield from self.loop(at)
            elif node.op not in ("const", "input", "param", "index", "out", "key"):
                self.names[at] = f"%v{at}"
                if node.op in _FUSED:
                    yield from self.fused(at)
                else:
                    yield f"  %v{at} = {self.operation(at)}"

    def fused(self, at: int) -> Iterator[str]:
        """A difference with a product in it."""
        node = self.nodes[at]
        args, negated = [self.operand(arg) for arg in node.args], _FUSED[node.op]
        yield f"  %v{at}.minus = fneg {self.type(at)} {args[negated]}"
        args[negated] = f"%v{at}.minus"
        yield f"  %v{at} = {self.call('fma', node.dtype, args)}"

    def loop(self, at: int) -> Iterator[str]:
        loop: Loop = self.nodes[at].value
        init = self.nodes[at].args
        live = set(self.blocks.get(loop.block, []))
        carried = [k for k, param in enumerate(loop.params) if param in live]
        before, number = self.label, next(self.labels)
        head, end, turn = f"loop{number}", f"done{number}", f"%turn{number}"
        for k in carried:
            self.names[loop.params[k]] = f"%p{loop.params[k]}"
        self.names[loop.index] = turn if self.lanes == 1 else f"{turn}.all"
        self.label = head
        body = [*self.to_all_lanes(turn), *self.emit_block(loop.block)]
        yield f"  br label %{head}"
        yield f"{head}:"
        yield f"  {turn} = phi i32 [0, %{before}], [{turn}.next, %{self.label}]"
        for k in carried:
            param, start, result = loop.params[k], self.operand(init[k]), self.operand(loop.results[k])
            yield f"  %p{param} = phi {self.type(param)} [{start}, %{before}], [{result}, %{self.label}]"
        yield from body
        yield f"  {turn}.next = add i32 {turn}, 1"
        if loop.condition is None:
            yield f"  {turn}.more = icmp slt i32 {turn}.next, {loop.length}"
        elif self.lanes == 1:
            yield f"  {turn}.more = freeze i1 {self.operand(loop.condition)}"
        else:
            reduce = self.declare("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", [self.vector("bool")])
            yield f"  {turn}.more = call i1 @{reduce}({self.vector('bool')} {self.operand(loop.condition)})"
        yield f"  br i1 {turn}.more, label %{head}, label %{end}"
        yield f"{end}:"
        self.label = end
        for k in self.loop_outputs(at):
            self.names[k] = self.operand(loop.results[self.nodes[k].value])

    def to_all_lanes(self, turn: str) -> Iterator[str]:
        """The number of a loop's iteration as a vector."""
        if self.lanes > 1:
            vector = self.vector_of("i32")
            yield f"  {turn}.one = insertelement {vector} poison, i32 {turn}, i64 0"
            yield (
                f"  {turn}.all = shufflevector {vector} {turn}.one, {vector} poison, {vector} zeroinitializer"
            )

    def loop_outputs(self, loop: int) -> list[int]:
        return [
            k
            for k in self.blocks[self.nodes[loop].block]
            if self.nodes[k].op == "out" and self.nodes[k].args == (loop,)
        ]

    def operation(self, at: int) -> str:
        node = self.nodes[at]
        args = [self.operand(arg) for arg in node.args]
        source = self.nodes[node.args[0]].dtype
        kind, vector = np.dtype(source).kind, self.vector(source)
        if node.op in _COMPARED["f"]:
            return f"{_COMPARED.get(kind, _COMPARED['u'])[node.op]} {vector} {args[0]}, {args[1]}"
        if node.op in _BITWISE:
            return f"{node.op} {vector} {args[0]}, {args[1]}"
        if node.op in _PLAIN[kind]:
            return f"{_PLAIN[kind][node.op]} {vector} {args[0]}, {args[1]}"
        if node.op in _INTRINSICS.get(kind, {}):
            return self.call(_INTRINSICS[kind][node.op], source, args)
        if node.op == "select":
            return f"select {vector} {args[0]}, {self.type(at)} {args[1]}, {self.type(at)} {args[2]}"
        if node.op == "not":
            return f"xor {vector} {args[0]}, {self.all_lanes(source, '-1')}"
        if node.op == "neg":
            return f"fneg {vector} {args[0]}" if kind == "f" else f"sub {vector} zeroinitializer, {args[0]}"
        if node.op == "abs":
            declared = self.declare(vector, f"llvm.abs.{self.suffix(source)}", [vector, "i1"])
            return f"call {vector} @{declared}({vector} {args[0]}, i1 false)"
        if node.op == "bits":
            same = element(source) == element(node.dtype)
            return f"{'freeze' if same else 'bitcast'} {vector} {args[0]}" + (
                "" if same else f" to {self.type(at)}"
            )
        assert node.op == "cast", node
        return self.cast(at, args[0], source)

    def cast(self, at: int, value: str, source: str) -> str:
        target = self.nodes[at].dtype
        before, after = np.dtype(source), np.dtype(target)
        vector, result = self.vector(source), self.vector(target)
        if before.kind == "f" and after.kind == "f":
            word = "fpext" if after.itemsize > before.itemsize else "fptrunc"
        elif before.kind == "f":
            sign = "s" if after.kind == "i" else "u"
            name = f"llvm.fpto{sign}i.sat.{self.suffix(target)}.{self.suffix(source)}"
            return f"call {result} @{self.declare(result, name, [vector])}({vector} {value})"
        elif after.kind == "f":
            word = "sitofp" if before.kind == "i" else "uitofp"
        elif element(source) == element(target):
            return f"freeze {vector} {value}"
        elif after.itemsize < before.itemsize:
            word = "trunc"
        else:
            word = "sext" if before.kind == "i" else "zext"
        return f"{word} {vector} {value} to {result}"

    def suffix(self, dtype: str) -> str:
        one = f"{'f' if np.dtype(dtype).kind == 'f' else 'i'}{np.dtype(dtype).itemsize * 8}"
        return one if self.lanes == 1 else f"v{self.lanes}{one}"

    def call(self, name: str, dtype: str, args: Sequence[str]) -> str:
        vector = self.vector(dtype)
        declared = self.declare(vector, f"llvm.{name}.{self.suffix(dtype)}", [vector] * len(args))
        return f"call {vector} @{declared}({', '.join(f'{vector} {arg}' for arg in args)})"

    def declare(self, result: str, name: str, args: Sequence[str]) -> str:
        self.declared[name] = f"declare {result} @{name}({', '.join(args)})"
        return name


class _KernelEmitter(_Emitter):
    pointer = "ptr addrspace(1)"  # the GPU's memory
    other_arguments = ("i64 %row",)
    fallback_attributes = "cold noinline"

    def emit_entry(self) -> Iterator[str]:
        limit = f'"nvvm.maxntid"="{MAX_THREADS}"'
        yield f"define ptx_kernel void @{ENTRY}({self.parameters()}, i64 %robots) {limit} {{"
        yield "start:"
        for name in _PLACE:
            yield f"  %{name} = call i32 @{self.declare('i32', f'llvm.nvvm.read.ptx.sreg.{name}.x', [])}()"
        yield "  %before = mul i32 %ctaid, %ntid"
        yield "  %number = add i32 %before, %tid"
        yield "  %robot = zext i32 %number to i64"
        yield "  %is_there = icmp slt i64 %robot, %robots"
        yield "  br i1 %is_there, label %block, label %end"
        yield "block:"
        yield f"  %row = mul i64 %robots, {WORD}"
        for pointer, group in self.groups().items():
            width = WORD if self.is_state(pointer) else len(group) * WORD
            yield f"  {pointer}.offset = mul i64 %robot, {width}"
            yield f"  {pointer}.here = getelementptr i8, {self.pointer} {pointer}, i64 {pointer}.offset"
        yield from self.emit_body()
        yield "  br label %end"
        yield "end:"
        yield "  ret void"
        yield "}"
        if self.guard is not None:
            yield RARELY

    def is_state(self, pointer: str) -> bool:
        return pointer.removesuffix(".here") in ("%in0", f"%out{len(self.program.inputs)}")

    def address(self, name: str, pointer: str, position: int) -> Iterator[str]:
        offset = str(position * WORD)
        if self.is_state(pointer):
            offset = f"{name}.offset"
            yield f"  {offset} = mul i64 %row, {position}"
        yield f"  {name} = getelementptr i8, {self.pointer} {pointer}, i64 {offset}"


def _literal(value: Any) -> str:
    if value.dtype.kind == "f":
        return f"0x{struct.pack('>d', float(value)).hex().upper()}"
    return str(int(value)) if value.dtype.kind != "b" else str(bool(value)).lower()
