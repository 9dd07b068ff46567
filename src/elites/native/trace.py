"""A small pure JAX function as a program of scalars.

Arrays are arrays of nodes while the function's jaxpr is read, so that indexing, broadcasting and reshaping
leave nothing in the program. Long loops stay loops; a condition that differs between lanes computes all its
branches and selects. An index that is known only at run time becomes a selection among all positions.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.lax import GatherScatterMode

from elites.native.functions import make_functions
from elites.native.program import Graph, Program, Slot, UnknownPrimitiveError

UNROLL = 2000  # operations of a loop that is written out at most
DTYPES = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32")
_KEY = "key"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # of Threefry-2x32
_PARITY = 0x1BD11BDA
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
_SCATTERS = {
    "scatter": None,
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
_SAME = ("copy", "copy_p", "device_put", "stop_gradient", "optimization_barrier")

Array = np.ndarray  # of nodes


def trace(function: Callable[..., Any], *examples: Any) -> tuple[Program, list[list[Slot]], list[list[Slot]]]:
    """The program of a function, with the arrays of each argument and of each result.

    Examples are pytrees of arrays or of their shapes. The function returns a tuple of pytrees.
    """
    return from_jaxpr(*trace_jaxpr(function, *examples))


def trace_jaxpr(function: Callable[..., Any], *examples: Any) -> tuple[Any, list[int], list[int]]:
    """The function's jaxpr, and the number of arrays of each argument and each result."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
    return (
        closed,
        [len(jax.tree.leaves(example)) for example in examples],
        [len(jax.tree.leaves(shape)) for shape in shapes],
    )


def from_jaxpr(
    closed: Any, arguments: Sequence[int], results: Sequence[int]
) -> tuple[Program, list[list[Slot]], list[list[Slot]]]:
    """Like `trace`, from the results of `trace_jaxpr`."""
    tracer = _Tracer()
    graph, inputs = tracer.graph, []
    for number, variable in enumerate(closed.jaxpr.invars):
        slot = _slot(variable)
        nodes = [graph.new("input", (), slot.dtype, 0, (number, k)) for k in range(slot.size)]
        inputs.append(np.array(nodes, int).reshape(slot.shape))
    outputs = tracer.read_jaxpr(closed, inputs)
    return (
        Program(graph, _grouped(inputs, arguments), _grouped(outputs, results)),
        _split([_slot(variable) for variable in closed.jaxpr.invars], arguments),
        _split([_slot(variable) for variable in closed.jaxpr.outvars], results),
    )


def _slot(variable: Any) -> Slot:
    dtype = str(variable.aval.dtype)
    if dtype not in DTYPES:
        raise UnknownPrimitiveError(f"an array of {dtype} cannot be compiled; use {', '.join(DTYPES)}")
    return Slot(tuple(variable.aval.shape), dtype)


