"""Ranks of a job that are there, and those that are not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping

from popsr._core import MAX_REPLICAS
from popsr._support.host.arguments import read_int
from popsr._support.host.rank_groups import RankGroups
from popsr.errors import CheckpointError

__all__ = ["NO_PAIR", "Present", "absent_ranks", "has_pair", "read_ranks"]

NO_PAIR = "expected two ranks or more of a group that have a value"
"""Words for a job of which nothing was compared."""

_SHOWN_ABSENT = 8


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


def has_pair(declared: RankGroups, held: Mapping[int, object]) -> bool:
    """True if two ranks of a group have a value, so that it is compared."""
    return any(len(members) > 1 for members in declared.among(held).values())


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
