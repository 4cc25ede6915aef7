"""The current graph, name scopes, placement, order and rounding of new ops.

One global context, as in PopXL: building programs is for one thread. All context managers restore what was before
also when their body raises, and work as decorators.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from popsr._program.building.op_hooks import OpHooks
from popsr._program.handles import GraphHandle
from popsr._support.extensions import member
from popsr._support.host.arguments import read_choice, read_int, read_ipu, read_text
from popsr._support.text.entry_points import describe_calls_by, public, public_call
from popsr._support.text.frames import frame_text, user_frame
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, StateError

if TYPE_CHECKING:
    from popsr._program.graph import Graph
    from popsr._program.ir import Ir
    from popsr._program.op import Op

__all__ = [
    "Context",
    "Fn",
    "Setting",
    "debug_context_frame_offset",
    "gcg",
    "get_current_context",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "get_source_location",
    "gir",
    "gmg",
    "in_sequence",
    "io_tiles",
    "ipu",
    "location",
    "name_scope",
    "op_debug_context",
    "stochastic_rounding",
]

Fn = TypeVar("Fn", bound=Callable[..., Any])

# Values of the core's SequenceMode.
_PASS, _ORDERED, _UNORDERED = 0, 1, 2
_MAX_FRAMES = 2**31 - 1
_MODES: dict[bool | str, int] = {"pass": _PASS, True: _ORDERED, False: _UNORDERED}


@public
class Context:
    """State of the functions of this module. All members are values: a copy of its dict restores it."""

    _get_op_settings = member("compat", "Context._get_op_settings")
    _op_created = member("compat", "Context._op_created")

    def __init__(self) -> None:
        self._graphs: tuple[Graph, ...] = ()
        self._name_scopes: tuple[str, ...] = ()
        self._sequence: tuple[int, ...] = (_PASS,)
        self._sequenced: frozenset[GraphHandle] = frozenset()
        self._stochastic: tuple[bool, ...] = (True,)
        self._ipu_id: int | None = None
        self._io_tile_set = False
        self._derivative = False
        self._op_hooks = OpHooks()
        self._frame_offset = 0
        self._location: tuple[str, int] | None = None
        self._debug_names: tuple[str, ...] = ()

    @property
    def ipu_id(self) -> int | None:
        """The device of the enclosing ``ipu`` context; None outside."""
        return self._ipu_id

    @property
    def io_tile_set(self) -> bool:
        """True inside an ``io_tiles`` context."""
        return self._io_tile_set

    @property
    def name_scopes(self) -> list[str]:
        """Active name scopes, outermost first."""
        return list(self._name_scopes)

    def push_name_scope(self, name: str) -> None:
        """Enter a name scope."""
        self._name_scopes = (*self._name_scopes, read_text("push_name_scope: name", name))

    def pop_name_scope(self) -> str:
        """Leave the innermost name scope."""
        if not self._name_scopes:
            raise StateError("pop_name_scope: no name scope is entered, expected push_name_scope before")
        name = self._name_scopes[-1]
        self._name_scopes = self._name_scopes[:-1]
        return name

    def push_graph(self, g: Graph) -> None:
        """Make ``g`` the current graph.

        Raises:
            StateError: a graph of another Ir is current.
        """
        if not isinstance(g, GraphHandle):
            raise ArgumentTypeError(f"push_graph: g is not a Graph, got {shown(g)}, expected a Graph")
        if self._graphs and self._graphs[-1].ir is not g.ir:
            raise StateError(
                f"graph: graphs of different Irs are nested, got {shown(g)} inside {shown(self._graphs[-1])}, expected "
                "`with` of one program at a time"
            )
        self._graphs = (*self._graphs, g)

    def pop_graph(self) -> Graph:
        """Return to the graph that was current before."""
        if not self._graphs:
            raise StateError("pop_graph: no graph is entered, expected push_graph before")
        graph = self._graphs[-1]
        self._graphs = self._graphs[:-1]
        return graph

    @property
    def graph(self) -> Graph:
        """The current graph."""
        return self.graph_of("context")

    def graph_of(self, where: str) -> Graph:
        """The current graph, for a call that needs one.

        Args:
            where: the call, for the message.
        Raises:
            StateError: no graph is entered.
        """
        if not self._graphs:
            error = StateError(f"{where}: no graph is current, expected a call inside `with ir.main_graph:`")
            error.add_note(f"at {self._location_text()}")
            raise error
        return self._graphs[-1]

    @property
    def main_graph(self) -> Graph:
        """Main graph of the current Ir."""
        return self.graph.ir.main_graph

    @property
    def ir(self) -> Ir:
        """The current Ir."""
        return self.graph.ir

    @property
    def in_sequence(self) -> bool | Literal["pass"]:
        """Mode of the innermost ``in_sequence``; "pass" outside."""
        mode = self._sequence[-1]
        return "pass" if mode == _PASS else mode == _ORDERED

    def register_op_created_hook(self, fn: Callable[[Op], Any]) -> int:
        """Call ``fn`` with each op that a program makes from now on, in any graph; returns a handle.

        Not with what transforms add.

        Raises:
            TypeError: ``fn`` cannot be called.
        """
        self._op_hooks, handle = self._op_hooks.register(fn)
        return handle

    def remove_op_created_hook(self, handle: int) -> None:
        """Remove a hook of the context.

        Raises:
            ValueError: the handle is unknown.
        """
        self._op_hooks = self._op_hooks.remove(handle)

    def _location_text(self) -> str:
        """The location of ops that are made now, for messages."""
        if self._location is None:
            return frame_text(user_frame(self._frame_offset))
        file, line = self._location
        return f"{file}:{line}"

    def scoped(self, name: str) -> str:
        """``name`` below the active name scopes."""
        return "/".join([*self._name_scopes, name]) if self._name_scopes else name

    def _set(self, name: str, value: Any) -> Callable[[], None]:
        """Set an attribute; returns what sets it back."""
        undo = functools.partial(setattr, self, name, getattr(self, name))
        setattr(self, name, value)
        return undo

    def clear_sequence(self) -> None:
        """Forget the recorded order of all graphs."""
        for graph in self._sequenced:
            graph._ir._core.clear_sequence(graph._id)
        self._sequenced = frozenset()


_context = Context()
describe_calls_by(_context._location_text)


@public
def get_current_context() -> Context:
    """The context object."""
    return _context


@public_call
def get_current_graph() -> Graph:
    """The graph that is entered; RuntimeError when none is. Short: ``gcg``."""
    return _context.graph_of("get_current_graph")


@public_call
def get_main_graph() -> Graph:
    """Main graph of the Ir whose graph is entered. Short: ``gmg``."""
    return _context.graph_of("get_main_graph").main_graph


@public_call
def get_ir() -> Ir:
    """The Ir whose graph is entered. Short: ``gir``."""
    return _context.graph_of("get_ir").ir


gcg = get_current_graph
gmg = get_main_graph
gir = get_ir


@public
class Setting(contextlib.ContextDecorator):
    """A context manager, also a decorator, that changes the context and takes that back.

    Nothing but leaving it takes it back: one that an exception left behind does nothing when it is freed, so that it
    does not disturb a context that was restored meanwhile.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        """``change`` returns what takes the change back."""
        self._change = change
        self._entered: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        self._entered.append(self._change())

    def __exit__(self, *exc: object) -> None:
        self._entered.pop()()


