"""Exceptions that leave a user's code: their entries of a traceback, and the line that is to blame."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from types import TracebackType

from popsr._support.text.frames import is_inside, library_path
from popsr.errors import Error

__all__ = ["place_of", "user_entries", "without_frames_of_popsr"]

_PLACE = re.compile(r"\bat ([^\s:,]+\.py):(\d+)\b")


def user_entries(traceback: TracebackType | None) -> TracebackType | None:
    """The entries of a traceback that are not of popsr."""
    return functools.reduce(
        _before, reversed([each for each in _entries(traceback) if not _is_ours(each)]), None
    )


def without_frames_of_popsr(error: BaseException) -> None:
    """Take the entries of popsr out of the traceback of an error that others' code raised.

    It stays as it is where popsr raised it, which is a defect of popsr, and with ``POPSR_FULL_TRACEBACK=1``.
    """
    entries = list(_entries(error.__traceback__))
    if entries and not _is_ours(entries[-1]) and os.environ.get("POPSR_FULL_TRACEBACK", "0") in ("", "0"):
        error.__traceback__ = user_entries(error.__traceback__)


def place_of(error: BaseException) -> str:
    """``file:line`` of the user's program that an error is about; empty where none is known.

    Of a syntax error its own line; of an error of popsr its ``location``; else the last line of the user's program in
    the traceback, or the line that the error's text names.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}" + (f":{error.offset}" if error.offset else "")
    if isinstance(error, Error) and error.location:
        return error.location
    lines = [
        f"{entry.tb_frame.f_code.co_filename}:{entry.tb_lineno}"
        for entry in _entries(error.__traceback__)
        if _is_of_program(entry.tb_frame.f_code.co_filename)
    ]
    return lines[-1] if lines else _named_place(str(error))


def _named_place(text: str) -> str:
    """The place that a text names, where one file of the program has that name."""
    found = _PLACE.search(text)
    if found is None:
        return ""
    files = {getattr(each, "__file__", None) for each in list(sys.modules.values())}
    alike = {
        each
        for each in files
        if each and os.path.basename(each) == os.path.basename(found[1]) and _is_of_program(each)
    }
    return f"{alike.pop()}:{found[2]}" if len(alike) == 1 else ""


def _is_of_program(filename: str) -> bool:
    return not filename.startswith("<") and not is_inside(filename) and not library_path(filename)


def _is_ours(entry: TracebackType) -> bool:
    return is_inside(entry.tb_frame.f_code.co_filename)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _before(rest: TracebackType | None, entry: TracebackType) -> TracebackType:
    return TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
