"""A program as LLVM IR: each scalar is a vector with one element per lane."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from elites.native.program import OUTERMOST, Loop, Program, in_order

ENTRY = "elites_program"
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
WORD = 4  # bytes of a number of an argument or a result in memory


def emit(program: Program, lanes: int) -> str:
    """The text of a module with the function `elites_program`.

    Its arguments are a pointer per group of inputs, a pointer per group of outputs, and a number of blocks of
    lanes. A group in memory is `[blocks, numbers, lanes]`, 4 bytes each: what is narrower is in the lower
    bits. All of a block is read before anything is written, so that a state can be replaced in place.
    """
    return "\n".join(_Emitter(program, lanes).module())


def element(dtype: str) -> str:
    """LLVM's type of one number."""
    return _ELEMENTS.get(dtype) or f"i{dtype.lstrip('uint')}"


class _Emitter:
    def __init__(self, program: Program, lanes: int) -> None:
        self.program = program
        self.lanes = lanes
        self.nodes = program.graph.nodes
        self.blocks = in_order(program)
        self.names: dict[int, str] = {}
        self.declared: dict[str, str] = {}
        self.labels = count()
        self.label = "block"  # where code is being added

    def module(self) -> Iterator[str]:
        groups = [("in", group) for group in self.program.inputs] + [
            ("out", group) for group in self.program.outputs
        ]
        pointers = [f"%{kind}{k}" for k, (kind, _) in enumerate(groups)]
        yield f"define void @{ENTRY}({', '.join(f'ptr {pointer}' for pointer in pointers)}, i64 %blocks) {{"
        yield "start:"
        yield "  %some = icmp sgt i64 %blocks, 0"
        yield "  br i1 %some, label %block, label %end"
        yield "block:"
        body: list[str] = []
        here = []
        for pointer, (_, group) in zip(pointers, groups, strict=True):
            body.append(f"  {pointer}.offset = mul i64 %number, {len(group) * self.lanes * WORD}")
            body.append(f"  {pointer}.here = getelementptr i8, ptr {pointer}, i64 {pointer}.offset")
            here.append(f"{pointer}.here")
        inputs = len(self.program.inputs)
        live = self.program.live()
        for pointer, group in zip(here[:inputs], self.program.inputs, strict=True):
            for k, node in enumerate(group):
                if node in live:
                    body += self.load(pointer, k, node)
        body += self.block(OUTERMOST)
        for pointer, group in zip(here[inputs:], self.program.outputs, strict=True):
            for k, node in enumerate(group):
                body += self.store(pointer, k, node)
        yield f"  %number = phi i64 [0, %start], [%next, %{self.label}]"
        yield from body
        yield "  %next = add i64 %number, 1"
        yield "  %more = icmp slt i64 %next, %blocks"
        yield "  br i1 %more, label %block, label %end"
        yield "end:"
        yield "  ret void"
        yield "}"
        yield from self.declared.values()

    def vector(self, dtype: str) -> str:
        return f"<{self.lanes} x {element(dtype)}>"

    def type(self, node: int) -> str:
        return self.vector(self.nodes[node].dtype)

    def operand(self, node: int) -> str:
        if node not in self.names:
            found = self.nodes[node]
            assert found.op == "const", found
            self.names[node] = f"splat ({element(found.dtype)} {_literal(found.value)})"
        return self.names[node]

    def load(self, pointer: str, position: int, node: int) -> Iterator[str]:
        dtype = self.nodes[node].dtype
        name = self.names[node] = f"%v{node}"
        stored = f"<{self.lanes} x {_MEMORY.get(dtype, element(dtype))}>"
        yield f"  {name}.at = getelementptr i8, ptr {pointer}, i64 {position * self.lanes * WORD}"
        loaded = name if dtype not in _MEMORY else f"{name}.word"
        yield f"  {loaded} = load {stored}, ptr {name}.at, align {WORD}"
        if dtype == "bool":
            yield f"  {name} = icmp ne {stored} {loaded}, zeroinitializer"
        elif dtype in _MEMORY:
            yield f"  {name} = trunc {stored} {loaded} to {self.vector(dtype)}"

    def store(self, pointer: str, position: int, node: int) -> Iterator[str]:
        dtype, value, at = self.nodes[node].dtype, self.operand(node), f"%s{next(self.labels)}"
        stored = f"<{self.lanes} x {_MEMORY.get(dtype, element(dtype))}>"
        if dtype in _MEMORY:
            yield f"  {at}.word = zext {self.vector(dtype)} {value} to {stored}"
            value = f"{at}.word"
        yield f"  {at} = getelementptr i8, ptr {pointer}, i64 {position * self.lanes * WORD}"
        yield f"  store {stored} {value}, ptr {at}, align {WORD}"

    def block(self, block: int) -> Iterator[str]:
        for at in self.blocks.get(block, []):
            node = self.nodes[at]
            if node.op == "loop":
                yield from self.loop(at)
            elif node.op not in ("const", "input", "param", "index", "out", "key"):
                self.names[at] = f"%v{at}"
                yield f"  %v{at} = {self.operation(at)}"

    def loop(self, at: int) -> Iterator[str]:
        loop: Loop = self.nodes[at].value
        init = self.nodes[at].args
        live = set(self.blocks.get(loop.block, []))
        carried = [k for k, param in enumerate(loop.params) if param in live]
        before, number = self.label, next(self.labels)
        head, end, turn = f"loop{number}", f"done{number}", f"%turn{number}"
        for k in carried:
            self.names[loop.params[k]] = f"%p{loop.params[k]}"
        self.names[loop.index] = f"{turn}.all"
        self.label = head
        body = [
            f"  {turn}.one = insertelement <{self.lanes} x i32> poison, i32 {turn}, i64 0",
            f"  {turn}.all = shufflevector <{self.lanes} x i32> {turn}.one, <{self.lanes} x i32> poison, "
            f"<{self.lanes} x i32> zeroinitializer",
            *self.block(loop.block),
        ]
        yield f"  br label %{head}"
        yield f"{head}:"
        yield f"  {turn} = phi i32 [0, %{before}], [{turn}.next, %{self.label}]"
        for k in carried:
            param, start, result = loop.params[k], self.operand(init[k]), self.operand(loop.results[k])
            yield f"  %p{param} = phi {self.type(param)} [{start}, %{before}], [{result}, %{self.label}]"
        yield from body
        yield f"  {turn}.next = add i32 {turn}, 1"
        if loop.going is None:
            yield f"  {turn}.more = icmp slt i32 {turn}.next, {loop.length}"
        else:
            reduce = self.declare("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", [self.vector("bool")])
            yield f"  {turn}.more = call i1 @{reduce}({self.vector('bool')} {self.operand(loop.going)})"
        yield f"  br i1 {turn}.more, label %{head}, label %{end}"
        yield f"{end}:"
        self.label = end
        for k in self.outs(at):
            self.names[k] = self.operand(loop.results[self.nodes[k].value])

    def outs(self, loop: int) -> list[int]:
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
            return f"xor {vector} {args[0]}, splat ({element(source)} -1)"
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
        return f"v{self.lanes}{'f' if np.dtype(dtype).kind == 'f' else 'i'}{np.dtype(dtype).itemsize * 8}"

    def call(self, name: str, dtype: str, args: Sequence[str]) -> str:
        vector = self.vector(dtype)
        declared = self.declare(vector, f"llvm.{name}.{self.suffix(dtype)}", [vector] * len(args))
        return f"call {vector} @{declared}({', '.join(f'{vector} {arg}' for arg in args)})"

    def declare(self, result: str, name: str, args: Sequence[str]) -> str:
        self.declared[name] = f"declare {result} @{name}({', '.join(args)})"
        return name


def _literal(value: Any) -> str:
    if value.dtype.kind == "f":
        return f"0x{struct.pack('>d', float(value)).hex().upper()}"
    return str(int(value)) if value.dtype.kind != "b" else str(bool(value)).lower()
