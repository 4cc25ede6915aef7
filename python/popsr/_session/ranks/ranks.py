"""The processes of MPI that run a program together: a session's part of a communicator of mpi4py.

MPI moves bytes here, between ranks and in order, and nothing else: what ranks compute of each other's values is the
core's, so that the bits are those of one process.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from popsr import _core
from popsr._session.ranks.channel import Channel, Views, Waiting, channel_of
from popsr._session.ranks.ends import is_child, mark
from popsr._session.ranks.notices import error_of, kind_of, text_of
from popsr._session.ranks.program import program_items
from popsr._session.rows import Array
from popsr._support.host import launcher, message_sizes
from popsr._support.host.arguments import read_number
from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    Error,
    ReplicaError,
    StateError,
    StoppedError,
)

if TYPE_CHECKING:
    from mpi4py import MPI

    from popsr._program.ir import Ir

__all__ = ["HasRanks", "Ranks", "collective", "meet", "open_ranks", "read_timeout", "together"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
Messages = Views

# Seconds that a rank with an error waits for others that may not be on their way to a call.
_PATIENCE = 2.0


@public
class Ranks:
    """A session's link to the other ranks of its communicator.

    Attributes:
        link: the core's side: it compares calls, and knows whether all ranks were told of an error.
        local: this rank's replicas.
    """

    def __init__(self, channel: Channel, timeout: float | None) -> None:
        """On all ranks at once.

        Args:
            channel: to the other ranks.
            timeout: seconds that a call waits for them.
        """
        self._channel, self._timeout = channel, timeout
        self._life = channel.life
        self.link = _core.RankLink(channel.rank, channel.size, self._exchange, self._gather, self._fail)
        self.link.set_message_bytes(message_sizes.MESSAGE_BYTES)
        if message_sizes.CHAINS is not None:
            self.link.set_chains(*message_sizes.CHAINS)
        self.local = range(0)
        self._waiting = Waiting("Session", timeout)
        self._moved = 0  # messages of the call that goes on
        self._told: BaseException | None = None

    @property
    def rank(self) -> int:
        """Number of this process."""
        return self._channel.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._channel.size

    def keep(self, core: _core.Session) -> None:
        """Messages are sent from the memory of this session."""
        self._channel.sessions.add(core)

    def begin(self, ir: Ir, arguments: Mapping[str, object]) -> None:
        """Compare arguments and programs, and take this rank's replicas.

        Raises:
            RankError: ranks differ in one of the arguments or in the program; on all of them.
            ReplicaError: there are more ranks than replicas.
            StateError: MPI was started without support for threads.
        """
        replicas = ir.replication_factor
        self.agree("Session", [("the number of replicas", str(replicas))], _thread_problem())
        if self.size > replicas:
            raise ReplicaError(
                f"Session: comm has more ranks than there are replicas, got {self.size} ranks, expected 1 to "
                f"{replicas}"
            )
        self.agree(
            "Session", [*((name, str(value)) for name, value in arguments.items()), *program_items(ir)]
        )
        self.local = launcher.share(replicas, self.size, self.rank)

    def agree(self, call: str, items: list[tuple[str, str]], problem: BaseException | None = None) -> None:
        """All ranks make this call with equal items, or all of them raise.

        Args:
            call: its name.
            items: names and values.
            problem: this rank cannot make the call.
        Raises:
            RankError: calls or items differ.
            Error: the ``problem`` of the lowest rank that has one.
        """
        failure = self._first_failure(call, items, problem)
        if failure is not None:
            raise failure

    def _first_failure(
        self, call: str, items: list[tuple[str, str]], problem: BaseException | None
    ) -> BaseException | None:
        """The problem that counts, of this rank itself or as the others see it."""
        told = None if problem is None else (kind_of(problem), text_of(problem))
        first = self.link.agree(call, items, told)
        if first is None:
            return None
        rank, kind, error = first
        return problem if problem is not None and rank == self.rank else error_of(call, rank, kind, error)

    def send_to_first(self, parts: Iterable[tuple[int, int, Array | None]], room: Array) -> None:
        """Move parts from the ranks that have them to rank 0, where they fill ``room`` one after the other.

        Args:
            parts: rank, number of bytes, and on that rank the bytes.
            room: enough bytes.
        """
        sends: list[tuple[int, memoryview]] = []
        receives: list[tuple[int, memoryview]] = []
        begin = 0
        for rank, nbytes, data in parts:
            if self.rank == 0:
                receives.append((rank, room.data[begin : begin + nbytes]))
            elif rank == self.rank and data is not None:
                sends.append((0, data.data))
            begin += nbytes
        if sends or receives:
            self._exchange(sends, receives)

    def numbers(self, mine: int) -> list[int]:
        """A number of each rank, on all of them."""
        all_ = bytearray(8 * self.size)
        self._gather(memoryview(mine.to_bytes(8, "little", signed=True)), memoryview(all_))
        return [int.from_bytes(all_[8 * i : 8 * i + 8], "little", signed=True) for i in range(self.size)]

    def collect(self, mine: bytes) -> list[bytes]:
        """Bytes of each rank, on rank 0; on others an empty list."""
        sizes = self.numbers(len(mine))
        room = np.empty(sum(sizes[1:]) if self.rank == 0 else 0, np.uint8)
        data = np.frombuffer(mine, np.uint8)
        self.send_to_first([(rank, size, data) for rank, size in enumerate(sizes) if rank > 0], room)
        if self.rank:
            return []
        others = np.split(room, np.cumsum(sizes[1:])[:-1])
        return [mine, *(each.tobytes() for each in others)]

    @contextlib.contextmanager
    def together(self, call: str) -> Iterator[None]:
        """An error inside, on one rank, ends the call that the other ranks are in with the same error."""
        self.begin_call(call)
        try:
            yield
        except BaseException as error:
            self.report_error(error)
            raise

    def begin_call(self, call: str) -> None:
        """All ranks make this call.

        Raises:
            StateError: an earlier error has ended the session.
        """
        self._channel.require_life(call, self._life)
        self.link.is_told, self._moved = False, 0
        self._waiting = Waiting(call, self._timeout)

    def report_error(self, error: BaseException) -> None:
        """Tell the other ranks of an error of this call, or of one that leaves the session, unless they know."""
        if self.has_ended or error is self._told:
            return
        if self.link.is_told:
            self._told = self._marked(error)
            if self._told is not error:
                raise self._told from None
            return
        # All go on if the others are on their way to the same place; else a notice ends the session.
        if self._moved > 0 and (not isinstance(error, Error) or isinstance(error, MemoryError)):
            self._channel.give_up(error)
            return
        limit = self._timeout if self._moved == 0 else _PATIENCE
        self._report_in_order(error, Waiting("session", limit, reason=error))

    def report_exit(self, error: BaseException) -> None:
        """Tell the others of an error that leaves ``with session:``; they need not be in a call."""
        if self.has_ended or error is self._told:
            return
        self._report_in_order(error, Waiting("exit", _PATIENCE, reason=error))

    def _report_in_order(self, error: BaseException, waiting: Waiting) -> None:
        self._waiting = waiting
        try:
            first = self._first_failure("session", [], error)
        except BaseException:  # the others do not come, and have a notice
            return
        self._told = error
        # An error of this rank that has stopped the others, as in ``meet``, stays what it is.
        is_stopped = isinstance(first, StoppedError) and not isinstance(error, StoppedError)
        if first is not error and first is not None and not is_stopped:
            self._told = self._marked(first)
            raise first from error

    @property
    def has_ended(self) -> bool:
        """True after an error that ended the session, and in children of ranks, which have no part in it."""
        return is_child() or self._channel.end is not None or self._channel.life != self._life

    def _marked(self, error: BaseException) -> BaseException:
        """The error with the rank that has it, if that is another one; of the class that it has there."""
        rank, kind, text = self.link.told
        if rank == self.rank:
            return error
        if kind and kind_of(error) != kind:  # a class that the core does not know
            error = error_of(self._waiting.call, rank, kind, text)
        return mark(error, self._channel.notices, rank)

    def _exchange(self, sends: Messages, receives: Messages) -> None:
        """Move messages; for the core."""
        self._begin_move()
        self._channel.exchange(sends, receives, self._waiting)

    def _gather(self, mine: memoryview, all_: memoryview) -> None:
        """Collect as many bytes from each rank; for the core."""
        self._begin_move()
        self._channel.gather(mine, all_, self._waiting)

    def _fail(self, error: BaseException) -> None:
        """End the session, as one of these raised; for the core."""
        self.link.is_told = True
        if not self.has_ended:
            self._channel.give_up(error)

    def _begin_move(self) -> None:
        self._channel.require_life(self._waiting.call, self._life)
        self._moved += 1


class HasRanks(Protocol):
    """Something with the ranks of a session; None without others."""

    @property
    def _ranks(self) -> Ranks | None: ...


_S = TypeVar("_S", bound=HasRanks)


def collective(function: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorator of methods that all ranks call at once: an error on one of them is raised on all."""

    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        ranks = self._ranks
        if ranks is None:
            return function(self, *args, **kwargs)
        with ranks.together(function.__name__):
            return function(self, *args, **kwargs)

    return functools.update_wrapper(call, function)


