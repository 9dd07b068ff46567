"""Programs of scalar operations: constants are folded and equal expressions shared while a program is built.

A node is a number: its position in the list of nodes. Its arguments come before it. Arithmetic is IEEE's,
with one exception that XLA makes too: x + 0 is x, so that the sign of a zero may differ. Nothing is assumed
to be finite: x · 0 and x - x stay. A kernel that `cuda` makes of a program approximates quotients and roots,
unless it is `exact`.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from elites.errors import ElitesError

OUTERMOST = 0  # the block that is in no loop
MAX_NODES = 500_000  # a larger program would take minutes to compile


class UnknownPrimitiveError(ElitesError):
    """A function has an operation that cannot be compiled."""


class Node(NamedTuple):
    """An operation. It belongs to the innermost block of its arguments, so no loop repeats it needlessly."""

    op: str
    args: tuple[int, ...]
    dtype: str
    block: int
    value: Any = None  # of a constant; the position of an input or carried value; a loop


@dataclass
class Loop:
    """A block that is repeated `length` times, or in each lane while its `condition` held at its start."""

    block: int
    index: int
    length: int | None
    params: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    condition: int | None = None


def _fold_division(a: Any, b: Any) -> Any:
    return a / b if a.dtype.kind == "f" else a.dtype.type(_truncated(int(a), int(b)))


def _truncated(a: int, b: int) -> int:
    """Integer division towards zero; b is not zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _fold_remainder(a: Any, b: Any) -> Any:
    return (
        np.fmod(a, b) if a.dtype.kind == "f" else a.dtype.type(int(a) - int(b) * _truncated(int(a), int(b)))
    )


def _round_away(a: Any) -> Any:
    whole = np.trunc(a)
    return whole + np.copysign(a.dtype.type(abs(a - whole) >= 0.5), a) if np.isfinite(a) else a


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _fold_division,
    "rem": _fold_remainder,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": _round_away,
    "round_even": np.rint,
    "copysign": np.copysign,
    "fma": lambda a, b, c: a * b + c,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_NOT_OPERATIONS = ("const", "input", "param", "out", "loop", "index")
_COMMUTATIVE = {"add", "mul", "max", "min", "eq", "ne", "and", "or", "xor"}
_COMPARISONS = {"lt", "le", "eq", "ne"}


