"""Values that a user declares for patterns of paths, as of ``fnmatch``."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["Patterns"]

_T = TypeVar("_T")


class Patterns(Generic[_T]):
    """Values by patterns of paths; the first pattern that fits counts.

    Args:
        pairs: patterns with their values, in order.
    """

    def __init__(self, pairs: Iterable[tuple[str, _T]]) -> None:
        """The patterns as they are given."""
        self._pairs = [*pairs]

    def of(self, *paths: str) -> _T | None:
        """The value that is said for the first of some paths that a pattern fits; None without."""
        for path in paths:
            for pattern, value in self._pairs:
                if _fits(pattern, path):
                    return value
        return None

    def unused(self, paths: Sequence[str]) -> Iterator[str]:
        """Patterns that fit none of some paths."""
        return (pattern for pattern, _ in self._pairs if not any(_fits(pattern, path) for path in paths))


def _fits(pattern: str, path: str) -> bool:
    return path == pattern or fnmatch.fnmatchcase(path, pattern)
