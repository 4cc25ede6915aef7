"""The processes of MPI that run a program together: a session's part of a communicator of mpi4py.

MPI moves bytes here, between ranks and in order, and nothing else: what ranks compute of each other's values is the
core's, so that the bits are those of one process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

import popsr.errors
from popsr import _core
from popsr._host import message_sizes
from popsr._host.frameworks import framework
from popsr._program import launcher
from popsr._session.rank_program import program_items
from popsr._text.shown import shown
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    Error,
    RankError,
    ReplicaError,
    StateError,
    StoppedError,
)

if TYPE_CHECKING:
    from mpi4py import MPI

    from popsr.ir import Ir

__all__ = ["HasRanks", "Ranks", "collective", "meet", "open_ranks", "together"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
Messages = Sequence[tuple[int, memoryview]]

_TAG = 1
# A rank that waits asks so often before it lets others have its core, for so long at a time in seconds.
_ASKS, _PAUSE = 200, 2e-5


class Ranks:
    """A session's link to the other ranks of its communicator.

    Attributes:
        link: the core's side: it compares calls, and knows whether all ranks were told of an error.
        local: this rank's replicas.
        size: number of ranks.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        """On all ranks at once.

        Args:
            comm: has several ranks; its messages stay apart from the caller's.
        """
        self._mpi = sys.modules["mpi4py.MPI"]
        self._comm = _own(self._mpi, comm)
        self.link = _core.RankLink(comm.rank, comm.size, self._exchange, self._gather)
        self.link.set_message_bytes(message_sizes.MESSAGE_BYTES)
        if message_sizes.CHAINS is not None:
            self.link.set_chains(*message_sizes.CHAINS)
        self.local = range(0)
        self.size: int = comm.size

    def begin(self, ir: Ir, arguments: Mapping[str, object]) -> None:
        """Compare arguments and programs, and take this rank's replicas.

        Raises:
            RankError: ranks differ in one of the arguments or in the program; on all of them.
            ReplicaError: there are more ranks than replicas.
            StateError: MPI was started without support for threads.
        """
        replicas = ir.replication_factor
        problem = _thread_problem(self._mpi)
        self.agree("Session", [("the number of replicas", str(replicas))], problem)
        size = self._comm.size
        if size > replicas:
            raise ReplicaError(
                f"Session: comm has more ranks than there are replicas, got {size} ranks, expected 1 to {replicas}"
            )
        self.agree(
            "Session", [*((name, str(value)) for name, value in arguments.items()), *program_items(ir)]
        )
        self.local = range(*self.link.local_replicas(replicas))

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
        told = None if problem is None else (_kind(problem), str(problem) or type(problem).__name__)
        first = self.link.agree(call, items, told)
        if first is None:
            return None
        rank, kind, error = first
        if problem is not None and rank == self._comm.rank:
            return problem
        if kind:
            found: BaseException = getattr(popsr.errors, kind)(error)
            return found
        return StoppedError(f"{call}: rank {rank} ended it, got {error}, expected no error of a rank")

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """An error inside, on one rank, ends the call that the other ranks are in with the same error."""
        self.link.is_told = False
        try:
            yield
        except BaseException as error:
            self.tell(error)
            raise

    def tell(self, error: BaseException) -> None:
        """Tell the other ranks of an error, unless they know."""
        if self.link.is_told:
            return
        first = self._first_failure("session", [], error)
        # An error of this rank that has stopped the others, as in ``meet``, stays what it is.
        is_stopped = isinstance(first, StoppedError) and not isinstance(error, StoppedError)
        if first is not error and first is not None and not is_stopped:
            raise first from error

    def _exchange(self, sends: Messages, receives: Messages) -> None:
        """Move messages; for the core."""
        byte, comm = self._mpi.BYTE, self._comm
        requests = [comm.Irecv([view, byte], rank, _TAG) for rank, view in receives]
        requests += [comm.Isend([view, byte], rank, _TAG) for rank, view in sends]
        self._wait(requests)

    def _gather(self, mine: memoryview, all_: memoryview) -> None:
        """Collect as many bytes from each rank; for the core."""
        byte = self._mpi.BYTE
        self._wait([self._comm.Iallgather([mine, byte], [all_, byte])])

    def _wait(self, requests: list[MPI.Request]) -> None:
        """Signals are handled meanwhile, and ranks that share a core do not keep each other from it."""
        asked = 0
        while not self._mpi.Request.Testall(requests):
            asked += 1
            if asked > _ASKS:
                time.sleep(_PAUSE)


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
        with ranks.together():
            return function(self, *args, **kwargs)

    return functools.update_wrapper(call, function)


def together(ranks: Ranks | None) -> contextlib.AbstractContextManager[None]:
    """As ``Ranks.together``, if there are other ranks."""
    return contextlib.nullcontext() if ranks is None else ranks.together()


def open_ranks(comm: object, is_distributed: bool) -> Ranks | None:
    """The ranks of a communicator, or of the one that ``POPSR_COMM`` names; None without others.

    Args:
        comm: the communicator, or None.
        is_distributed: the program is for all processes of a launcher: its default are all ranks.
    Raises:
        TypeError: ``comm`` is not a communicator inside one group of processes.
        ValueError: ``POPSR_COMM`` is not "world".
        ImportError: mpi4py is needed and not installed.
    """
    if comm is None:
        comm = _default(is_distributed)
        if comm is None:
            return None
    checked = _checked(comm)
    return None if checked.size == 1 else Ranks(checked)


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
    Ranks(comm).agree(call, [], problem)


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


def _own(mpi: Any, comm: Any) -> Any:
    """A duplicate of a communicator, made once for it: messages of popsr do not meet the caller's."""
    duplicate = comm.Get_attr(_key(mpi))
    if duplicate is None:
        duplicate = comm.Dup()
        comm.Set_attr(_key(mpi), duplicate)
    return duplicate


@functools.cache
def _key(mpi: Any) -> int:
    key: int = mpi.Comm.Create_keyval()
    return key


def _thread_problem(mpi: Any) -> Error | None:
    """Sessions call MPI with the interpreter's other threads alive."""
    level = mpi.Query_thread()
    if level >= mpi.THREAD_FUNNELED:
        return None
    return StateError(
        "Session: MPI was started for processes of one thread, got MPI.THREAD_SINGLE, expected MPI.THREAD_FUNNELED "
        "or more: set mpi4py.rc.thread_level before mpi4py.MPI is imported"
    )


def _kind(error: BaseException) -> str:
    """Name of the class in ``popsr.errors`` that an error is of; "" for others, whose text says it."""
    names = [each.__name__ for each in type(error).__mro__ if each.__module__ == RankError.__module__]
    return names[0] if names else ""
