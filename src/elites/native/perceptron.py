"""A perceptron as machine code: one at a time, vectorised over the units of a layer.

The weights of a controller do not fit into the L1 cache, so most of the time is spent on reading them. The
units of a block of vector registers are summed at once. A row of weights is read only if its input is not 0,
and the output of a rectified unit often is. A sum begins with the bias and adds the inputs in order, whatever
is skipped. In the last layer, vectors are summed, their halves are added until one number is left, and then
the bias is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from elites.native.compiled import LoadedCode, compile_ir, detect_host

ENTRY = "elites_perceptron"
BLOCK = 8  # vectors of units that are summed at once
WORD = 4  # bytes


class Perceptron:
    """The code of perceptrons of these layer sizes, with rectified hidden units.

    `address` is that of a function. Its arguments are weights in the order of `layout`, inputs and outputs
    `[numbers, lanes]`, a lane, and whether to read the rows of zero inputs too (needed if a weight is not
    finite). Outputs are not rectified.
    """

    def __init__(self, sizes: Sequence[int], lanes: int) -> None:
        self.sizes, self.lanes, self.width = tuple(sizes), lanes, detect_host().lanes
        self._code = LoadedCode(compile_ir("\n".join(_Emitter(self).module())), ENTRY)
        self.address = self._code.address

    @property
    def padded(self) -> tuple[int, ...]:
        """Layer sizes in whole vectors."""
        return tuple(-(-size // self.width) * self.width for size in self.sizes)

    @property
    def layout(self) -> tuple[tuple[int, int], ...]:
        """Where weights and biases of each layer begin, in numbers.

        Weights are `[in, out]` in whole vectors; those of the last layer are `[out, in]`.
        """
        places, start = [], 0
        for layer, (inputs, outputs) in enumerate(pairwise(self.padded)):
            last = layer == len(self.sizes) - 2
            biases = start + inputs * (self.sizes[-1] if last else outputs)
            places.append((start, biases))
            start = biases + outputs
        return (*places, (start, start))

    @property
    def numbers(self) -> int:
        """The number of floats that a perceptron takes in memory."""
        return self.layout[-1][0]


class _Emitter:
    def __init__(self, perceptron: Perceptron) -> None:
        self.sizes, self.padded, self.layout = perceptron.sizes, perceptron.padded, perceptron.layout
        self.lanes, self.width = perceptron.lanes, perceptron.width
        self.vector, self.mask, self.whole = (
            f"<{perceptron.width} x {kind}>" for kind in ("float", "i1", "i32")
        )
        self.label = "start"
        self.names = 0

    def module(self) -> Iterator[str]:
        widest = max(self.padded)
        yield (
            f"define void @{ENTRY}(ptr %weights, ptr %inputs, ptr %outputs, i64 %lane, i64 %dense) "
            "nounwind {"
        )
        yield "start:"
        for name, kind in (("%x0", "float"), ("%x1", "float"), ("%places", "i32")):
            yield f"  {name} = alloca [{widest + self.width} x {kind}], align {self.width * WORD}"
        yield "  %is.dense = icmp ne i64 %dense, 0"
        yield f"  %dense.one = insertelement {self.mask} poison, i1 %is.dense, i64 0"
        yield (
            f"  %dense.all = shufflevector {self.mask} %dense.one, {self.mask} poison, "
            f"<{self.width} x i32> zeroinitializer"
        )
        yield from self.emit_inputs()
        now, then, layers = "%x0", "%x1", len(self.sizes) - 1
        for layer in range(layers - 1):
            count = str(self.sizes[layer])
            if layer > 0:
                yield from self.emit_active_indices(now, self.padded[layer])
                count = "%active" + str(self.names)
            yield from self.emit_hidden_layer(layer, now, then, count)
            now, then = then, now
        yield from self.emit_last_layer(now)
        yield "  ret void"
        yield "}"
        for name, result, arguments in (
            ("fmuladd", self.vector, [self.vector] * 3),
            ("maximum", self.vector, [self.vector] * 2),
        ):
            yield f"declare {result} @llvm.{name}.v{self.width}f32({', '.join(arguments)})"
        yield (
            f"declare {self.whole} @llvm.experimental.vector.compress.v{self.width}i32"
            f"({self.whole}, {self.mask}, {self.whole})"
        )
        yield f"declare i{self.width} @llvm.ctpop.i{self.width}(i{self.width})"

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def at(self, pointer: str, offset: str | int) -> tuple[str, str]:
        """The address of a number, and the line that computes it."""
        place = f"%{self.name()}"
        return place, f"  {place} = getelementptr float, ptr {pointer}, i64 {offset}"

    def loop(
        self,
        count: str,
        starts: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], tuple[list[str], list[str]]],
    ) -> tuple[list[str], list[str]]:
        """The lines of a loop, and the values that it carries: `starts` are their types and first values.

        `body` has the index and those values, and returns its lines and the next values.
        """
        name, before = self.name(), self.label
        carried = [f"%{name}.c{k}" for k in range(len(starts))]
        lines, after = body(f"%{name}.i", carried)
        head = [
            f"  br label %{name}",
            f"{name}:",
            f"  %{name}.i = phi i64 [0, %{before}], [%{name}.next, %{name}.body]",
            *(
                f"  {value} = phi {kind} [{start}, %{before}], [{new}, %{name}.body]"
                for value, (kind, start), new in zip(carried, starts, after, strict=True)
            ),
            f"  %{name}.more = icmp slt i64 %{name}.i, {count}",
            f"  br i1 %{name}.more, label %{name}.body, label %{name}.end",
            f"{name}.body:",
        ]
        tail = [f"  %{name}.next = add i64 %{name}.i, 1", f"  br label %{name}", f"{name}.end:"]
        self.label = f"{name}.end"
        return [*head, *lines, *tail], carried

    def emit_inputs(self) -> Iterator[str]:
        """The inputs of this lane, side by side, with zeros after them."""
        for start in range(0, self.padded[0], self.width):
            place, line = self.at("%x0", start)
            yield line
            yield f"  store {self.vector} zeroinitializer, ptr {place}, align {self.width * WORD}"

        def body(index: str, _: list[str]) -> tuple[list[str], list[str]]:
            offset, value = f"%{self.name()}", f"%{self.name()}"
            source, line = self.at("%inputs", f"{offset}.lane")
            target, another = self.at("%x0", index)
            return [
                f"  {offset} = mul i64 {index}, {self.lanes}",
                f"  {offset}.lane = add i64 {offset}, %lane",
                line,
                f"  {value} = load float, ptr {source}, align {WORD}",
                another,
                f"  store float {value}, ptr {target}, align {WORD}",
            ], []

        yield from self.loop(str(self.sizes[0]), [], body)[0]

    def emit_active_indices(self, inputs: str, padded: int) -> Iterator[str]:
        """The indices of the inputs that are not 0, in order, and their number."""
        first = ", ".join(f"i32 {k}" for k in range(self.width))

        def body(index: str, carried: list[str]) -> tuple[list[str], list[str]]:
            n, start = f"%{self.name()}", f"%{self.name()}"
            source, line = self.at(inputs, start)
            target, another = self.at("%places", carried[0])
            count = f"i{self.width}"
            return [
                f"  {start} = mul i64 {index}, {self.width}",
                line,
                f"  {n}.x = load {self.vector}, ptr {source}, align {self.width * WORD}",
                f"  {n}.some = fcmp une {self.vector} {n}.x, zeroinitializer",
                f"  {n}.kept = or {self.mask} {n}.some, %dense.all",
                f"  {n}.start = trunc i64 {start} to i32",
                f"  {n}.one = insertelement {self.whole} poison, i32 {n}.start, i64 0",
                f"  {n}.all = shufflevector {self.whole} {n}.one, {self.whole} poison, "
                f"{self.whole} zeroinitializer",
                f"  {n}.each = add {self.whole} {n}.all, <{first}>",
                f"  {n}.chosen = call {self.whole} @llvm.experimental.vector.compress.v{self.width}i32"
                f"({self.whole} {n}.each, {self.mask} {n}.kept, {self.whole} poison)",
                another,
                f"  store {self.whole} {n}.chosen, ptr {target}, align {WORD}",
                f"  {n}.bits = bitcast {self.mask} {n}.kept to {count}",
                f"  {n}.count = call {count} @llvm.ctpop.{count}({count} {n}.bits)",
                f"  {n}.more = zext {count} {n}.count to i64",
                f"  {n}.next = add i64 {carried[0]}, {n}.more",
            ], [f"{n}.next"]

        lines, (total,) = self.loop(str(padded // self.width), [("i64", "0")], body)
        yield from lines
        self.names += 1
        yield f"  %active{self.names} = add i64 {total}, 0"

    def emit_hidden_layer(self, layer: int, inputs: str, outputs: str, count: str) -> Iterator[str]:
        """A layer with rectified units; all inputs of the first layer, active ones of the others."""
        weights, biases = self.layout[layer]
        row = self.padded[layer + 1]
        for start in range(0, row, BLOCK * self.width):
            offsets = range(start, min(start + BLOCK * self.width, row), self.width)
            begin = []
            for offset in offsets:
                place, line = self.at("%weights", biases + offset)
                bias = f"%{self.name()}"
                yield line
                yield f"  {bias} = load {self.vector}, ptr {place}, align {self.width * WORD}"
                begin.append((self.vector, bias))

            def body(index: str, sums: list[str], offsets: range = offsets) -> tuple[list[str], list[str]]:
                lines: list[str] = []
                if layer > 0:
                    listed, line = self.at("%places", index)
                    active_index = f"%{self.name()}"
                    lines += [
                        line,
                        f"  {active_index} = load i32, ptr {listed}, align {WORD}",
                        f"  {active_index}.wide = zext i32 {active_index} to i64",
                    ]
                    index = f"{active_index}.wide"
                source, line = self.at(inputs, index)
                x, shift = f"%{self.name()}", f"%{self.name()}"
                lines += [
                    line,
                    f"  {x} = load float, ptr {source}, align {WORD}",
                    f"  {x}.one = insertelement {self.vector} poison, float {x}, i64 0",
                    f"  {x}.all = shufflevector {self.vector} {x}.one, {self.vector} poison, "
                    f"{self.whole} zeroinitializer",
                    f"  {shift} = mul i64 {index}, {row}",
                    f"  {shift}.row = getelementptr float, ptr %weights, i64 {shift}",
                ]
                after = []
                for offset, value in zip(offsets, sums, strict=True):
                    place, line = self.at(f"{shift}.row", weights + offset)
                    w = f"%{self.name()}"
                    lines += [
                        line,
                        f"  {w} = load {self.vector}, ptr {place}, align {self.width * WORD}",
                        f"  {w}.sum = {self.fmuladd(f'{x}.all', w, value)}",
                    ]
                    after.append(f"{w}.sum")
                return lines, after

            lines, sums = self.loop(count, begin, body)
            yield from lines
            for offset, value in zip(offsets, sums, strict=True):
                place, line = self.at(outputs, offset)
                yield line
                yield (
                    f"  {value}.up = call {self.vector} @llvm.maximum.v{self.width}f32"
                    f"({self.vector} {value}, {self.vector} zeroinitializer)"
                )
                yield f"  store {self.vector} {value}.up, ptr {place}, align {self.width * WORD}"

    def emit_last_layer(self, inputs: str) -> Iterator[str]:
        """The outputs: products of vectors, as there are few of them."""
        weights, biases = self.layout[len(self.sizes) - 2]
        row = self.padded[-2]
        for start in range(0, self.sizes[-1], BLOCK):
            units = range(start, min(start + BLOCK, self.sizes[-1]))

            def body(index: str, sums: list[str], units: range = units) -> tuple[list[str], list[str]]:
                x, shift = f"%{self.name()}", f"%{self.name()}"
                source, line = self.at(inputs, shift)
                lines = [
                    f"  {shift} = mul i64 {index}, {self.width}",
                    line,
                    f"  {x} = load {self.vector}, ptr {source}, align {self.width * WORD}",
                    f"  {shift}.part = getelementptr float, ptr %weights, i64 {shift}",
                ]
                after = []
                for unit, value in zip(units, sums, strict=True):
                    place, line = self.at(f"{shift}.part", weights + unit * row)
                    w = f"%{self.name()}"
                    lines += [
                        line,
                        f"  {w} = load {self.vector}, ptr {place}, align {self.width * WORD}",
                        f"  {w}.sum = {self.fmuladd(x, w, value)}",
                    ]
                    after.append(f"{w}.sum")
                return lines, after

            begin = [(self.vector, "zeroinitializer")] * len(units)
            lines, sums = self.loop(str(row // self.width), begin, body)
            yield from lines
            for unit, value in zip(units, sums, strict=True):
                source, line = self.at("%weights", biases + unit)
                yield line
                yield f"  {value}.bias = load float, ptr {source}, align {WORD}"
                yield from self.emit_sum(value)
                yield f"  {value}.total = fadd float {value}.sum, {value}.bias"
                target, line = self.at("%outputs", f"{value}.to")
                yield f"  {value}.to = add i64 %lane, {unit * self.lanes}"
                yield line
                yield f"  store float {value}.total, ptr {target}, align {WORD}"

    def emit_sum(self, value: str) -> Iterator[str]:
        """The sum of a vector, `.sum`: its halves are added until one number is left."""
        width, left = self.width, value
        while width > 1:
            half, kind, part = width // 2, f"<{width} x float>", f"{value}.of{width // 2}"
            for name, start in (("low", 0), ("high", half)):
                places = ", ".join(f"i32 {start + k}" for k in range(half))
                both = f"{kind} {left}, {kind} poison"
                yield f"  {part}.{name} = shufflevector {both}, <{half} x i32> <{places}>"
            yield f"  {part} = fadd <{half} x float> {part}.low, {part}.high"
            width, left = half, part
        yield f"  {value}.sum = extractelement <1 x float> {left}, i64 0"

    def fmuladd(self, a: str, b: str, c: str) -> str:
        """a · b + c, rounded once where the processor can."""
        arguments = ", ".join(f"{self.vector} {value}" for value in (a, b, c))
        return f"call {self.vector} @llvm.fmuladd.v{self.width}f32({arguments})"
