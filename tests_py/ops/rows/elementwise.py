"""Rows of the table of ops for comparisons, logic, selection and functions, with their oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Row, normal, positive, small, special, together
from tests_py.support.helpers import ALL_DTYPES, FLOAT8, FLOATS, NUMBERS, NUMBERS_AND_BOOL, Array, np_dtype

Oracle = Callable[..., Any]

NARROW = ("float16", "bfloat16")


def quietly(function: Oracle) -> Oracle:
    def call(*arrays: Array, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays, **attrs)

    return call


def unary_cases(
    oracle: Oracle, numbers: Draw, dtypes: tuple[str, ...] = FLOATS, **options: Any
) -> list[Case]:
    return [
        Case(numbers, oracle, dtypes=dtypes, **options),
        Case(special(1), oracle, label="special", dtypes=dtypes, **options),
        Case(normal((2, 0)), oracle, label="empty", dtypes=dtypes, **options),
        Case(normal(()), oracle, label="scalar", dtypes=dtypes, **options),
    ]


def _smooth(draw: Draw, oracle: Oracle, label: str = "smooth", **options: Any) -> Case:
    return Case(draw, oracle, label=label, smooth=True, **options)


def binary_cases(oracle: Oracle, dtypes: tuple[str, ...]) -> list[Case]:
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "": ((3, 4), (3, 4)),
        "broadcast": ((2, 3, 4), (3, 1)),
        "both-broadcast": ((7, 1), (1, 300)),
        "scalar": ((), (5,)),
        "empty": ((0, 3), (3,)),
    }
    return [
        *(Case(normal(*two), oracle, label=label, dtypes=dtypes) for label, two in shapes.items()),
        Case(special(2), oracle, label="special", dtypes=dtypes),
    ]


# Comparisons and logic


def _mixed(oracle: Oracle) -> list[Case]:
    """Values of different dtypes, equal ones among them."""
    pairs = (
        ("float64", "float32"),
        ("bfloat16", "float16"),
        ("float32", "int32"),
        ("float16", "uint8"),
        ("int8", "int64"),
        ("uint64", "uint8"),
        ("int64", "uint32"),
        ("bool", "float32"),
        ("uint32", "bool"),
    )
    several = (4, 50)
    cases = [
        Case(together(small(several), (small(several), other)), oracle, {}, f"{name}-{other}", (name,))
        for name, other in pairs
    ]

    def precise(_: np.random.Generator, name: str) -> list[Array]:
        return [np.array([2**24, 2**24 + 1], name), np.full(2, 2**24, np.float32)]

    return [*cases, Case(precise, oracle, {}, "precise", ("int32", "uint32"))]


def _comparison(oracle: Oracle) -> Row:
    cases = [
        *binary_cases(oracle, NUMBERS_AND_BOOL),
        Case(small((4, 50), (4, 50)), oracle, {}, "ties", NUMBERS_AND_BOOL),
    ]
    return Row((*cases, *_mixed(oracle)), "bool")


def _logic(function: Oracle) -> Row:
    def oracle(a: Array, b: Array) -> Any:
        return function(a != 0, b != 0)

    return Row(
        (
            *binary_cases(oracle, NUMBERS_AND_BOOL),
            Case(small((4, 50), (4, 50)), oracle, {}, "zeros", NUMBERS_AND_BOOL),
            Case(
                together(small((9,)), (special(1), "float64")),
                lambda a, b: oracle(a[:1], b),
                {},
                "mixed",
                call=_first,
            ),
        ),
        "bool",
    )


def _first(fn: Oracle, a: popsr.Tensor, b: popsr.Tensor) -> Any:
    return fn(a[:1], b)


def _class(oracle: Oracle) -> Row:
    return Row(tuple(unary_cases(oracle, normal((5, 7)), NUMBERS)), "stops")


def _bits(name: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Any bits at all, of narrow floats with one NaN."""
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.integers(0, 256, (*shape, np_dtype(name).itemsize)).astype(np.uint8)
    values = raw.view(np_dtype(name)).reshape(shape)
    with np.errstate(all="ignore"):
        return (
            np.where(values != values, np.array(np.nan, values.dtype), values) if name in NARROW else values
        )


