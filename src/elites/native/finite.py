"""A shorter program for ordinary numbers, and a guard that tells whether its results hold.

A robot's step is full of products by a constant 0: an axis such as (1, 0, 0) makes most terms of a cross
product vanish. IEEE's x · 0 is not 0 if x is NaN or infinite, so a program that is right for all numbers
cannot drop them. Here they are dropped, and the guard holds only if each such x was finite. The emitter adds
a branch to the whole program for all other cases.

Few of these numbers are checked themselves. If a sum or product is finite, so are its terms and factors: a
check of a result covers what led to it. And sums and products of numbers below `MAX_CHECKED_SIZE` are finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from elites.native.program import OUTERMOST, Graph, Loop, Node, Program, order_nodes

MAX_CHECKED_SIZE = 2.0**40  # largest absolute value of a checked number
GUARD_LIMIT = MAX_CHECKED_SIZE**2  # a sum of squares that is below it has no number above `MAX_CHECKED_SIZE`
_FINITE = 2.0**100  # a bound that no rounding makes infinite
_SUMS = 4  # of squares, side by side: an addition waits for the one before
_MAX_SHARE_LEFT = 0.9  # of the operations: a program that is not shorter by a tenth is not worth its guard
_NEED_FINITE = ("add", "sub", "mul", "neg", "abs", "sqrt")  # the result is finite only if the arguments are


def shorten_program(program: Program) -> Program | None:
    """The program for ordinary numbers; None if it would not be shorter, or has a loop without a length.

    The number of iterations of such a loop may depend on what is dropped. The last group of outputs is the
    guard. If the guard is below `GUARD_LIMIT`, the other results are those of the whole program, except for
    the signs of zeros.
    """
    if any(loop.condition is not None for loop in program.loops().values()):
        return None
    rebuilt, dropped = _Rebuild(program).rebuild()
    if not dropped or rebuilt.count_operations() > _MAX_SHARE_LEFT * program.count_operations():
        return None
    checked = _numbers_to_check(rebuilt, dropped)
    return None if checked is None else _with_guard(rebuilt, checked)


class _ShortGraph(Graph):
    """Nodes in which x · 0 is 0, unless x is never finite, such as the distance to an infinite limit."""

    def __init__(self) -> None:
        super().__init__()
        self.never_finite: set[int] = set()

    def new(self, op: str, args: tuple[int, ...], dtype: str, block: int, value: Any = None) -> int:
        """See `Graph.new`."""
        at = super().new(op, args, dtype, block, value)
        constant = op == "const" and dtype == "float32" and not math.isfinite(value)
        if constant or (op in _NEED_FINITE and not self.never_finite.isdisjoint(args)):
            self.never_finite.add(at)
        return at

    def _simplified(self, op: str, args: tuple[int, ...]) -> int | None:
        if self.dropped_factor(op, args) is not None:
            return self.const_like(args[0], 0)
        return super()._simplified(op, args)

    def dropped_factor(self, op: str, args: Sequence[int]) -> int | None:
        """The other factor of a product with a constant 0; None for any other operation."""
        if op != "mul" or self.nodes[args[0]].dtype != "float32":
            return None
        one, other = args
        for factor, zero in ((one, other), (other, one)):
            if self.value(zero) == 0 and self.value(factor) is None and factor not in self.never_finite:
                return factor
        return None


class _Rebuild:
    """Makes all nodes of a program again, in a graph that drops products by zero."""

    def __init__(self, program: Program) -> None:
        self.program, self.nodes, self.blocks = program, program.graph.nodes, order_nodes(program)
        self.live, self.graph = program.find_live_nodes(), _ShortGraph()
        self.renumbered: dict[int, int] = {}  # node of each node of the program
        self.dropped: list[set[int]] = [set()]  # factors, for each block that is being built

    def rebuild(self) -> tuple[Program, set[int]]:
        """The new program, and the factors of the products that it does not have."""
        inputs = tuple(tuple(self.rebuild_input(node) for node in group) for group in self.program.inputs)
        self.rebuild_block(OUTERMOST)
        outputs = tuple(tuple(self.translate(node) for node in group) for group in self.program.outputs)
        return Program(self.graph, inputs, outputs), self.dropped[0]

    def rebuild_input(self, at: int) -> int:
        node = self.nodes[at]
        self.renumbered[at] = self.graph.new("input", (), node.dtype, OUTERMOST, node.value)
        return self.renumbered[at]

    def translate(self, at: int) -> int:
        """The new node; constants are made when they are needed."""
        if at not in self.renumbered:
            assert self.nodes[at].op == "const", self.nodes[at]
            self.renumbered[at] = self.graph.const(self.nodes[at].value, self.nodes[at].dtype)
        return self.renumbered[at]

    def rebuild_block(self, block: int) -> None:
        for at in self.blocks.get(block, []):
            node = self.nodes[at]
            if node.op == "loop":
                self.rebuild_loop(at)
            elif node.op == "select":
                self.renumbered[at] = self.graph.select(*(self.translate(arg) for arg in node.args))
            elif node.op not in ("const", "input", "param", "index", "out"):
                args = [self.translate(arg) for arg in node.args]
                self.renumbered[at] = self.graph.op(node.op, *args, dtype=node.dtype)
                if (factor := self.graph.dropped_factor(node.op, args)) is not None:
                    self.dropped[-1].add(factor)

    def rebuild_loop(self, at: int) -> None:
        loop: Loop = self.nodes[at].value
        carried = [k for k, param in enumerate(loop.params) if param in self.live]
        factors: set[int] = set()

        def body(index: int, values: list[int]) -> tuple[None, list[int]]:
            nonlocal factors
            self.renumbered[loop.index] = index
            self.renumbered |= {loop.params[k]: value for k, value in zip(carried, values, strict=True)}
            self.dropped.append(set())
            self.rebuild_block(loop.block)
            factors = self.dropped.pop()  # of the last call: those before were attempts
            return None, [self.translate(loop.results[k]) for k in carried]

        init = [self.translate(self.nodes[at].args[k]) for k in carried]
        results = dict(zip(carried, self.graph.repeat(loop.length, init, body), strict=True))
        self.dropped[-1] |= factors
        for out in self.blocks[self.nodes[at].block]:
            if self.nodes[out].op == "out" and self.nodes[out].args == (at,):
                self.renumbered[out] = results[self.nodes[out].value]


def _numbers_to_check(program: Program, dropped: set[int]) -> set[int] | None:
    """Numbers such that all `dropped` factors are finite if these are less than `MAX_CHECKED_SIZE`.

    None if they cannot be checked: in a loop that the program does not have any more, or of another type.
    """
    nodes, live, loops = program.graph.nodes, program.find_live_nodes(), program.loops()
    if not {nodes[at].block for at in dropped} <= {OUTERMOST, *(loop.block for loop in loops.values())}:
        return None
    results = {result for loop in loops.values() for result in loop.results}
    results |= {node for group in program.outputs for node in group}
    covered_by: dict[int, int] = {}  # a result that is finite only if this number is
    for at in sorted(live, reverse=True):
        node = nodes[at]
        if node.dtype == "float32" and at in results:
            covered_by.setdefault(at, at)
        if at in covered_by and (node.op in _NEED_FINITE or node.op == "div"):
            for arg in node.args[: 1 if node.op == "div" else None]:
                covered_by.setdefault(arg, covered_by[at])
    checked = {covered_by[at] for at in dropped if at in covered_by}
    left = dropped - covered_by.keys()
    cone, todo = set(left), list(left)  # with what leads to numbers that the program does not compute
    while todo:
        at = todo.pop()
        derived = at not in live and nodes[at].op in _NEED_FINITE
        new = [arg for arg in nodes[at].args if arg not in cone and arg not in live] if derived else []
        cone.update(new)
        todo += new
    bounds: dict[int, float] = {}

    def bound(at: int) -> float:
        return MAX_CHECKED_SIZE if at in checked else bounds.get(at, math.inf)

    for at, node in enumerate(nodes):
        bounds[at] = _bound(node, [bound(arg) for arg in node.args])
        if at not in cone or bound(at) <= _FINITE:
            continue
        if at not in live and node.op in _NEED_FINITE:
            checked |= {arg for arg in node.args if arg in live and bound(arg) > MAX_CHECKED_SIZE}
            bounds[at] = _bound(node, [bound(arg) for arg in node.args])
        if bound(at) > _FINITE:
            checked.add(at)
    return checked if all(nodes[at].dtype == "float32" for at in checked) else None


def _bound(node: Node, args: list[float]) -> float:
    """A bound of the size of a number, given those of its arguments; infinite if it may be too large."""
    bound = _exact_bound(node, args)
    return bound if bound <= _FINITE else math.inf


def _exact_bound(node: Node, args: list[float]) -> float:
    if node.op == "const":
        size = abs(float(node.value))
        return size if math.isfinite(size) else math.inf
    if node.dtype != "float32":
        return 2.0**32 if node.dtype in ("bool", "int32", "uint32") else math.inf
    if node.op in ("add", "sub"):
        return args[0] + args[1]
    if node.op == "mul":
        return args[0] * args[1] if max(args) < math.inf else math.inf
    if node.op in ("neg", "abs", "copysign", "cast"):
        return args[0]
    if node.op in ("max", "min"):
        return max(args)
    return max(args[1:]) if node.op == "select" else math.inf


def _with_guard(program: Program, checked: set[int]) -> Program:
    """The program with a last group of outputs: the sum of the squares of the checked numbers."""
    graph, loops = program.graph, program.loops()
    places: dict[int, int] = {}  # of new nodes: behind which node they are computed
    by_block: dict[int, list[int]] = {}
    for at in sorted(checked):
        by_block.setdefault(graph.nodes[at].block, []).append(at)
    zero = graph.const(0, "float32")

    def add(op: str, args: tuple[int, ...], block: int, place: int) -> int:
        at = graph.new(op, args, "float32", block)
        places[at] = place
        return at

    def guard(total: int, block: int, inner: list[int]) -> int:
        """The sum of a block, with the guards of the loops inside it."""
        sums, last = [total, *inner], max([total, *inner])
        for number, at in enumerate(by_block.get(block, [])):
            square, last = add("mul", (at, at), block, at), max(last, at)
            if number < _SUMS:
                sums.append(square)
            else:
                sums[-1 - number % _SUMS] = add("add", (sums[-1 - number % _SUMS], square), block, at)
        for one in sums[1:]:
            sums[0] = add("add", (sums[0], one), block, last)
        return sums[0]

    guards: dict[int, list[int]] = {}  # of loops, by the block around them
    for at, loop in reversed(loops.items()):
        node, number, inner = graph.nodes[at], len(loop.params), guards.get(loop.block, [])
        if not inner and loop.block not in by_block:
            continue
        param = graph.new("param", (), "float32", loop.block, (at, number))
        places[param] = loop.index
        loop.results.append(guard(param, loop.block, inner))
        loop.params.append(param)
        graph.nodes[at] = node._replace(args=(*node.args, zero))
        guards.setdefault(node.block, []).append(graph.new("out", (at,), "float32", node.block, number))
        places[guards[node.block][-1]] = at
    total = guard(zero, OUTERMOST, guards.get(OUTERMOST, []))
    whole = Program(graph, program.inputs, (*program.outputs, (total,)))
    order = sorted(range(len(graph.nodes)), key=lambda at: (places.get(at, at), at in places, at))
    return _reorder_nodes(whole, order)


def _reorder_nodes(program: Program, order: list[int]) -> Program:
    """The same program, without loops that have no length, with its nodes in another order."""
    new = {at: position for position, at in enumerate(order)}
    graph = Graph()
    graph.depths = program.graph.depths
    for at in order:
        node = program.graph.nodes[at]
        value = node.value
        if node.op == "param" and value is not None:
            value = (new[value[0]], value[1])
        elif node.op == "loop":
            value = replace(
                value,
                index=new[value.index],
                params=[new[param] for param in value.params],
                results=[new[result] for result in value.results],
            )
        graph.nodes.append(node._replace(args=tuple(new[arg] for arg in node.args), value=value))

    def groups(before: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(new[at] for at in group) for group in before)

    return Program(graph, groups(program.inputs), groups(program.outputs))
