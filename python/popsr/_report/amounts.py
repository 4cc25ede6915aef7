"""Numbers as the sections of a report write them."""

from __future__ import annotations

__all__ = ["plural", "size_text"]


def plural(count: int, what: str, form: str = "") -> str:
    """A number of things, as "1 op" and "2 ops"."""
    return f"{count:,} {what if count == 1 else form or f'{what}s'}"


def size_text(count: int) -> str:
    """Bytes, as "24 B", "1.25 kB" and "14.1 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"
