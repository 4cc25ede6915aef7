"""Rows of the table of ops for transcendental functions, rounding, integer powers and bits, with their oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.elementwise import (
    ROOT_OF_PI,
    Oracle,
    binary_cases,
    erf,
    erfc_of_positive,
    function_row,
    quietly,
    ulps_of,
    unary_cases,
)
from tests_py.ops.rows.inputs import Case, Draw, Row, normal, positive, small, special
from tests_py.support.helpers import FLOATS, INTS, NUMBERS, Array, np_dtype

# Draws


def between(low: float, high: float, shape: tuple[int, ...] = (5, 7)) -> Draw:
    """Floats of that range."""
    return lambda rng, name: [rng.uniform(low, high, shape).astype(np_dtype(name))]


def binades(low: int, high: int, count: int = 1, size: int = 600) -> Draw:
    """Numbers of both signs whose exponents are spread over a range."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        def one() -> Array:
            numbers = rng.choice([-1, 1], size) * np.exp2(rng.uniform(low, high, size))
            with np.errstate(over="ignore"):
                return numbers.astype(np_dtype(name))

        return [one() for _ in range(count)]

    return draw


# Transcendental functions: float32 is computed in double


def _function(oracle: Oracle, numbers: Draw, double: float, exponents: tuple[int, int] = (-60, 10)) -> Row:
    bounds = ulps_of(0.51, double)
    row = function_row(oracle, numbers, bounds)
    return Row((*row.cases, Case(binades(*exponents), quietly(oracle), {}, "binades", ulps=bounds)), "finite")


def erfc(t: Array) -> Array:
    """1 - erf below 1/2, the function of positive numbers and what it leaves of 2 beyond."""
    a = np.where(np.isnan(t), 0, np.abs(t))
    tail = erfc_of_positive(a)
    far = np.where(t > 0, tail, 2 - tail)
    return np.where(np.isnan(t), t, np.where(a < 0.5, 1 - erf(t), far))


def erf_inv(t: Array) -> Array:
    """Halley's method on erf below 1/2 and on erfc beyond, from Winitzki's approximation."""
    a = np.abs(t)
    b = np.where(a < 1, a, np.longdouble(0.5))
    log = np.log1p(-b * b)
    half = 2 / (np.pi * 0.147) + log / 2
    start = np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    y = np.where(b < 1e-2, b * ROOT_OF_PI / 2, start)
    for _ in range(6):
        f = np.where(b < 0.5, erf(y) - b, (1 - b) - erfc_of_positive(y))
        step = f * ROOT_OF_PI / 2 * np.exp(y * y)
        y = y - step / (1 + y * step)
    value = np.where(a < 1, y, np.where(a == 1, np.inf, np.nan))
    return np.where(a == 0, t, np.copysign(value, t))


def _arc_tangent_of_two() -> Row:
    bounds = ulps_of(0.51, 2.5)
    oracle = quietly(np.arctan2)
    shapes = {"": ((3, 4), (3, 4)), "broadcast": ((2, 3, 4), (3, 1)), "empty": ((0, 3), (3,))}
    return Row(
        (
            *(Case(normal(*two), oracle, {}, label, ulps=bounds) for label, two in shapes.items()),
            *(
                Case(normal(*shapes[label]), oracle, {}, f"smooth{label}", ulps=bounds, smooth=True)
                for label in ("", "broadcast")
            ),
            Case(binades(-30, 30, 2), oracle, {}, "binades", ulps=bounds),
            Case(special(2), oracle, {}, "special", ulps=bounds),
        ),
        "finite",
    )


def _transcendental() -> dict[str, Row]:
    numbers = normal((5, 7), scale=2.0)
    inside = between(-0.95, 0.95)
    return {
        "expm1": _function(np.expm1, numbers, 1.5),
        "log1p": _function(np.log1p, positive((5, 7)), 2, (-60, 40)),
        "exp2": _function(np.exp2, numbers, 1),
        "tan": _function(np.tan, between(-1.3, 1.3), 2.5, (-30, 60)),
        "asin": _function(np.arcsin, inside, 1.5, (-40, 1)),
        "acos": _function(np.arccos, inside, 1.5, (-40, 1)),
        "atan": _function(np.arctan, numbers, 2, (-40, 60)),
        "atan2": _arc_tangent_of_two(),
        "sinh": _function(np.sinh, numbers, 2.5),
        "cosh": _function(np.cosh, numbers, 2),
        "asinh": _function(np.arcsinh, numbers, 3, (-60, 120)),
        "acosh": _function(np.arccosh, between(1.1, 4), 3, (0, 120)),
        "atanh": _function(np.arctanh, inside, 3, (-60, 1)),
        "erfc": _function(erfc, numbers, 4, (-30, 5)),
        "erf_inv": _function(erf_inv, inside, 3.5, (-60, 0)),
        "cbrt": _function(np.cbrt, positive((5, 7)), 0.55, (-120, 120)),
    }


# Rounding, signs, powers: exact, or a chain of operations that are rounded each


def _halves(rng: np.random.Generator, name: str) -> list[Array]:
    return [(rng.integers(0, 60, 50) / 2 - (15 if name[0] != "u" else 0)).astype(np_dtype(name))]


def _of_floats(oracle: Oracle) -> Oracle:
    return lambda t, **_: oracle(t) if t.dtype.kind == "f" else t


def half_away(t: Array) -> Array:
    """As C's round."""
    with np.errstate(invalid="ignore"):
        whole = np.trunc(t)
        return np.copysign(whole + np.copysign(np.abs(t - whole) >= 0.5, t), t).astype(t.dtype)


_SIGNS = np.array([1.0, -1.0, -2.0, 0.0])


