"""The ops: one function each, in files by family. Most append one op to the current graph and return its output.

The definition of an op, with its kernel and gradient, is in the file of the same family in ``cpp/popsr/ops``.

A family's ``__all__`` lists its functions; this package exports them all, and imports them at the first use of one.
Examples need ``import numpy as np``, ``import popsr``, ``from popsr import ops`` and ``from popsr.testing import
evaluate``, which runs an op on arrays.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING

from popsr._support.text.entry_points import public as _public
from popsr._support.text.suggestions import unknown_attribute as _unknown_attribute

if TYPE_CHECKING:
    from popsr.ops._all import *
else:

    @_public
    def __getattr__(name: str) -> object:
        """Import all ops, which are attributes of this package from then on."""
        if name == "__all__" or not name.startswith("_"):
            ops = vars(_importlib.import_module("popsr.ops._all"))
            names = ops.get("__all__", ())  # none while they are imported
            globals().update({each: ops[each] for each in ("__all__", *names) if names})
            if name in globals():
                return globals()[name]
        return _unknown_attribute(__name__, globals().get("__all__", ()))(name)

    def __dir__() -> list[str]:
        return list(__getattr__("__all__"))
