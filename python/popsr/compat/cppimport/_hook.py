"""The finder of C++ files beside modules, and the modules that it answers."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from popsr._support.text.frames import absolute_path
from popsr._support.text.shown import shown
from popsr.compat.cppimport._bindings import Binding, read_binding
from popsr.errors import MissingPackageError

__all__ = ["SUFFIXES", "find_file", "library_suffix", "spec_of", "start", "stop"]

SUFFIXES = (".cpp", ".c")


class _Finder(MetaPathFinder):
    """Last in ``sys.meta_path``: modules of Python and extensions go first."""

    def find_spec(
        self, name: str, path: Iterable[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """The spec of a C++ file that opts in."""
        del target
        file = find_file(name.rpartition(".")[2], sys.path if path is None else path, must_opt_in=True)
        return None if file is None else spec_of(name, file)


class _Loader(Loader):
    """Makes the module of a C++ file."""

    def __init__(self, name: str, file: str) -> None:
        """``file``: the file; it must bind an operator of PopART."""
        self._binding: Binding | None = read_binding(file)
        if self._binding is None:
            raise MissingPackageError(
                f"cppimport: {shown(file)} does not bind an operator of PopART, got C++ that has to be compiled for "
                f"{shown(name)}, expected a file with PYBIND11_MODULE and popart::OperatorIdentifier"
            )

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: an empty module as usual."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names that the file binds."""
        assert self._binding is not None
        self._binding.fill(module)


_FINDER = _Finder()


def find_file(stem: str, paths: Iterable[str], *, must_opt_in: bool) -> str | None:
    """The first C++ file of that name in some folders.

    Args:
        stem: the name without its ending.
        paths: the folders.
        must_opt_in: leave out files whose first line does not say ``cppimport``.
    """
    for folder in paths:
        for suffix in SUFFIXES:
            file = os.path.join(absolute_path(folder or "."), stem + suffix)
            if os.path.isfile(file) and (not must_opt_in or _opts_in(file)):
                return file
    return None


def _opts_in(file: str) -> bool:
    try:
        with open(file, "rb") as opened:
            return b"cppimport" in opened.readline(1000)
    except OSError:
        return False


def spec_of(name: str, file: str) -> ModuleSpec:
    """The spec of the module of a C++ file.

    Raises:
        MissingPackageError: it does not bind an operator of PopART.
        FileError: it cannot be read.
    """
    spec = ModuleSpec(name, _Loader(name, file), origin=file)
    spec.has_location = True
    return spec


def library_suffix() -> str:
    """Ending of the names of compiled modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def start() -> None:
    """Answer imports from now on. Twice is once."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)


def stop() -> None:
    """Answer none until ``cppimport.import_hook`` is imported again; modules that were imported keep working."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    sys.modules.pop("popsr.compat.cppimport.import_hook", None)
    package = sys.modules.get("popsr.compat.cppimport")
    vars(package).pop("import_hook", None) if package is not None else None
