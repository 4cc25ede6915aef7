"""Parts of arrays that replicas hold, of floats, integers and exact numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from popsr._support.fields import Numbers
from popsr.bridge._step.arguments import Array, Part

__all__ = ["blocks_of", "key_of", "part_of", "positions_of", "put"]


def part_of(value: Any, part: Part) -> Any:
    """The elements of an array at a place."""
    if isinstance(part, tuple):
        return value[part] if part else value
    flat: Any = value.reshape((-1,))
    if not isinstance(flat, Numbers):
        return np.append(flat, np.zeros(1, flat.dtype))[part] if (part < 0).any() else flat[part]
    if (part < 0).any():
        flat = Numbers.concat([flat, flat.constant(0.0).reshape((1,))])
    return flat.at(part)


def blocks_of(whole: tuple[int, ...], part: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Blocks of a shape that an array consists of; none if it does not, or of too many."""
    if len(whole) != len(part) or not math.prod(part) or any(n % m for n, m in zip(whole, part, strict=True)):
        return
    counts = [n // m for n, m in zip(whole, part, strict=True)]
    if math.prod(counts) > most:
        return
    for place in itertools.product(*map(range, counts)):
        yield tuple(slice(i * m, (i + 1) * m) for i, m in zip(place, part, strict=True))


def put(value: Array, part: Part, row: Array) -> None:
    """Write a replica's elements into an array."""
    if isinstance(part, tuple):
        value[part] = row
    else:
        value.reshape(-1)[part[part >= 0]] = row[part >= 0]


def key_of(part: Part) -> Hashable:
    """Equal for equal places."""
    return tuple((cut.start, cut.stop) for cut in part) if isinstance(part, tuple) else part.tobytes()


def positions_of(shape: tuple[int, ...], part: Part) -> Array:
    """A place as positions in the flat array."""
    if not isinstance(part, tuple):
        return part
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)[part]
