"""What is current while a program is written: graph, name scopes, order and rounding of new ops.

One global context, as in PopXL: building programs is for one thread. All context managers restore what was before
also when their body raises, and work as decorators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from popsr.errors import ArgumentTypeError, AttributeValueError, StateError
from popsr.utils import is_a

if TYPE_CHECKING:
    from popsr.graph import Graph
    from popsr.ir import Ir

__all__ = [
    "Context",
    "gcg",
    "get_current_context",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "in_sequence",
    "io_tiles",
    "ipu",
    "name_scope",
    "stochastic_rounding",
]

# Values of the core's SequenceMode.
_PASS, _ORDERED, _UNORDERED = 0, 1, 2
_MODES: dict[bool | str, int] = {"pass": _PASS, True: _ORDERED, False: _UNORDERED}


class Context:
    """The stacks behind the functions of this module."""

    def __init__(self) -> None:
        self._graphs: list[Graph] = []
        self._name_scopes: list[str] = []
        self._sequence: list[int] = [_PASS]
        self._sequenced: set[Graph] = set()
        self._stochastic: list[bool] = [True]
        self._ipu_id: int | None = None
        self._io_tile_set = False

    @property
    def ipu_id(self) -> int | None:
        """The device of the enclosing ``ipu`` context; None outside."""
        return self._ipu_id

    @property
    def io_tile_set(self) -> bool:
        """Inside an ``io_tiles`` context?"""
        return self._io_tile_set

    @property
    def name_scopes(self) -> list[str]:
        """Active name scopes, outermost first."""
        return list(self._name_scopes)

    def push_name_scope(self, name: str) -> None:
        """Enter a name scope."""
        self._name_scopes.append(name)

    def pop_name_scope(self) -> str:
        """Leave the innermost name scope."""
        return self._name_scopes.pop()

    def push_graph(self, g: Graph) -> None:
        """Make ``g`` the current graph.

        Raises:
            StateError: a graph of another Ir is current.
        """
        if self._graphs and self._graphs[-1].ir is not g.ir:
            raise StateError(
                f"graph: graphs of different Irs are nested, got {g!r} inside {self._graphs[-1]!r}"
            )
        self._graphs.append(g)

    def pop_graph(self) -> Graph:
        """Return to the graph that was current before."""
        return self._graphs.pop()

    @property
    def graph(self) -> Graph:
        """The current graph."""
        if not self._graphs:
            raise StateError("context: no graph is current, expected a call inside `with graph:`")
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

    def scoped(self, name: str) -> str:
        """``name`` below the active name scopes."""
        return "/".join([*self._name_scopes, name]) if self._name_scopes else name

    def clear_sequence(self) -> None:
        """Forget the recorded order of all graphs."""
        for graph in self._sequenced:
            graph.ir._core.clear_sequence(graph._id)
        self._sequenced.clear()


_context = Context()


def get_current_context() -> Context:
    """The context object."""
    return _context


def get_current_graph() -> Graph:
    """The graph that is entered; RuntimeError when none is. Short: ``gcg``."""
    return _context.graph


def get_main_graph() -> Graph:
    """Main graph of the Ir whose graph is entered. Short: ``gmg``."""
    return _context.main_graph


def get_ir() -> Ir:
    """The Ir whose graph is entered. Short: ``gir``."""
    return _context.ir


gcg = get_current_graph
gmg = get_main_graph
gir = get_ir


@contextlib.contextmanager
def in_sequence(mode: bool | Literal["pass"] = True) -> Iterator[None]:
    """Fix the order of the ops made inside.

    Args:
        mode: True: each op follows the ones before it. False: ops follow the last op of mode True only.
            "pass": no constraint.
    """
    if mode is None:
        raise ArgumentTypeError("in_sequence: mode is None, expected True, False or 'pass'")
    if not is_a(mode, (bool, str)) or mode not in _MODES:
        raise AttributeValueError(f"in_sequence: unknown mode, got {mode!r}, expected True, False or 'pass'")
    if mode == "pass":
        _context.clear_sequence()
    _context._sequence.append(_MODES[mode])
    try:
        yield
    finally:
        _context._sequence.pop()
        if len(_context._sequence) == 1:
            _context.clear_sequence()


@contextlib.contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Prefix the names of tensors made inside with ``name/``."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name_scope: name is not a str, got {name!r}")
    _context.push_name_scope(name)
    try:
        yield
    finally:
        _context.pop_name_scope()


@contextlib.contextmanager
def stochastic_rounding(enabled: bool) -> Iterator[None]:
    """Whether ops made inside take part in stochastic rounding when it is on for the Ir."""
    if not isinstance(enabled, bool):
        raise ArgumentTypeError(f"stochastic_rounding: enabled is not a bool, got {enabled!r}")
    _context._stochastic.append(enabled)
    try:
        yield
    finally:
        _context._stochastic.pop()


@contextlib.contextmanager
def ipu(ipu: int) -> Iterator[None]:
    """Accepted for PopXL programs: the simulator has one device a replica."""
    before, _context._ipu_id = _context._ipu_id, ipu
    try:
        yield
    finally:
        _context._ipu_id = before


@contextlib.contextmanager
def io_tiles() -> Iterator[None]:
    """Accepted for PopXL programs: the simulator has no tiles."""
    before, _context._io_tile_set = _context._io_tile_set, True
    try:
        yield
    finally:
        _context._io_tile_set = before
