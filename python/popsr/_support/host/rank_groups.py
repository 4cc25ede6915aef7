"""Groups of ranks that are asked for a rank at a time: a number in a name costs nothing for each rank up to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from popsr._support.host.arguments import is_a, read_int
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, Error, ReplicaError
from popsr.replicas import Partition, VariableSettings

__all__ = ["RankGroups", "equal_groups", "groups_of", "require_group"]

_SETS = re.compile(r"(\{[0-9]{1,7}(,[0-9]{1,7})*\})+")
_SHOWN = 80  # characters of groups


@dataclass(frozen=True, eq=False)
class RankGroups:
    """A partition of ranks.

    Attributes:
        ranks: number of ranks.
        count: number of groups.
        group: what a rank has in common with the others of its group only.
        members: ranks of the group that a rank is in, ascending.
    """

    ranks: int
    count: int
    group: Callable[[int], Hashable]
    members: Callable[[int], Iterable[int]]

    @cached_property
    def text(self) -> str:
        """Set notation, as ``{0,1}{2,3}``; of many ranks the first of them and the number of groups."""
        parts: list[str] = []
        length, seen = 0, set[int]()
        for rank in range(self.ranks):
            if rank in seen:
                continue
            # A member takes a character and a comma at least.
            members = list(itertools.islice(self.members(rank), _SHOWN))
            seen.update(members)
            parts.append(f"{{{','.join(map(str, members))}}}")
            length += len(parts[-1])
            if length > _SHOWN:
                return f"{''.join(parts)[:_SHOWN]}... ({self.count} blocks)"
        return "".join(parts)

    def among(self, ranks: Iterable[int]) -> dict[Hashable, list[int]]:
        """Members of each group among some ranks, in the order of ``ranks``."""
        found: dict[Hashable, list[int]] = {}
        for rank in ranks:
            found.setdefault(self.group(rank), []).append(rank)
        return found

    def partition(self) -> Partition:
        """Partition of these groups, which takes memory for each rank."""
        numbers: dict[Hashable, int] = {}
        return Partition.from_labels(
            [numbers.setdefault(self.group(rank), len(numbers)) for rank in range(self.ranks)]
        )

    @staticmethod
    def of_one(ranks: int) -> RankGroups:
        """All ranks."""
        return RankGroups(ranks, 1, lambda _: 0, lambda _: range(ranks))

    @staticmethod
    def of_singletons(ranks: int) -> RankGroups:
        """Each rank alone."""
        return RankGroups(ranks, ranks, lambda rank: rank, lambda rank: (rank,))

    @staticmethod
    def of_stride(ranks: int, stride: int, size: int) -> RankGroups:
        """Groups of ``size`` ranks that are ``stride`` apart, which tile the ranks."""
        span = stride * size

        def members(rank: int) -> range:
            first = rank // span * span + rank % stride
            return range(first, first + span, stride)

        return RankGroups(ranks, ranks // size, lambda rank: members(rank).start, members)

    @staticmethod
    def of_sets(sets: list[list[int]]) -> RankGroups:
        """Sets that have each rank once."""
        labels = {rank: i for i, part in enumerate(sets) for rank in part}
        return RankGroups(len(labels), len(sets), labels.__getitem__, lambda rank: sorted(sets[labels[rank]]))

    @staticmethod
    def of_partition(partition: Partition) -> RankGroups:
        """Blocks of a partition."""
        labels = np.asarray(partition.labels)
        return RankGroups(
            partition.num_replicas,
            partition.num_blocks,
            lambda rank: int(labels[rank]),
            lambda rank: np.flatnonzero(labels == labels[rank]).tolist(),
        )


def equal_groups(declared: RankGroups, keys: Mapping[int, Hashable]) -> RankGroups:
    """Ranks of declared groups whose keys are equal; ranks without a key are alone."""
    blocks: dict[tuple[Hashable, Hashable], list[int]] = {}
    for rank in sorted(keys):
        blocks.setdefault((declared.group(rank), keys[rank]), []).append(rank)
    label = {rank: block[0] for block in blocks.values() for rank in block}
    lists = {block[0]: block for block in blocks.values()}
    return RankGroups(
        declared.ranks,
        declared.ranks - len(keys) + len(blocks),
        lambda rank: label.get(rank, rank),
        lambda rank: lists[label[rank]] if rank in label else (rank,),
    )


def require_group(where: str, group: Any, of: Any) -> None:
    """Refuse what is not a group: ``"all"``, ``"none"``, sets as ``"{0,1}{2,3}"``, or a mapping of stride and size.

    Raises:
        AttributeValueError: it is none of these; the text says of which pattern.
    """
    is_text = is_a(group, str) and (group in ("all", "none") or _SETS.fullmatch(_compact(group)))
    is_stride = isinstance(group, Mapping) and set(group) <= {"stride", "size"} and bool(group)
    if not is_text and not is_stride:
        raise AttributeValueError(
            f"{where}: not a group, got {shown(group)} for {shown(of)}, expected 'all', 'none', sets as "
            "'{0,1}{2,3}', or a mapping of stride and size"
        )


def groups_of(where: str, group: Any, ranks: int) -> RankGroups:
    """The groups of a job that a group as of ``require_group`` stands for.

    Raises:
        ReplicaError: it is of another number of ranks.
    """
    if group == "all":
        return RankGroups.of_one(ranks)
    if group == "none":
        return RankGroups.of_singletons(ranks)
    if isinstance(group, str):
        sets = [[int(each) for each in part.split(",")] for part in _compact(group)[1:-1].split("}{")]
        members = [each for part in sets for each in part]
        if len(members) != ranks or sorted(members) != list(range(ranks)):
            raise ReplicaError(
                f"{where}: sets do not cover the ranks once, got {shown(group)}, expected 0 to {ranks - 1}"
            )
        return RankGroups.of_sets(sets)
    try:
        stride = read_int("stride", group.get("stride", 1), 1, ranks)
        size = ranks // stride if group.get("size") is None else read_int("size", group["size"], 1, ranks)
        VariableSettings(stride, size).group_count(ranks)  # raises unless they tile the ranks
        return RankGroups.of_stride(ranks, stride, size)
    except Error as error:
        raise ReplicaError(
            f"{where}: wrong groups, got {shown(dict(group))}: {error}, expected others"
        ) from None


def _compact(sets: str) -> str:
    """Sets without spaces."""
    return "".join(sets.split())