@public_call
def in_sequence(mode: bool | Literal["pass"] = True) -> Setting:
    """Fix the order of the ops made inside.

    Args:
        mode: True: each op follows the ones before it. False: ops follow the last op of mode True only.
            "pass": no constraint.
    """

    def change() -> Callable[[], None]:
        if mode is None:
            raise ArgumentTypeError("in_sequence: mode is None, expected True, False or 'pass'")
        read = read_choice("in_sequence", "mode", mode, (True, False, "pass"))
        if read == "pass":
            _context.clear_sequence()
        before = _context._set("_sequence", (*_context._sequence, _MODES[read]))
        return functools.partial(leave, before)

    def leave(restore: Callable[[], None]) -> None:
        restore()
        if len(_context._sequence) == 1:
            _context.clear_sequence()

    return Setting(change)


@public_call
def name_scope(name: str) -> Setting:
    """Prefix the names of tensors made inside with ``name/``."""

    def change() -> Callable[[], object]:
        return _context._set("_name_scopes", (*_context._name_scopes, read_text("name_scope: name", name)))

    return Setting(change)


@public_call
def stochastic_rounding(enabled: bool) -> Setting:
    """Let ops made inside take part in stochastic rounding, or not, when it is on for the Ir."""

    def change() -> Callable[[], object]:
        if not isinstance(enabled, bool):
            raise ArgumentTypeError(f"stochastic_rounding: enabled is not a bool, got {shown(enabled)}")
        return _context._set("_stochastic", (*_context._stochastic, enabled))

    return Setting(change)


