"""Differences of tensors, byte by byte, in bounded memory: where they begin, how many elements, how far."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from popsr._support.host.rank_groups import RankGroups, equal_groups
from popsr._support.text.differences import bits_text
from popsr.bridge.audit._findings import Drift
from popsr.bridge.audit._held import Array, Held

__all__ = ["drift_of", "first_byte"]

_CHUNK = 4 << 20
_BEGIN = 64 << 10


class _Two(NamedTuple):
    """Two ranks of a group that differ, and the first byte in which they do; None where a dtype or shape differs."""

    first: int
    other: int
    byte: int | None


def drift_of(step: int | None, name: str, declared: RankGroups, tensors: Mapping[int, Held]) -> Drift | None:
    """The finding that ranks of a group differ; None when no group differs."""
    found = _differing_ranks(declared, tensors)
    if found is None:
        return None
    equal = equal_groups(declared, _content_keys(declared, tensors)).text
    a, b = tensors[found.first], tensors[found.other]
    ranks = found.first, found.other
    if found.byte is None:
        shown = tuple(f"{each.kind}{list(each.shape)}" for each in (a, b))
        return Drift(step, name, declared.text, equal, ranks, None, (shown[0], shown[1]))
    element = found.byte // a.itemsize
    place = tuple(int(each) for each in np.unravel_index(element, a.shape)) if a.shape else ()
    values = (_shown_value(a, element), _shown_value(b, element))
    count, largest = _extent(declared, tensors)
    return Drift(
        step, name, declared.text, equal, ranks, place, values, count, a.nbytes // a.itemsize, largest
    )


def _differing_ranks(declared: RankGroups, tensors: Mapping[int, Held]) -> _Two | None:
    for members in declared.among(sorted(tensors)).values():
        if len(members) < 2:
            continue
        a = tensors[members[0]]
        data = a.read()
        for other in members[1:]:
            b = tensors[other]
            if not _alike(a, b):
                return _Two(members[0], other, None)
            byte = first_byte(data, b.read())
            if byte is not None:
                return _Two(members[0], other, byte)
    return None


def _alike(a: Held, b: Held) -> bool:
    return (a.kind, a.shape) == (b.kind, b.shape)


def first_byte(a: Array, b: Array) -> int | None:
    """The first byte in which two vectors of one length differ; None where none does."""
    for begin in range(0, len(a), _CHUNK):
        x, y = a[begin : begin + _CHUNK], b[begin : begin + _CHUNK]
        if not _equal(x, y):
            return begin + int(np.flatnonzero(x != y)[0])
    return None


def _equal(x: Array, y: Array) -> bool:
    whole = len(x) // 8 * 8
    # Words of 8 bytes are compared half as fast again as bytes.
    return bool(np.array_equal(x[:whole].view(np.uint64), y[:whole].view(np.uint64))) and bool(
        np.array_equal(x[whole:], y[whole:])
    )


def _extent(declared: RankGroups, tensors: Mapping[int, Held]) -> tuple[int, float | None]:
    """The most elements in which a rank differs from the first of its group, and the largest difference of any."""
    most, largest = 0, None
    for members in declared.among(sorted(tensors)).values():
        first = tensors[members[0]]
        data = first.read() if len(members) > 1 else None
        for other in members[1:]:
            if data is None or not _alike(first, tensors[other]):
                continue
            count, far = _difference(first, data, tensors[other].read())
            most = max(most, count)
            if far is not None:
                largest = far if largest is None else float(np.maximum(largest, far))  # a NaN stays
    return most, largest


def _difference(held: Held, a: Array, b: Array) -> tuple[int, float | None]:
    count, largest = 0, None
    chunk = max(1, _CHUNK // held.itemsize) * held.itemsize
    for begin in range(0, len(a), chunk):
        x, y = a[begin : begin + chunk], b[begin : begin + chunk]
        if _equal(x, y):
            continue
        differs = (x != y).reshape(-1, held.itemsize).any(axis=1)
        count += int(np.count_nonzero(differs))
        far = _distance(held, x, y, differs)
        if far is not None:
            largest = far if largest is None else float(np.maximum(largest, far))
    return count, largest


def _distance(held: Held, x: Array, y: Array, differs: Array) -> float | None:
    """The largest difference of elements as numbers; NaN where one of two is NaN, None where they are no numbers."""
    if held.dtype is None:
        return None
    # Integers of 64 bits are exact in a long double.
    wide: Any = np.longdouble if held.dtype.kind in "iu" else np.float64
    first, other = (_numbers(held, held.dtype, each, differs).astype(wide) for each in (x, y))
    with np.errstate(all="ignore"):
        return float(np.abs(first - other).max())


def _numbers(held: Held, dtype: np.dtype[Any], data: Array, chosen: Array) -> Array:
    elements = np.ascontiguousarray(data.reshape(-1, held.itemsize)[chosen])
    return elements.view(dtype)[:, 0]


def _content_keys(declared: RankGroups, tensors: Mapping[int, Held]) -> dict[int, int]:
    """For each rank the first of its group that holds equal bits."""
    keys: dict[int, int] = {}
    for members in declared.among(sorted(tensors)).values():
        # Compared with each other are only those that begin alike.
        firsts: dict[Hashable, list[int]] = {}
        for rank in members:
            mine = tensors[rank]
            data = mine.read()
            begin = hashlib.sha256(data[:_BEGIN].tobytes()).digest()
            alike = firsts.setdefault((mine.kind, mine.shape, begin), [])
            found = next((each for each in alike if first_byte(tensors[each].read(), data) is None), rank)
            if found == rank:
                alike.append(rank)
            keys[rank] = found
    return keys


def _shown_value(held: Held, element: int) -> str:
    data = np.array(held.read()[element * held.itemsize : (element + 1) * held.itemsize])
    return bits_text(data.tobytes(), None if held.dtype is None else data.view(held.dtype)[0])