def _split(items: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    ends = list(itertools.accumulate(counts, initial=0))
    return [list(items[start:end]) for start, end in itertools.pairwise(ends)]


def _grouped(arrays: Sequence[Array], counts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(int(node) for array in group for node in array.flat) for group in _split(arrays, counts)
    )


class _Tracer:
    """Reads a jaxpr. A method that is named after a primitive returns the arrays of its results."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.scalar = self._scalar_operations()

    def read_jaxpr(self, closed_jaxpr: Any, arguments: Sequence[Array]) -> list[Array]:
        """The results of a jaxpr."""
        is_closed = hasattr(closed_jaxpr, "consts")
        jaxpr, consts = (closed_jaxpr.jaxpr, closed_jaxpr.consts) if is_closed else (closed_jaxpr, ())
        values: dict[Any, Array] = {}
        values |= {
            var: self._constant(np.asarray(const)) for var, const in zip(jaxpr.constvars, consts, strict=True)
        }
        values |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(variable: Any) -> Array:
            if isinstance(variable, core.Literal):
                return self._constant(np.asarray(variable.val, _slot(variable).dtype))
            return values[variable]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(variable) for variable in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def _equation(self, equation: Any, arrays: list[Array]) -> Sequence[Array]:
        name, params = equation.primitive.name, equation.params
        if name in self.scalar:
            return [self._map(self.scalar[name], *arrays)]
        if name in _CALLS:
            return self.read_jaxpr(params[_CALLS[name]], arrays)
        if name in _SAME:
            return arrays
        if name in _REDUCTIONS:
            return [self._reduce(_REDUCTIONS[name], arrays[0], params["axes"])]
        if name in _CUMULATIVE:
            return [self._accumulate(_CUMULATIVE[name], arrays[0], **params)]
        if name in _SCATTERS:
            return [self._scatter(_SCATTERS[name], *arrays, **params)]
        rule = getattr(self, f"_do_{name}", None)
        if rule is None:
            raise UnknownPrimitiveError(f"JAX's operation {name} cannot be compiled")
        results: Sequence[Array] = rule(equation, *arrays)
        return results

    def _constant(self, value: np.ndarray) -> Array:
        name = str(value.dtype)
        if name not in DTYPES:
            raise UnknownPrimitiveError(f"a constant of {name} cannot be compiled; use {', '.join(DTYPES)}")
        nodes = [self.graph.const(number, name) for number in value.reshape(-1)]
        return np.array(nodes, int).reshape(value.shape)

    def _map(self, function: Callable[..., int], *arrays: Array) -> Array:
        """A scalar function of each element."""
        together = np.broadcast_arrays(*arrays)
        results = [
            function(*nodes) for nodes in zip(*(array.ravel().tolist() for array in together), strict=True)
        ]
        return np.array(results, int).reshape(together[0].shape)

    def _read_constants(self, array: Array) -> np.ndarray | None:
        """The values of an array of constants."""
        values = [self.graph.value(node) for node in array.ravel().tolist()]
        return None if any(value is None for value in values) else np.array(values).reshape(array.shape)

    # Scalars

    def _scalar_operations(self) -> dict[str, Callable[..., int]]:
        g = self.graph
        plain = ("add", "sub", "mul", "neg", "max", "min", "lt", "le", "eq", "ne", "and", "or", "xor", "not")
        return {
            **{name: functools.partial(g.op, name) for name in (*plain, "sqrt", "floor", "ceil")},
            **make_functions(g),
            "gt": lambda a, b: g.op("lt", b, a),
            "ge": lambda a, b: g.op("le", b, a),
            "abs": self._abs,
            "square": lambda a: g.op("mul", a, a),
            "sign": self._sign,
            "div": self._div,
            "rem": self._rem,
            "pow": self._pow,
            "is_finite": lambda a: g.op("lt", g.op("abs", a), g.const_like(a, np.inf)),
            "clamp": lambda low, x, high: g.op("min", g.op("max", x, low), high),
            "add_any": functools.partial(g.op, "add"),
            "shift_left": functools.partial(self._shift, "shl"),
            "shift_right_logical": self._shift_right_logical,
            "shift_right_arithmetic": self._shift_right_arithmetic,
        }

    def _kind(self, node: int) -> str:
        return np.dtype(self.graph.nodes[node].dtype).kind

    def _abs(self, a: int) -> int:
        return a if self._kind(a) in "ub" else self.graph.op("abs", a)

    def _sign(self, a: int) -> int:
        g = self.graph
        zero, one = g.const_like(a, 0), g.const_like(a, 1)
        up = g.select(g.op("lt", zero, a), one, zero if self._kind(a) != "f" else a)
        return up if self._kind(a) == "u" else g.select(g.op("lt", a, zero), g.const_like(a, -1), up)

    def _div(self, a: int, b: int) -> int:
        """As in XLA: n / 0 is -1, and the least number / -1 is itself."""
        g = self.graph
        if self._kind(a) == "f":
            return g.op("div", a, b)
        zero, safe, special = self._divisor(a, b)
        minus = np.iinfo(g.nodes[a].dtype).max if self._kind(a) == "u" else -1
        return g.select(zero, g.const_like(a, minus), g.select(special, a, g.op("div", a, safe)))

    def _rem(self, a: int, b: int) -> int:
        """As in XLA: n % 0 is n, and the least number % -1 is 0."""
        g = self.graph
        if self._kind(a) == "f":
            return g.op("rem", a, b)
        zero, safe, special = self._divisor(a, b)
        return g.select(zero, a, g.select(special, g.const_like(a, 0), g.op("rem", a, safe)))

    def _divisor(self, a: int, b: int) -> tuple[int, int, int]:
        """Whether an integer divisor is 0, a divisor that cannot trap, and whether the quotient overflows."""
        g = self.graph
        zero, special = g.op("eq", b, g.const_like(b, 0)), g.const(False, "bool")
        if self._kind(a) == "i":
            least = g.op("eq", a, g.const_like(a, np.iinfo(g.nodes[a].dtype).min))
            special = g.op("and", least, g.op("eq", b, g.const_like(b, -1)))
        return zero, g.select(g.op("or", zero, special), g.const_like(b, 1), b), special

    def _pow(self, x: int, y: int) -> int:
        g = self.graph
        if self._kind(x) != "f":
            raise UnknownPrimitiveError("JAX's operation pow of integers cannot be compiled")
        return make_functions(g)["pow"](x, g.cast(y, "float32"))

    def _shift(self, op: str, a: int, by: int) -> int:
        """A shift; one by the full width or more gives 0."""
        g = self.graph
        width = np.dtype(g.nodes[a].dtype).itemsize * 8
        unsigned = g.bits(by, g.nodes[by].dtype.replace("uint", "int").replace("int", "uint"))
        fits = g.op("lt", unsigned, g.const_like(unsigned, width))
        return g.select(fits, g.op(op, a, g.select(fits, by, g.const_like(by, 0))), g.const_like(a, 0))

    def _shift_right_logical(self, a: int, by: int) -> int:
        g, dtype = self.graph, self.graph.nodes[a].dtype
        unsigned = dtype if dtype.startswith("u") else f"u{dtype}"
        return g.bits(self._shift("shr", g.bits(a, unsigned), g.bits(by, unsigned)), dtype)

    def _shift_right_arithmetic(self, a: int, by: int) -> int:
        g, dtype = self.graph, self.graph.nodes[a].dtype
        signed, unsigned = dtype.removeprefix("u"), f"u{dtype.removeprefix('u')}"
        most = g.const(np.dtype(dtype).itemsize * 8 - 1, unsigned)
        amount = g.op("min", g.bits(by, unsigned), most)
        return g.bits(g.op("shr", g.bits(a, signed), g.bits(amount, signed)), dtype)

    def _do_integer_pow(self, equation: Any, x: Array) -> list[Array]:
        g, power = self.graph, equation.params["y"]

        def raised(base: int) -> int:
            result, left = None, abs(power)
            while left:
                if left & 1:
                    result = base if result is None else g.op("mul", result, base)
                base, left = g.op("mul", base, base), left >> 1
            if result is None:
                return g.const_like(base, 1)
            return result if power > 0 else self._div(g.const_like(base, 1), result)

        return [self._map(raised, x)]

    def _do_round(self, equation: Any, x: Array) -> list[Array]:
        away = equation.params["rounding_method"] == jax.lax.RoundingMethod.AWAY_FROM_ZERO
        return [self._map(functools.partial(self.graph.op, "round" if away else "round_even"), x)]

    def _do_convert_element_type(self, equation: Any, x: Array) -> list[Array]:
        dtype = _slot(equation.outvars[0]).dtype
        return [self._map(lambda node: self.graph.cast(node, dtype), x)]

    def _do_bitcast_convert_type(self, equation: Any, x: Array) -> list[Array]:
        before, after = _slot(equation.invars[0]).dtype, _slot(equation.outvars[0]).dtype
        if "bool" in (before, after) or np.dtype(before).itemsize != np.dtype(after).itemsize:
            raise UnknownPrimitiveError(
                f"JAX's operation bitcast_convert_type of {before} to {after} cannot be compiled"
            )
        return [self._map(lambda node: self.graph.bits(node, after), x)]

    def _do_select_n(self, equation: Any, which: Array, *cases: Array) -> list[Array]:
        g = self.graph

        def choose(at: int, *nodes: int) -> int:
            if g.nodes[at].dtype == "bool":
                return g.select(at, nodes[1], nodes[0]) if len(nodes) > 1 else nodes[0]
            chosen = nodes[-1]
            for k in range(len(nodes) - 2, -1, -1):
                chosen = g.select(g.op("le", at, g.const_like(at, k)), nodes[k], chosen)
            return chosen

        return [self._map(choose, which, *cases)]

    # Shapes

    def _do_iota(self, equation: Any) -> list[Array]:
        slot, axis = _slot(equation.outvars[0]), equation.params["dimension"]
        return [self._constant(np.indices(slot.shape)[axis].astype(slot.dtype))]

    def _do_reshape(self, equation: Any, x: Array) -> list[Array]:
        return [x.reshape(equation.outvars[0].aval.shape)]

    _do_squeeze = _do_expand_dims = _do_reshape

    def _do_broadcast_in_dim(self, equation: Any, x: Array) -> list[Array]:
        shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
        spread = [1] * len(shape)
        for axis, length in zip(axes, x.shape, strict=True):
            spread[axis] = length
        return [np.broadcast_to(x.reshape(spread), shape)]

    def _do_transpose(self, equation: Any, x: Array) -> list[Array]:
        return [x.transpose(equation.params["permutation"])]

    def _do_rev(self, equation: Any, x: Array) -> list[Array]:
        return [np.flip(x, equation.params["dimensions"])]

    def _do_tile(self, equation: Any, x: Array) -> list[Array]:
        return [np.tile(x, equation.params["reps"])]

    def _do_slice(self, equation: Any, x: Array) -> list[Array]:
        p = equation.params
        steps = p["strides"] or (1,) * x.ndim
        return [x[tuple(map(slice, p["start_indices"], p["limit_indices"], steps))]]

    def _do_concatenate(self, equation: Any, *arrays: Array) -> list[Array]:
        return [np.concatenate(arrays, equation.params["dimension"])]

    def _do_stack(self, equation: Any, *arrays: Array) -> list[Array]:
        return [np.stack(arrays, equation.params["axis"])]

    def _do_unstack(self, equation: Any, x: Array) -> list[Array]:
        return list(np.moveaxis(x, equation.params["axis"], 0))

    def _do_split(self, equation: Any, x: Array) -> list[Array]:
        return np.split(x, np.cumsum(equation.params["sizes"])[:-1], equation.params["axis"])

    def _do_pad(self, equation: Any, x: Array, filler: Array) -> list[Array]:
        padded = np.full(equation.outvars[0].aval.shape, int(filler))
        for at in np.ndindex(x.shape):
            config = zip(at, equation.params["padding_config"], padded.shape, strict=True)
            to = [low + k * (inner + 1) for k, (low, _, inner), _ in config]
            if all(0 <= k < length for k, length in zip(to, padded.shape, strict=True)):
                padded[tuple(to)] = x[at]
        return [padded]

    # Sums

    def _fold(self, op: str, nodes: list[int]) -> int:
        return functools.reduce(functools.partial(self.graph.op, op), nodes)

    def _reduce(self, op: str, x: Array, axes: Sequence[int]) -> Array:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = [x.shape[axis] for axis in kept]
        rows = x.transpose(*kept, *axes).reshape(math.prod(shape), -1).tolist()
        if rows and not rows[0]:
            raise UnknownPrimitiveError(f"a reduction ({op}) over an empty axis cannot be compiled")
        return np.array([self._fold(op, row) for row in rows], int).reshape(shape)

    def _accumulate(self, op: str, x: Array, axis: int, reverse: bool) -> Array:
        moved = np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0)
        rows = list(
            itertools.accumulate(moved, functools.partial(self._map, functools.partial(self.graph.op, op)))
        )
        whole = np.moveaxis(np.stack(rows), 0, axis)
        return np.flip(whole, axis) if reverse else whole

    def _find_extreme(self, x: Array, axis: int, better: str, dtype: str) -> Array:
        """The index of the first best element along an axis; NaN is best of all."""
        g = self.graph
        rows = np.moveaxis(x, axis, -1)

        def first(*row: int) -> int:
            best, at = row[0], g.const(0, dtype)
            for k, node in enumerate(row[1:], 1):
                beats = g.op("lt", best, node) if better == "max" else g.op("lt", node, best)
                broken = g.op("and", g.op("ne", node, node), g.op("eq", best, best))
                beats = g.op("or", beats, broken) if self._kind(node) == "f" else beats
                best, at = g.select(beats, node, best), g.select(beats, g.const(k, dtype), at)
            return at

        return self._map(first, *np.moveaxis(rows, -1, 0))

    def _do_argmax(self, equation: Any, x: Array) -> list[Array]:
        better = equation.primitive.name.removeprefix("arg")
        return [self._find_extreme(x, equation.params["axes"][0], better, _slot(equation.outvars[0]).dtype)]

    _do_argmin = _do_argmax

    def _do_dot_general(self, equation: Any, a: Array, b: Array) -> list[Array]:
        g = self.graph
        (sums_a, sums_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
        dtype = _slot(equation.outvars[0]).dtype
        left, right = self._rows(a, batch_a, sums_a), self._rows(b, batch_b, sums_b)
        results = [
            self._fold(
                "add", [g.op("mul", g.cast(x, dtype), g.cast(y, dtype)) for x, y in zip(r, c, strict=True)]
            )
            for rows, columns in zip(left, right, strict=True)
            for r in rows
            for c in columns
        ]
        return [np.array(results, int).reshape(equation.outvars[0].aval.shape)]

    def _rows(self, x: Array, batch: Sequence[int], sums: Sequence[int]) -> list[list[list[int]]]:
        free = [axis for axis in range(x.ndim) if axis not in (*batch, *sums)]
        lengths = [math.prod(x.shape[axis] for axis in axes) for axes in (batch, free, sums)]
        rows: list[list[list[int]]] = x.transpose(*batch, *free, *sums).reshape(lengths).tolist()
        return rows

    # Indices

    def _windows(
        self, starts: Sequence[int], most: Sequence[int], clip: bool
    ) -> list[tuple[tuple[int, ...], int]]:
        """Where a window may start, each with its condition; `most` is the last place on each axis."""
        g, per_axis = self.graph, []
        for start, last in zip(starts, most, strict=True):
            constant = self.graph.value(start)
            if constant is not None:
                at = min(max(int(constant), 0), last) if clip else int(constant)
                per_axis.append([(at, g.const(True, "bool"))] if 0 <= at <= last else [])
                continue
            places = [(at, g.op("eq", start, g.const_like(start, at))) for at in range(last + 1)]
            if clip:
                places[0] = (0, g.op("le", start, g.const_like(start, 0)) if last else g.const(True, "bool"))
                if last:
                    places[-1] = (last, g.op("le", g.const_like(start, last), start))
            per_axis.append(places)
        return [
            (
                tuple(at for at, _ in places),
                self._fold("and", [g.const(True, "bool"), *(is_ for _, is_ in places)]),
            )
            for places in itertools.product(*per_axis)
        ]

    def _read(
        self, x: Array, starts: Sequence[int], sizes: Sequence[int], clip: bool, filler: int | None
    ) -> Array:
        """A window of an array."""
        most = [length - size for length, size in zip(x.shape, sizes, strict=True)]
        places = self._windows(starts, most, clip)
        windows = [(x[tuple(map(slice, at, np.add(at, sizes)))], here) for at, here in places]
        result = windows.pop()[0] if filler is None else np.full(sizes, filler)
        for window, here in windows:
            result = self._map(lambda new, old, here=here: self.graph.select(here, new, old), window, result)
        return result

    def _write(self, x: Array, starts: Sequence[int], new: Array, op: str | None, clip: bool) -> Array:
        """An array with a window that is replaced or combined; one that does not fit is dropped."""
        g, x = self.graph, x.copy()
        most = [length - size for length, size in zip(x.shape, new.shape, strict=True)]
        for at, here in self._windows(starts, most, clip):
            window = tuple(map(slice, at, np.add(at, new.shape)))
            changed = new if op is None else self._map(functools.partial(g.op, op), x[window], new)
            x[window] = self._map(lambda now, old, here=here: g.select(here, now, old), changed, x[window])
        return x

    def _do_dynamic_slice(self, equation: Any, x: Array, *starts: Array) -> list[Array]:
        return [self._read(x, [int(start) for start in starts], equation.params["slice_sizes"], True, None)]

    def _do_dynamic_update_slice(self, equation: Any, x: Array, new: Array, *starts: Array) -> list[Array]:
        return [self._write(x, [int(start) for start in starts], new, None, True)]

    def _do_gather(self, equation: Any, x: Array, indices: Array) -> list[Array]:
        p, g = equation.params, self.graph
        numbers, sizes, mode = p["dimension_numbers"], p["slice_sizes"], p["mode"]
        slot = _slot(equation.outvars[0])
        clip = mode != GatherScatterMode.FILL_OR_DROP
        filler = None if clip else g.const(_fill_value(p["fill_value"], slot.dtype), slot.dtype)
        hidden = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        seen = tuple(axis for axis in range(x.ndim) if axis not in hidden)
        batch = indices.shape[:-1]
        windows = np.empty((*batch, *(sizes[axis] for axis in seen)), int)
        for at in np.ndindex(batch):
            starts = self._starts(
                x.ndim, indices[at], at, numbers.start_index_map,
                numbers.operand_batching_dims, numbers.start_indices_batching_dims,
            )  # fmt: skip
            windows[at] = self._read(x, starts, sizes, clip, filler).reshape(windows.shape[len(batch) :])
        order = iter(range(len(batch))), iter(range(len(batch), windows.ndim))
        axes = [next(order[axis in numbers.offset_dims]) for axis in range(windows.ndim)]
        return [windows.transpose(axes)]

    def _scatter(self, op: str | None, x: Array, indices: Array, updates: Array, **p: Any) -> Array:
        numbers, clip = p["dimension_numbers"], p["mode"] == GatherScatterMode.CLIP
        window_axes = numbers.update_window_dims
        batch_axes = [axis for axis in range(updates.ndim) if axis not in window_axes]
        rows = updates.transpose(*batch_axes, *window_axes)
        hidden = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        lengths = iter(updates.shape[axis] for axis in window_axes)
        window = [1 if axis in hidden else next(lengths) for axis in range(x.ndim)]
        for at in np.ndindex(indices.shape[:-1]):
            starts = self._starts(
                x.ndim, indices[at], at, numbers.scatter_dims_to_operand_dims,
                numbers.operand_batching_dims, numbers.scatter_indices_batching_dims,
            )  # fmt: skip
            x = self._write(x, starts, rows[at].reshape(window), op, clip)
        return x

    def _starts(
        self,
        axes: int,
        index: Array,
        at: tuple[int, ...],
        index_axes: Sequence[int],
        batch_axes: Sequence[int],
        index_batch_axes: Sequence[int],
    ) -> list[int]:
        """Where a window of a gather or scatter starts in the operand."""
        starts = [self.graph.const(0, "int32")] * axes
        for axis, node in zip(index_axes, index.tolist(), strict=True):
            starts[axis] = node
        for axis, other in zip(batch_axes, index_batch_axes, strict=True):
            starts[axis] = self.graph.const(at[other], "int32")
        return starts

    # Control

    def _do_platform_index(self, equation: Any) -> list[Array]:
        """The choice of code for the CPU, or for any platform."""
        platforms = equation.params["platforms"]
        at = next((k for k, names in enumerate(platforms) if names is None or "cpu" in names), 0)
        return [self._constant(np.asarray(at, np.int32))]

    def _do_cond(self, equation: Any, which: Array, *arguments: Array) -> list[Array]:
        branches, known = equation.params["branches"], self._read_constants(which)
        if known is not None:
            return self.read_jaxpr(branches[min(max(int(known), 0), len(branches) - 1)], arguments)
        results = [self.read_jaxpr(branch, arguments) for branch in branches]
        return [self._do_select_n(equation, which, *cases)[0] for cases in zip(*results, strict=True)]

    def _do_scan(self, equation: Any, *arrays: Array) -> list[Array]:
        p, g = equation.params, self.graph
        length, body = p["length"], p["jaxpr"]
        if "num_consts" in p:
            consts, carried = p["num_consts"], p["num_carry"]
        else:  # since JAX 0.11
            consts, carried = (len(list(part)) for part in list(p["ft_in"].unpack())[:2])
        fixed, carry, scanned = _split(arrays, (consts, carried, len(arrays) - consts - carried))
        shapes = [tuple(variable.aval.shape) for variable in equation.outvars]
        blank = [
            np.full(shape, g.const(0, _slot(variable).dtype))
            for shape, variable in zip(shapes[carried:], equation.outvars[carried:], strict=True)
        ]

        def once(index: int, state: list[int]) -> tuple[None, list[int]]:
            now = _shaped(state, shapes)
            if p["reverse"]:
                index = g.op("sub", g.const(length - 1, "int32"), index)

            def row(x: Array) -> tuple[list[int], list[int]]:
                return [index, *[g.const(0, "int32")] * (x.ndim - 1)], [1, *x.shape[1:]]

            inputs = [self._read(x, *row(x), True, None)[0] for x in scanned]
            results = self.read_jaxpr(body, [*fixed, *now[:carried], *inputs])
            stacked = [
                self._write(whole, row(whole)[0], new[None], None, True)
                for whole, new in zip(now[carried:], results[carried:], strict=True)
            ]
            return None, _flat([*results[:carried], *stacked])

        start = _flat([*carry, *blank])
        return _shaped(self._repeated(length, start, once), shapes)

    def _repeated(
        self, length: int, state: list[int], once: Callable[[int, list[int]], tuple[None, list[int]]]
    ) -> list[int]:
        """A loop, written out if it is short."""
        if length == 0:
            return state
        before = len(self.graph.nodes)
        after = once(self.graph.const(0, "int32"), state)[1]
        if length > 1 and (len(self.graph.nodes) - before) * length > UNROLL:
            return self.graph.repeat_after(after, length, state, once)
        for done in range(1, length):
            after = once(self.graph.const(done, "int32"), after)[1]
        return after

    def _do_while(self, equation: Any, *arrays: Array) -> list[Array]:
        p, g = equation.params, self.graph
        for_test, for_body, carry = _split(
            arrays,
            (p["cond_nconsts"], p["body_nconsts"], len(arrays) - p["cond_nconsts"] - p["body_nconsts"]),
        )
        before = len(g.nodes)
        while len(g.nodes) - before < UNROLL:
            condition = self._read_constants(self.read_jaxpr(p["cond_jaxpr"], [*for_test, *carry])[0])
            if condition is None:
                break
            if not condition:
                return carry
            carry = self.read_jaxpr(p["body_jaxpr"], [*for_body, *carry])
        shapes = [array.shape for array in carry]

        def once(index: int, state: list[int]) -> tuple[int, list[int]]:
            now = _shaped(state, shapes)
            condition = int(self.read_jaxpr(p["cond_jaxpr"], [*for_test, *now])[0])
            results = _flat(self.read_jaxpr(p["body_jaxpr"], [*for_body, *now]))
            return condition, [g.select(condition, new, old) for new, old in zip(results, state, strict=True)]

        return _shaped(g.repeat(None, _flat(carry), once), shapes)

    # Random numbers: a key is one node, whose arguments are its two words

    def _words(self, keys: Array) -> Array:
        nodes = [self.graph.nodes[key] for key in keys.ravel().tolist()]
        if any(node.op != _KEY for node in nodes):
            raise UnknownPrimitiveError(
                "a random key that a loop carries or a condition chooses cannot be compiled"
            )
        return np.array([node.args for node in nodes], int).reshape(*keys.shape, 2)

    def _keys(self, words: Array) -> Array:
        pairs = words.reshape(-1, 2).tolist()
        return np.array([self.graph.op(_KEY, *pair, dtype=_KEY) for pair in pairs], int).reshape(
            words.shape[:-1]
        )

    def _map_jax_function(self, function: Callable[..., Any], axes: int, *arrays: Array) -> Array:
        """JAX's own function of words, mapped over the first axes."""
        for _ in range(axes):
            function = jax.vmap(function)
        dtypes = [self.graph.nodes[int(array.flat[0])].dtype for array in arrays]
        shapes = [
            jax.ShapeDtypeStruct(x.shape, jnp.dtype(name)) for x, name in zip(arrays, dtypes, strict=True)
        ]
        return self.read_jaxpr(jax.make_jaxpr(function)(*shapes), arrays)[0]

    def _do_random_wrap(self, equation: Any, words: Array) -> list[Array]:
        return [self._keys(words)]

    def _do_random_unwrap(self, equation: Any, keys: Array) -> list[Array]:
        return [self._words(keys)]

    def _do_random_seed(self, equation: Any, seeds: Array) -> list[Array]:
        return [self._keys(self._map_jax_function(equation.params["impl"].seed, seeds.ndim, seeds))]

    def _do_random_split(self, equation: Any, keys: Array) -> list[Array]:
        make, shape = _generator(equation).split, equation.params["shape"]
        return [
            self._keys(self._map_jax_function(lambda words: make(words, shape), keys.ndim, self._words(keys)))
        ]

    def _do_random_fold_in(self, equation: Any, keys: Array, data: Array) -> list[Array]:
        words, data = self._words(keys), np.broadcast_to(data, keys.shape)
        return [self._keys(self._map_jax_function(_generator(equation).fold_in, keys.ndim, words, data))]

    def _do_random_bits(self, equation: Any, keys: Array) -> list[Array]:
        make, p = _generator(equation).random_bits, equation.params
        words = self._words(keys)
        return [self._map_jax_function(lambda key: make(key, p["bit_width"], p["shape"]), keys.ndim, words)]

    def _do_iota_2x32_shape(self, equation: Any) -> list[Array]:
        shape = equation.params["shape"]
        low = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
        return [self._constant(np.zeros_like(low)), self._constant(low)]

    def _do_threefry2x32(self, equation: Any, *arrays: Array) -> list[Array]:
        g = self.graph

        def add(a: int, b: int) -> int:
            return g.op("add", a, b)

        def block(k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
            keys = (k0, k1, g.op("xor", g.op("xor", k0, k1), g.const(_PARITY, "uint32")))
            x0, x1 = add(x0, k0), add(x1, k1)
            for group in range(5):
                for by in _ROTATIONS[group % 2]:
                    x0 = add(x0, x1)
                    up, down = (g.const(shift, "uint32") for shift in (by, 32 - by))
                    x1 = g.op("xor", x0, g.op("or", g.op("shl", x1, up), g.op("shr", x1, down)))
                x0 = add(x0, keys[(group + 1) % 3])
                x1 = add(add(x1, keys[(group + 2) % 3]), g.const(group + 1, "uint32"))
            return x0, x1

        return [self._map(lambda *words, k=k: block(*words)[k], *arrays) for k in range(2)]


def _generator(equation: Any) -> Any:
    """The implementation of the random numbers of a key."""
    return equation.invars[0].aval.dtype._impl


def _fill_value(given: Any, dtype: str) -> Any:
    """JAX's value for an index that is out of bounds."""
    kind = np.dtype(dtype).kind
    if given is not None:
        return given
    if kind == "f":
        return np.nan
    if kind == "b":
        return True
    return np.iinfo(dtype).min if kind == "i" else np.iinfo(dtype).max


def _flat(arrays: Sequence[Array]) -> list[int]:
    return [int(node) for array in arrays for node in array.flat]


def _shaped(nodes: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    parts = _split(nodes, [math.prod(shape) for shape in shapes])
    return [np.array(part, int).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
