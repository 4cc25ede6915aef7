"""Groups of ranks that are asked for a rank at a time: a number in a name costs nothing for each rank up to it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from popsr._core import MAX_REPLICAS
from popsr._support.host.arguments import read_int
from popsr.errors import CheckpointError
from popsr.replicas import Partition

__all__ = ["Present", "RankGroups", "absent_ranks", "equal_groups", "read_ranks"]

_SHOWN = 80  # characters of groups
_SHOWN_ABSENT = 8


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


def read_ranks(where: str, ranks: int | None, largest: int) -> int:
    """The number of ranks of a job.

    Args:
        where: the call, for messages.
        ranks: what the user says of it.
        largest: the greatest rank that was found.

    Raises:
        CheckpointError: it is greater than what popsr has partitions of.
        AttributeValueError: the user's number is less than what was found, or too great.
    """
    if largest >= MAX_REPLICAS:
        text = str(largest) if largest < 1 << 64 else "2**64 or more"
        raise CheckpointError(
            f"{where}: too many ranks, got rank {text}, expected at most {MAX_REPLICAS} ranks"
        )
    return largest + 1 if ranks is None else read_int(f"{where}: ranks", ranks, largest + 1, MAX_REPLICAS)


def absent_ranks(ranks: int, present: Mapping[int, object] | set[int]) -> str:
    """The first ranks that are not there, as ``1, 2 ...``; empty when all are."""
    if len(present) == ranks:
        return ""
    absent = list(itertools.islice((r for r in range(ranks) if r not in present), _SHOWN_ABSENT + 1))
    return ", ".join(map(str, absent[:_SHOWN_ABSENT])) + (" ..." if len(absent) > _SHOWN_ABSENT else "")


class Present:
    """The ranks of a step that have files or lines."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = sorted(ranks)
        # One entry for each kind of groups that several parameters share.
        self._among: Callable[[RankGroups], dict[Hashable, list[int]]] = functools.lru_cache(maxsize=64)(
            lambda declared: declared.among(self._ranks)
        )

    def first_lacking(self, declared: RankGroups, held: Mapping[int, object]) -> int | None:
        """The first rank of a group that lacks what others of it hold."""
        if len(held) == len(self._ranks):
            return None
        for key, holders in declared.among(held).items():
            members = self._among(declared)[key]
            if len(holders) < len(members):
                return next(rank for rank in members if rank not in held)
        return None


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
