"""Lines of the user's program: of ops as they are traced, and of nodes of a graph."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from popsr._support.text.frames import PACKAGE, file_and_line, library_path
from popsr.bridge._step.places import Place, nearest_place
from popsr.bridge._step.reading import callers_are_kept

__all__ = [
    "Place",
    "called_place",
    "current_place",
    "place_of_error",
    "place_of_frame",
    "place_of_node",
    "shown_place",
    "stack_trace",
]

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_SITE = f"{os.sep}site-packages{os.sep}"
_CONTEXTS = os.path.abspath(contextlib.__file__)
_DEPRECATIONS = f"{os.sep}typing_extensions.py"  # wraps functions of torch


@functools.cache
def _torch_folders() -> tuple[str, ...]:
    import torch

    return (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,)


@functools.lru_cache(4096)
def is_users(file: str) -> bool:
    """True for a file that is neither torch's nor popsr's own nor made up, such as ``<string>``."""
    if file.startswith("<") and not file.startswith("<ipython"):
        return False
    path = os.path.abspath(file)
    return not (
        _is_popsrs(file)
        or path == _CONTEXTS
        or path.endswith(_DEPRECATIONS)
        or path.startswith(_torch_folders())
    )


@functools.lru_cache(4096)
def _is_popsrs(file: str) -> bool:
    path = os.path.abspath(file)
    return path.startswith(PACKAGE) and not path.startswith(os.path.join(PACKAGE, "demo"))


def _is_framework(file: str) -> bool:
    return not is_users(file)


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def place_of_frame(frame: FrameType | None) -> Place | None:
    """The innermost line of the user among a frame and its callers."""
    return nearest_place(_frames(frame), _is_framework)


def current_place() -> Place | None:
    """The innermost line of the user that is running."""
    return place_of_frame(sys._getframe(1))


def called_place() -> Place | None:
    """The innermost line of the user that is running, with the lines of the step that it is called from."""
    place = current_place()
    if place is None:
        return None
    frames = itertools.dropwhile(lambda each: each != (place.file, place.line), _frames(sys._getframe(1)))
    inside = itertools.takewhile(lambda each: not _is_popsrs(each[0]), frames)
    lines = (f"{file}:{line}" for file, line in inside if is_users(file) and not library_path(file))
    return place._replace(callers=tuple(line for line, _ in itertools.groupby(lines))[1:])


def place_of_error(traceback: TracebackType | None) -> Place | None:
    """The innermost line of the user in the traceback of an error."""
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return nearest_place(reversed(frames), _is_framework)


def stack_trace(place: Place) -> str:
    """A place in the form of the stack traces that torch keeps with nodes of a graph."""
    inner = place.within.rpartition(":")
    within = f'  File "{_SITE}{inner[0]}", line {inner[2]}, in step\n' if place.within else ""
    lines = (*(file_and_line(each) for each in reversed(place.callers)), (place.file, place.line))
    return "".join(f'  File "{file}", line {line}, in step\n' for file, line in lines) + within


def shown_place(place: Place | None) -> str:
    """``file:line``, for messages, and the line of a library that is called there."""
    return place.text if place else "an unknown line"


def place_of_node(node: Any) -> Place | None:
    """The innermost line of the user in the stack trace of a node; None without one."""
    frames = [
        (file, int(line)) for file, line in reversed(_FRAME.findall(node.meta.get("stack_trace") or ""))
    ]
    place = nearest_place(frames, _is_framework)
    if place is None or not callers_are_kept():
        return place
    outer = frames[frames.index((place.file, place.line)) + 1 :]
    return place._replace(callers=tuple(f"{file}:{line}" for file, line in outer))
