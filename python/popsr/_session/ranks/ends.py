"""The end of a process whose sessions have other ranks: all of them end, and say once why.

An exception that nobody catches is printed by the rank that raised it, and not by those that were told of it. A process
that ends waits for the others, tells those that wait for it, and aborts all when a rank cannot end any more.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from types import TracebackType
from typing import Any, Protocol, TypeVar

from popsr._session.ranks.notices import Notices, Word, kind_of, text_of
from popsr._support.text.one_line import one_line

__all__ = ["Ending", "abort", "is_child", "mark", "origin_of", "watch"]

_E = TypeVar("_E", bound=BaseException)

# Seconds in which the rank whose error this is prints it, and in which a lower rank prints what it was told.
_PRINTS, _FOLLOWS = 2.0, 0.5
# Seconds after which others are told that this rank waits to end, and after which a failed process aborts all.
_TELLS, _ABORTS = 0.5, 5.0
# Seconds in which launchers pass on what was printed: they drop the rest when they end the ranks.
_FORWARDS = 0.2
_PAUSE = 1e-3


class Ending(Protocol):
    """Messages of a communicator, as far as they end."""

    notices: Notices
    is_overdue: bool

    @property
    def is_open(self) -> bool:
        """True once all ranks have made them."""


_children: list[int] = []  # this process, if it is a child by ``fork`` of a rank
_watched: list[Ending] = []


def is_child() -> bool:
    """True in a child that ``fork`` made of a rank: messages there are its parent's, and it is not a rank itself."""
    return bool(_children)


def _note_fork() -> None:
    if "mpi4py.MPI" in sys.modules:
        _children.append(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
_failed: list[BaseException] = []


def watch(messages: Ending) -> None:
    """End these when the process ends."""
    if not _watched:
        atexit.register(_leave)
        _previous.append(sys.excepthook)
        sys.excepthook = _report
    if messages not in _watched:
        _watched.append(messages)


def mark(error: _E, notices: Notices, rank: int) -> _E:
    """Note in an error which rank has told of it."""
    error.__dict__["_told_by"] = notices, rank
    return error


def origin_of(error: BaseException) -> int | None:
    """The rank that has told of an error; None for one of this rank itself."""
    told = error.__dict__.get("_told_by")
    return None if told is None else int(told[1])


_previous: list[Any] = []


def _report(class_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception that nobody caught, unless another rank does."""
    _failed.append(error)
    try:
        if _is_printed_elsewhere(error):
            return
    except KeyboardInterrupt:
        pass
    _previous[0](class_, error, trace)
    _flush()
    if is_child() or sys.modules["mpi4py.MPI"].Is_finalized():
        return
    kind = kind_of(error)
    text = one_line(f"{kind}: {error}") if kind else text_of(error)
    for each in _watched:
        each.notices.say(Word.FAILED, 0, 0, each.notices.rank, "", text)


def _is_printed_elsewhere(error: BaseException) -> bool:
    """True when the rank of the error prints it, or if that does not, a lower rank than this one."""
    if is_child() or sys.modules["mpi4py.MPI"].Is_finalized():
        return False
    told: tuple[Notices, int] | None = error.__dict__.get("_told_by")
    if told is not None and told[1] != told[0].rank:
        notices, origin = told
        seconds = _PRINTS + (_FOLLOWS if notices.rank > 0 else 0)
        return notices.hears(Word.FAILED, {origin, *range(notices.rank)}, seconds)
    if isinstance(error, KeyboardInterrupt):
        notices = _watched[0].notices
        return notices.rank > 0 and notices.hears(Word.FAILED, {*range(notices.rank)}, _FOLLOWS)
    return False


def _leave() -> None:
    """End together with the other ranks, or end them."""
    mpi = sys.modules["mpi4py.MPI"]
    if is_child() or mpi.Is_finalized():
        return
    try:
        is_together = not (_failed and "mpi4py.run" in sys.modules) and _waits_for_others(mpi)
        status = 1
    except KeyboardInterrupt:
        is_together, status = False, 130
    if not is_together:
        abort(mpi, status)


def abort(mpi: Any, status: int) -> None:
    """End all ranks, when launchers have passed on what this one printed."""
    _flush()
    time.sleep(_FORWARDS)
    mpi.COMM_WORLD.Abort(status)


def _flush() -> None:
    """Write what was printed; streams that are closed or full do not keep the ranks from ending."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _waits_for_others(mpi: Any) -> bool:
    """Wait until all ranks end; False when they do not."""
    if not all(each.is_open for each in _watched):
        return False
    may_abort = bool(_failed) or any(each.is_overdue for each in _watched)
    requests = [each.notices.barrier() for each in _watched]
    begun, has_told = time.monotonic(), False
    while not mpi.Request.Testall(requests):
        time.sleep(_PAUSE)
        waited = time.monotonic() - begun
        for each in _watched:
            each.notices.listen()
            if waited > _TELLS and not has_told:
                each.notices.say(Word.LEFT)
        has_told = waited > _TELLS
        if may_abort and waited > _ABORTS:
            return False
    return True
