"""Texts of errors: one line, bounded. Imports nothing, as ``popsr.errors`` must work where NumPy does not."""

from __future__ import annotations

__all__ = ["MAX_TEXT", "one_line"]

MAX_TEXT = 500
"""Longest text of an error."""

_CUT = " … "


def one_line(text: str, limit: int = MAX_TEXT) -> str:
    """The text with what does not print as escapes, and without its middle where it is longer than ``limit``."""
    if len(text) > limit:
        tail = (limit - len(_CUT)) // 3
        text = text[: limit - len(_CUT) - tail] + _CUT + text[-tail:]
    if text.isprintable():
        return text
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped if len(escaped) <= limit else one_line(escaped, limit)
