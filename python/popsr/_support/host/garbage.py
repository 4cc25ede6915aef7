"""Python's search for garbage in cycles, made seldom."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collected_rarely"]

_NEW_OBJECTS = 100_000


@contextlib.contextmanager
def collected_rarely() -> Iterator[None]:
    """Inside, Python looks for garbage only after 100,000 new objects, in the place of 700.

    What makes many objects that stay, such as a trace, would look at them, and at a framework's millions, in vain.
    """
    before = gc.get_threshold()
    if before[0]:  # 0: the user wants none
        gc.set_threshold(max(before[0], _NEW_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
