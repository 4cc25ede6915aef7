"""Values that a step reads of its process, replaced by those of another process on another day.

A step that is traced a second time with them makes other constants where it computes with them, and is refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from popsr.bridge._step.replaced import replaced

__all__ = ["other_values"]

_DAY = 86_400
_OTHERS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (os, "getpid", lambda pid: pid + 1),
    (socket, "gethostname", lambda name: name + "-2"),
    (platform, "node", lambda name: name + "-2"),
    *((time, name, lambda now: now + _DAY) for name in ("time", "monotonic", "perf_counter")),
    *((time, name + "_ns", lambda now: now + _DAY * 10**9) for name in ("time", "monotonic", "perf_counter")),
)
"""Functions whose value is another one in another process or at another time, and such a value."""


@contextlib.contextmanager
def other_values(applies: Callable[[], bool]) -> Iterator[None]:
    """Inside, those functions give other values to calls of which ``applies`` is true when it is asked in them."""
    with replaced((m, name, _with_other(getattr(m, name), other, applies)) for m, name, other in _OTHERS):
        yield


def _with_other(
    known: Callable[..., Any], other: Callable[[Any], Any], applies: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(known)
    def called(*args: Any, **options: Any) -> Any:
        value = known(*args, **options)
        return other(value) if applies() else value

    return called
