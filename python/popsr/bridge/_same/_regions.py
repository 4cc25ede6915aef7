"""Values of one device by the line that makes them, and parts of them that a replica has."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from popsr._support.fields import Numbers
from popsr.bridge._same._forms import ANY, digest_of
from popsr.bridge._step.arguments import Array

__all__ = ["Integers", "Lines", "Region", "region_of"]

_MOST_ELEMENTS, _MOST_VALUES = 20_000, 64
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Lines:
    """Values of one device by kind and line of the op that makes them."""

    def __init__(self) -> None:
        """Without any value."""
        self._values: dict[tuple[str, str], list[Any]] = {}
        self._found: dict[tuple[int, str, str], Region | None] = {}

    def add(self, value: Any, kind: str, line: str) -> None:
        """One more value."""
        self._values.setdefault((kind, line), []).append(value)

    def has(self, kind: str, line: str) -> bool:
        """True if an op of that kind and line runs on one device."""
        return (kind, line) in self._values

    def region(self, row: Any, kind: str, line: str) -> Region | None:
        """The part that a value is of one that an op of that kind and line makes; None of other values."""
        key = id(row), kind, line  # rows live as long as the search
        if key not in self._found:
            values = self._values.get((kind, line), ())[:_MOST_VALUES]
            found = ((each.shape, region_of(row, each)) for each in values)
            self._found[key] = next((Region(shape, part) for shape, part in found if part is not None), None)
        return self._found[key]

    def has_at(self, row: Any, region: Region, kind: str, line: str) -> bool | None:
        """True if an op of that kind and line makes a value at a region; None if it makes none of that shape."""
        values = [each for each in self._values.get((kind, line), ()) if each.shape == region.shape]
        mine, at = _codes(row), np.ix_(*region.indices)
        alike = (_codes(each)[at].tobytes() == mine.tobytes() for each in values[:_MOST_VALUES])
        return any(alike) if values else None


class Region(NamedTuple):
    """Some of the rows, columns and so on of an array, in their order.

    Attributes:
        shape: of the array.
        indices: along each of its axes.
    """

    shape: tuple[int, ...]
    indices: tuple[Array, ...]

    @property
    def is_whole(self) -> bool:
        """True if it is the array itself."""
        return all(len(each) == n for each, n in zip(self.indices, self.shape, strict=True))


def region_of(part: Any, whole: Any) -> tuple[Array, ...] | None:
    """Indices along each axis at which an array stands in another one, ascending; None if it does not.

    Elements that are several times in it tell no place: they follow from their neighbours'.
    """
    shape = part.shape
    if len(shape) != len(whole.shape) or any(n > m for n, m in zip(shape, whole.shape, strict=True)):
        return None
    if not part.size or whole.size > _MOST_ELEMENTS:
        return None
    mine, its = _codes(part), _codes(whole)
    codes, firsts, counts = np.unique(its.reshape(-1), return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(codes, mine.reshape(-1)), len(codes) - 1)
    if (codes[at] != mine.reshape(-1)).any():
        return None
    told = (counts[at] == 1).reshape(shape)
    places = np.unravel_index(firsts[at].reshape(shape), whole.shape)
    indices = [_along(place, told, axis, whole.shape[axis]) for axis, place in enumerate(places)]
    found = tuple(each for each in indices if each is not None)
    if len(found) < len(indices) or (its[np.ix_(*found)] != mine).any():
        return None
    return found


def _along(place: Array, told: Array, axis: int, size: int) -> Array | None:
    """Indices along an axis, ascending; None if there are none such."""
    lines, known = (np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (place, told))
    found = np.where(known, lines, -1).max(1, initial=-1)
    if ((lines != found[:, None]) & known).any():
        return None
    first = next((n for n, index in enumerate(found) if index >= 0), None)
    if first is None:
        return np.arange(len(found)) if len(found) == size else None
    found[:first] = found[first] - np.arange(first, 0, -1)
    for n in range(first + 1, len(found)):
        if found[n] < 0:
            found[n] = found[n - 1] + 1
    ascends = (np.diff(found) >= 0).all() and found[0] >= 0 and found[-1] < size
    return found if ascends else None


def _codes(value: Any) -> Array:
    """A number for each element, equal for equal ones."""
    if not isinstance(value, Numbers):
        return np.ascontiguousarray(value).astype(np.int64).view(np.uint64)
    codes = np.broadcast_to(value.residues[-1], value.shape).astype(np.uint64)
    if value.huge is None:
        return codes
    huge = np.ascontiguousarray(np.broadcast_to(value.huge, value.shape), np.float64)
    return codes ^ (huge.view(np.uint64) * _MIX)


class Integers:
    """Integers and truth values of one device, by kind and line of their ops."""

    def __init__(self) -> None:
        """Without any value."""
        self._found: dict[bytes, set[object]] = {}

    def add(self, value: Any, origin: object) -> None:
        """One more value; without an origin it is one of all lines."""
        if not isinstance(value, Numbers):
            self._found.setdefault(digest_of(value), set()).add(origin)

    def scale(self, value: Any, origin: object) -> Fraction | None:
        """1 for a value of that origin, as ``Known`` says the factor of floats."""
        origins: Iterable[object] = self._found.get(digest_of(value), ())
        return Fraction(1) if origins and (origin == ANY or {origin, None} & {*origins}) else None
