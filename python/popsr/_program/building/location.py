"""Lines of the user's program, in ops and in errors."""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from popsr._program.handles import Program
from popsr._program.state import _context
from popsr._support.text.frames import file_and_line, frame_place, frame_text, user_frame
from popsr._support.text.one_line import one_line
from popsr.errors import Error

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NAMED = re.compile(r" \(\w+\):\d+$")


def current_location(ir: Program) -> int:
    """Id of the file and line in ``ir``, the user's or those of ``popsr.location``; 0 when there is none."""
    if _context._location is not None:
        location = ir._locations.get(_context._location)
        if location is None:
            location = ir._locations[_context._location] = ir._core.intern_location(*_context._location)
        return location
    frame = user_frame(_context._frame_offset)
    if frame is None:
        return 0
    location = ir._locations.get((frame.f_code.co_filename, frame.f_lineno))
    if location is None:
        place = frame_place(frame)  # of a cell: its number changes when it runs again
        location = ir._locations.get(place)
    if location is None:
        location = ir._locations[place] = ir._core.intern_location(*place)
        ir._modules[file_and_line(frame_text(frame))[0]] = str(frame.f_globals.get("__name__"))
    return location


def describe_location() -> str:
    """``file:line`` of the user's program, or ``Cell In[8], line 2``, for messages."""
    return _context._location_text()


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Python's warning at the user's line, however many functions of this package are between."""
    if _context._location is not None:
        warnings.warn_explicit(text, category, *_context._location)
        return
    frame = user_frame(_context._frame_offset)
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    names = frame.f_globals
    warnings.warn_explicit(
        text,
        category,
        *file_and_line(frame_text(frame)),
        module=names.get("__name__") or "<unknown>",
        registry=names.setdefault("__warningregistry__", {}),
    )


def short_place(location: str) -> str:
    """``file:line`` without the folder; a question mark where it is unknown.

    A name with its kind, as ``/layer1/conv (Conv):3`` of a model of ONNX, is not a path and stays whole.
    """
    return one_line(location if _NAMED.search(location) else os.path.basename(location)) or "?"


def add_place(error: Error, doing: str) -> None:
    """Note in an error what the user's program was doing and where, unless a note says so already."""
    if not any(note.startswith("while ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"while {doing} at {describe_location()}")


def noted(doing: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: errors of popsr have a note of what was going on, and of the line of the user's program."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return function(*args, **kwargs)
            except Error as error:
                add_place(error, doing)
                raise

        return call

    return decorate
