"""Modules that are imported at the first use of one of their names, and modules that show public names only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping

__all__ = ["LazyModule", "lazy_attributes", "names_only"]


class LazyModule:
    """Stands for a module until a name of it is asked for.

    Type checkers, and the test of the arrows between rooms, see the import that stands under ``TYPE_CHECKING`` beside
    it.

    Args:
        name: the module: ``"popsr._program.options.kinds"``.
    """

    __slots__ = ("_module_name",)

    def __init__(self, name: str) -> None:
        """Import nothing."""
        self._module_name = name

    def __getattr__(self, name: str) -> object:
        """A name of the module."""
        return getattr(importlib.import_module(self._module_name), name)


def lazy_attributes(
    package: str,
    modules: Iterable[str] | Mapping[str, str],
    homes: Mapping[str, str],
    otherwise: Callable[[str], object],
) -> Callable[[str], object]:
    """``__getattr__`` of a package: modules of it, and names of modules, that are imported when they are asked for.

    Args:
        package: name of the package.
        modules: names of modules of the package, or of modules anywhere with their paths.
        homes: names of other things, and the modules that have them.
        otherwise: answers for all other names.
    """
    known = modules if isinstance(modules, Mapping) else {name: f"{package}.{name}" for name in modules}

    def get(name: str) -> object:
        if name in known:
            return importlib.import_module(known[name])
        if name not in homes:
            return otherwise(name)
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def names_only(names: list[str]) -> Callable[[], list[str]]:
    """``__dir__`` of a module: these names."""
    return lambda: list(names)
