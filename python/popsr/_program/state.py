"""The current graph, name scopes, placement, order and rounding of new ops, as one object.

Functions that change it are in ``context``, as are its types for users: this module knows of graphs and programs what
handles have, so that they can be made with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from popsr._program.building.op_hooks import OpHooks
from popsr._program.handles import GraphHandle, Program
from popsr._support.extensions import member
from popsr._support.host.arguments import read_text
from popsr._support.text.entry_points import describe_calls_by, public
from popsr._support.text.frames import frame_text, user_frame
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, StateError

__all__ = ["ORDERED", "PASS", "UNORDERED", "Context"]

PASS, ORDERED, UNORDERED = 0, 1, 2
"""Values of the core's SequenceMode."""


@public
class Context:
    """State of the functions of this module. All members are values: a copy of its dict restores it."""

    _get_op_settings = member("compat", "Context._get_op_settings")
    _op_created = member("compat", "Context._op_created")

    def __init__(self) -> None:
        self._graphs: tuple[GraphHandle, ...] = ()
        self._name_scopes: tuple[str, ...] = ()
        self._sequence: tuple[int, ...] = (PASS,)
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

    def push_graph(self, g: GraphHandle) -> None:
        """Make ``g`` the current graph.

        Raises:
            StateError: a graph of another Ir is current.
        """
        if not isinstance(g, GraphHandle):
            raise ArgumentTypeError(f"push_graph: g is not a Graph, got {shown(g)}, expected a Graph")
        if self._graphs and self._graphs[-1]._ir is not g._ir:
            raise StateError(
                f"graph: graphs of different Irs are nested, got {shown(g)} inside {shown(self._graphs[-1])}, expected "
                "`with` of one program at a time"
            )
        self._graphs = (*self._graphs, g)

    def pop_graph(self) -> GraphHandle:
        """Return to the graph that was current before."""
        if not self._graphs:
            raise StateError("pop_graph: no graph is entered, expected push_graph before")
        graph = self._graphs[-1]
        self._graphs = self._graphs[:-1]
        return graph

    @property
    def graph(self) -> GraphHandle:
        """The current graph."""
        return self.graph_of("context")

    def graph_of(self, where: str) -> GraphHandle:
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
    def main_graph(self) -> GraphHandle:
        """Main graph of the current Ir."""
        main: GraphHandle = self.ir._graph(0)
        return main

    @property
    def ir(self) -> Program:
        """The current Ir."""
        program: Program = self.graph._ir
        return program

    @property
    def in_sequence(self) -> bool | Literal["pass"]:
        """Mode of the innermost ``in_sequence``; "pass" outside."""
        mode = self._sequence[-1]
        return "pass" if mode == PASS else mode == ORDERED

    def register_op_created_hook(self, fn: Callable[[Any], Any]) -> int:
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
