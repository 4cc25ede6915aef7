"""Names that are like another one."""

from __future__ import annotations

import functools
from collections.abc import Iterable

__all__ = ["nearest"]

_MAX_NAME = 100
_LEAST = 0.6  # likeness of a name that is worth a mention
_SPREAD = 0.12  # how much less like the name than the likest one others may be
_COUNTED = 8  # occurrences of a character that have a bit of their own
_BITS = {each: _COUNTED * i for i, each in enumerate("abcdefghijklmnopqrstuvwxyz0123456789_.")}


def nearest(name: str, known: Iterable[str]) -> str:
    """``'a', 'b' or 'c'`` of the known names that are like a name, the likest first; empty when there is none."""
    return _nearest(name[:_MAX_NAME].lower(), tuple(known))


@functools.lru_cache(maxsize=1024)
def _nearest(wanted: str, known: tuple[str, ...]) -> str:
    mask, rest = _characters(wanted)
    # Likeness is at most the share of characters that both have: most names need no closer look.
    bounds = [
        (2 * ((mask & other).bit_count() + (rest and min(rest, others_rest))) / (len(wanted) + length), i)
        for i, (length, other, others_rest) in enumerate(_counted(known))
    ]
    least, close = _LEAST, []
    for bound, i in sorted((each for each in bounds if each[0] >= _LEAST), reverse=True):
        if bound >= least:
            text = known[i].lower()
            ratio = 2 * _matched(wanted, text) / (len(wanted) + len(text))
            least = max(least, ratio - _SPREAD)
            close.append((-ratio, i))
    quoted = list(dict.fromkeys(repr(known[i]) for ratio, i in sorted(close) if -ratio >= least))[:3]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))


@functools.lru_cache(maxsize=64)
def _counted(known: tuple[str, ...]) -> list[tuple[int, int, int]]:
    """The length of each name, at least 1, and its characters."""
    return [(len(each) or 1, *_characters(each)) for each in map(str.lower, known)]


def _characters(text: str) -> tuple[int, int]:
    """The characters of a text as bits, one for each of the first occurrences, and the number of all others."""
    mask = rest = 0
    for each in text:
        bit = _BITS.get(each, -1)
        nth = (mask >> bit & (1 << _COUNTED) - 1).bit_count() if bit >= 0 else _COUNTED
        if nth == _COUNTED:
            rest += 1
        else:
            mask |= 1 << bit + nth
    return mask, rest


def _matched(a: str, b: str) -> int:
    """Number of characters in the matching blocks of difflib: the longest common part, and so left and right of it."""
    for size in range(min(len(a), len(b)), 0, -1):
        for i in range(len(a) - size + 1):
            j = b.find(a[i : i + size])
            if j >= 0:
                return size + _matched(a[:i], b[:j]) + _matched(a[i + size :], b[j + size :])
    return 0
