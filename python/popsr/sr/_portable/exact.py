"""Exact sums in array operations: by the bits of both operands, so that nothing is contracted, reassociated or flushed.

Significands are limbs of 16 bits, the lowest first, in integers of 32 bits or more, of which no operation overflows.
The smaller operand is shifted to the place of the larger one; of what falls out below it is only kept whether it is
zero, which is all that counts: the highest 64 bits of the way from one code to the next are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from popsr.sr._portable.arrays import Arrays, is_less
from popsr.sr._portable.rounding import Grid, Place

__all__ = ["Number", "Sum", "add", "number", "place", "product_grid", "times"]

_DIGITS = 4  # of the way between two codes: the 64 bits that are compared
_PRODUCT_BITS = 80  # a float32 has 24 and a double 53


class Number(NamedTuple):
    """Operands.

    Attributes:
        negative: their signs.
        exponent: of the last bit.
        limbs: of the significands.
        infinite: those that are infinite.
        nan: those that are no numbers.
    """

    negative: Any
    exponent: Any
    limbs: list[Any]
    infinite: Any
    nan: Any


class Sum(NamedTuple):
    """Exact sums: as a number, and whether something is below its last bit."""

    value: Number
    rest: Any

    def signs(self) -> tuple[Any, Any, Any]:
        """Signs, which are infinite, and which are no numbers."""
        return self.value.negative, self.value.infinite, self.value.nan


def number(xp: Arrays, bits: Any, source: Grid) -> Number:
    """Values of the bits of a float32 in int32, or of a float64 in int64."""
    magnitude = bits & (source.sign - 1)
    field = magnitude >> source.fraction_bits
    least_normal = 1 << source.fraction_bits
    significand = (magnitude & (least_normal - 1)) + xp.where(field > 0, least_normal, 0)
    infinity = source.infinity or 0
    return Number(
        bits < 0,
        xp.largest(field, 1) + (source.quantum - 1),
        [(significand >> shift) & 0xFFFF for shift in range(0, source.fraction_bits + 1, 16)],
        magnitude == infinity,
        magnitude > infinity,
    )


def product_grid(double: Grid) -> Grid:
    """The format that has all products of a float32 and a double, and all doubles."""
    return double._replace(fraction_bits=_PRODUCT_BITS - 1, quantum=4 * double.quantum // 3)


def times(xp: Arrays, x: Number, factor: float, source: Grid) -> Number:
    """The product of a float32 and a double, exact.

    Args:
        xp: the framework.
        x: the float32.
        factor: the double, which is finite.
        source: ``product_grid`` of doubles.
    """
    fraction, exponent = math.frexp(abs(factor))
    whole = int(fraction * (1 << 53))
    small = [x.limbs[0] & 0xFF, x.limbs[0] >> 8, x.limbs[1]]
    large = [whole >> shift & 0xFF for shift in range(0, 53, 8)]
    carry: Any = 0
    octets = []
    for k in range(_PRODUCT_BITS // 8):
        total = carry
        for i, octet in enumerate(small):
            if 0 <= k - i < len(large):
                total = total + octet * large[k - i]
        octets.append(total & 0xFF)
        carry = total >> 8
    limbs = [low + high * 0x100 for low, high in zip(octets[::2], octets[1::2], strict=True)]
    negates = math.copysign(1, factor) < 0
    return _aligned(
        xp,
        Number(
            ~x.negative if negates else x.negative,
            x.exponent + (exponent - 53),
            limbs,
            x.infinite,
            x.nan | x.infinite if factor == 0 else x.nan,
        ),
        source,
    )


def add(xp: Arrays, x: Number, y: Number, source: Grid, target: Grid) -> Sum:
    """The sum.

    Args:
        xp: the framework.
        x: operand.
        y: operand; at least one of both has the limbs of ``source``.
        source: format that has all operands.
        target: format that the sum will be rounded to.
    """
    x, y = (_normalised(xp, each, source) for each in (x, y))
    swaps, _ = is_less([x.exponent, *reversed(x.limbs)], [y.exponent, *reversed(y.limbs)])
    large, small = _chosen(xp, swaps, y, x), _chosen(xp, swaps, x, y)
    below = [0] * _num_limbs_below(source, target)
    carries = [0]
    most = 16 * len(below + large.limbs + carries)
    distance = xp.smallest(large.exponent - small.exponent, most)
    shifted, rest = _shift_down(xp, below + small.limbs + carries, distance)
    subtracts = large.negative != small.negative
    mask = xp.where(subtracts, 0xFFFF, 0)
    carry = xp.where(subtracts & ~rest, 1, 0)  # what is below the last bit borrows
    limbs = []
    for a, b in zip(below + large.limbs + carries, shifted, strict=True):
        total = (b ^ mask) + a + carry
        limbs.append(total & 0xFFFF)
        carry = total >> 16
    infinite, finite = x.infinite | y.infinite, ~x.infinite & ~y.infinite
    negative = (x.negative & (y.negative | x.infinite)) | (y.negative & y.infinite)
    return Sum(
        Number(
            negative | (large.negative & finite & ~_is_zero(limbs)),
            large.exponent - 16 * len(below),
            limbs,
            infinite,
            x.nan | y.nan | (x.infinite & y.infinite & subtracts),
        ),
        rest,
    )


def place(xp: Arrays, total: Sum, target: Grid) -> Place:
    """Place of a sum among the codes of a format.

    The way to the next code is the part of a sum below the code's last bit: that of 2**step of the sum's own.
    """
    value = total.value
    limbs = [0] * _DIGITS + value.limbs
    length = _bit_length(xp, value.limbs)
    from_top, from_quantum = length - 1 - target.fraction_bits, target.quantum - value.exponent
    step = xp.where(from_top < from_quantum, from_quantum, from_top)
    step = xp.smallest(xp.largest(step, 0), 16 * len(limbs))
    num = target.fraction_bits // 16 + 1
    parts, lost = _shift_down(xp, limbs, step, _DIGITS + num)
    steps = xp.largest(value.exponent + step - target.quantum, 0)
    steps = xp.where(length == 0, 0, xp.smallest(steps, target.most >> target.fraction_bits))
    code = steps * (1 << target.fraction_bits)
    for k, limb in enumerate(parts[_DIGITS:]):
        code = code + limb * (1 << 16 * k)
    return Place(code, parts[_DIGITS - 1 :: -1], total.rest | lost)


def _num_limbs_below(source: Grid, target: Grid) -> int:
    """Limbs below the larger operand's.

    A sum loses at most one bit at its top unless it is a multiple of half the larger one's last bit.
    """
    return max(math.ceil((16 * _DIGITS + 1 + target.fraction_bits - source.fraction_bits) / 16), 1)


def _normalised(xp: Arrays, x: Number, source: Grid) -> Number:
    """The number in the limbs of the format: the first bit of the significand is set, but of zero."""
    return x if len(x.limbs) == source.fraction_bits // 16 + 1 else _aligned(xp, x, source)


def _aligned(xp: Arrays, x: Number, source: Grid) -> Number:
    num = source.fraction_bits // 16 + 1
    length = _bit_length(xp, x.limbs)
    up = source.fraction_bits + 1 - length
    limbs, _ = _shift_down(xp, [0] * num + x.limbs, 16 * num - up, num)
    return x._replace(limbs=limbs, exponent=xp.where(length == 0, source.quantum, x.exponent - up))


def _chosen(xp: Arrays, condition: Any, x: Number, y: Number) -> Number:
    return Number(
        (x.negative & condition) | (y.negative & ~condition),
        xp.where(condition, x.exponent, y.exponent),
        [xp.where(condition, a, b) for a, b in zip(x.limbs, y.limbs, strict=True)],
        infinite=False,
        nan=False,
    )


def _is_zero(limbs: Sequence[Any]) -> Any:
    found: Any = 0
    for limb in limbs:
        found = found | limb
    return found == 0


def _bit_length(xp: Arrays, limbs: Sequence[Any]) -> Any:
    """Bits down from the highest one that is set."""
    top, length = limbs[0], limbs[0] * 0
    for k, limb in enumerate(limbs[1:], 1):
        length = xp.where(limb != 0, 16 * k, length)
        top = xp.where(limb != 0, limb, top)
    for shift in (8, 4, 2, 1):
        is_high = (top >> shift) != 0
        length = length + xp.where(is_high, shift, 0)
        top = xp.where(is_high, top >> shift, top)
    return length + top


def _shift_down(xp: Arrays, limbs: Sequence[Any], by: Any, num: int | None = None) -> tuple[list[Any], Any]:
    """The lowest ``num`` limbs after a shift by at most all bits, and whether bits that are set fell out."""
    num = len(limbs) if num is None else num
    whole, bits = by >> 4, by & 15
    limbs, lost = list(limbs), bits < 0
    step = 1 << (len(limbs).bit_length() - 1)
    while step:
        moves = (whole & step) != 0
        if any(not isinstance(limb, int) for limb in limbs[:step]):
            lost = lost | (moves & ~_is_zero(limbs[:step]))
        upper = limbs[step:] + [0] * step
        limbs = [_pick(xp, moves, up, here) for up, here in zip(upper, limbs, strict=False)]
        limbs = limbs[: num + step]  # whatever is above cannot come down any more
        step >>= 1
    mask = (1 << bits) - 1
    lost = lost | ((limbs[0] & mask) != 0)
    upper = [*limbs[1:], 0]
    shifted = [(a >> bits) + ((b & mask) << (16 - bits)) for a, b in zip(limbs, upper, strict=True)]
    return shifted[:num], lost


def _pick(xp: Arrays, condition: Any, x: Any, y: Any) -> Any:
    return 0 if isinstance(x, int) and isinstance(y, int) else xp.where(condition, x, y)
