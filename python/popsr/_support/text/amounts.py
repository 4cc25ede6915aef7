"""Times, numbers of bytes and numbers of things as short texts."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "plural", "time_text"]


def time_text(seconds: float) -> str:
    """Three digits and a unit, as "1.2 s", "3.45 ms" and "12 µs"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def count_text(count: int) -> str:
    """Three digits and a power of 1,000, as "999", "1.2 k" and "3.45 M"."""
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count)


def bytes_text(count: int) -> str:
    """A number of bytes, as "24 B" and "1.2 kB"."""
    text = count_text(count)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def plural(count: int, what: str, form: str = "") -> str:
    """A number of things, as "1 op" and "2 ops"."""
    return f"{count:,} {what if count == 1 else form or f'{what}s'}"
