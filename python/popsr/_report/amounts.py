"""Numbers and names as the sections of a report write them."""

from __future__ import annotations

from popsr.replicas import Partition

__all__ = ["groups_text", "plural", "size_text"]

_MAX_GROUPS = 40


def plural(count: int, what: str, form: str = "") -> str:
    """A number of things, as "1 op" and "2 ops"."""
    return f"{count:,} {what if count == 1 else form or f'{what}s'}"


def size_text(count: int) -> str:
    """Bytes, as "24 B", "1.25 kB" and "14.1 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"


def groups_text(groups: Partition) -> str:
    """Replicas that agree, in a few words."""
    if groups.num_replicas == 1:
        return "one replica"
    if groups.num_blocks == 1:
        return f"all {groups.num_replicas}"
    if groups.num_blocks == groups.num_replicas:
        return "each its own"
    text = str(groups)
    return text if len(text) <= _MAX_GROUPS else f"{groups.num_blocks} blocks"