def together(ranks: Ranks | None, call: str) -> contextlib.AbstractContextManager[None]:
    """As ``Ranks.together``, if there are other ranks."""
    return contextlib.nullcontext() if ranks is None else ranks.together(call)


def read_timeout(value: object) -> float | None:
    """The seconds that a call waits for other ranks; None: any time.

    Raises:
        TypeError: not a number.
        ValueError: not a positive number; or ``POPSR_TIMEOUT`` is not.
    """
    if value is None:
        text = os.environ.get("POPSR_TIMEOUT", "")
        if not text:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        name, got = "POPSR_TIMEOUT", shown(text)
    else:
        try:
            name, got, seconds = "timeout", shown(value), read_number("Session: timeout", value)
        except ArgumentTypeError:
            raise ArgumentTypeError(
                f"Session: timeout is not a number, got {shown(value)}, expected seconds or None"
            ) from None
    if not 0 < seconds < math.inf:
        raise AttributeValueError(
            f"Session: {name} is not a time, got {got}, expected a positive number of seconds"
        )
    return seconds


def open_ranks(comm: object, timeout: object, is_distributed: bool) -> Ranks | None:
    """The ranks of a communicator, or of the one that ``POPSR_COMM`` names; None without others.

    Args:
        comm: the communicator, or None.
        timeout: seconds that calls wait for other ranks, as ``read_timeout`` takes it; what it refuses counts as None.
        is_distributed: the program is for all processes of a launcher: its default are all ranks.
    Raises:
        RankError: a rank does not come in time.
        TypeError: ``comm`` is not a communicator inside one group of processes.
        ValueError: ``POPSR_COMM`` is not "world".
        ImportError: mpi4py is needed and not installed.
    """
    if comm is None:
        comm = _default(is_distributed)
        if comm is None:
            return None
    checked = _checked(comm)
    if checked.size == 1:
        return None
    try:
        seconds = read_timeout(timeout)
    except Error:  # raised again where all ranks are told of it
        seconds = None
    return _ranks_of(checked, "Session", seconds)


