"""The floating-point environment in which host data is converted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from popsr._core import in_default_environment as call

__all__ = ["in_default_environment"]

P = ParamSpec("P")
R = TypeVar("R")


def in_default_environment(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function that rounds to nearest and keeps subnormals, whatever the thread's environment is.

    A library built with fast-math flushes subnormals in the whole process, and a caller may round otherwise: neither
    may change the bits of host data. Kernels have the same guard.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        return call(function, *args, **kwargs)

    return guarded
