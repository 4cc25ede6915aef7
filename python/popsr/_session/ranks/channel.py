"""Messages between the ranks of one communicator of MPI, and the end of waiting for a rank that does not come.

A rank that fails where the others cannot be told in the order of calls says so in a notice; ranks that wait look for
notices, so that none of them waits for ever.
"""

from __future__ import annotations

import functools
import math
import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from popsr._session.ranks import ends as rank_ends
from popsr._session.ranks.notices import Notice, Notices, Word, error_of, kind_of, text_of
from popsr.errors import Error, RankError, StateError

__all__ = ["Channel", "Views", "Waiting", "channel_of"]

Views = Sequence[tuple[int, memoryview]]

_TAG, _NOTICE_TAG = 1, 2
# A rank that waits asks so often, then so often with others running on its core between, and then sleeps for so long
# at a time in seconds.
_ASKS, _YIELDS, _PAUSE = 50, 200, 2e-5
# Seconds in which ranks answer that they wait, too, and in which the last messages of an ended rank arrive.
_GRACE = 0.5
# Seconds in which cancelled messages end.
_CANCEL = 0.2

_abandoned: list[Any] = []  # memory that messages under way may still use, until the process ends


@dataclass
class Waiting:
    """One wait for other ranks.

    Args:
        call: that needs them.
        limit: seconds; None: any time.
        begun: when it began.
        has_said: this rank has said that it waits.
        left: when it heard that a rank has ended.
        reason: error that this rank tells of, and that counts if the others do not come.
    """

    call: str
    limit: float | None
    begun: float = 0.0
    has_said: bool = False
    left: float | None = None
    reason: BaseException | None = None


