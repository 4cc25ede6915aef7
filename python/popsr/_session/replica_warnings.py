"""Python's warnings about replicas, at the line of the user's program that they are about."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from popsr._program.context import _context
from popsr._program.ir import Ir
from popsr._support.text.frames import file_and_line, frame_text, user_frame
from popsr._support.text.one_line import MAX_TEXT, one_line
from popsr.errors import ReplicaWarning

__all__ = ["is_first_warning", "warn"]

_SILENCE = "warnings.filterwarnings('ignore', category=popsr.ReplicaWarning)"


_UNKNOWN = "<unknown>"  # a module; Python drops warnings of None


def is_first_warning(ir: Ir, code: str, location: str) -> bool:
    """False if a warning of that lint was given at that line for this program before."""
    return (code, location) not in ir._warned


def warn(ir: Ir, code: str, location: str, text: str) -> None:
    """Give a warning, once a program for each lint and line; a filter may make an error of it, or drop it.

    Args:
        ir: the program.
        code: the lint.
        location: ``file:line`` of the op or variable. Empty: the line of the user's program that runs now.
        text: what is wrong and what to do about it; long ones lose their middle.
    """
    if not is_first_warning(ir, code, location):
        return
    file, line, module = _place(ir, location)
    how = f"; an error with Session(strict={{'{code}'}}), silent with {_SILENCE}; more: python -m popsr help {code}"
    message = ReplicaWarning(f"{code}: {one_line(' '.join(text.split()), MAX_TEXT - len(how) - 4)}{how}")
    warnings.warn_explicit(message, ReplicaWarning, file, line, module, _registry(module))
    ir._warned.add((code, location))  # not if it was an error: the next try is one too


def _place(ir: Ir, location: str) -> tuple[str, int, str]:
    """File, line and module."""
    if location:
        file, line = file_and_line(location)
        return file, line, ir._modules.get(file) or _UNKNOWN
    if _context._location is not None:
        return *_context._location, _UNKNOWN
    frame = user_frame(_context._frame_offset)
    if frame is None:
        return "popsr", 1, _UNKNOWN
    return *file_and_line(frame_text(frame)), frame.f_globals.get("__name__") or _UNKNOWN


def _registry(module: str | None) -> dict[Any, Any]:
    """Python's registry of the warnings that a module has given, as for ``warnings.warn``."""
    found = sys.modules.get(module or "")
    registry: dict[Any, Any] = {} if found is None else vars(found).setdefault("__warningregistry__", {})
    return registry