def _with_signs(t: Array) -> Array:
    return np.copysign(t, _SIGNS)


def _signed(fn: Oracle, t: popsr.Tensor) -> Any:
    return fn(t, popsr.constant(_SIGNS, popsr.float64))


def _rounding() -> dict[str, Row]:
    def cases(oracle: Oracle, label: str = "", **attrs: str) -> list[Case]:
        draws = {"": normal((5, 7), scale=3.0), "special": special(1), "halves": _halves}
        return [
            Case(draw, _of_floats(oracle), attrs, f"{kind}{label}", NUMBERS) for kind, draw in draws.items()
        ]

    return {
        "trunc": Row(tuple(cases(quietly(np.trunc))), "zeros"),
        "round": Row((*cases(quietly(np.rint)), *cases(half_away, "away", half="away")), "zeros"),
        "copysign": Row(
            (
                *binary_cases(np.copysign, FLOATS),
                Case(normal((3, 4)), _with_signs, {}, "smooth", ("float64",), call=_signed, smooth=True),
            ),
            "finite",
            grad_of="first",
        ),
    }


def integer_pow(t: Array, exponent: int) -> Array:
    """The squares of the bits of the exponent, multiplied from the lowest on."""
    square, power = t.copy(), np.ones_like(t)
    with np.errstate(all="ignore"):
        for bit in reversed(bin(abs(exponent))[2:]):
            power = power * square if bit == "1" else power
            square = square * square
        return 1 / power if exponent < 0 else power


def _powers() -> dict[str, Row]:
    def power(exponent: int, dtypes: tuple[str, ...] = NUMBERS) -> list[Case]:
        attrs, signs = {"exponent": exponent}, "minus" if exponent < 0 else ""
        return [
            Case(normal((5, 7)), integer_pow, attrs, f"{signs}{abs(exponent)}", dtypes),
            Case(special(1), integer_pow, attrs, f"special{signs}{abs(exponent)}", dtypes),
            Case(
                positive((5, 7)),
                integer_pow,
                attrs,
                f"smooth{signs}{abs(exponent)}",
                ("float64",),
                smooth=True,
            ),
        ]

    exponents = [
        case for exponent in (0, 1, 2, 3, 13) for case in power(exponent) if exponent or not case.smooth
    ]
    negative = [case for exponent in (-1, -6) for case in power(exponent, FLOATS)]
    product = quietly(np.square)
    return {
        "integer_pow": Row((*exponents, *negative), "finite"),
        "square": Row(
            (
                *unary_cases(product, normal((5, 7)), NUMBERS),
                Case(normal((5,)), product, {}, "smooth", smooth=True),
            ),
            "finite",
        ),
        "reciprocal": Row(
            (
                *unary_cases(quietly(np.reciprocal), positive((5, 7))),
                Case(positive((5,)), quietly(np.reciprocal), {}, "smooth", smooth=True),
            ),
            "finite",
        ),
    }


# Bits: the oracles compute with Python's integers


def _on_bits(function: Callable[..., int]) -> Oracle:
    """``function`` of the operands' bits as numbers from 0 on, and of the width; its result wraps."""

    def oracle(*arrays: Array) -> Array:
        kind = arrays[0].dtype
        width = 8 * kind.itemsize

        def one(*values: int) -> int:
            bits = function(*(int(each) & ((1 << width) - 1) for each in values), width) & ((1 << width) - 1)
            return bits - (1 << width) if kind.kind == "i" and bits >> (width - 1) else bits

        shape = np.broadcast_shapes(*(each.shape for each in arrays))
        flat = [np.broadcast_to(each, shape).ravel().tolist() for each in arrays]
        return np.array([one(*values) for values in zip(*flat, strict=True)], kind).reshape(shape)

    return oracle


def _arithmetic(bits: int, amount: int, width: int) -> int:
    value = bits - (1 << width) if bits >> (width - 1) else bits
    return value >> min(amount, width)


def _shift(function: Callable[..., int]) -> Row:
    def amounts(rng: np.random.Generator, name: str) -> list[Array]:
        width = 8 * np.dtype(name).itemsize
        return [normal((300,))(rng, name)[0], rng.integers(0, width + 3, 300).astype(name)]

    oracle = _on_bits(function)
    return Row((*binary_cases(oracle, INTS), Case(amounts, oracle, {}, "amounts", INTS)), "nothing")


def _bits() -> dict[str, Row]:
    with_bool = (*INTS, "bool")

    def unary(function: Callable[..., int]) -> list[Case]:
        oracle = _on_bits(function)
        return [*unary_cases(oracle, normal((5, 7)), INTS), Case(small((9,)), oracle, {}, "small", INTS)]

    return {
        "bitwise_and": Row(tuple(binary_cases(np.bitwise_and, with_bool)), "nothing"),
        "bitwise_or": Row(tuple(binary_cases(np.bitwise_or, with_bool)), "nothing"),
        "bitwise_xor": Row(tuple(binary_cases(np.bitwise_xor, with_bool)), "nothing"),
        "bitwise_not": Row(tuple(unary_cases(np.invert, normal((5, 7)), with_bool)), "nothing"),
        "shift_left": _shift(lambda bits, amount, width: bits << amount if amount < width else 0),
        "shift_right_logical": _shift(lambda bits, amount, _: bits >> amount),
        "shift_right_arithmetic": _shift(_arithmetic),
        "population_count": Row(tuple(unary(lambda bits, _: bin(bits).count("1"))), "nothing"),
        "count_leading_zeros": Row(tuple(unary(lambda bits, width: width - bits.bit_length())), "nothing"),
    }


def function_rows() -> dict[str, Row]:
    """Rows by op."""
    return {**_transcendental(), **_rounding(), **_powers(), **_bits()}
