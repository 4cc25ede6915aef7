"""Sets of replicas, groups and partitions as short texts: all that Python shows of them.

A partition is *regular* where the replicas are the points of a mesh and its blocks are the planes of some of the
mesh's axes: groups of a constant stride, all replicas, single replicas. Such a partition is a few numbers for any
number of replicas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popsr._core import Partition, ReplicaGrouping

__all__ = [
    "Axis",
    "agreement_text",
    "agreements_text",
    "axes_of",
    "groups_text",
    "partition_of",
    "set_text",
    "short_groups_text",
    "strip_text",
]

_SHORT = 60  # characters of a partition that is written in full
_CELL, _SHORT_CELL = 80, 40  # also, where it stands in a table


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the mesh of replicas: along it replicas are all in one block, or each in its own."""

    size: int
    equal: bool


def partition_of(groups: Partition | ReplicaGrouping) -> Partition:
    """The partition itself, or the groups as blocks of one."""
    return groups.partition if hasattr(groups, "partition") else groups


def axes_of(labels: Sequence[int]) -> tuple[Axis, ...] | None:
    """The axes of a regular partition, that of neighbours first; None of an irregular one.

    ``labels`` are numbered by first appearance. Neighbouring axes are of different kinds, so the answer is unique.
    """
    axes: list[Axis] = []
    while len(labels) > 1:
        equal = _repeats(labels)
        if equal > 1:
            axes.append(Axis(equal, equal=True))
            labels = labels[::equal]
            continue
        differ = next((i for i in range(1, len(labels)) if labels[i] < i), len(labels))
        rows = _rows(labels, differ) if differ > 1 else None
        if rows is None:
            return None
        axes.append(Axis(differ, equal=False))
        labels = rows
    return tuple(axes)


def _repeats(labels: Sequence[int]) -> int:
    """The largest size for which runs of equal labels consist of whole stretches of that many replicas."""
    starts = [0, *(i for i in range(1, len(labels)) if labels[i] != labels[i - 1]), len(labels)]
    return math.gcd(*starts)


def _rows(labels: Sequence[int], size: int) -> list[int] | None:
    """A label for each row of ``size`` replicas, none of which agree, if two rows have all or no blocks in common."""
    if len(labels) % size:
        return None
    rows = []
    for start in range(0, len(labels), size):
        row, rest = divmod(labels[start], size)
        if rest or any(labels[start + i] != labels[start] + i for i in range(size)):
            return None
        rows.append(row)
    return rows


def set_text(members: Sequence[int], limit: int | None = None) -> str:
    """``{0,1,4,6,…,20}``: of four or more members of one stride the first two and the last.

    A longer text than ``limit`` ends in ``…}``: the other members are left out.
    """
    parts: list[str] = []
    i = 0
    while i < len(members):
        end = i + 1
        while end + 1 < len(members) and members[end + 1] - members[end] == members[i + 1] - members[i]:
            end += 1
        if end - i >= 3:
            parts += [str(members[i]), str(members[i + 1]), "…", str(members[end])]
            i = end + 1
        else:
            parts.append(str(members[i]))
            i += 1
    text = "{" + ",".join(parts) + "}"
    if limit is None or len(text) <= limit:
        return text
    cut = text[: limit - 2]
    return f"{cut[: cut.rfind(',') + 1].removesuffix('…,')}…}}"


def agreement_text(partition: Partition) -> str:
    """Replicas that agree, in a few words: all of them, none, or the blocks."""
    return _in_words(partition, "all", "none", _CELL)


def agreements_text(partitions: Sequence[Partition]) -> str:
    """Several in a few words."""
    if len(partitions) > 3:
        return f"{len(partitions)} partitions"
    return ", ".join(map(agreement_text, partitions))


def groups_text(groups: Partition) -> str:
    """Groups of replicas in a few words."""
    return _in_words(groups, "all", "each replica", _CELL)


def short_groups_text(groups: Partition) -> str:
    """Groups of replicas, or those that agree, in fewer words and with their number, as reports write them."""
    if groups.num_replicas == 1:
        return "one replica"
    return _in_words(groups, f"all {groups.num_replicas}", "each its own", _SHORT_CELL)


def _in_words(partition: Partition, equal: str, different: str, limit: int) -> str:
    """One of the words, the blocks, or if these are too long their number."""
    if partition.num_blocks == 1:
        return equal
    if partition.num_blocks == partition.num_replicas:
        return different
    text = str(partition)
    return text if len(text) <= limit else f"{partition.num_blocks} blocks"


def strip_text(groups: Partition | ReplicaGrouping, *, limit: int = 200) -> str:
    """A partition in at most ``limit`` characters, which must be at least 80.

    One of few replicas is written in full. A regular one is exact: the first blocks, and the size and stride of
    blocks, or the axes of the mesh. Others tell the sizes of blocks and the first of them.
    """
    partition = partition_of(groups)
    replicas, blocks = partition.num_replicas, partition.num_blocks
    full = str(partition) if replicas <= _SHORT else ""
    if 0 < len(full) <= min(_SHORT, limit):
        return full
    axes = axes_of(partition.labels)
    if blocks == 1:
        return f"{set_text(range(replicas))} 1 block, equal on all {replicas} replicas"
    if blocks == replicas:
        return f"{{0}}{{1}}… {blocks} blocks of 1, each of {replicas} replicas differs"
    end = f"{_sizes(partition) if axes is None else _shape(axes, replicas, blocks)} of {replicas} replicas"
    return _with_first_blocks(partition, end, min(limit, 160))


def _with_first_blocks(partition: Partition, end: str, limit: int) -> str:
    """The first blocks as far as they go, up to three, before ``end``."""
    left = limit - len(end) - 2
    text = ""
    for block in partition.blocks[:3]:
        each = set_text(block, None if text else left)
        if len(text) + len(each) > left:
            break
        text += each
    return f"{text}{'' if text.count('}') == partition.num_blocks else '…'} {end}"


def _shape(axes: Sequence[Axis], replicas: int, blocks: int) -> str:
    text = f"{blocks} blocks of {replicas // blocks}"
    equal = [i for i, axis in enumerate(axes) if axis.equal]
    if len(equal) == 1:
        stride = 1
        for axis in axes[: equal[0]]:
            stride *= axis.size
        return f"{text}, stride {stride}"
    mesh = " × ".join(f"{axis.size} {'equal' if axis.equal else 'differ'}" for axis in axes)
    return f"{text}, axes {mesh}"


def _sizes(partition: Partition) -> str:
    counts = Counter(map(len, partition.blocks))
    if len(counts) <= 3:
        sizes = ", ".join(f"{count} of {size}" for size, count in sorted(counts.items()))
        return f"{partition.num_blocks} blocks: {sizes},"
    return f"{partition.num_blocks} blocks of {min(counts)} to {max(counts)}"
