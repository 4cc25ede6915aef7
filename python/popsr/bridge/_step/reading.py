"""Ways in which importers read a step once more, for a comparison with one device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from popsr.bridge._step.arguments import Reading

__all__ = ["callers_are_kept", "floats_are_wide", "noise_is_off", "read_as"]

_AS_IT_IS = Reading()
_HOW = ContextVar("_HOW", default=_AS_IT_IS)


@contextlib.contextmanager
def read_as(how: Reading) -> Iterator[None]:
    """Inside, steps are read in another way."""
    token = _HOW.set(how)
    try:
        yield
    finally:
        _HOW.reset(token)


def floats_are_wide() -> bool:
    """True where floats of all formats are read as float64: nothing is rounded to fewer bits."""
    return _HOW.get().wide


def callers_are_kept() -> bool:
    """True where a line is kept with the lines that it was called from, to say the place of a difference."""
    return _HOW.get().still


def noise_is_off() -> bool:
    """True where random numbers do not depend on keys."""
    return _HOW.get().still
