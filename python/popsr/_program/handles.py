"""Handles: objects that stand for tensors, graphs, ops, streams and remote buffers of an Ir."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, SupportsIndex

from popsr import _core
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError

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
    _remote_cache: dict[int, Any]
    _residents: dict[tuple[int, int], Any]
    _shard_over: dict[int, int]

    @property
    def id(self) -> int: ...

    def _graph(self, id_: int, /) -> Any: ...

    def _tensor(self, id_: int, /) -> Any: ...

    def _on_undo(self, fn: Callable[..., object], /, *args: Any) -> None: ...


@public
class Handle:
    """Something of an Ir, or the Ir itself.

    Handles are identities: a copy of one is itself. They cannot be pickled, as a program is not a value.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_pickle(self)

    if TYPE_CHECKING:

        @property
        def _ir(self) -> Any: ...


class GraphHandle(Handle):
    """A graph: contexts enter it, ops are appended to it."""

    _ir: Any
    _id: int
    _op_hooks: Any


def refuse_pickle(value: object) -> NoReturn:
    """The error of whoever pickles a program, something of it, or a session."""
    raise ArgumentTypeError(
        f"pickle: programs and sessions are not values, got {shown(value)}, expected the Python code that makes the "
        "program, and the variables in a file of popsr.io.save_safetensors"
    )


def refuse_copy(value: object) -> NoReturn:
    """The error of whoever copies a program or a session."""
    raise ArgumentTypeError(
        f"copy: programs and sessions are not values, got {shown(value)}, expected a call of the code that makes it"
    )


def refuse_undone(text: str) -> NoReturn:
    """The error of whoever uses what a failed call made."""
    raise GraphError(
        f"{text}: it is not in the program, got something that a failed call had made, expected something that a call "
        "returned"
    )


def retire(handle: Handle) -> None:
    """Let each use of a handle be a GraphError: what it stands for is not in the program any more."""
    if not is_retired(handle):
        handle.__class__ = _retired(type(handle))  # type: ignore[arg-type] # classes can be hashed


def is_retired(handle: Handle) -> bool:
    """True if its uses are errors."""
    return "_retired" in type(handle).__dict__


@functools.cache
def _retired(kind: Any) -> Any:
    """The class of retired handles of a class: of the same layout."""
    members = {
        "__slots__": (),
        "__module__": kind.__module__,
        "__doc__": f"A {kind.__name__} that a failed call made.",
        "__getattribute__": _refuse,
        "__hash__": _hash if kind.__hash__ is not object.__hash__ else object.__hash__,
        "__repr__": _text,
        "__str__": _text,
        "_retired": True,
    }
    return type(kind)(kind.__name__, (kind,), members)


def _refuse(self: Handle, name: str) -> Any:
    if name.startswith("__"):
        return object.__getattribute__(self, name)
    return refuse_undone(_text(self))


def _text(self: Handle) -> str:
    try:
        name = object.__getattribute__(self, "_name")
    except AttributeError:
        name = ""
    return f"{type(self).__name__}[{name}]"


def _hash(self: Handle) -> int:
    """As before: it may be a key."""
    return hash((object.__getattribute__(self, "_ir").id, object.__getattribute__(self, "_id")))


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
