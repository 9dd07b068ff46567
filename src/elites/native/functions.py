"""Elementary functions of float32 as operations of a program.

All but atan2 and what is made of it are evaluated in float64 with power series and rounded once: within one
unit in the last place, which the tests check, for subnormal numbers too. `atan2`, `asin`, `acos` and `atan`
are evaluated in float32: within 3 units. `sin`, `cos` and `tan` hold for |x| ≤ 2^45; beyond, they are numbers
of the right range without meaning. `erf_inv` is Giles' polynomial, as in XLA: within 1e-6 of its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from elites.native.program import Graph

LOG2 = math.log(2)
_HALF_PI_REST = 6.123233995736766e-17  # π/2 minus its float64
# atan(√s) / √s for s in [0, 1]: the least relative error of its degree, 1.5e-8, by weighted least squares
_ATAN = (
    1.0, -0.3333307206630707, 0.1999261975288391, -0.14203643798828125, 0.10640933364629745,
    -0.07504294067621231, 0.042691510170698166, -0.016068624332547188, 0.002849888289347291,
)  # fmt: skip
_EXP_TERMS, _LOG_TERMS, _SIN_TERMS = 10, 8, 6
_ERF_INV_MIDDLE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERF_INV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


class Functions:
    """Elementary functions as nodes of a graph. Those with 64 in their names work on float64."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def sin(self, x: int) -> int:
        return self._quarter(x, 0)

    def cos(self, x: int) -> int:
        return self._quarter(x, 1)

    def tan(self, x: int) -> int:
        g, (sine, cosine, quadrant) = self.graph, self._sine_and_cosine(self._wide(x))
        odd = self._odd(quadrant)
        return self._narrow(
            g.op("div", g.select(odd, g.op("neg", cosine), sine), g.select(odd, sine, cosine))
        )

    def _quarter(self, x: int, shift: int) -> int:
        g, (sine, cosine, quadrant) = self.graph, self._sine_and_cosine(self._wide(x))
        quadrant = g.op("add", quadrant, g.const(shift, "int32"))
        size = g.select(self._odd(quadrant), cosine, sine)
        negative = g.op("ne", g.op("and", quadrant, g.const(2, "int32")), g.const(0, "int32"))
        return self._narrow(g.select(negative, g.op("neg", size), size))

    def _odd(self, quadrant: int) -> int:
        g = self.graph
        return g.op("ne", g.op("and", quadrant, g.const(1, "int32")), g.const(0, "int32"))

    def _sine_and_cosine(self, x: int) -> tuple[int, int, int]:
        """Sine and cosine of x minus the nearest multiple of π/2, and the last two bits of that multiple."""
        g, c = self.graph, self._const
        turns = g.op("round_even", g.op("mul", x, c(2 / math.pi)))
        minus = g.op("neg", turns)
        rest = g.op("fma", minus, c(_HALF_PI_REST), g.op("fma", minus, c(math.pi / 2), x))
        # Without meaning for a huge x, but within the range.
        rest = g.op("max", c(-1.0), g.op("min", c(1.0), rest))
        square = g.op("mul", rest, rest)
        sine = g.op("mul", rest, self._series(square, [_alternating(2 * k + 1) for k in range(_SIN_TERMS)]))
        sine = g.select(g.op("eq", x, c(0.0)), x, sine)  # -0
        cosine = self._series(square, [_alternating(2 * k) for k in range(_SIN_TERMS + 1)])
        quarter = g.op("mul", c(4.0), g.op("floor", g.op("mul", turns, c(0.25))))
        return sine, cosine, g.cast(g.op("sub", turns, quarter), "int32")

    def exp(self, x: int) -> int:
        return self._narrow(self.exp64(self._wide(x)))

    def exp2(self, x: int) -> int:
        return self._narrow(self.exp64(self.graph.op("mul", self._wide(x), self._const(LOG2))))

    def expm1(self, x: int) -> int:
        return self._narrow(self.expm1_64(self._wide(x)))

    def log(self, x: int) -> int:
        return self._narrow(self.log64(self._wide(x)))

    def log1p(self, x: int) -> int:
        g, c, x64 = self.graph, self._const, self._wide(x)
        small = g.op("lt", g.op("abs", x64), c(0.25))
        ratio = g.op("div", x64, g.op("add", c(2.0), x64))
        near = self._log_of_ratio(ratio)
        far = self.log64(g.op("add", c(1.0), x64))
        return self._narrow(g.select(small, near, far))

    def logistic(self, x: int) -> int:
        g, one = self.graph, self._const(1.0)
        return self._narrow(g.op("div", one, g.op("add", one, self.exp64(g.op("neg", self._wide(x))))))

    def tanh(self, x: int) -> int:
        g, c, x64 = self.graph, self._const, self._wide(x)
        grown = self.expm1_64(g.op("mul", c(-2.0), g.op("abs", x64)))  # in [-1, 0]
        size = g.op("div", g.op("neg", grown), g.op("add", c(2.0), grown))
        return self._narrow(g.op("copysign", size, x64))

    def sinh(self, x: int) -> int:
        g, c, x64 = self.graph, self._const, self._wide(x)
        grown = self.expm1_64(g.op("abs", x64))
        infinite = g.op("eq", grown, c(math.inf))
        size = g.op("add", grown, g.op("div", grown, g.op("add", grown, c(1.0))))
        size = g.op("mul", c(0.5), g.select(infinite, grown, size))
        return self._narrow(g.op("copysign", size, x64))

    def cosh(self, x: int) -> int:
        g, c = self.graph, self._const
        grown = self.exp64(g.op("abs", self._wide(x)))
        return self._narrow(g.op("mul", c(0.5), g.op("add", grown, g.op("div", c(1.0), grown))))

    def cbrt(self, x: int) -> int:
        g, c, x64 = self.graph, self._const, self._wide(x)
        size = self.exp64(g.op("div", self.log64(g.op("abs", x64)), c(3.0)))
        return self._narrow(g.op("copysign", size, x64))

    def rsqrt(self, x: int) -> int:
        g = self.graph
        return self._narrow(g.op("div", self._const(1.0), g.op("sqrt", self._wide(x))))

    def pow(self, x: int, y: int) -> int:
        g, c = self.graph, self._const
        base, power = self._wide(x), self._wide(y)
        size = self.exp64(g.op("mul", power, self.log64(g.op("abs", base))))
        whole = g.op("eq", g.op("floor", power), power)
        half = g.op("mul", power, c(0.5))
        odd = g.op("and", whole, g.op("ne", g.op("floor", half), half))
        signed = g.select(odd, g.op("copysign", size, base), size)
        below = g.op("and", g.op("lt", base, c(0.0)), g.op("lt", c(-math.inf), base))
        finite = g.op("lt", g.op("abs", power), c(math.inf))
        complex_ = g.op("and", g.op("and", below, finite), g.op("not", whole))
        one = g.op("or", g.op("eq", power, c(0.0)), g.op("eq", base, c(1.0)))
        one = g.op("or", one, g.op("and", g.op("eq", base, c(-1.0)), g.op("not", finite)))
        one = g.op("and", one, g.op("or", g.op("eq", base, c(1.0)), g.op("eq", power, power)))
        return self._narrow(g.select(one, c(1.0), g.select(complex_, c(math.nan), signed)))

    def erf_inv(self, x: int) -> int:
        g, one = self.graph, self._const(1.0)
        x64 = self._wide(x)
        w = g.op("neg", self.log64(g.op("mul", g.op("sub", one, x64), g.op("add", one, x64))))
        middle = self._series(g.op("sub", w, self._const(2.5)), _ERF_INV_MIDDLE[::-1])
        tail = self._series(g.op("sub", g.op("sqrt", w), self._const(3.0)), _ERF_INV_TAIL[::-1])
        value = g.op("mul", g.select(g.op("lt", w, self._const(5.0)), middle, tail), x64)
        end = g.op("eq", g.op("abs", x64), one)
        return self._narrow(g.select(end, g.op("copysign", self._const(math.inf), x64), value))

    def atan2(self, y: int, x: int) -> int:
        g = self.graph

        def c(value: float) -> int:
            return g.const(value, "float32")

        right, up = g.op("abs", x), g.op("abs", y)
        steep = g.op("lt", right, up)
        large, small = g.select(steep, up, right), g.select(steep, right, up)
        # 0/0 and ∞/∞ are 0 and 1 here; NaN stays.
        ratio = g.op("div", small, g.select(g.op("eq", large, c(0.0)), c(1.0), large))
        ratio = g.select(g.op("eq", small, c(math.inf)), c(1.0), ratio)
        square, series = g.op("mul", ratio, ratio), c(_ATAN[-1])
        for factor in _ATAN[-2::-1]:
            series = g.op("add", g.op("mul", series, square), c(factor))
        angle = g.op("mul", ratio, series)
        angle = g.select(steep, g.op("sub", c(math.pi / 2), angle), angle)
        left = g.op("lt", g.bits(x, "int32"), g.const(0, "int32"))  # -0 is on the left
        angle = g.select(left, g.op("sub", c(math.pi), angle), angle)
        broken = g.op("or", g.op("ne", x, x), g.op("ne", y, y))
        return g.select(broken, c(math.nan), g.op("copysign", angle, y))

    def atan(self, x: int) -> int:
        return self.atan2(x, self.graph.const(1, "float32"))

    def asin(self, x: int) -> int:
        return self.atan2(x, self._opposite(x))

    def acos(self, x: int) -> int:
        return self.atan2(self._opposite(x), x)

    def _opposite(self, x: int) -> int:
        g, one = self.graph, self.graph.const(1, "float32")
        return g.op("sqrt", g.op("mul", g.op("sub", one, x), g.op("add", one, x)))

    def exp64(self, x: int) -> int:
        g = self.graph
        scale, small = self._reduced(x)
        return g.op("fma", scale, small, scale)

    def expm1_64(self, x: int) -> int:
        g = self.graph
        scale, small = self._reduced(x)
        value = g.op("fma", scale, small, g.op("sub", scale, self._const(1.0)))
        return g.select(g.op("eq", x, self._const(0.0)), x, value)  # -0

    def _reduced(self, x: int) -> tuple[int, int]:
        """2^k and e^r - 1 with x = k log 2 + r. Beyond float32's range k stops."""
        g, c = self.graph, self._const
        # max and min keep NaN.
        x = g.op("max", c(-800.0 * LOG2), g.op("min", c(800.0 * LOG2), x))
        k = g.op("round_even", g.op("mul", x, c(1 / LOG2)))
        r = g.op("fma", g.op("neg", k), c(LOG2), x)
        small = g.op("mul", r, self._series(r, [1 / math.factorial(n) for n in range(1, _EXP_TERMS)]))
        exponent = g.op("add", g.cast(g.cast(k, "int32"), "int64"), g.const(1023, "int64"))
        return g.bits(g.op("shl", exponent, g.const(52, "int64")), "float64"), small

    def log64(self, x: int) -> int:
        g, c = self.graph, self._const
        bits = g.op("sub", g.bits(x, "int64"), g.bits(c(math.sqrt(0.5)), "int64"))
        k = g.cast(g.op("shr", bits, g.const(52, "int64")), "int32")
        power = g.op("shl", g.cast(k, "int64"), g.const(52, "int64"))
        mantissa = g.bits(g.op("sub", g.bits(x, "int64"), power), "float64")  # in [√½, √2)
        ratio = g.op("div", g.op("sub", mantissa, c(1.0)), g.op("add", mantissa, c(1.0)))
        value = g.op("fma", g.cast(k, "float64"), c(LOG2), self._log_of_ratio(ratio))
        value = g.select(g.op("eq", x, c(0.0)), c(-math.inf), value)
        value = g.select(g.op("eq", x, c(math.inf)), x, value)
        return g.select(g.op("le", c(0.0), x), value, c(math.nan))

    def _log_of_ratio(self, ratio: int) -> int:
        """log((1 + s) / (1 - s)) for |s| < 0.18."""
        g = self.graph
        series = self._series(g.op("mul", ratio, ratio), [2 / (2 * n + 1) for n in range(_LOG_TERMS)])
        return g.op("mul", ratio, series)

    def _series(self, x: int, factors: Sequence[float]) -> int:
        """Σ factors[n] xⁿ."""
        value = self._const(factors[-1])
        for factor in factors[-2::-1]:
            value = self.graph.op("fma", value, x, self._const(factor))
        return value

    def _const(self, value: float) -> int:
        return self.graph.const(value, "float64")

    def _wide(self, x: int) -> int:
        return self.graph.cast(x, "float64")

    def _narrow(self, x: int) -> int:
        return self.graph.cast(x, "float32")


def _alternating(n: int) -> float:
    """±1/n!, the factor of xⁿ in sine or cosine."""
    return (1 if n % 4 < 2 else -1) / math.factorial(n)


def make_functions(graph: Graph) -> dict[str, Callable[..., int]]:
    """The functions by the names of JAX's primitives."""
    functions = Functions(graph)
    names = (
        "sin", "cos", "tan", "exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "sinh", "cosh",
        "cbrt", "rsqrt", "pow", "erf_inv", "atan2", "atan", "asin", "acos",
    )  # fmt: skip
    return {name: getattr(functions, name) for name in names}
