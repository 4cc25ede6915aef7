"""Checks that an error is one that popsr raises on purpose, with a text of one line."""

from __future__ import annotations

from types import CodeType

import popsr
from popsr._support.text.frames import is_inside


def text_of(error: Exception) -> str:
    """The text, whatever the error is."""
    try:
        return str(error)
    except Exception as another:
        return type(another).__name__


def untyped(error: popsr.Error) -> str | None:
    """Fault in an error of popsr; None if there is none."""
    text = str(error)
    if isinstance(error, popsr.errors.InternalError) or type(error) is popsr.Error:
        return f"{type(error).__name__}: {text}"
    for each in (text, *getattr(error, "__notes__", ())):
        if not each or len(each) > 500 or not each.isprintable():
            return f"text of {len(each)} characters: {each!r}"
    return None


def codes(error: BaseException) -> list[CodeType]:
    """Functions of the frames of the error's traceback, outermost first."""
    found, traceback = [], error.__traceback__
    while traceback is not None:
        found.append(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    return found


def frames_of_popsr(error: BaseException | None) -> list[str]:
    """Frames of popsr in the tracebacks of an error and of what it was raised from."""
    found: list[str] = []
    while error is not None:
        found += [f"{c.co_filename}:{c.co_name}" for c in codes(error) if is_inside(c.co_filename)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found
