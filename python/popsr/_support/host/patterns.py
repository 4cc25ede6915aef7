"""Values that a user declares for patterns of names, as of ``fnmatch``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.errors import UnknownNameError

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

    def unused(self, paths: Iterable[str]) -> Iterator[str]:
        """Patterns that fit none of these paths, in order."""
        paths = list(dict.fromkeys(paths))
        return (pattern for pattern, _ in self._pairs if not any(_fits(pattern, path) for path in paths))

    def require_used(self, paths: Iterable[str], what: str, *, later: str | None = None) -> None:
        """Refuse patterns that fit nothing: a name that is misspelt would say nothing, without a word.

        Args:
            paths: all that there is.
            what: the call and the argument, for the message.
            later: what paths begin with that are not there yet, which a pattern may be of.
        Raises:
            UnknownNameError: a pattern fits none of the paths.
        """
        paths = list(dict.fromkeys(paths))
        for pattern in self.unused(paths):
            if later is None or not _may_begin(pattern, later):
                raise UnknownNameError(
                    f"{what} of nothing, got {shown(pattern)}, expected "
                    f"{nearest(pattern, paths) or 'one of ' + shown(paths)}"
                )


def _fits(pattern: str, path: str) -> bool:
    return path == pattern or fnmatch.fnmatchcase(path, pattern)


def _may_begin(pattern: str, start: str) -> bool:
    """Whether a pattern may fit a path that begins with that."""
    fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    return fixed.startswith(start) or (fixed != pattern and start.startswith(fixed))