def _where() -> Row:
    def oracle(condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition != 0, a, b)

    def chosen(*shapes: tuple[int, ...], condition: str = "bool") -> Draw:
        def draw(rng: np.random.Generator, name: str) -> list[Array]:
            first = rng.integers(0, 2, shapes[0]).astype(np_dtype(condition))
            return [first, *(_bits(name, rng, shape) for shape in shapes[1:])]

        return draw

    def decided(rng: np.random.Generator, name: str) -> list[Array]:
        """Conditions of the dtype itself: subnormals and NaN are true."""
        condition = special(1)(rng, name)[0]
        return [condition, *(rng.integers(0, 99, condition.shape).astype(np.int16) for _ in range(2))]

    of_bool = {
        "": ((3, 4),) * 3,
        "three-way": ((4, 1, 1), (3, 1), (5,)),
        "long": ((2, 1), (300,), (2, 300)),
        "scalars": ((9,), (), ()),
        "empty": ((0, 3), (3,), (1,)),
    }
    return Row(
        (
            Case(decided, oracle, {}, "", NUMBERS_AND_BOOL),
            *(
                Case(chosen(*shapes), oracle, {}, f"of-{label}", NUMBERS_AND_BOOL)
                for label, shapes in of_bool.items()
            ),
            *(
                Case(lambda rng, _, of=of: chosen(*[(3, 40)] * 3)(rng, of), oracle, {}, of, ("bool",))  # type: ignore[misc]
                for of in FLOAT8
            ),
            Case(
                chosen((2, 200), (200,), (2, 1), condition="float16"),
                oracle,
                {},
                "half",
                ("bfloat16", "int8"),
            ),
            *(
                _smooth(together((normal(shapes[0]), "bool"), normal(*shapes[1:])), oracle, f"smooth{label}")
                for label, shapes in list(of_bool.items())[:3]
            ),
        ),
        "finite",
        grad_of="all but the first",
    )


def _comparisons() -> dict[str, Row]:
    return {
        "equal": _comparison(quietly(np.equal)),
        "greater": _comparison(quietly(np.greater)),
        "not_equal": _comparison(quietly(np.not_equal)),
        "less": _comparison(quietly(np.less)),
        "less_equal": _comparison(quietly(np.less_equal)),
        "greater_equal": _comparison(quietly(np.greater_equal)),
        "isnan": _class(np.isnan),
        "isinf": _class(np.isinf),
        "isfinite": _class(np.isfinite),
        "logical_and": _logic(np.logical_and),
        "logical_or": _logic(np.logical_or),
        "logical_xor": _logic(np.logical_xor),
        "logical_not": Row(tuple(unary_cases(lambda t: t == 0, small((5, 7)), NUMBERS_AND_BOOL)), "bool"),
        "where": _where(),
    }


# Functions


def ulps_of(single: float, double: float) -> dict[str, float]:
    return {"float32": single, "float64": double}


def function_row(oracle: Oracle, numbers: Draw, bounds: dict[str, float]) -> Row:
    first, *rest = unary_cases(quietly(oracle), numbers, ulps=bounds)
    return Row((_smooth(numbers, first.oracle, "", ulps=bounds), *rest), "finite")


def _trigonometric(oracle: Oracle) -> Row:
    def angles(rng: np.random.Generator, name: str) -> list[Array]:
        wide = rng.standard_normal(300) * 2.0 ** rng.integers(-20, 15, 300)
        return [wide.astype(np_dtype(name))]

    row, bounds = function_row(oracle, normal((5, 7), scale=3.0), ulps_of(0.55, 1)), ulps_of(0.55, 1)
    return Row((*row.cases, Case(angles, oracle, {}, "angles", ulps=bounds)), "finite")


_ROOT_OF_HALF = np.longdouble("0.707106781186547524400844362104849039")
ROOT_OF_PI = np.longdouble("1.77245385090551602729816748334114518")


def erfc_of_positive(x: Array) -> Array:
    """Of long doubles >= 0: a series of positive terms below 1.5, a continued fraction from there on."""
    near, far = np.where(x < 1.5, x, 0), np.where(x < 1.5, 1.5, np.minimum(x, 100))
    term = near.copy()
    total = near.copy()
    for k in range(1, 60):
        term = term * 2 * near * near / (2 * k + 1)
        total = total + term
    fraction = far
    for k in range(300, 0, -1):
        fraction = far + np.longdouble(k) / 2 / fraction
    high = far.astype(np.float32).astype(np.longdouble)  # its square is exact
    tail = np.exp(-high * high) * np.exp((high - far) * (high + far)) / (ROOT_OF_PI * fraction)
    return np.where(x < 1.5, 1 - 2 / ROOT_OF_PI * np.exp(-near * near) * total, tail)


