"""Calls that change programs completely or not at all.

An exception in such a call, also Ctrl-C or memory that runs out, leaves every program as it was: ops, constants,
graphs, inputs, outputs, names, and the numbers that come next; the contexts of ``_program.context``; and what popsr
remembers beside the program. The core has an undo log; Python code that changes something of its own tells the Ir
first how that is taken back (``Ir._on_undo``).

A function is decorated when it makes more than one thing, or does anything after it made one: what makes one op or one
output (``_emit.emit``, ``graph_output``) is such a call itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from typing import Any, ParamSpec, TypeVar

from popsr._core import transact
from popsr._program.context import _context
from popsr._program.handles import Program

__all__ = ["current_ir", "keep_attribute", "keep_item", "on_undo", "run", "transactional"]

P = ParamSpec("P")
R = TypeVar("R")
_MISSING = object()
_state = vars(_context)


def transactional(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that makes something in a program: when it raises, it made nothing.

    Calls may be inside such calls; a function that catches the exception of an inner one goes on with the program as
    it was before that.
    """

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        before = _state.copy()
        try:
            return transact(fn, *args, **kwargs)
        except BaseException as error:
            _restore(before)
            if type(error) is MemoryError and not str(error):  # Python's own
                raise MemoryError(f"{_name_of(fn)}: not enough memory, nothing was changed") from None
            raise

    return call


def run(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function as if it was decorated."""
    return transactional(fn)(*args, **kwargs)


def current_ir() -> Program | None:
    """The Ir whose graph is entered, if any."""
    graphs = _context._graphs
    return graphs[-1].ir if graphs else None


def on_undo(ir: Program | None, fn: Callable[..., object], *args: Any) -> None:
    """If the call that is running fails, call ``fn`` then; see ``Ir._on_undo``. Without an Ir nothing can fail."""
    if ir is not None:
        ir._on_undo(fn, *args)


def keep_attribute(ir: Program | None, owner: object, name: str) -> None:
    """If the call that is running fails, let an attribute be what it is now."""
    on_undo(ir, setattr, owner, name, getattr(owner, name))


def keep_item(ir: Program | None, table: MutableMapping[Any, Any], key: object) -> None:
    """If the call that is running fails, let a table have for a key what it has now, or nothing."""
    on_undo(ir, _put_back, table, key, table.get(key, _MISSING))


def _put_back(table: MutableMapping[Any, Any], key: object, value: object) -> None:
    if value is _MISSING:
        table.pop(key, None)
    else:
        table[key] = value


def _restore(before: dict[str, Any]) -> None:
    """Restore the context, also if Ctrl-C is pressed meanwhile."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            _state.update(before)
        except KeyboardInterrupt as error:
            interrupt = error
        else:
            break
    if interrupt is not None:
        raise interrupt


def _name_of(fn: Callable[..., object]) -> str:
    """As errors call it: "variable", "Session", "add"."""
    *above, name = fn.__qualname__.split(".")
    return above[-1] if name == "__init__" else name.strip("_")
