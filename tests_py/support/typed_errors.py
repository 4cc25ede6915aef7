"""Whether an error is one that popsr raises on purpose, with a text that fits on a line."""

from __future__ import annotations

import popsr


def text_of(error: Exception) -> str:
    """The text, whatever the error is."""
    try:
        return str(error)
    except Exception as another:
        return type(another).__name__


def untyped(error: popsr.Error) -> str | None:
    """What is wrong with an error of popsr; None if nothing is."""
    text = str(error)
    if isinstance(error, popsr.errors.InternalError) or type(error) is popsr.Error:
        return f"{type(error).__name__}: {text}"
    for each in (text, *getattr(error, "__notes__", ())):
        if not each or len(each) > 500 or not each.isprintable():
            return f"text of {len(each)} characters: {each!r}"
    return None
