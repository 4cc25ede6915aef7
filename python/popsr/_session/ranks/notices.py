"""Words of a rank to the others outside of the order of calls: that it waits in vain, or has ended."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import popsr.errors
from popsr._support.text.one_line import one_line
from popsr.errors import Error, RankError, StoppedError

__all__ = ["Notice", "Notices", "Word", "error_of", "kind_of", "text_of"]

_PAUSE = 1e-3


class Word(enum.IntEnum):
    """Kinds of notices."""

    WAITS = 1
    """The rank has waited for others longer than it may, or answers one that has."""
    ENDED = 2
    """The sessions of the communicator have ended with an error."""
    FAILED = 3
    """The process ends with an exception that nobody caught, and has printed it."""
    LEFT = 4
    """The process ends."""


class Notice(NamedTuple):
    """A word of a rank to the others.

    Args:
        rank: that says it.
        word: what.
        life: how often the communicator was renewed before.
        at: how many calls the rank had gone through.
        origin: rank of the error.
        kind: class of the error, see ``kind_of``.
        text: of the error.
    """

    rank: int
    word: Word
    life: int = 0
    at: int = 0
    origin: int = 0
    kind: str = ""
    text: str = ""


class Notices:
    """Notices over a communicator. Sending one does not wait, and none is sent unless something is wrong.

    Args:
        mpi: mpi4py.MPI.
        comm: the communicator.
        tag: of the messages.
    """

    def __init__(self, mpi: Any, comm: Any, tag: int) -> None:
        """Nothing was heard yet."""
        self._mpi, self._comm, self._tag = mpi, comm, tag
        self.rank = comm.rank
        self._heard: dict[tuple[Word, int], Notice] = {}
        self._sent: list[Any] = []

    def say(self, word: Word, *values: Any) -> None:
        """Send a notice with these values to all other ranks."""
        data = json.dumps([word, *values]).encode()
        for rank in range(self._comm.size):
            if rank != self.rank:
                self._sent.append((self._comm.Isend([data, self._mpi.BYTE], rank, self._tag), data))

    def barrier(self) -> Any:
        """A request that ends when all ranks have made one."""
        return self._comm.Ibarrier()

    def listen(self) -> None:
        """Receive what has arrived."""
        status = self._mpi.Status()
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, self._tag, status):
            rank, data = status.Get_source(), bytearray(status.Get_count(self._mpi.BYTE))
            self._comm.Recv([data, self._mpi.BYTE], rank, self._tag)
            word, *values = json.loads(data)
            notice = Notice(rank, Word(word), *values)
            self._heard[notice.word, notice.rank] = notice

    def heard(self, word: Word, life: int | None = None) -> list[Notice]:
        """The last notices of this kind, by rank.

        Args:
            word: the kind.
            life: of the communicator; None: any.
        """
        found = [each for each in self._heard.values() if each.word is word]
        return sorted(each for each in found if life is None or each.life == life)

    def hears(self, word: Word, ranks: Collection[int], seconds: float) -> bool:
        """True if one of these ranks says so within that time."""
        end = time.monotonic() + seconds
        while True:
            self.listen()
            if any(notice.rank in ranks for notice in self.heard(word)):
                return True
            if time.monotonic() > end:
                return False
            time.sleep(_PAUSE)


def kind_of(error: BaseException) -> str:
    """Name of the class in ``popsr.errors`` that an error is of; "" for others, whose text says it."""
    names = [each.__name__ for each in type(error).__mro__ if each.__module__ == RankError.__module__]
    return names[0] if names else ""


def text_of(error: BaseException) -> str:
    """The text of an error, of other classes than popsr's with its class."""
    if kind_of(error):
        return str(error)
    return one_line(": ".join(filter(None, (type(error).__name__, str(error)))))


def error_of(call: str, rank: int, kind: str, text: str) -> Error:
    """The error of another rank, as this rank has it: of the same class, if it is one of popsr's."""
    if kind:
        found: Error = getattr(popsr.errors, kind)(text)
        return found
    return StoppedError(f"{call}: rank {rank} ended it, got {text}, expected no error of a rank")