def erf(t: Array) -> Array:
    """A series of terms of one sign below 1.5, 1 - erfc from there on."""
    a = np.abs(t)
    near = np.where(a < 1.5, a, 0)
    term = near.copy()
    total = near.copy()
    for k in range(1, 60):
        term = term * 2 * near * near / (2 * k + 1)
        total = total + term
    series = 2 / ROOT_OF_PI * np.exp(-near * near) * total
    far = 1 - erfc_of_positive(np.where(np.isnan(a), 0, a))
    return np.where(np.isnan(t), t, np.copysign(np.where(a < 1.5, series, far), t))


def geluerf(t: Array) -> Array:
    """t / 2 * erfc(-t / sqrt(2)); the limit -0 at -infinity."""
    tail = erfc_of_positive(np.abs(np.where(np.isnan(t), 0, t)) * _ROOT_OF_HALF) / 2
    value = np.where(t < 0, t * tail, t * (1 - tail))
    return np.where(t < -100, np.longdouble(-0.0), value)


def sigmoid(t: Array) -> Array:
    """1 / (1 + e^-t)."""
    e = np.exp(-np.abs(t))
    return np.where(t < 0, e, 1) / (1 + e)


def swish(t: Array) -> Array:
    """t sigmoid(t); the limit -0 at -infinity."""
    return np.where(np.isneginf(t), np.longdouble(-0.0), t * sigmoid(t))


def _inplace(row: Row, name: str) -> Row:
    fits = tuple(case for case in row.cases if case.label != "scalar")
    return Row(fits, "modifies", inplace_of=name)


def _functions() -> dict[str, Row]:
    gelu = function_row(geluerf, normal((5, 7), scale=3.0), ulps_of(6, 5))
    silu = function_row(swish, normal((5, 7), scale=3.0), ulps_of(4, 4))
    return {
        "sin": _trigonometric(np.sin),
        "cos": _trigonometric(np.cos),
        "log2": function_row(np.log2, positive((5, 7)), ulps_of(0.51, 0.51)),
        "erf": function_row(erf, normal((5, 7), scale=2.0), ulps_of(1.5, 1.5)),
        "rsqrt": function_row(lambda t: 1 / np.sqrt(t), positive((5, 7)), ulps_of(1.5, 1.5)),
        "sigmoid": function_row(sigmoid, normal((5, 7), scale=3.0), ulps_of(3, 3)),
        "swish": silu,
        "swish_": _inplace(silu, "swish"),
        "geluerf": gelu,
        "geluerf_": _inplace(gelu, "geluerf"),
    }


# Rounding to integers, clipping, remainders, copies


def _rounded(oracle: Oracle) -> Row:
    def plain(t: Array) -> Array:
        return oracle(t) if t.dtype.kind == "f" else t

    return Row(tuple(unary_cases(plain, normal((5, 7), scale=3.0), NUMBERS)), "zeros")


def sign(t: Array) -> Array:
    """1, -1, or +0 for zeros and NaN."""
    return (t > 0).astype(t.dtype) - (t < 0).astype(t.dtype)


def _bound(value: float, t: Array, name: str) -> Any:
    """A bound in the dtype of the operand, in its compute type."""
    if t.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.array(value).astype(np_dtype(name)).astype(t.dtype)
    info = np.iinfo(t.dtype)
    return t.dtype.type(info.max if value >= info.max else info.min if value <= info.min else int(value))


