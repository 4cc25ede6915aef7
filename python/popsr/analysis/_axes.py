"""Names of the axes that replicas lie along, and partitions in their words."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from popsr.analysis._drift import short_partition
from popsr.replicas import Partition

__all__ = ["ReplicaAxes", "named_groups", "shown_axes", "shown_groups"]

_SHORT = 40  # characters of groups beside the names of their axes
_BLOCKS = r"\{\d+(?:,\d+)*\}(?:,?\{\d+(?:,\d+)*\})*"
_GROUPS = re.compile(rf"\b(inside|over|groups) ({_BLOCKS})")


@dataclass(frozen=True, slots=True)
class ReplicaAxes:
    """Named axes of a mesh of replicas: a naming of partitions.

    Attributes:
        names: name of each axis.
        coordinates: for each axis the place of every replica along it.
    """

    names: tuple[str, ...]
    coordinates: tuple[tuple[int, ...], ...]

    @classmethod
    def of_sizes(cls, sizes: Mapping[str, int]) -> ReplicaAxes:
        """Axes of replicas that lie row by row, the last axis the fastest."""
        places = [*itertools.product(*map(range, sizes.values()))]
        return cls(tuple(sizes), tuple(zip(*places, strict=True)))

    @property
    def sizes(self) -> dict[str, int]:
        """Replicas along each axis."""
        return {name: max(at) + 1 for name, at in zip(self.names, self.coordinates, strict=True)}

    def split_axes(self, partition: Partition) -> tuple[str, ...] | None:
        """Axes along which replicas are in different blocks; None unless these alone tell the blocks."""
        return _split_axes(self, partition)

    def along(self, partition: Partition) -> tuple[str, ...] | None:
        """Axes along which the replicas of a block lie; None unless these are all that they differ in."""
        apart = self.split_axes(partition)
        return None if apart is None else tuple(name for name in self._long() if name not in apart)

    def _long(self) -> list[str]:
        """Axes of several replicas."""
        return [name for name, size in self.sizes.items() if size > 1]


@functools.lru_cache(1024)
def _split_axes(axes: ReplicaAxes, partition: Partition) -> tuple[str, ...] | None:
    labels, places = partition.labels, [*zip(*axes.coordinates, strict=True)]
    if len(places) != len(labels):
        return None
    near = {  # of each axis the blocks along it, through the first replica
        name: {
            label
            for label, place in zip(labels, places, strict=True)
            if all(at == first for m, (at, first) in enumerate(zip(place, places[0], strict=True)) if m != n)
        }
        for n, name in enumerate(axes.names)
    }
    found = [n for n, name in enumerate(axes.names) if len(near[name]) > 1]
    pairs = {(label, *(place[n] for n in found)) for label, place in zip(labels, places, strict=True)}
    fits = len(pairs) == len({pair[0] for pair in pairs}) == len({pair[1:] for pair in pairs})
    return tuple(axes.names[n] for n in found) if fits else None


def shown_groups(partition: Partition, axes: ReplicaAxes | None, *, sharded: bool = False) -> str:
    """``equal over data, model``, ``differs over model {0,2}{1,3}``; of partitions that axes do not tell the groups.

    Args:
        partition: replicas that agree.
        axes: names, if any are known.
        sharded: True for values that are parts of an array, as its groups are declared.
    """
    names = None if axes is None or partition.num_replicas == 1 else axes.split_axes(partition)
    if axes is None or names is None:
        return short_partition(partition)
    if not names:
        return f"equal over {', '.join(axes._long())}"
    return f"{'sharded' if sharded else 'differs'} over {_beside(names, partition)}"


def shown_axes(partition: Partition, axes: ReplicaAxes | None) -> str:
    """``data, model``: the axes that groups lie along, to be read after "over"; else the groups."""
    names = None if axes is None else axes.along(partition)
    return _beside(names, partition) if names else short_partition(partition)


def _beside(names: Sequence[str], partition: Partition) -> str:
    """Names of axes with the groups beside them, where these say more and are not many."""
    groups = str(partition)
    some = 1 < partition.num_blocks < partition.num_replicas
    return ", ".join(names) + (f" {groups}" if some and len(groups) <= _SHORT else "")


def named_groups(text: str, axes: ReplicaAxes | None) -> str:
    """A text of the analysis with the names of axes beside the groups in it."""
    if axes is None:
        return text

    def named(found: re.Match[str]) -> str:
        partition = _read(found[2], len(axes.coordinates[0]) if axes.coordinates else 1)
        names = None if partition is None else axes.along(partition)
        if partition is None or not names:
            return found[0]
        over = "over" if found[1] in ("inside", "over") else f"{found[1]} over"
        return f"{over} {_beside(names, partition)}"

    return _GROUPS.sub(named, text)


def _read(text: str, replicas: int) -> Partition | None:
    """The partition of blocks in a text, which leaves out blocks of one replica; None for other numbers."""
    labels = [-1 - replica for replica in range(replicas)]
    for number, block in enumerate(re.findall(r"\{([\d,]+)\}", text)):
        for member in map(int, block.split(",")):
            if member >= replicas or labels[member] >= 0:
                return None
            labels[member] = number
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return Partition.from_labels([numbers[label] for label in labels])
