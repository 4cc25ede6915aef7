"""Frames of the user's program: the first outside this package."""

from __future__ import annotations

import contextlib
import os
import sys
from types import FrameType

__all__ = ["frame_text", "user_frame"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROGRAMS = _PACKAGE + "demo" + os.sep  # lives in the package but is a user of it
_DECORATORS = os.path.abspath(contextlib.__file__)  # context managers that decorate a function
_inside: dict[str, bool] = {}


def _is_inside(filename: str) -> bool:
    known = _inside.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        ours = path.startswith(_PACKAGE) and not path.startswith(_PROGRAMS)
        known = _inside[filename] = ours or path == _DECORATORS
    return known


def user_frame(offset: int) -> FrameType | None:
    """The innermost frame of the user's program; with an offset the one so many further out, or the outermost."""
    frame = _user_frame_from(sys._getframe(1))
    return _outer_frame(frame, offset) if offset and frame else frame


def frame_text(frame: FrameType | None) -> str:
    """``file:line`` of a frame, for messages."""
    return "<unknown>" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


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