def _clip() -> Row:
    def clipped(name: str) -> Oracle:
        def oracle(t: Array, min: float = -np.inf, max: float = np.inf) -> Array:
            low, high = _bound(min, t, name), _bound(max, t, name)
            raised = np.where(t < low, low, t)
            return np.where(raised > high, high, raised)

        return oracle

    def case(label: str, draw: Draw, **attrs: float) -> list[Case]:
        return [Case(draw, clipped(name), attrs, label, (name,)) for name in NUMBERS]

    def smooth(label: str, **attrs: float) -> Case:
        return Case(normal((5, 7)), clipped("float64"), attrs, label, ("float64",), smooth=True)

    numbers = normal((5, 7))
    return Row(
        (
            *case("", numbers, min=-0.7, max=1.1),
            *case("above", numbers, min=0.3),
            *case("below", numbers, max=-0.3),
            *case("all", numbers),
            *case("crossed", numbers, min=2.0, max=1.0),
            *case("special", special(1), min=-2.7, max=88.3),
            *case("huge", special(1), min=-1e30, max=1e30),
            *case("empty", normal((0, 2)), min=0.0),
            smooth("smooth", min=-0.7, max=1.1),
            smooth("smooth-half", max=0.2),
        ),
        "finite",
    )


def fmod(a: Array, b: Array) -> Array:
    """The C library's; of integers a for b = 0."""
    with np.errstate(all="ignore"):
        remainder = np.asarray(np.fmod(a, b))
        return remainder if a.dtype.kind == "f" else np.where(b == 0, a, remainder)


def _divided(fn: Oracle, t: popsr.Tensor) -> Any:
    return fn(t, popsr.constant(np.array([0.7, -1.3, 2.0]), popsr.float64))


def _fmod() -> Row:
    def halves(rng: np.random.Generator, name: str) -> list[Array]:
        return [(rng.integers(-40, 40, (50,)) / 4).astype(np_dtype(name)) for _ in range(2)]

    divisor = np.array([0.7, -1.3, 2.0])
    return Row(
        (
            *binary_cases(fmod, NUMBERS),
            Case(halves, fmod, {}, "multiples"),
            Case(
                normal((4, 3), scale=3.0),
                lambda t: fmod(t, divisor),
                {},
                "smooth",
                ("float64",),
                call=_divided,
                smooth=True,
            ),
            Case(
                normal((3,), scale=3.0),
                lambda t: fmod(t, divisor),
                {},
                "smooth-same",
                ("float64",),
                call=_divided,
                smooth=True,
            ),
        ),
        "finite",
        grad_of="first",
    )


def _increment_mod() -> Row:
    def oracle(t: Array, increment: float, modulus: float) -> Array:
        if t.dtype.kind == "f":
            with np.errstate(all="ignore"):
                return np.asarray(np.fmod(t + t.dtype.type(increment), t.dtype.type(modulus)))
        return fmod(t + np.array(int(increment)).astype(t.dtype), np.array(int(modulus)).astype(t.dtype))

    def case(label: str, draw: Draw, dtypes: tuple[str, ...] = NUMBERS, **attrs: float) -> Case:
        return Case(draw, oracle, attrs, label, dtypes)

    return Row(
        (
            case("", small((5, 7)), increment=1, modulus=3),
            case("fractions", normal((5, 7)), increment=1.75, modulus=3.5),
            case("negative", normal((5, 7)), (*FLOATS, "int8", "int64"), increment=-2, modulus=-5),
            case("special", special(1), increment=1, modulus=100),
            case("empty", normal((0, 2)), increment=1, modulus=2),
        ),
        "stops",
    )


def _identity() -> Row:
    def copy(t: Array) -> Array:
        return t

    def payloads(rng: np.random.Generator, name: str) -> list[Array]:
        return [_bits(name, rng, (40,))]

    return Row(
        (
            Case(normal((5, 7)), copy, dtypes=ALL_DTYPES, smooth=True),
            Case(payloads, copy, {}, "bits", ALL_DTYPES),
            Case(normal((2, 0)), copy, {}, "empty", ALL_DTYPES),
            Case(normal(()), copy, {}, "named", call=lambda fn, t: fn(t, "copy")),
        ),
        "finite",
        python_only=("output_name",),
    )


def elementwise_rows() -> dict[str, Row]:
    """Rows by op."""
    increment_mod = _increment_mod()
    return {
        **_comparisons(),
        **_functions(),
        "floor": _rounded(np.floor),
        "ceil": _rounded(np.ceil),
        "sign": Row(tuple(unary_cases(sign, normal((5, 7)), NUMBERS)), "zeros"),
        "clip": _clip(),
        "fmod": _fmod(),
        "increment_mod": increment_mod,
        "increment_mod_": _inplace(increment_mod, "increment_mod"),
        "identity": _identity(),
    }