class Graph:
    """Nodes, and the methods that make them. A method returns an equal node if there is one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.depths = [0]  # of the blocks
        self.open = [OUTERMOST]  # the blocks that are being built, innermost last
        self._known: dict[Any, int] = {}

    def new(self, op: str, args: tuple[int, ...], dtype: str, block: int, value: Any = None) -> int:
        """A new node, even if there is an equal one."""
        if len(self.nodes) == MAX_NODES:
            raise UnknownPrimitiveError(
                f"a function of more than {MAX_NODES:,} operations cannot be compiled"
            )
        self.nodes.append(Node(op, args, dtype, block, value))
        return len(self.nodes) - 1

    def const(self, value: Any, dtype: str) -> int:
        number = np.dtype(dtype).type(value)
        key = ("const", dtype, number.tobytes())
        if key not in self._known:
            self._known[key] = self.new("const", (), dtype, OUTERMOST, number)
        return self._known[key]

    def const_like(self, node: int, value: Any) -> int:
        """A constant of the type of a node."""
        return self.const(value, self.nodes[node].dtype)

    def value(self, node: int) -> Any:
        """The value of a constant; None for any other node."""
        node_entry = self.nodes[node]
        return node_entry.value if node_entry.op == "const" else None

    def op(self, op: str, *args: int, dtype: str | None = None) -> int:
        """An operation, of the type of its first argument unless `dtype` says otherwise."""
        nodes = self.nodes
        if op in _COMMUTATIVE and args[0] > args[1]:
            args = (args[1], args[0])
        result_dtype = dtype or ("bool" if op in _COMPARISONS else nodes[args[0]].dtype)
        key = (op, args, result_dtype)
        result = self._known.get(key)
        if result is None:
            result = self._simplified(op, args)
            if result is None:
                block = max((nodes[arg].block for arg in args), key=self.depths.__getitem__)
                result = self.new(op, args, result_dtype, block)
            self._known[key] = result
        return result

    def _simplified(self, op: str, args: tuple[int, ...]) -> int | None:
        values = [self.value(arg) for arg in args]
        if op in _FOLDED and None not in values:
            with np.errstate(all="ignore"):
                folded = _FOLDED[op](*values)
            return self.const(folded, folded.dtype.name)
        node = self.nodes[args[0]]
        if op in ("neg", "not") and node.op == op:
            return node.args[0]
        if len(args) != 2:
            return None
        for one, other, value in ((args[0], args[1], values[1]), (args[1], args[0], values[0])):
            if value is None:
                continue
            first = other == args[1]  # `one` is the first argument
            kind = value.dtype.kind
            if (op == "add" and value == 0) or (op == "mul" and value == 1):
                return one
            if first and ((op in ("sub", "shl", "shr") and value == 0) or (op == "div" and value == 1)):
                return one
            if kind != "f" and op in ("mul", "and") and value == 0:
                return other
            if kind != "f" and op in ("or", "xor") and value == 0:
                return one
            if kind == "b" and op == "and":
                return one
            if kind == "b" and op == "or":
                return other
        if args[0] == args[1] and op in ("and", "or", "max", "min"):
            return args[0]
        return None

    def select(self, condition: int, yes: int, no: int) -> int:
        """`yes` where the condition is true."""
        constant = self.value(condition)
        if constant is not None:
            return yes if constant else no
        if yes == no:
            return yes
        if self.nodes[yes].dtype == "bool" and self.value(yes) is not None and self.value(no) is not None:
            return condition if self.value(yes) else self.op("not", condition)
        return self.op("select", condition, yes, no, dtype=self.nodes[yes].dtype)

    def cast(self, node: int, dtype: str) -> int:
        """A number as another type: towards zero, within its range, and NaN as 0."""
        source, value = self.nodes[node].dtype, self.value(node)
        if source == dtype:
            return node
        if dtype == "bool":
            return self.op("ne", node, self.const_like(node, 0))
        if value is None:
            return self.op("cast", node, dtype=dtype)
        if source.startswith("float") and not dtype.startswith("float"):
            limits = np.iinfo(dtype)
            value = 0 if math.isnan(value) else min(max(float(value), limits.min), limits.max)
            return self.const(int(value), dtype)
        with np.errstate(all="ignore"):
            return self.const(value.astype(dtype), dtype)

    def bits(self, node: int, dtype: str) -> int:
        """The same bits as another type of the same size."""
        if self.nodes[node].dtype == dtype:
            return node
        value = self.value(node)
        return self.op("bits", node, dtype=dtype) if value is None else self.const(value.view(dtype), dtype)

    def repeat(
        self,
        length: int | None,
        init: Sequence[int],
        body: Callable[[int, list[int]], tuple[int | None, list[int]]],
    ) -> list[int]:
        """A loop that carries values.

        `body` takes the index and the values, and returns `condition` and the next values.
        A value that the body does not change is not carried. Candidates are the values that the first
        iteration does not change.
        """
        first = body(self.const(0, "int32"), list(init))[1]
        return self.repeat_after(first, length, init, body)

    def repeat_after(
        self,
        first: Sequence[int],
        length: int | None,
        init: Sequence[int],
        body: Callable[[int, list[int]], tuple[int | None, list[int]]],
    ) -> list[int]:
        """As `repeat`, with the values after the first iteration."""
        kept = {k for k, start in enumerate(init) if first[k] == start}
        while True:
            block = len(self.depths)
            self.depths.append(len(self.open))
            self.open.append(block)
            loop = Loop(block, self.new("index", (), "int32", block), length)
            loop.params = [
                start if k in kept else self.new("param", (), self.nodes[start].dtype, block)
                for k, start in enumerate(init)
            ]
            loop.condition, loop.results = body(loop.index, loop.params)
            self.open.pop()
            changed = {k for k in kept if loop.results[k] != init[k]}
            if not changed:
                break
            kept -= changed
        node = self.new("loop", tuple(init), "none", self.open[-1], loop)
        for k, param in enumerate(loop.params):
            if k not in kept:
                self.nodes[param] = self.nodes[param]._replace(value=(node, k))
        return [
            start
            if k in kept
            else self.new("out", (node,), self.nodes[start].dtype, self.nodes[node].block, k)
            for k, start in enumerate(init)
        ]


class Slot(NamedTuple):
    """An array of a function's arguments or results."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Program:
    """A function of scalars. `inputs` and `outputs` are in groups: one per argument, one per result."""

    graph: Graph
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]

    def find_live_nodes(self) -> set[int]:
        """The nodes that the outputs need."""
        nodes, seen = self.graph.nodes, set[int]()
        todo = [node for group in self.outputs for node in group]
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            node = nodes[at]
            if node.op in ("out", "param"):
                loop_at, k = (node.args[0], node.value) if node.op == "out" else node.value
                todo += [loop_at, _loop(nodes[loop_at]).results[k], nodes[loop_at].args[k]]
                todo.append(_loop(nodes[loop_at]).params[k])
            elif node.op == "loop":
                if (condition := _loop(node).condition) is not None:
                    todo.append(condition)
            else:
                todo += node.args
        return seen

    def count_operations(self) -> int:
        """The number of operations, each counted once."""
        return sum(self.graph.nodes[at].op not in _NOT_OPERATIONS for at in self.find_live_nodes())

    def loops(self) -> dict[int, Loop]:
        """The live loops by their nodes, those inside others last."""
        nodes = self.graph.nodes
        loops = {at: _loop(nodes[at]) for at in self.find_live_nodes() if nodes[at].op == "loop"}
        return dict(sorted(loops.items(), key=lambda pair: self.graph.depths[pair[1].block]))

    def count_work(self) -> int:
        """The number of operations of a call. Those in a loop count for each iteration, in a `while` once."""
        nodes, turns = self.graph.nodes, {OUTERMOST: 1}
        for at, loop in self.loops().items():
            turns[loop.block] = turns[nodes[at].block] * (loop.length or 1)
        return sum(
            turns[nodes[at].block] for at in self.find_live_nodes() if nodes[at].op not in _NOT_OPERATIONS
        )

    def fuse_products(self) -> Program:
        """The same program with fused multiply-adds.

        A float32 product that is used in one sum only is rounded together with that sum. `fma` is a · b + c,
        `fms` a · b - c and `fnma` c - a · b.
        """
        nodes, live = list(self.graph.nodes), self.find_live_nodes()
        uses = Counter(node for group in self.outputs for node in group)
        for at in live:
            node = nodes[at]
            uses.update(node.args)
            if node.op == "loop":
                uses.update(_loop(node).results)
                uses.update([] if (condition := _loop(node).condition) is None else [condition])
        for at in sorted(live):
            node = nodes[at]
            if node.op not in ("add", "sub") or node.dtype != "float32":
                continue
            for product, other in (node.args[::-1], node.args):
                if nodes[product].op == "mul" and uses[product] == 1:
                    op = "fma" if node.op == "add" else "fms" if product == node.args[0] else "fnma"
                    nodes[at] = node._replace(op=op, args=(*nodes[product].args, other))
                    break
        graph = Graph()
        graph.nodes, graph.depths = nodes, self.graph.depths
        return Program(graph, self.inputs, self.outputs)

    def remove_dead_state(self) -> tuple[Program, list[int]]:
        """The program of a step without what later steps do not need, and the positions of what is kept.

        The first argument and the first result are the state before and after a step.
        """
        before, after = self.inputs[0], self.outputs[0]
        kept: list[int] = []
        while True:
            smaller = Program(
                self.graph,
                (tuple(before[k] for k in kept), *self.inputs[1:]),
                (tuple(after[k] for k in kept), *self.outputs[1:]),
            )
            live = smaller.find_live_nodes()
            needed = [k for k, node in enumerate(before) if node in live]
            if needed == kept:
                return smaller, kept
            kept = sorted({*kept, *needed})


def _loop(node: Node) -> Loop:
    loop: Loop = node.value
    return loop


def order_nodes(program: Program) -> dict[int, list[int]]:
    """The live nodes of each block, in an order in which they can be computed."""
    nodes = program.graph.nodes
    blocks: dict[int, list[int]] = {}
    for at in sorted(program.find_live_nodes()):
        blocks.setdefault(nodes[at].block, []).append(at)
    return blocks


def fingerprint(parts: Iterable[bytes]) -> str:
    """A hash of some content, as a name for it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]