@public_call
def ipu(ipu: int | None) -> Setting:
    """Place the ops made inside, and their results, on a device of the replica.

    Places are recorded and checked: ops take inputs that are on one device, ``ops.ipu_copy`` moves a tensor to another.
    Here one memory holds all devices, so no value depends on them.

    Args:
        ipu: number of the device. Outside it is 0, and with None, which ``Context.ipu_id`` is there.
    Raises:
        TypeError: it is neither None nor an int.
        ValueError: it is negative.
    """
    return Setting(lambda: _context._set("_ipu_id", None if ipu is None else read_ipu("ipu", "ipu", ipu)))


@public_call
def io_tiles() -> Setting:
    """Place the ops made inside, and their results, on io tiles; ``ops.io_tile_copy`` moves a tensor.

    As with ``ipu``, no value depends on it.
    """
    return Setting(lambda: _context._set("_io_tile_set", True))


@public_call
def location(file: str, line: int) -> Setting:
    """Let ops made inside have that location instead of the line that makes them. An addition of popsr.

    For what reads programs of other frameworks: errors, lints, explanations and printed graphs name the line of the
    user's model. The innermost counts; frame offsets do not move it.

    Args:
        file: the file, as locations show it.
        line: the line in it, from 1.
    Raises:
        TypeError: ``file`` is not a str, or ``line`` is not an int.
        ValueError: ``file`` is empty, or ``line`` is less than 1.
    """

    def change() -> Callable[[], object]:
        place = read_text("location: file", file), read_int("location: line", line, 1, _MAX_FRAMES)
        if not file:
            raise AttributeValueError("location: file is empty, got '', expected a path")
        return _context._set("_location", place)

    return Setting(change)


@public
def debug_context_frame_offset(i: int) -> Setting:
    """Let ops made inside say that callers further out made them.

    For functions that make ops for others: with 1 the location of an op is the line that calls the function. Nested
    offsets add up. As decorator it counts from the decorated function.

    Args:
        i: how many functions of the program to leave out.
    Raises:
        TypeError: it is not an int.
        ValueError: it is negative.
    """

    def change() -> Callable[[], object]:
        offset = read_int("debug_context_frame_offset: i", i, 0, _MAX_FRAMES)
        return _context._set("_frame_offset", _context._frame_offset + offset)

    return Setting(change)


@public
def get_source_location(offset: int) -> str:
    """``file:line`` of the program, as ops that are made here have it.

    Args:
        offset: how many functions of the program to leave out; 0 is the line of this call.
    Returns:
        The location; the outermost function's where there are fewer.
    Raises:
        TypeError: ``offset`` is not an int.
        ValueError: it is negative.
    """
    with debug_context_frame_offset(read_int("get_source_location: offset", offset, 0, _MAX_FRAMES)):
        return _context._location_text()


@overload
def op_debug_context(name: str) -> Callable[[Fn], Fn]: ...
@overload
def op_debug_context(name: Fn) -> Fn: ...
@public
def op_debug_context(name: Any) -> Any:
    """Decorate a function that makes ops: they have the location of its caller, and errors name it.

    Args:
        name: the name, ``@op_debug_context("name")``; or the function itself, which has one: ``@op_debug_context``.
    Raises:
        TypeError: ``name`` is neither.
    """
    if callable(name):
        return _debugged(name, getattr(name, "__name__", type(name).__name__))
    if not isinstance(name, str):
        raise ArgumentTypeError(f"op_debug_context: name is not a str or function, got {shown(name)}")
    return functools.partial(_debugged, name=name)


def _debugged(fn: Fn, name: str) -> Fn:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        restore = _context._set("_debug_names", (*_context._debug_names, name))
        try:
            with debug_context_frame_offset(1):
                return fn(*args, **kwargs)
        finally:
            restore()

    return call  # type: ignore[return-value]
