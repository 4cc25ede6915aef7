"""Handles: objects that stand for tensors, graphs, ops, streams and remote buffers of an Ir."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Protocol, Self, SupportsIndex

from popsr import _core
from popsr._program.building.op_hooks import OpHooks
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError
from popsr.replicas import ReplicaGrouping

__all__ = [
    "GraphHandle",
    "Handle",
    "Program",
    "Undone",
    "is_retired",
    "refuse_copy",
    "refuse_pickle",
    "refuse_undone",
    "retire",
]


class Program(Protocol):
    """An Ir, as far as the modules that it is made of need one."""

    _core: _core.Ir
    _locations: dict[tuple[str, int], int]
    _modules: dict[str, str]
    _op_hooks: dict[int, OpHooks]
    _remote_cache: dict[int, Any]
    _residents: dict[tuple[int, int], Any]
    _shard_over: dict[int, int]
    _stream_cache: dict[int, Any]
    _tensor_cache: dict[int, Any]

    @property
    def id(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    def replica_grouping(self) -> ReplicaGrouping: ...

    def _op(self, id_: int, /) -> Any: ...

    def _graph(self, id_: int, /) -> Any: ...

    def _tensor(self, id_: int, /) -> Any: ...

    def _settings(self) -> tuple[Any, ...]: ...

    def _set_back(self, settings: tuple[Any, ...], /) -> None: ...


@public
class Handle:
    """Something of an Ir, or the Ir itself.

    Handles are identities: a shallow copy of one is itself. Deep copies and pickles are refused, as a program is not a
    value; a deep copy of a tree has the same tensors.

    What a failed call made is retired, see ``retire``: its handles have no program any more, and say so wherever they
    are asked for it.
    """

    __slots__ = ()

    _known: ClassVar[tuple[str, ...]] = ("_program",)
    """Attributes that retired ones lack."""

    _program: Any
    _was: str  # of retired ones: their text

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        refuse_copy(self, "itself, which lists and trees may share, or a call of the code that makes another")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_pickle(self)

    @property
    def _ir(self) -> Any:
        """The program."""
        try:
            return self._program
        except AttributeError:
            return refuse_undone(self)

    def _live(self) -> Self:
        """The handle, if it is of something that is in the program."""
        return refuse_undone(self) if is_retired(self) else self

    def _text(self) -> str:
        """The text of one that is in the program."""
        return f"{type(self).__name__}[{getattr(self, '_name', '')}]"

    def __repr__(self) -> str:
        return self._was if is_retired(self) else self._text()


class GraphHandle(Handle):
    """A graph: contexts enter it, ops are appended to it."""

    _id: int
    _ir: Program

    @property
    def _op_hooks(self) -> OpHooks:
        """Functions that are called with ops of the graph."""
        hooks: OpHooks = self._ir._op_hooks.get(self._id, _NO_HOOKS)
        return hooks


_NO_HOOKS = OpHooks()


def refuse_pickle(value: object) -> NoReturn:
    """The error of whoever pickles a program, something of it, or a session."""
    raise ArgumentTypeError(
        f"pickle: programs and sessions are not values, got {shown(value)}, expected the Python code that makes the "
        "program, and the variables in a file of popsr.io.save_safetensors"
    )


def refuse_copy(value: object, instead: str = "a call of the code that makes it") -> NoReturn:
    """The error of whoever copies a program, something of it, or a session."""
    raise ArgumentTypeError(
        f"copy: programs and sessions are not values, got {shown(value)}, expected {instead}"
    )


def refuse_undone(handle: Handle) -> NoReturn:
    """The error of whoever uses what a failed call made."""
    text = repr(handle)
    raise GraphError(
        f"{text}: it is not in the program, got something that a failed call had made, expected "
        "something that a call returned"
    )


def retire(handle: Handle) -> None:
    """Let uses of a handle be GraphErrors: what it stands for is not in the program any more.

    Nothing is left that it could be used with. May be called again, as after Ctrl-C in between.
    """
    if not is_retired(handle):
        handle._was = Handle._text(handle)  # type: ignore[misc] # a slot of the classes that have slots
    for name in handle._known:
        if hasattr(handle, name):
            delattr(handle, name)


def is_retired(handle: Handle) -> bool:
    """True for a handle whose uses are errors: a call that failed had made what it stands for."""
    return hasattr(handle, "_was")


class Undone:
    """Ops that failed calls had made: their numbers are given again, to others.

    A view of an op remembers how many such calls there had been when it was made. It is the op's as long as none of
    those after that had made an op of its number.
    """

    __slots__ = ("_first", "calls")

    def __init__(self) -> None:
        """No call failed yet."""
        self.calls = 0
        self._first: list[
            tuple[int, int]
        ] = []  # (call, its first op), without those that a later call covers

    def add(self, first: int) -> None:
        """A call failed whose ops were those from ``first`` on."""
        while self._first and self._first[-1][1] >= first:
            self._first.pop()
        self._first.append((self.calls, first))
        self.calls += 1

    def covers(self, op: int, calls: int) -> bool:
        """True if one of the calls but the first ``calls`` had made that op."""
        return any(call >= calls and first <= op for call, first in reversed(self._first))
