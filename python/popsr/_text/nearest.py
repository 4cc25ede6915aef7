"""Names that are like another one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]

_MAX_NAME = 100
_LEAST = 0.6  # likeness of a name that is worth a mention
_SPREAD = 0.12  # how much less like the name than the likest one others may be


def nearest(name: str, known: Iterable[str]) -> str:
    """``'a', 'b' or 'c'`` of the known names that are like a name, the likest first; empty when there is none."""
    wanted = name[:_MAX_NAME].lower()
    likeness = {each: difflib.SequenceMatcher(None, wanted, each.lower()).ratio() for each in known}
    best = max(likeness.values(), default=0.0)
    close = [each for each, ratio in likeness.items() if ratio >= max(_LEAST, best - _SPREAD)]
    quoted = [repr(each) for each in sorted(close, key=lambda each: -likeness[each])[:3]]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))