class Channel:
    """The messages of popsr's sessions over a communicator; they do not meet the caller's.

    Attributes:
        rank: this process.
        size: the number of ranks.
        life: how often the communicator was renewed: sessions live once.
        end: the error that ended the sessions of this life.
        is_overdue: it was that ranks did not come.
        sessions: the core's, with the memory that messages are sent from.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        """Moves nothing: see ``open``."""
        self._mpi, self._of = mpi, comm
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.life = 0
        self.end: BaseException | None = None
        self.is_overdue = False
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._comm: Any = None
        self._calls = 0
        # Until there is a communicator for notices they go over the caller's, with a tag that is hardly used.
        self.notices = Notices(mpi, comm, mpi.COMM_WORLD.Get_attr(mpi.TAG_UB))
        self._buffers: dict[int, tuple[bytearray, bytearray]] = {}

    def open(self, waiting: Waiting) -> None:
        """Make the communicators, if there are none or sessions over them have ended. On all ranks at once.

        Raises:
            RankError: a rank does not come in time.
            StateError: this process is not a rank itself.
        """
        _refuse_child(waiting.call)
        if self._comm is not None and self.end is None:
            self.notices.listen()  # a rank may have ended what this one does not know of
            ended = self.notices.heard(Word.ENDED, self.life)
            if not ended:
                return
            self._give_up(self._told(waiting.call, ended[0]))
        if self.end is not None:
            self.life, self._calls, self._buffers = self.life + 1, 0, {}
            self.end, self.is_overdue = None, False
        is_new = self._comm is None
        if is_new:
            rank_ends.watch(self)
        try:
            comm = self._duplicate(waiting)
            notices = self._duplicate(waiting) if is_new else None
        except BaseException as error:
            self.give_up(error)
            raise
        if notices is not None:
            self.notices = Notices(self._mpi, notices, _NOTICE_TAG)
        self._comm = comm

    def _duplicate(self, waiting: Waiting) -> Any:
        # Nothing can end a call of MPI that blocks: it is made once all ranks are here.
        self._wait([self._of.Ibarrier()], waiting)
        return self._of.Dup()

    @property
    def is_open(self) -> bool:
        """True once there are communicators."""
        return self._comm is not None

    def exchange(self, sends: Views, receives: Views, waiting: Waiting) -> None:
        """Move messages."""
        byte, comm = self._mpi.BYTE, self._comm
        incoming: list[Any] = []
        requests = incoming
        try:
            for rank, view in receives:
                incoming.append(comm.Irecv([view, byte], rank, _TAG))
            requests = incoming.copy()
            for rank, view in sends:
                requests.append(comm.Isend([view, byte], rank, _TAG))
            self._wait(requests, waiting)
        except BaseException as error:
            self._abandon(incoming, requests, waiting.reason or error)
            raise

    def gather(self, mine: memoryview, all_: memoryview, waiting: Waiting) -> None:
        """Collect as many bytes from each rank."""
        byte, size = self._mpi.BYTE, len(mine)
        try:
            buffers = self._buffers.get(size)
            if buffers is None:
                buffers = self._buffers[size] = bytearray(size), bytearray(len(all_))
            own, others = buffers  # the library may write to them as long as a rank has not come
            own[:] = mine
            self._wait([self._comm.Iallgather([own, byte], [others, byte])], waiting)
            all_[:] = others
            self._calls += 1
        except BaseException as error:
            self._abandon([], [], waiting.reason or error)
            raise

    def _wait(self, requests: list[Any], waiting: Waiting) -> None:
        """Signals are handled meanwhile, and ranks that share a core do not keep each other from it."""
        have_ended = self._mpi.Request.Testall
        for _ in range(_ASKS):
            if have_ended(requests):
                return
        for _ in range(_YIELDS):
            _let_others_run()
            if have_ended(requests):
                return
        waiting.begun, waiting.left, waiting.has_said = time.monotonic(), None, False
        while not have_ended(requests):
            time.sleep(_PAUSE)
            error = self._verdict(waiting, time.monotonic())
            if error is not None:
                raise error

    def _verdict(self, waiting: Waiting, now: float) -> Error | None:
        """The error that ends a wait."""
        self.notices.listen()
        ended = self.notices.heard(Word.ENDED, self.life)
        if ended:
            return self._told(waiting.call, ended[0])
        left = [*self.notices.heard(Word.FAILED), *self.notices.heard(Word.LEFT)]
        if left:
            waiting.left = waiting.left or now
            if now - waiting.left > _GRACE:
                return self._told(waiting.call, left[0])
        answers = self.notices.heard(Word.WAITS, self.life)
        others = [each.rank for each in answers if each.at >= self._calls]
        rest = math.inf if waiting.limit is None else waiting.begun + waiting.limit - now
        if not waiting.has_said and (others or rest < min(_GRACE, (waiting.limit or 0) / 2)):
            self.notices.say(Word.WAITS, self.life, self._calls)
            waiting.has_said = True
        return self._overdue(waiting, sorted({self.rank, *others})) if rest < 0 else None

    def _overdue(self, waiting: Waiting, present: list[int]) -> Error:
        missing = [rank for rank in range(self.size) if rank not in present]
        problem, got = "a rank did not come", f"no call of {_ranks(missing)}"
        if not missing:
            problem, got = "all ranks wait for each other", "no end"
        error = RankError(
            f"{waiting.call}: {problem}, got {got} within {waiting.limit:g} s, expected the same call on all ranks"
        )
        self.is_overdue = waiting.reason is None
        return rank_ends.mark(error, self.notices, present[0])

    def _told(self, call: str, notice: Notice) -> Error:
        """The error that another rank has told of."""
        if notice.word is Word.LEFT:
            left = RankError(
                f"{call}: a rank has ended, got the end of rank {notice.rank}'s process, expected the same call on "
                "all ranks"
            )
            return rank_ends.mark(left, self.notices, notice.rank)
        error = error_of(call, notice.origin, notice.kind, notice.text)
        return rank_ends.mark(error, self.notices, notice.origin)

    def _abandon(self, incoming: list[Any], requests: list[Any], error: BaseException) -> None:
        """Messages under way end, or their memory is kept."""
        self.give_up(error)
        _abandoned.append(self._buffers)
        for request in incoming:
            if request:
                request.Cancel()
        end = time.monotonic() + _CANCEL
        while not self._mpi.Request.Testall(requests):
            if time.monotonic() > end:
                _abandoned.append(requests)
                return
            time.sleep(_PAUSE)

    def give_up(self, error: BaseException) -> None:
        """End the sessions of this life, here and on the other ranks."""
        if self.end is not None:
            return
        self._give_up(error)
        origin = rank_ends.origin_of(error)
        if origin is None or self.is_overdue:  # else that rank has told all
            origin = self.rank if origin is None else origin
            self.notices.say(Word.ENDED, self.life, self._calls, origin, kind_of(error), text_of(error))

    def _give_up(self, error: BaseException) -> None:
        self.end = error
        _abandoned.extend(self.sessions)

    def require_life(self, call: str, life: int) -> None:
        """Refuse calls of sessions that have ended, and those of children of ranks."""
        _refuse_child(call)
        if self.end is not None or life != self.life:
            got = "an earlier error" if self.end is None else text_of(self.end)
            raise StateError(
                f"{call}: the session of these ranks has ended, got {got}, expected a new session on all ranks"
            )


def _refuse_child(call: str) -> None:
    if rank_ends.is_child():
        raise StateError(
            f"{call}: the ranks of a session are the processes of MPI, got a child that one of them forked, expected "
            "the call in its parent, or in the child a new session without comm"
        )


def _let_others_run() -> None:
    getattr(os, "sched_yield", lambda: time.sleep(0))()


def channel_of(mpi: Any, comm: Any) -> Channel:
    """The channel of a communicator, made once for it."""
    found: Channel | None = comm.Get_attr(_key(mpi))
    if found is None:
        found = Channel(mpi, comm)
        comm.Set_attr(_key(mpi), found)
    return found


@functools.cache
def _key(mpi: Any) -> int:
    key: int = mpi.Comm.Create_keyval()
    return key


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
