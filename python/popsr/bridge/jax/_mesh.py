"""Axes of a mesh as groups of replicas."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from popsr.replicas import ReplicaGrouping

__all__ = ["Axes", "Spec", "Spread", "as_axes"]

Axes = tuple[str, ...]
Spec = tuple[Axes, ...]
"""For each dimension of an array the axes that it is cut over, the first the slowest."""


def as_axes(axes: object) -> Axes:
    """Names of axes, given as one or several."""
    if isinstance(axes, (tuple, list, set, frozenset)):
        return tuple(str(axis) for axis in axes)
    return (str(axes),)


@dataclass(frozen=True)
class Spread:
    """Replicas in a mesh: row by row, the last axis the fastest.

    Attributes:
        sizes: number of replicas along each axis, in the order of the mesh.
    """

    sizes: Mapping[str, int]
    _groups: dict[tuple[str, ...], ReplicaGrouping] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return int(np.prod([*self.sizes.values()], dtype=np.int64))

    def size(self, axes: Iterable[str]) -> int:
        """Number of replicas along axes together."""
        return int(np.prod([self.sizes[axis] for axis in axes], dtype=np.int64))

    def index(self, axes: Sequence[str]) -> list[int]:
        """For each replica its index along axes together, the first axis the slowest."""
        coordinates = self._coordinates()
        return [
            int(np.ravel_multi_index([at[axis] for axis in axes], [self.sizes[axis] for axis in axes]))
            if axes
            else 0
            for at in coordinates
        ]

    def group(self, axes: Sequence[str]) -> ReplicaGrouping:
        """The groups along axes: their members differ in these coordinates alone. One grouping for any axes."""
        key = tuple(axes)
        if key not in self._groups:
            others = [axis for axis in self.sizes if axis not in axes]
            self._groups[key] = ReplicaGrouping.from_assignment(numbered(self.index(others)))
        return self._groups[key]

    def in_order(self, axes: Sequence[str]) -> bool:
        """True if members of ``group(axes)`` ascend in the order in which the axes are given."""
        order = [*self.sizes]
        positions = [order.index(axis) for axis in axes]
        return positions == sorted(positions)

    def member_order(self, axes: Sequence[str]) -> list[int]:
        """For each index along the axes together, the position of that member in its group."""
        ordered = sorted(axes, key=[*self.sizes].index)
        places = {}
        for position, at in enumerate(itertools.product(*(range(self.sizes[axis]) for axis in ordered))):
            named = dict(zip(ordered, at, strict=True))
            index = 0
            for axis in axes:
                index = index * self.sizes[axis] + named[axis]
            places[index] = position
        return [places[index] for index in range(len(places))]

    def parts(self, axes: Sequence[str], groups: Sequence[Sequence[int]]) -> ReplicaGrouping:
        """Groups of indices along axes, in each group along these axes alike: ``axis_index_groups``."""
        others = [axis for axis in self.sizes if axis not in axes]
        of = {index: number for number, members in enumerate(groups) for index in members}
        labels = [
            len(groups) * other + of[index]
            for other, index in zip(self.index(others), self.index(axes), strict=True)
        ]
        return ReplicaGrouping.from_assignment(numbered(labels))

    def shards(self, spec: Spec) -> ReplicaGrouping:
        """The replicas that hold the same part of an array that is cut by a spec."""
        return ReplicaGrouping.from_assignment(numbered(self.index([axis for axes in spec for axis in axes])))

    def part(self, spec: Spec, shape: Sequence[int], replica: int) -> tuple[slice, ...]:
        """The place of a replica's part in an array that is cut by a spec."""
        at = self._coordinates()[replica]
        cuts = []
        for axes, extent in zip(spec, shape, strict=True):
            index = 0
            for axis in axes:
                index = index * self.sizes[axis] + at[axis]
            length = extent // self.size(axes)
            cuts.append(slice(index * length, (index + 1) * length))
        return tuple(cuts)

    def place(self, spec: Spec, shape: Sequence[int]) -> Callable[[int], tuple[slice, ...]]:
        """``part`` as a function of the replica."""
        return functools.partial(self.part, spec, tuple(shape))

    def _coordinates(self) -> list[dict[str, int]]:
        return [
            dict(zip(self.sizes, at, strict=True))
            for at in itertools.product(*(range(size) for size in self.sizes.values()))
        ]


def numbered(labels: Sequence[Hashable]) -> list[int]:
    """Labels as numbers of groups, by first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]
