"""The finder that answers imports of PopXL's packages with popsr's modules.

An alias is the same module object under a second name, so functions and classes are the same too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from popsr import ops
from popsr._program.popxl_modules import POPXL_MODULES
from popsr._support.text.shown import shown
from popsr.compat import _dataclass_defaults, _device_libraries
from popsr.compat._module_paths import MODULE_PATHS, register
from popsr.errors import StateError

__all__ = ["ALIASES", "STAND_INS", "install", "popsr_name", "uninstall"]

# Packages that may be installed for other programs; they are shadowed as long as the aliases are installed.
STAND_INS = frozenset({"cppimport"})
# Package that programs import: the module that they get.
ALIASES: Mapping[str, str] = {
    "cppimport": "popsr.compat.cppimport",
    "popart": "popsr.compat.popart",
    "popdist": "popsr.compat.popdist",
    "popxl": "popsr",
    "popxl_addons": "popsr.addons",
    "stochastorch": "popsr.compat.stochastorch",
}
# Modules that are elsewhere in popsr.
_MODULES = {
    **{f"popxl.{name}": module for name, module in POPXL_MODULES.items()},
    "popxl_addons.fp8_utils": "popsr.fp8_utils",
}


def popsr_name(name: str) -> str | None:
    """Name in popsr of a module: "popsr.ops" of "popxl.ops"; None when it is not an alias."""
    root, dot, rest = name.partition(".")
    if name in _MODULES:
        return _MODULES[name]
    return f"{ALIASES[root]}{dot}{rest}" if root in ALIASES else None


class _Finder(MetaPathFinder, Loader):
    """First in ``sys.meta_path``: popsr's files must not be found a second time below ``popxl``."""

    def __init__(self) -> None:
        self._displaced: dict[str, ModuleType] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of an alias.

        Raises:
            ModuleNotFoundError: popsr lacks what the package is an alias of.
        """
        del path, target
        if name in MODULE_PATHS and name in sys.modules:
            return sys.modules[name].__spec__
        known_as = popsr_name(name)
        found = None if known_as is None else _find(known_as)
        if found is not None:
            is_package = found.submodule_search_locations is not None
            return ModuleSpec(name, self, origin=found.origin, is_package=is_package)
        if name in ALIASES:
            raise ModuleNotFoundError(f"{name}: this version of popsr has no module {known_as}", name=name)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: an empty module as usual, which nobody sees."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Put popsr's module, and what is loaded below it, in the place of the empty one.

        What is loaded below is registered at once because the import system, when it finds ``popxl.ops.cast`` only
        later, would set the attribute ``cast`` of ``popxl.ops``, which is the function, to the module.
        """
        alias = module.__name__
        known_as = popsr_name(alias)
        assert known_as is not None
        sys.modules[alias] = importlib.import_module(known_as)
        for name, home in _MODULES.items():
            if name.startswith(f"{alias}.") and home in sys.modules:
                sys.modules.setdefault(name, sys.modules[home])
        for name, loaded in list(sys.modules.items()):
            if name.startswith(f"{known_as}."):
                sys.modules.setdefault(alias + name.removeprefix(known_as), loaded)
        register(alias)

    def start(self) -> None:
        """Answer imports from now on."""
        dir(ops)  # functions have their names in the package before modules of paths could take them
        self._displaced = _loaded_aliases()
        for name in self._displaced:
            del sys.modules[name]
        sys.meta_path.insert(0, self)
        _device_libraries.start()

    def stop(self) -> None:
        """Forget the aliases and restore what was displaced."""
        sys.meta_path.remove(self)
        _device_libraries.stop()
        if "popsr.compat.cppimport" in sys.modules:
            sys.modules["popsr.compat.cppimport"]._hook.stop()
        for name in _loaded_aliases():
            del sys.modules[name]
        sys.modules.update(self._displaced)


_FINDER = _Finder()


def install(*, force: bool = False) -> None:
    """Let imports of popxl, popxl_addons, popart, popdist, stochastorch and cppimport find popsr.

    Twice is once.

    Fields of dataclasses that are defined from now on may default to instances of other dataclasses, as up to
    Python 3.10: each object gets a copy.

    Args:
        force: also where packages of these names are installed; until :func:`uninstall` they cannot be imported.
    Raises:
        StateError: a package of such a name is installed, and ``force`` is False.
    """
    if _FINDER in sys.meta_path:
        return
    if not force:
        for name in sorted(ALIASES.keys() - STAND_INS):
            _refuse_installed(name)
    _FINDER.start()
    _dataclass_defaults.start()


def uninstall() -> None:
    """Undo :func:`install`; modules that were imported meanwhile keep working."""
    if _FINDER in sys.meta_path:
        _FINDER.stop()
        _dataclass_defaults.stop()


def _refuse_installed(name: str) -> None:
    spec = _find(name)
    if spec is not None and spec.origin is not None:  # None: a folder of that name without code
        raise StateError(
            f"compat.install: a package of that name is installed, got {shown(name)} in {shown(spec.origin)}, "
            "expected none "
            "or force=True"
        )


def _find(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):  # its parent is not a package; a module that was made by hand
        loaded = sys.modules.get(name)
        return None if loaded is None else ModuleSpec(name, None, origin="sys.modules")


def _loaded_aliases() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if popsr_name(name) is not None}
