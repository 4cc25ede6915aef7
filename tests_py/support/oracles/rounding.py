"""Reference values of ``popsr.sr``, in Python's integers and fractions. Nothing here comes from popsr.

``round_bits`` is the whole contract of rounding in one place; ``exact`` is the real result of each operation with the
zeros, infinities and NaNs of IEEE 754, composed in the order in which the operation is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# Formats


@dataclass(frozen=True)
class Format:
    """A binary float format: sign, exponent field, fraction field. Codes are the bits without the sign."""

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    max_code: int  # the largest finite magnitude
    infinity: int | None
    nan: int  # with the sign bit, where the format has no other
    negative_zero: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def quantum(self) -> int:
        """Exponent of the least subnormal."""
        return 1 - self.bias - self.fraction_bits

    def magnitude(self, code: int) -> Fraction:
        """Value of a code, also of those above ``max_code``: the grid goes on."""
        exponent, fraction = divmod(code, 1 << self.fraction_bits)
        if exponent == 0:
            return fraction * _power_of_two(self.quantum)
        return ((1 << self.fraction_bits) + fraction) * _power_of_two(self.quantum + exponent - 1)


def _ieee(name: str, exponent_bits: int, fraction_bits: int) -> Format:
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    quiet = infinity | 1 << (fraction_bits - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    return Format(name, exponent_bits, fraction_bits, bias, infinity - 1, infinity, quiet)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        _ieee("float64", 11, 52),
        _ieee("float32", 8, 23),
        _ieee("float16", 5, 10),
        _ieee("bfloat16", 8, 7),
        _ieee("float8_e5m2", 5, 2),
        Format("float8_e4m3fn", 4, 3, bias=7, max_code=0x7E, infinity=None, nan=0x7F),
        Format("float8_e4m3fnuz", 4, 3, bias=8, max_code=0x7F, infinity=None, nan=0x80, negative_zero=False),
        Format("float8_e5m2fnuz", 5, 2, bias=16, max_code=0x7F, infinity=None, nan=0x80, negative_zero=False),
    )
}
MODES = ("sr", "sr_equal", "rn", "ru", "rd", "rz", "sr_bits=1", "sr_bits=7", "sr_bits=32")


def _power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


# Real numbers with signed zeros, infinities and NaN


@dataclass(frozen=True)
class Number:
    """``kind`` is "finite", "inf" or "nan"; ``negative`` says the sign of zeros and infinities too."""

    kind: str
    negative: bool = False
    value: Fraction = Fraction(0)

    def __neg__(self) -> Number:
        return Number(self.kind, not self.negative, -self.value)

    def __add__(self, other: Number) -> Number:
        if "nan" in (self.kind, other.kind):
            return NAN
        if self.kind == other.kind == "inf":
            return self if self.negative == other.negative else NAN
        if "inf" in (self.kind, other.kind):
            return self if self.kind == "inf" else other
        if self.value == other.value == 0:
            return Number("finite", self.negative and other.negative)
        total = self.value + other.value
        return Number("finite", total < 0, total)

    def __mul__(self, other: Number) -> Number:
        negative = self.negative != other.negative
        if "nan" in (self.kind, other.kind):
            return NAN
        if "inf" in (self.kind, other.kind):
            if any(n.kind == "finite" and n.value == 0 for n in (self, other)):
                return NAN
            return Number("inf", negative)
        return Number("finite", negative, self.value * other.value)

    def __truediv__(self, other: Number) -> Number:
        negative = self.negative != other.negative
        if "nan" in (self.kind, other.kind) or self.kind == other.kind == "inf":
            return NAN
        if self.kind == "inf":
            return Number("inf", negative)
        if other.kind == "inf":
            return Number("finite", negative)
        if other.value == 0:
            return NAN if self.value == 0 else Number("inf", negative)
        return Number("finite", negative, self.value / other.value)


NAN = Number("nan")


def number(value: float) -> Number:
    """A Python float, exactly."""
    if value != value:
        return NAN
    negative = math.copysign(1.0, value) < 0
    if math.isinf(value):
        return Number("inf", negative)
    return Number("finite", negative, Fraction(value))


def decode(bits: int, name: str) -> Number:
    """The number that the bits stand for."""
    form = FORMATS[name]
    negative, code = bool(bits & form.sign), bits & (form.sign - 1)
    if not form.negative_zero and bits == form.nan:
        return NAN
    if code <= form.max_code:
        magnitude = form.magnitude(code)
        return Number("finite", negative, -magnitude if negative else magnitude)
    return Number("inf", negative) if code == form.infinity else NAN


# Operations

ONE = Number("finite", False, Fraction(1))

# Operands in the order of the function, then its scalar factors.
OPERATIONS: dict[str, Callable[..., Number]] = {
    "add": lambda x, y, alpha=ONE: x + alpha * y,
    "sub": lambda x, y, alpha=ONE: x + -(alpha * y),
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
    "axpy": lambda x, y, alpha: alpha * x + y,
    "lerp": lambda x, y, t: x + t * (y + -x),
    "addcmul": lambda x, t1, t2, alpha=ONE: x + alpha * t1 * t2,
    "addcdiv": lambda x, t1, t2, alpha=ONE: x + alpha * t1 / t2,
    "cast": lambda x: x,
}


def exact(op: str, *operands: Number) -> Number:
    """The exact result."""
    return OPERATIONS[op](*operands)


# Rounding


@dataclass(frozen=True)
class Place:
    """Position of a magnitude on the grid: ``code`` + p, 0 <= p < 1, p = ``part`` / ``whole``."""

    code: int
    part: int
    whole: int

    @property
    def p(self) -> Fraction:
        return Fraction(self.part, self.whole)


def place(magnitude: Fraction, form: Format) -> Place:
    """The code at or below a positive magnitude, and the fraction of the way to the next code."""
    n, d = magnitude.numerator, magnitude.denominator
    exponent = n.bit_length() - d.bit_length()  # floor(log2), or one more
    if (n << max(-exponent, 0)) < (d << max(exponent, 0)):
        exponent -= 1
    spacing = max(exponent - form.fraction_bits, form.quantum)
    n, d = n << max(-spacing, 0), d << max(spacing, 0)
    significand, rest = divmod(n, d)
    return Place(((spacing - form.quantum) << form.fraction_bits) + significand, rest, d)


def goes_away(at: Place, negative: bool, mode: str, u: int) -> bool:
    """True if an inexact result is the neighbour away from zero. ``u`` is the 64-bit number of the element."""
    if mode == "sr":
        return u * at.whole < at.part << 64
    if mode == "sr_equal":
        return u < 1 << 63
    if mode.startswith("sr_bits="):
        r = int(mode.removeprefix("sr_bits="))
        return u >> (64 - r) < (at.part << r) // at.whole
    if mode == "rn":
        return 2 * at.part > at.whole or (2 * at.part == at.whole and at.code % 2 == 1)
    return {"ru": not negative, "rd": negative, "rz": False}[mode]


def round_bits(x: Number, name: str, mode: str = "sr", u: int = 0, overflow: str = "ieee") -> int:
    """The bits of ``x`` rounded once; any NaN is the format's canonical one."""
    form = FORMATS[name]
    if x.kind == "nan":
        return form.nan
    sign = form.sign if x.negative else 0
    if x.kind == "inf":
        return _too_large(form, sign, overflow)
    if x.value == 0:
        return sign if form.negative_zero else 0
    at = place(abs(x.value), form)
    code = at.code
    if code > form.max_code:
        stays_finite = mode == "rz" or (mode, x.negative) in (("ru", True), ("rd", False))
        return sign | form.max_code if stays_finite else _too_large(form, sign, overflow)
    if at.part and goes_away(at, x.negative, mode, u):
        code += 1
    if code > form.max_code:
        return _too_large(form, sign, overflow)
    return (sign | code) if code or form.negative_zero else 0


