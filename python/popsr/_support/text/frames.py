"""Frames of the user's program, the first outside this package, and how their lines are called."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
import sys
import sysconfig
from pathlib import Path
from types import FrameType

__all__ = [
    "PACKAGE",
    "absolute_path",
    "file_and_line",
    "frame_place",
    "frame_text",
    "is_inside",
    "library_path",
    "source_line",
    "user_frame",
]

PACKAGE = str(Path(__file__).parents[2]) + os.sep
_PLUGIN = str(Path(__file__).parents[3] / "pytest_popsr") + os.sep
_PROGRAMS = PACKAGE + "demo" + os.sep  # lives in the package but is a user of it
_DECORATORS = os.path.abspath(contextlib.__file__)  # context managers that decorate a function
_START = os.path.join(os.path.dirname(_DECORATORS), "runpy.py")  # runs a module: ``python -m popsr``
_FROZEN = "<frozen "  # that and the import of modules, where Python has them in itself
_inside: dict[str, bool] = {}

_PACKAGES = ("site-packages", "dist-packages")
_INSTALLED = tuple(
    os.path.abspath(path) + os.sep
    for kind, path in sorted(sysconfig.get_paths().items())
    if kind in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
)

_CELL_FILES = ("<ipython-input-", f"{os.sep}ipykernel_")
_CELL_LINE = r"(Cell In\[.*\]), line (\d+)"
_cells: dict[str, bool] = {}


def absolute_path(path: str) -> str:
    """The absolute path of a file; the path as it is where the folder of the process was removed."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return path


def is_inside(filename: str) -> bool:
    """True for files of popsr, of its plugin of pytest, of context managers, and of Python's start of a program."""
    known = _inside.get(filename)
    if known is None:
        path = absolute_path(filename)
        ours = path.startswith((PACKAGE, _PLUGIN)) and not path.startswith(_PROGRAMS)
        known = ours or path in (_DECORATORS, _START) or filename.startswith(_FROZEN)
        _inside[filename] = known
    return known


@functools.lru_cache(4096)
def library_path(filename: str) -> str:
    """The path of an installed file below the folder of packages: ``optax/_src/update.py``; empty of the user's files.

    Installed are the standard library, what lies in a folder of packages, and scripts of the environment.
    """
    path = absolute_path(filename)
    parts = path.split(os.sep)
    for number in reversed(range(len(parts) - 1)):
        if parts[number] in _PACKAGES:
            return "/".join(parts[number + 1 :])
    folder = next((each for each in _INSTALLED if path.startswith(each)), None)
    return "" if folder is None else path[len(folder) :].replace(os.sep, "/")


def user_frame(offset: int) -> FrameType | None:
    """The innermost frame of the user's program; with an offset the one so many further out, or the outermost."""
    frame = _user_frame_from(sys._getframe(1))
    return _outer_frame(frame, offset) if offset and frame else frame


def frame_place(frame: FrameType) -> tuple[str, int]:
    """File and line of a frame; for a cell of a notebook ``"Cell In[8], line 2"`` and 0."""
    filename = frame.f_code.co_filename
    is_cell = _cells.get(filename)
    if is_cell is None:
        is_cell = _cells[filename] = any(part in filename for part in _CELL_FILES)
    cell = _cell_name(filename) if is_cell else None
    return (f"{cell}, line {frame.f_lineno}", 0) if cell else (filename, frame.f_lineno)


def frame_text(frame: FrameType | None) -> str:
    """``file:line`` of a frame, or ``Cell In[8], line 2``, for messages."""
    if frame is None:
        return "<unknown>"
    file, line = frame_place(frame)
    return f"{file}:{line}" if line else file


def file_and_line(text: str) -> tuple[str, int]:
    """The two parts of ``frame_text``: the file or the cell, and the line. For an empty text ``""`` and 0."""
    cell = re.fullmatch(_CELL_LINE, text)
    file, _, line = text.rpartition(":")
    return (cell[1], int(cell[2])) if cell else (file, int(line or 0))


def source_line(text: str) -> str:
    """The line of source that ``frame_text`` names, without spaces around it; empty where it cannot be read."""
    file, line = file_and_line(text)
    return linecache.getline(file, line).strip() if line else ""


def _cell_name(filename: str) -> str | None:
    """``Cell In[8]``: the last run of a cell with that code, as tracebacks of IPython call it."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    name = getattr(shell and shell.compile, "format_code_name", None)
    label = name and name(filename)
    return " ".join(label) if label else None


def _user_frame_from(frame: FrameType | None) -> FrameType | None:
    while frame is not None and is_inside(frame.f_code.co_filename):
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
