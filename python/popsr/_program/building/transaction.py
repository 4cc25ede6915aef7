"""Calls that change programs completely or not at all.

An exception in such a call, also Ctrl-C or memory that runs out, leaves every program as it was: ops, constants,
graphs, inputs, outputs, names, and the numbers that come next. The core takes them back, and says which numbers are
gone: ``Ir._rolled_back`` drops what Python keeps by them. The contexts of ``_program.state`` and the settings of the
current program are values: those of before are put back.

A function is decorated when it makes more than one thing, or does anything after it made one: what makes one op or one
output (``building.emit.emit``, ``graph_output``) is such a call itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from popsr._core import transact
from popsr._program.state import _context

__all__ = ["run", "transactional"]

P = ParamSpec("P")
R = TypeVar("R")
_state = vars(_context)


def transactional(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that makes something in a program: when it raises, it made nothing.

    Calls may be inside such calls; a function that catches the exception of an inner one goes on with the program as
    it was before that.
    """

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        before, graphs = _state.copy(), _context._graphs
        ir = graphs[-1]._ir if graphs else None
        settings = () if ir is None else ir._settings()
        try:
            return transact(fn, *args, **kwargs)
        except BaseException as error:
            _state.update(before)
            if ir is not None:
                ir._set_back(settings)
            if type(error) is MemoryError and not str(error):  # Python's own
                raise MemoryError(f"{_name_of(fn)}: not enough memory, nothing was changed") from None
            raise

    return call


def run(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function as if it was decorated."""
    return transactional(fn)(*args, **kwargs)


def _name_of(fn: Callable[..., object]) -> str:
    """As errors call it: "variable", "Session", "add"."""
    *above, name = fn.__qualname__.split(".")
    return above[-1] if name == "__init__" else name.strip("_")