def _too_large(form: Format, sign: int, overflow: str) -> int:
    if overflow == "saturate":
        return sign | form.max_code
    return form.nan if form.infinity is None else sign | form.infinity


def expected(
    op: str,
    operands: list[tuple[int, str]],
    name: str,
    u: int = 0,
    *,
    scalars: tuple[float, ...] = (),
    mode: str = "sr",
    overflow: str = "ieee",
) -> int:
    """Bits of one element: operands as (bits, format), result in format ``name``."""
    numbers = [decode(*operand) for operand in operands] + [number(s) for s in scalars]
    return round_bits(exact(op, *numbers), name, mode, u, overflow)


def expected_sum(elements: list[int], source: str, name: str, us: list[int], **options: Any) -> int:
    """A running sum: the first element rounded, then one addition and one rounding for each element."""
    total = 0
    for i, (element, u) in enumerate(zip(elements, us, strict=True)):
        addend = decode(element, source)
        total = round_bits(addend if i == 0 else decode(total, name) + addend, name, u=u, **options)
    return total


def bracket(x: Number, name: str) -> tuple[Number, Number, Fraction]:
    """The two neighbours and the chance of the upper; equal and 0 where exact."""
    form = FORMATS[name]
    low, high = (decode(round_bits(x, name, mode), name) for mode in ("rd", "ru"))
    if x.kind != "finite" or x.value == 0 or low.value == x.value == high.value:
        return (high, high, Fraction(0))
    at = place(abs(x.value), form)
    if at.code > form.max_code:
        beyond = decode(_too_large(form, form.sign if x.negative else 0, "ieee"), name)
        return (beyond, beyond, Fraction(0))
    return (low, high, 1 - at.p if x.negative else at.p)
