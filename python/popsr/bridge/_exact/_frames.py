"""Memory of a graph that runs: values by tensor, views of the memory of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.bridge._exact._unknown import first_unknown

__all__ = ["Frame", "Memory", "Place"]

Rows = list[Any]


@dataclass(eq=False, slots=True)
class Memory:
    """An allocation: its value on each replica; values are immutable, writes replace them."""

    rows: Rows


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """Memory of a tensor: allocations, and the positions of its elements in them, one after the other.

    Attributes:
        memories: the allocations.
        positions: of the elements; None for the one allocation as it is.
    """

    memories: tuple[Memory, ...]
    positions: Array | None = None

    @classmethod
    def joined(cls, places: Sequence[Place], positions: Array) -> Place:
        """Elements of several places, by their positions in them one after the other."""
        memories = tuple(memory for place in places for memory in place.memories)
        if all(place.positions is None for place in places):
            return cls(memories, positions)
        at, parts = 0, []
        for place in places:
            size = sum(_size(memory) for memory in place.memories)
            own = np.arange(size) if place.positions is None else place.positions.reshape(-1)
            parts.append(own + at)
            at += size
        return cls(memories, np.concatenate(parts)[positions])

    def read(self, replica: int) -> Any:
        """The value on a replica."""
        if self.positions is None:
            return self.memories[0].rows[replica]
        if unknown := first_unknown(*(memory.rows[replica] for memory in self.memories)):
            return unknown
        flat = [_flat(memory.rows[replica]) for memory in self.memories]
        if isinstance(flat[0], Numbers):
            return Numbers.concat(flat).at(self.positions)
        return np.concatenate(flat)[self.positions]

    def write(self, replica: int, value: Any) -> None:
        """Replace the value on a replica."""
        if self.positions is None:
            self.memories[0].rows[replica] = value
            return
        at, positions, values = 0, self.positions.reshape(-1), _flat(value)
        for memory in self.memories:
            old = memory.rows[replica]
            if unknown := first_unknown(old, value):
                memory.rows[replica] = unknown
                at += old.size
                continue
            flat = _flat(old)
            mine = np.flatnonzero((positions >= at) & (positions < at + flat.size))
            memory.rows[replica] = _with(flat, positions[mine] - at, values, mine).reshape(old.shape)
            at += flat.size


def _size(memory: Memory) -> int:
    return int(next(row.size for row in memory.rows if row is not None))


def _flat(value: Any) -> Any:
    return value.reshape((value.size,))


def _with(flat: Any, positions: Array, values: Any, mine: Array) -> Any:
    if isinstance(flat, Numbers):
        return flat.with_rows(positions, values.at(mine))
    out = flat.copy()
    out[positions] = values[mine]
    return out


class Frame:
    """The tensors of a graph that runs."""

    def __init__(self) -> None:
        """No tensors."""
        self.places: dict[int, Place] = {}

    def new(self, id_: int, rows: Rows) -> None:
        """A tensor with memory of its own."""
        self.places[id_] = Place((Memory(rows),))

    def place(self, id_: int) -> Place:
        """The memory of a tensor."""
        return self.places[id_]

    def read(self, id_: int, replicas: Iterable[int]) -> Rows:
        """The values on some replicas; one object for replicas that share memory of one object."""
        place = self.places[id_]
        if place.positions is None:
            return [place.memories[0].rows[r] for r in replicas]
        known: dict[tuple[int, ...], Any] = {}
        found = []
        for r in replicas:
            key = tuple(id(memory.rows[r]) for memory in place.memories)
            if key not in known:
                known[key] = place.read(r)
            found.append(known[key])
        return found

    def rows(self, id_: int, active: Sequence[int], replicas: int) -> Rows:
        """The values on all replicas, None on those that are not active."""
        out: Rows = [None] * replicas
        for r, value in zip(active, self.read(id_, active), strict=True):
            out[r] = value
        return out

    def write(self, id_: int, rows: Rows, active: Iterable[int]) -> None:
        """Replace the values on the active replicas."""
        place = self.places[id_]
        if place.positions is None:
            for r in active:
                place.write(r, rows[r])
            return
        known: dict[tuple[int, ...], list[Any]] = {}
        for r in active:
            key = (*(id(memory.rows[r]) for memory in place.memories), id(rows[r]))
            if key not in known:
                place.write(r, rows[r])
                known[key] = [memory.rows[r] for memory in place.memories]
            else:
                for memory, value in zip(place.memories, known[key], strict=True):
                    memory.rows[r] = value
