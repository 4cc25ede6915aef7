"""Places of replicas' parts in an array, found by equal bits: blocks, lines along a dimension, or single elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from popsr.bridge._same._parts import blocks_of, positions_of
from popsr.bridge._step.arguments import Array, Part

__all__ = ["places_by_value"]

_MOST_BLOCKS = 4096


def places_by_value(rows: Sequence[Array], whole: Array) -> list[Part] | None:
    """The one place of each row in an array; None where some row has none, or several.

    Args:
        rows: parts, all of one shape; zeros that are nowhere in the array are padding.
        whole: the array.
    """
    for way in (_blocks, _lines, _elements):
        found = way(rows, whole)
        if found is not None:
            return found
    return None


def _blocks(rows: Sequence[Array], whole: Array) -> list[Part] | None:
    """Blocks of an array, or of it with axes in another order."""
    part = rows[0].shape
    if len(part) != whole.ndim or not rows[0].size:
        return None
    bits = [row.tobytes() for row in rows]
    for order in itertools.permutations(range(whole.ndim)) if whole.ndim < 5 else [tuple(range(whole.ndim))]:
        turned = whole.transpose(order)
        known: dict[bytes, list[tuple[slice, ...]]] = {}
        for block in blocks_of(turned.shape, part, _MOST_BLOCKS):
            known.setdefault(turned[block].tobytes(), []).append(block)
        found = [known.get(each, []) for each in bits]
        if any(len(each) > 1 for each in found):
            return None  # a constant
        if all(found):
            places = [each[0] for each in found]
            if order == tuple(range(whole.ndim)):
                return list(places)
            positions = positions_of(whole.shape, ()).transpose(order)
            return [positions[block] for block in places]
    return None


def _lines(rows: Sequence[Array], whole: Array) -> list[Part] | None:
    """Lines along the one dimension that differs, in any order, with padding."""
    part = rows[0].shape
    if len(part) != whole.ndim:
        return None
    for dim in range(whole.ndim):
        if any(n != m for d, (n, m) in enumerate(zip(part, whole.shape, strict=True)) if d != dim):
            continue
        known: dict[bytes, list[int]] = {}
        for i, line in enumerate(np.moveaxis(whole, dim, 0)):
            known.setdefault(line.tobytes(), []).append(i)
        indices = [_indices(np.moveaxis(row, dim, 0), known) for row in rows]
        if any(each is None for each in indices):
            continue
        positions = np.moveaxis(positions_of(whole.shape, ()), dim, 0)
        places: list[Part] = []
        for each in indices:
            assert each is not None
            taken = positions[np.maximum(each, 0)]
            taken[each < 0] = -1
            places.append(np.moveaxis(taken, 0, dim))
        return places
    return None


def _indices(lines: Array, known: dict[bytes, list[int]]) -> Array | None:
    """The index of each line; -1 for zeros that are nowhere, None if a line is nowhere or at several places."""
    found = []
    for line in lines:
        places = known.get(line.tobytes(), [])
        if len(places) > 1 or (not places and line.any()):
            return None
        found.append(places[0] if places else -1)
    return np.array(found)


def _elements(rows: Sequence[Array], whole: Array) -> list[Part] | None:
    """Single elements by their bits, all of which are different ones."""
    if not whole.size:
        return None
    bits = np.dtype(f"u{whole.dtype.itemsize}")
    found_bits, firsts, counts = np.unique(
        np.ascontiguousarray(whole).reshape(-1).view(bits), return_index=True, return_counts=True
    )
    places: list[Part] = []
    for row in rows:
        flat = np.ascontiguousarray(row).reshape(-1).view(bits)
        at = np.minimum(np.searchsorted(found_bits, flat), len(found_bits) - 1)
        known = found_bits[at] == flat
        if (known & (counts[at] > 1)).any() or (~known & (flat != 0)).any() or not known.any():
            return None
        found = np.where(known, firsts[at], -1)
        if len(np.unique(found[known])) != known.sum():
            return None
        places.append(found.reshape(row.shape))
    return places
