"""Kinds of elements by their sources: numbers of the program, positions, or data."""

from __future__ import annotations

import enum

from popsr.bridge.jax._rules.calls import PLACED
from popsr.bridge.jax._rules.kinds import CURVES, EXCHANGES, MOVES

__all__ = ["ALONG", "SMOOTH", "Kind", "either", "joined"]


class Kind(enum.IntEnum):
    """Kind of source that an element of an array may follow from.

    Positions beside a number that does not grow with sizes are ``MIXED``: where such a number decides, as the width of
    a window does, smaller sizes say nothing about large ones. Numbers up to 2 may be added to positions once, as the
    smallest parts have 3 elements.
    """

    ZERO = 0
    """Zero, truth values and infinity."""
    TINY = 1
    """Other numbers of the program up to 2."""
    SIZED = 2
    """A number that is a function of sizes."""
    BOUNDED = 3
    """Other numbers that are the same at all sizes, and places in the mesh."""
    POSITION = 4
    """Positions along a dimension, and integers of data."""
    MOVED = 5
    """Positions to which a tiny number was added."""
    MIXED = 6
    """Positions, and numbers that are the same at all sizes."""
    DRAWN = 7
    """Floats of states and data."""
    NOISE = 8
    """Keys, and random bits."""


SMOOTH = MOVES | EXCHANGES | CURVES | frozenset(PLACED) | frozenset([
    "add", "sub", "mul", "neg", "div", "square", "add_any", "mul_add", "reduce_sum", "cumsum", "dot_general",
    "split", "pad", "copy_p", "stop_gradient", "reduce_precision", "real", "imag", "conj", "complex",
    "all_gather_invariant", "reduce_scatter",
])  # fmt: skip
"""Primitives that positions beside numbers go through: nothing is decided there."""

_KEEPS = MOVES | {"neg", "pad"}
"""Primitives after which a tiny number is tiny, and a position where it was."""

_COMPARE = frozenset(["lt", "le", "gt", "ge", "eq", "ne", "lt_to", "le_to"])
"""Primitives that compare."""

_ADDS = _COMPARE | {"add", "sub", "add_any", "div", "rem", "max", "min", "clamp"}
"""Primitives that may add a tiny number to positions, or compare them."""

_BENDS = CURVES | {"atan2"}
"""Primitives after which positions are not as far apart as before."""

ALONG = _COMPARE | (SMOOTH - {"reduce_sum", "dot_general", "cumsum"}) | frozenset([
    "max", "min", "clamp", "sign", "abs", "floor", "ceil", "round", "rem", "atan2", "nextafter", "is_finite",
    "and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic", "pmax", "pmin",
])  # fmt: skip
"""Primitives whose results are of no more elements than one, or of the same place in the mesh."""


def joined(name: str, kinds: list[Kind]) -> Kind:
    """The kind of what an op makes of such operands."""
    found = set(kinds)
    if Kind.DRAWN in found:
        return Kind.DRAWN
    if name == "mul" and found == {Kind.SIZED, Kind.BOUNDED}:
        return Kind.POSITION  # the first position of a place in the mesh
    places = found & {Kind.SIZED, Kind.POSITION, Kind.MOVED}
    if Kind.MIXED in found or (Kind.BOUNDED in found and places):
        return Kind.MIXED
    if not places:
        return max(found, default=Kind.BOUNDED) if name in _KEEPS else Kind.BOUNDED
    if name in _BENDS and places != {Kind.SIZED}:
        return Kind.MIXED
    if name in _ADDS:
        again = kinds.count(Kind.MOVED) + (Kind.TINY in found)
        if again:
            moved = Kind.MOVED if name not in _COMPARE else Kind.POSITION
            return moved if again == 1 else Kind.MIXED
        return Kind.POSITION if name in _COMPARE else max(found)
    return max(found)


def either(one: Kind, other: Kind) -> Kind:
    """The kind of a value that is of one kind or the other."""
    return one if one is other else max(joined("select_n", [one, other]), one, other)