def _ranks_of(comm: MPI.Intracomm, call: str, seconds: float | None) -> Ranks:
    channel = channel_of(sys.modules["mpi4py.MPI"], comm)
    channel.open(Waiting(call, seconds))
    return Ranks(channel, seconds)


def _default(is_distributed: bool) -> MPI.Intracomm | None:
    name = os.environ.get("POPSR_COMM", "")
    if not name:
        return launcher.world("Session") if is_distributed else None
    if name != "world":
        raise AttributeValueError(f"Session: POPSR_COMM is unknown, got {shown(name)}, expected 'world'")
    framework("Session", "mpi4py")
    from mpi4py import MPI

    return MPI.COMM_WORLD


def meet(comm: MPI.Intracomm, call: str, problem: BaseException | None) -> None:
    """All ranks make this call, beside those of their sessions.

    Raises:
        RankError: one makes another call.
        Error: the ``problem`` of the lowest rank that has one.
    """
    ranks = _ranks_of(comm, call, None)
    try:
        ranks.agree(call, [], problem)
    except BaseException as error:
        marked = ranks._marked(error)
        if marked is error:
            raise
        raise marked from None


def _checked(comm: object) -> MPI.Intracomm:
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise ArgumentTypeError(
            f"Session: comm is not a communicator, got {shown(comm)}, expected one of mpi4py, as MPI.COMM_WORLD"
        )
    framework("Session", "mpi4py")
    if comm == mpi.COMM_NULL:
        raise ArgumentTypeError(
            "Session: comm has no ranks, got MPI.COMM_NULL, expected a communicator with this process"
        )
    if comm.Is_inter():
        raise ArgumentTypeError(
            "Session: comm is between two groups, got an intercommunicator, expected an intracommunicator"
        )
    return comm


def _thread_problem() -> Error | None:
    """Sessions call MPI with the interpreter's other threads alive."""
    mpi = sys.modules["mpi4py.MPI"]
    level = mpi.Query_thread()
    if level >= mpi.THREAD_FUNNELED:
        return None
    return StateError(
        "Session: MPI was started for processes of one thread, got MPI.THREAD_SINGLE, expected MPI.THREAD_FUNNELED "
        "or more: set mpi4py.rc.thread_level before mpi4py.MPI is imported"
    )
