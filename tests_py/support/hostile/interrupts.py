"""Ctrl-C at a chosen line of popsr: a call that is interrupted there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests_py.support.unchanged import PACKAGE

__all__ = ["interrupted_at", "lines_of"]


class _Lines:
    """Counts the lines of popsr that a thread runs, and raises KeyboardInterrupt before the one of a number."""

    def __init__(self, stop: int | None) -> None:
        self.seen = 0
        self._stop = stop

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self._stop:
                raise KeyboardInterrupt
        return self.trace


def _run(call: Callable[[], object], stop: int | None) -> int:
    lines, outer = _Lines(stop), sys.gettrace()
    sys.settrace(lines.trace)
    try:
        call()
    finally:
        sys.settrace(outer)
    return lines.seen


def lines_of(call: Callable[[], object]) -> int:
    """Number of lines of popsr that a call runs."""
    return _run(call, None)


def interrupted_at(call: Callable[[], object], line: int) -> bool:
    """Call it with Ctrl-C before its ``line``-th line (from 1) of popsr. False if it came to its end before that."""
    try:
        _run(call, line)
    except KeyboardInterrupt:
        return True
    return False
