"""Reference values of ``popsr.sr.cast_blocks``, in Python's integers and fractions. Nothing here comes from popsr.

The grids are those of the OCP Microscaling Formats specification 1.0, written as sign, exponent and fraction.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

__all__ = ["FORMATS", "Format", "element", "mx_scale", "nvfp4_scale", "nvfp4_tensor_scale"]


def _float_grid(exponent_bits: int, fraction_bits: int, bias: int, codes: int) -> tuple[Fraction, ...]:
    """Magnitudes of the first codes."""
    found = []
    for code in range(codes):
        exponent, fraction = divmod(code, 1 << fraction_bits)
        assert exponent < 1 << exponent_bits
        significand = fraction if exponent == 0 else fraction + (1 << fraction_bits)
        found.append(significand * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits))
    return tuple(found)


E4M3 = _float_grid(4, 3, 7, 127)


@dataclass(frozen=True)
class Format:
    """Magnitudes of elements in ascending order, and how many elements a block has."""

    grid: tuple[Fraction, ...]
    size: int = 32
    sign: int = 0  # bit of the sign; 0: two's complement


FORMATS = {
    "mxfp8_e4m3": Format(E4M3, sign=0x80),
    "mxfp8_e5m2": Format(_float_grid(5, 2, 15, 124), sign=0x80),
    "mxfp6_e2m3": Format(_float_grid(2, 3, 1, 32), sign=0x20),
    "mxfp6_e3m2": Format(_float_grid(3, 2, 3, 32), sign=0x20),
    "mxfp4": Format(_float_grid(2, 1, 1, 8), sign=0x08),
    "mxint8": Format(tuple(Fraction(k, 64) for k in range(128))),
    "nvfp4": Format(_float_grid(2, 1, 1, 8), size=16, sign=0x08),
}


# Scales. None: the block has none, and is NaN.


def _floor_log2(x: Fraction) -> int:
    k = x.numerator.bit_length() - x.denominator.bit_length()
    return k if Fraction(2) ** k <= x else k - 1


def mx_scale(values: Sequence[float], form: Format, rule: str) -> Fraction | None:
    """The power of two by which a block's elements are multiplied."""
    if not all(math.isfinite(v) for v in values):
        return None
    largest = max(abs(Fraction(v)) for v in values)
    if largest == 0:
        return Fraction(2) ** -127
    if rule == "floor":
        k = _floor_log2(largest) - _floor_log2(form.grid[-1])
    else:
        k = _floor_log2(largest) - _floor_log2(form.grid[-1]) - 1
        while largest > form.grid[-1] * Fraction(2) ** k:
            k += 1
    return Fraction(2) ** max(k, -127) if k <= 127 else None


def _in_float32(x: Fraction, rule: str) -> np.float32:
    """Float32 of a positive number, up or to nearest even, at least the least and at most the greatest."""
    least, most = np.float32(2.0**-149), np.finfo(np.float32).max
    spacing = Fraction(2) ** max(_floor_log2(x) - 23, -149)
    steps = math.ceil(x / spacing) if rule == "rceil" else round(x / spacing)  # Python's is to even
    return min(max(np.float32(float(min(steps * spacing, Fraction(float(most))))), least), most)


def nvfp4_tensor_scale(blocks: Sequence[Sequence[float]], rule: str) -> np.float32:
    """The scale of all blocks."""
    finite = [b for b in blocks if all(math.isfinite(v) for v in b)]
    largest = max((abs(Fraction(v)) for b in finite for v in b), default=Fraction(0))
    return _in_float32(largest / (6 * 448), rule) if largest else np.float32(1)


def nvfp4_scale(values: Sequence[float], tensor: Fraction, rule: str) -> Fraction | None:
    """The scale of a block, an e4m3."""
    if not all(math.isfinite(v) for v in values):
        return None
    exact = max(abs(Fraction(v)) for v in values) / (6 * tensor)
    if rule == "rceil":
        return next((s for s in E4M3[1:] if s >= exact), None)
    code = min(range(127), key=lambda c: (abs(E4M3[c] - exact), c % 2))
    return E4M3[max(code, 1)]


# Elements


def element(value: float, scale: Fraction | None, form: Format, mode: str, number: int) -> int:
    """The bits of an element.

    Args:
        value: a float.
        scale: of the block.
        form: the format.
        mode: how to round.
        number: the element's random number, from 0 to 2**64 - 1.
    """
    if scale is None:
        return 0
    negative = math.copysign(1, value) < 0
    exact = abs(Fraction(value)) / scale
    code = bisect.bisect_right(form.grid, exact) - 1
    if form.grid[code] != exact and code + 1 < len(form.grid):
        chance = (exact - form.grid[code]) / (form.grid[code + 1] - form.grid[code])
        code += _goes_away(chance, negative, code % 2 == 1, mode, number)
    if form.sign:
        return code | (form.sign if negative else 0)
    return -code & 0xFF if negative else code


def _goes_away(chance: Fraction, negative: bool, is_odd: bool, mode: str, number: int) -> bool:
    if mode.startswith("sr_bits="):
        bits = int(mode.removeprefix("sr_bits="))
        return number >> (64 - bits) < math.floor(chance * 2**bits)
    return {
        "sr": number < chance * 2**64,
        "sr_equal": number < 2**63,
        "rn": chance > Fraction(1, 2) or (chance == Fraction(1, 2) and is_odd),
        "ru": not negative,
        "rd": negative,
        "rz": False,
    }[mode]
