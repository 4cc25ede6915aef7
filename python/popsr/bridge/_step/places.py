"""Lines of the user's program among the frames of libraries and of frameworks."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from popsr._program.context import _context, location
from popsr._support.text.frames import library_path

__all__ = ["Place", "at_definition", "at_place", "nearest_place"]

_DEPTH, _LENGTH = 8, 40  # of name scopes: parts, characters of a part


class Place(NamedTuple):
    """A line of the user's program, and the line of a library that it calls there.

    Attributes:
        file: the file.
        line: the number of the line.
        within: the line of a library.
        callers: lines of the user from which it was called, the innermost first, where they are asked for.
    """

    file: str
    line: int
    within: str = ""
    callers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``train.py:12 (in transformers/models/gpt2/modeling_gpt2.py:603)``."""
        return f"{self.file}:{self.line}" + (f" (in {self.within})" if self.within else "")


def nearest_place(frames: Iterable[tuple[str, int]], is_framework: Callable[[str], bool]) -> Place | None:
    """The innermost line of the user, with that of the library inside; without any the innermost of a library.

    Args:
        frames: files and lines, the innermost first.
        is_framework: True for files that are no place of a step: of the framework and of popsr.
    """
    inner: Place | None = None
    for file, line in frames:
        if is_framework(file):
            continue
        library = library_path(file)
        if not library:
            return Place(file, line, "" if inner is None else inner.within)
        if inner is None:
            inner = Place(file, line, f"{library}:{line}")
    return None if inner is None else Place(inner.file, inner.line)


def at_definition(function: Any) -> contextlib.AbstractContextManager[None]:
    """Inside, ops are of the line where a function is defined, if it has one: a step's arguments come from there."""
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    return contextlib.nullcontext() if code is None else location(code.co_filename, code.co_firstlineno)


@contextlib.contextmanager
def at_place(place: Place | None, scope: Sequence[str] = ()) -> Iterator[None]:
    """Inside, ops are of a line of the user, if it is known, and of name scopes: the last few of them, cut short."""
    before = _context._location, _context._name_scopes
    if place is not None:
        _context._location = place.file, place.line
    _context._name_scopes = tuple(each[:_LENGTH] for each in scope[-_DEPTH:])
    try:
        yield
    finally:
        _context._location, _context._name_scopes = before
