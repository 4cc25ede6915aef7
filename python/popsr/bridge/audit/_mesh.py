"""Axes of a job: data, tensor, pipeline and expert ranks, and the groups that are equal along some of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from popsr._core import MAX_REPLICAS
from popsr._support.host.arguments import read_int
from popsr._support.host.rank_groups import RankGroups
from popsr.bridge.audit._rank_groups import read_ranks
from popsr.errors import AttributeValueError, CheckpointError

__all__ = ["AXES", "RANK", "Mesh"]

RANK = "rank"
"""The axis of a job whose files have one number for each rank."""

AXES = {"pp": "pipeline", "dp": "data", "cp": "context", "ep": "expert", "tp": "tensor"}
"""Axes by the words that names of files have, those that change slowest first."""

_ORDER = (RANK, *AXES)


@dataclass(frozen=True)
class Mesh:
    """Sizes of axes; ranks are numbered in their order, the last one fastest."""

    sizes: tuple[tuple[str, int], ...]

    @staticmethod
    def of(where: str, places: Iterable[Mapping[str, int]], ranks: int | None) -> Mesh:
        """The mesh of the coordinates that were found.

        Args:
            where: the call, for messages.
            places: coordinates of files, which have equal axes.
            ranks: what the user says of their number: with other axes there may be more data ranks than files.
        """
        largest: dict[str, int] = {}
        for each in places:
            for axis, number in each.items():
                largest[axis] = max(number, largest.get(axis, 0))
        sizes = {axis: largest[axis] + 1 for axis in _ORDER if axis in largest}
        if list(sizes) == [RANK]:
            return Mesh(((RANK, read_ranks(where, ranks, largest[RANK])),))
        count = math.prod(sizes.values())
        if count > MAX_REPLICAS:
            raise CheckpointError(
                f"{where}: too many ranks, got {' x '.join(map(str, sizes.values()))}, expected at most {MAX_REPLICAS}"
            )
        if ranks is not None:
            others = count // sizes.get("dp", 1)
            asked = read_int(f"{where}: ranks", ranks, count, MAX_REPLICAS)
            if asked % others or (asked != count and "dp" not in sizes):
                raise AttributeValueError(
                    f"{where}: ranks does not fit the axes of this job, got {asked}, expected a multiple of {others} "
                    "for its data ranks"
                )
            sizes["dp"] = asked // others
        return Mesh(tuple(sizes.items()))

    @cached_property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(size for _, size in self.sizes)

    @cached_property
    def _strides(self) -> dict[str, int]:
        found, step = {}, 1
        for axis, size in reversed(self.sizes):
            found[axis] = step
            step *= size
        return found

    def rank(self, place: Mapping[str, int]) -> int:
        """Number of the rank at coordinates."""
        return sum(self._strides[axis] * number for axis, number in place.items())

    def text(self, rank: int) -> str:
        """Coordinates of a rank, as ``dp 1, tp 0``; empty where there is one axis."""
        if len(self.sizes) == 1:
            return ""
        return ", ".join(f"{axis} {rank // self._strides[axis] % size}" for axis, size in self.sizes)

    def groups(self, along: frozenset[str]) -> RankGroups:
        """Ranks that differ in no other axis than those of ``along``."""
        equal = [(self._strides[axis], size) for axis, size in self.sizes if axis in along]
        size = math.prod(n for _, n in equal)

        def first(rank: int) -> int:
            return rank - sum(rank // step % n * step for step, n in equal)

        def members(rank: int) -> Iterable[int]:
            steps = (range(0, step * n, step) for step, n in equal)
            return (first(rank) + sum(each) for each in itertools.product(*steps))

        def key(rank: int) -> Hashable:
            return first(rank)

        return RankGroups(self.ranks, self.ranks // size, key, members)
