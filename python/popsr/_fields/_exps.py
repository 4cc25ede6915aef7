"""Exps that are random functions for want of a field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["counted_exps", "note_exp"]

_EXPS: ContextVar[tuple[list[int], ...]] = ContextVar("exps", default=())


@contextmanager
def counted_exps() -> Iterator[list[int]]:
    """Inside, sizes of arrays whose exp is a random function for want of a field go to the list that is given."""
    found: list[int] = []
    before = _EXPS.set((*_EXPS.get(), found))
    try:
        yield found
    finally:
        _EXPS.reset(before)


def note_exp(size: int) -> None:
    """Note an exp of an array of some size that is a random function."""
    for counter in _EXPS.get():
        counter.append(size)
