"""Settings of the process: threads, and the build of the compiled core."""

from __future__ import annotations

from popsr import _core
from popsr._support.host.arguments import read_int
from popsr._support.text.entry_points import public_call

__all__ = ["build_info", "num_threads", "set_num_threads"]


@public_call
def build_info() -> dict[str, str]:
    """Instruction set in use and compiler, by name."""
    return _core.build_info()


@public_call
def num_threads() -> int:
    """Threads of sessions that were not told otherwise."""
    return _core.num_threads()


@public_call
def set_num_threads(threads: int) -> None:
    """Set the threads of sessions that were not told otherwise; results do not depend on it.

    Args:
        threads: how many, from 1 to 4096.
    Raises:
        ValueError: it is not an int in that range.
    """
    _core.set_num_threads(read_int("set_num_threads: threads", threads, 1, 4096))
