"""Ops of other frameworks that have no counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from popsr._program.building.location import short_place
from popsr.errors import UnsupportedOpsError

__all__ = ["Gap", "merged_gaps", "unsupported_ops"]

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """An op of another framework without a counterpart; ``str`` is a line about it.

    Attributes:
        op: its name there, with what is special about it: ``"aten.foo.default"``, ``"gather (mode clip)"``.
        location: ``file:line`` in the user's program; empty where it is unknown.
        count: how often it occurs on that line.
        within: ``file:line`` of a library that is called there; empty where the op is the user's own.
        is_exact: True if a proof needs no more of it, as it is known to depend on its operands alone: only runs of the
            program are refused.
    """

    op: str
    location: str
    count: int = 1
    within: str = ""
    is_exact: bool = False

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        within = f" (in {self.within})" if self.within else ""
        return f"{self.op} at {self.location or '?'}{within}{times}"


def merged_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """The gaps with those of one op and line as one, in order of the first of each."""
    counts: Counter[Gap] = Counter()
    for gap in gaps:
        counts[replace(gap, count=1)] += gap.count
    return tuple(replace(gap, count=count) for gap, count in counts.items())


_CONSERVATIVE = "unsupported='conservative' proves what it can without them"


def unsupported_ops(where: str, gaps: Iterable[Gap], advice: str = _CONSERVATIVE) -> UnsupportedOpsError:
    """The error about ops without a counterpart: the first few in its text, all in its notes."""
    found = merged_gaps(gaps)
    kinds = list(dict.fromkeys(gap.op for gap in found))
    first = {gap.op: gap for gap in reversed(found)}
    named = ", ".join(f"{op} at {short_place(first[op].location)}" for op in kinds[:_NAMED])
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    error = UnsupportedOpsError(
        f"{where}: {len(kinds)} kind{'' if len(kinds) == 1 else 's'} of op without a counterpart, got {named}{more}, "
        f"expected supported ops; {advice}"
    )
    error.gaps = found
    error.location = next((gap.location for gap in found if gap.location), "")
    for gap in found:
        error.add_note(str(gap))
    return error
