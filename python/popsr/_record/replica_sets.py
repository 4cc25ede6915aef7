"""Sets of replicas as text."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["replicas_text"]

_SHOWN = 12  # ranges


def replicas_text(replicas: Iterable[int]) -> str:
    """Set notation with ranges: "{0, 2-5}"; of many ranges the first."""
    ranges: list[list[int]] = []
    for replica in sorted(replicas):
        if ranges and ranges[-1][1] == replica - 1:
            ranges[-1][1] = replica
        else:
            ranges.append([replica, replica])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_SHOWN]]
    more = [f"… {len(ranges) - _SHOWN} more"] if len(ranges) > _SHOWN else []
    return f"{{{', '.join([*texts, *more])}}}"
