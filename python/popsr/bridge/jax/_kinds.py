"""Kinds of elements by their sources: numbers of the program, positions, or data."""

from __future__ import annotations

import enum

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


SMOOTH = frozenset(
    [
        "add",
        "sub",
        "mul",
        "neg",
        "div",
        "pow",
        "integer_pow",
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "tan",
        "tanh",
        "logistic",
        "sqrt",
        "rsqrt",
        "cbrt",
        "square",
        "erf",
        "broadcast_in_dim",
        "reshape",
        "concatenate",
        "transpose",
        "squeeze",
        "expand_dims",
        "slice",
        "split",
        "copy",
        "copy_p",
        "convert_element_type",
        "select_n",
        "reduce_sum",
        "dot_general",
        "psum",
        "psum_invariant",
        "pvary",
        "all_gather",
        "all_gather_invariant",
        "reduce_scatter",
        "all_to_all",
        "ppermute",
        "add_any",
        "mul_add",
        "stop_gradient",
        "reduce_precision",
        "pad",
        "rev",
        "optimization_barrier",
        "cumsum",
        "sharding_constraint",
        "reshard",
        "layout_constraint",
        "device_put",
        "real",
        "imag",
        "conj",
        "complex",
    ]
)
"""Primitives that positions beside numbers go through: nothing is decided there."""

_KEEPS = frozenset(
    [
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "squeeze",
        "expand_dims",
        "convert_element_type",
        "copy",
        "neg",
        "slice",
        "pvary",
        "select_n",
        "concatenate",
        "pad",
        "rev",
        "optimization_barrier",
    ]
)
"""Primitives after which a tiny number is tiny, and a position where it was."""

_COMPARE = frozenset(["lt", "le", "gt", "ge", "eq", "ne", "lt_to", "le_to"])
_ADDS = _COMPARE | frozenset(["add", "sub", "add_any", "div", "rem", "max", "min", "clamp"])
"""Primitives that may add a tiny number to positions, or compare them."""

_BENDS = frozenset(
    [
        "pow",
        "integer_pow",
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "tan",
        "tanh",
        "logistic",
        "sqrt",
        "rsqrt",
        "cbrt",
        "erf",
        "atan2",
    ]
)
"""Primitives after which positions are not as far apart as before."""

ALONG = frozenset(
    [
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "lt_to",
        "le_to",
        "max",
        "min",
        "clamp",
        "sign",
        "abs",
        "floor",
        "ceil",
        "round",
        "rem",
        "and",
        "or",
        "xor",
        "not",
        "is_finite",
        "shift_left",
        "shift_right_logical",
        "shift_right_arithmetic",
        "nextafter",
        "atan2",
        "psum",
        "psum_invariant",
        "pmax",
        "pmin",
        "select_n",
    ]
) | (SMOOTH - {"reduce_sum", "dot_general", "cumsum"})
"""Primitives whose results are of no more elements than one, or of the same place in the mesh."""


def joined(name: str, kinds: list[Kind]) -> Kind:
    """The kind of what an op makes of such operands."""
    found = set(kinds)
    if Kind.DRAWN in found:
        return Kind.DRAWN
    if name == "mul" and found == {Kind.SIZED, Kind.BOUNDED}:
        return Kind.POSITION  # of a place in the mesh its first position
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
