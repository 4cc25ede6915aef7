"""Forms in which replicas have a value of one device: found by value, in exact arithmetic."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np

from popsr._support.fields import Numbers, select
from popsr.analysis._axes import ReplicaAxes
from popsr.bridge._step.arguments import Step
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["ANY", "Form", "Grid", "Known", "axes_of", "digest_of", "size_of", "top"]

_MOST = 4000
"""Ways to put the parts of a value together that are tried."""


class Form(NamedTuple):
    """Form in which the replicas of a mesh have a value of one device.

    Attributes:
        axes: for each axis of the mesh "equal", "sum", "largest", or the dimension along which parts are joined.
        scale: the factor by which it is larger than the value of one device.
    """

    axes: tuple[str | int, ...]
    scale: Fraction

    @property
    def is_whole(self) -> bool:
        """True if replicas have the value, or parts of it."""
        return self.scale == 1 and not any(each in ("sum", "largest") for each in self.axes)


def top(value: Any) -> Any:
    """A value in the last field alone, in which two values of a run are told apart."""
    return Numbers(value.residues[-1:], value.huge) if isinstance(value, Numbers) else value


def digest_of(value: Any) -> bytes:
    """Shape and last field of a value, or its integers, by which values of a run are told apart."""
    made = hashlib.blake2b(repr(value.shape).encode(), digest_size=16)
    if not isinstance(value, Numbers):
        made.update(np.ascontiguousarray(value).astype(np.int64).tobytes())
        return made.digest()
    made.update(np.ascontiguousarray(value.residues[-1]).tobytes())
    if value.huge is not None:
        made.update(np.ascontiguousarray(value.huge).tobytes())
    return made.digest()


ANY = "any"
"""Origin of a value that may be a multiple of what any op makes on one device, as that of a collective is."""


class Known:
    """Values of one device, also multiplied by sizes of the mesh.

    Args:
        sizes: replicas along the axes of the mesh.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """Without any value."""
        products = {
            math.prod(some) for n in range(len(sizes) + 1) for some in itertools.combinations(sizes, n)
        }
        self._scales = sorted({Fraction(a, b) for a in products for b in products}, key=size_of)
        self._found: dict[tuple[bytes, object], Fraction] = {}

    def add(self, value: Any, origin: object) -> None:
        """One more value of floats, with the kind and line of its op; a multiple of it must be made by such an op."""
        if not isinstance(value, Numbers) or not value.size:
            return
        value = top(value)
        for scale in self._scales:
            digest = digest_of(value if scale == 1 else value * value.constant(float(scale)))
            for key in ((digest, origin), (digest, ANY), (digest, None))[: 3 if scale == 1 else 2]:
                if key not in self._found or size_of(scale) < size_of(self._found[key]):
                    self._found[key] = scale

    def scale(self, value: Any, origin: object) -> Fraction | None:
        """The factor of a value, first to what the same op makes on one device; None of a value that is none of its."""
        if not isinstance(value, Numbers):
            return None
        digest = digest_of(value)
        return self._found.get((digest, origin), self._found.get((digest, None)))


def size_of(scale: Fraction) -> float:
    """Distance of a factor from 1."""
    return abs(math.log(float(scale)))


def axes_of(step: Step) -> ReplicaAxes:
    """Axes of a step's mesh; where they have no names, as the groups of its states and data lie, named by groups."""
    if step.axes is not None:
        return step.axes
    replicas = step.ir.replication_factor
    ends = {1, replicas}
    for each in step.arguments:
        members = each.grouping.groups[0]
        stride = members[1] - members[0] if len(members) > 1 else 0
        if stride and each.grouping.partition == _groups(replicas, stride, len(members)):
            ends |= {stride, stride * len(members)}
    steps = [*itertools.pairwise(sorted(ends))]
    if len(steps) < 2 or any(high % low for low, high in steps):
        return ReplicaAxes.of_sizes({"replicas": replicas})
    names = {str(_groups(replicas, low, high // low)): high // low for low, high in reversed(steps)}
    return ReplicaAxes.of_sizes(names)


def _groups(replicas: int, stride: int, size: int) -> Partition | None:
    """Groups of replicas that are a number of replicas apart; None where they do not go in."""
    if replicas % (stride * size):
        return None
    return ReplicaGrouping.from_stride(replicas, stride, size).partition


class _Scales(Protocol):
    def scale(self, value: Any, origin: object, /) -> Fraction | None: ...


@dataclass(frozen=True)
class Grid:
    """Replicas along the axes of a mesh.

    Attributes:
        names: names of the axes.
        sizes: replicas along each.
        places: the replica at each place of the mesh.
        draw: number of the draw, by which numbers are ordered.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    places: Any
    draw: int

    @classmethod
    def of(cls, axes: ReplicaAxes, draw: int) -> Grid:
        """The mesh of a step."""
        sizes = axes.sizes
        shape = tuple(sizes.values())
        places = np.empty(shape, np.int64)
        for replica, place in enumerate(zip(*axes.coordinates, strict=True)):
            places[place] = replica
        return cls(tuple(sizes), shape, places, draw)

    def summed(self, form: Form) -> tuple[str, ...]:
        """Names of the axes over which a value is a sum of what replicas have."""
        return tuple(name for name, kind in zip(self.names, form.axes, strict=True) if kind == "sum")

    def form(self, rows: Sequence[Any], known: _Scales, origin: object) -> Form | None:
        """The form in which replicas have a value of one device; None if they have another value.

        Args:
            rows: the ``top`` of what each has.
            known: values of one device.
            origin: kind and line of the op that makes it.
        """
        grid = np.empty(self.sizes, object)
        for place, replica in np.ndenumerate(self.places):
            grid[place] = rows[replica]
        for kinds, value in itertools.islice(self._folded(grid), _MOST):
            scale = known.scale(value, origin)
            if scale is not None:
                return Form(kinds, scale)
        return None

    def _folded(self, grid: Any) -> Iterator[tuple[tuple[str | int, ...], Numbers]]:
        """The values that parts make, joined, summed or chosen along each axis, the last one first."""
        if not grid.ndim:
            yield (), grid[()]
            return
        digests: dict[int, bytes] = {}

        def key(value: Numbers) -> bytes:
            if id(value) not in digests:
                digests[id(value)] = digest_of(value)
            return digests[id(value)]

        first = grid[..., 0]
        pairs = ((first[place[:-1]], value) for place, value in np.ndenumerate(grid))
        if all(a is b or key(a) == key(b) for a, b in pairs):
            yield from (((*kinds, "equal"), value) for kinds, value in self._folded(first))
            return
        rank = grid.reshape(-1)[0].ndim
        is_float = isinstance(grid.reshape(-1)[0], Numbers)
        for kind in (*range(rank), *(("sum", "largest") if is_float else ())):
            made = np.empty(grid.shape[:-1], object)
            for place in np.ndindex(*made.shape):
                made[place] = self._together(list(grid[place]), kind)
            yield from (((*kinds, kind), value) for kinds, value in self._folded(made))

    def _together(self, values: Sequence[Any], kind: str | int) -> Any:
        if isinstance(kind, int):
            return (
                Numbers.concat(values, kind)
                if isinstance(values[0], Numbers)
                else np.concatenate(values, kind)
            )
        found = values[0]
        for each in values[1:]:
            found = found + each if kind == "sum" else select(found.above(each, self.draw), found, each)
        return found
