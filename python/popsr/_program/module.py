"""Graphs written as classes."""

from __future__ import annotations

from typing import Any

from popsr._program.building.built import Built, P, R_co
from popsr._program.building.transaction import transactional
from popsr._support.text.entry_points import public
from popsr.errors import UnsupportedError

__all__ = ["Module"]


@public
class Module:
    """A function with state that ``Ir.create_graph`` accepts: subclasses define ``build``."""

    @transactional
    def __call__(self: Built[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The same as ``build``."""
        return self.build(*args, **kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Make the ops of the module in the current graph and return its outputs."""
        del args, kwargs
        raise UnsupportedError(f"{type(self).__qualname__} does not define build()")
