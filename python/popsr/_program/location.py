"""Where in the user's program something is made: the first frame outside this package."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from popsr._text.one_line import one_line
from popsr.context import _context
from popsr.errors import Error

if TYPE_CHECKING:
    from popsr.ir import Ir

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROGRAMS = _PACKAGE + "demo" + os.sep  # lives in the package but is a user of it
_DECORATORS = os.path.abspath(contextlib.__file__)  # context managers that decorate a function
_inside: dict[str, bool] = {}
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _is_inside(filename: str) -> bool:
    known = _inside.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        ours = path.startswith(_PACKAGE) and not path.startswith(_PROGRAMS)
        known = _inside[filename] = ours or path == _DECORATORS
    return known


def user_frame() -> FrameType | None:
    """The innermost frame of the user's program, or one that ``debug_context_frame_offset`` puts in its place."""
    frame = _user_frame_from(sys._getframe(1))
    return _outer_frame(frame, _context._frame_offset) if _context._frame_offset and frame else frame


def _user_frame_from(frame: FrameType | None) -> FrameType | None:
    while frame is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _outer_frame(frame: FrameType, offset: int) -> FrameType:
    """The frame so many frames of the program further out, or its outermost one."""
    for _ in range(offset):
        outer = _user_frame_from(frame.f_back)
        if outer is None:
            break
        frame = outer
    return frame


def current_location(ir: Ir) -> int:
    """Id of the user's file and line in ``ir``; 0 when there is none."""
    frame = user_frame()
    if frame is None:
        return 0
    key = (frame.f_code.co_filename, frame.f_lineno)
    location = ir._locations.get(key)
    if location is None:
        location = ir._locations[key] = ir._core.intern_location(*key)
        ir._modules[key[0]] = str(frame.f_globals.get("__name__"))
    return location


def describe_location() -> str:
    """``file:line`` of the user's program, for messages."""
    frame = user_frame()
    return "<unknown>" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Python's warning at the user's line, however many functions of this package are between."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    names = frame.f_globals
    warnings.warn_explicit(
        text,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=names.get("__name__") or "<unknown>",
        registry=names.setdefault("__warningregistry__", {}),
    )


def short_place(location: str) -> str:
    """``file:line`` without the folder; a question mark where it is unknown."""
    return one_line(os.path.basename(location)) or "?"


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
