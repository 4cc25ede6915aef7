"""Modules that are imported at the first use of one of their names."""

from __future__ import annotations

import importlib

__all__ = ["LazyModule"]


class LazyModule:
    """Stands for a module until a name of it is asked for.

    Type checkers, and the test of the arrows between rooms, see the import that stands under ``TYPE_CHECKING`` beside
    it.

    Args:
        name: the module: ``"popsr._options.kinds"``.
    """

    __slots__ = ("_module_name",)

    def __init__(self, name: str) -> None:
        """Import nothing."""
        self._module_name = name

    def __getattr__(self, name: str) -> object:
        """A name of the module."""
        return getattr(importlib.import_module(self._module_name), name)
