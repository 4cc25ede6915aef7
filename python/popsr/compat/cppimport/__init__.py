"""The names of the package ``cppimport`` that programs with operators in C++ use; nothing is compiled.

Such a program imports a C++ file that stands beside its modules and binds an operator for the device. Here the import
answers a module whose ``createOpInGraph`` makes the operator that ``popsr.compat.custom_op`` registered.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from popsr._support.host.arguments import read_flag, read_path, read_text
from popsr._support.text.shown import shown
from popsr.compat import _device_libraries
from popsr.compat.cppimport import _hook
from popsr.errors import FileError

__all__ = [
    "build",
    "build_all",
    "build_filepath",
    "force_rebuild",
    "imp",
    "imp_from_filepath",
    "set_quiet",
    "settings",
]

settings: dict[str, Any] = {
    "file_exts": list(_hook.SUFFIXES),
    "force_rebuild": False,
    "release_mode": False,
    "rtld_flags": 0,
    "use_filelock": True,
}
"""As of the package; nothing here reads them."""


def imp(fullname: str, opt_in: bool = False) -> ModuleType:
    """Import the module of a C++ file.

    Args:
        fullname: name of the module, with packages: its file is on ``sys.path``.
        opt_in: only of files whose first line says ``cppimport``.
    Raises:
        ModuleNotFoundError: there is no such file.
        MissingPackageError: it does not bind an operator of PopART.
    """
    name = read_text("cppimport.imp: fullname", fullname)
    parent, _, stem = name.rpartition(".")
    paths = importlib.import_module(parent).__path__ if parent else sys.path
    file = _hook.find_file(stem, paths, must_opt_in=read_flag("cppimport.imp: opt_in", opt_in))
    if file is None:
        raise ModuleNotFoundError(
            f"cppimport.imp: no file of C++ of that name, got {shown(name)}, "
            "expected a .cpp file beside the modules of sys.path",
            name=name,
        )
    return _load(file, name)


def imp_from_filepath(filepath: str | os.PathLike[str], fullname: str | None = None) -> ModuleType:
    """Import the module of a C++ file by its path.

    Args:
        filepath: the file.
        fullname: name of the module. Default: the file's.
    Raises:
        FileError: there is no such file.
        MissingPackageError: it does not bind an operator of PopART.
    """
    path = _read_file("cppimport.imp_from_filepath", filepath)
    stem = os.path.splitext(os.path.basename(path))[0]
    return _load(path, stem if fullname is None else read_text("cppimport: fullname", fullname))


def build_filepath(filepath: str | os.PathLike[str], fullname: str | None = None) -> str:
    """Path where the package would put the compiled module; nothing is there.

    ``popart.load_library`` and, after ``popsr.compat.install``, ``ctypes`` accept it.

    Args:
        filepath: a file that binds an operator of PopART.
        fullname: name of the module. Default: the file's.
    Raises:
        FileError: there is no such file.
        MissingPackageError: it does not bind an operator of PopART.
    """
    path = _read_file("cppimport.build_filepath", filepath)
    imp_from_filepath(path, fullname)
    library = f"{os.path.splitext(path)[0]}{_hook.library_suffix()}"
    _device_libraries.expect(library)
    return library


def build(fullname: str) -> str:
    """``build_filepath`` of a module's name; errors as of ``imp``."""
    return build_filepath(str(imp(fullname).__file__))


def build_all(root_directory: str | os.PathLike[str]) -> None:
    """Do nothing with the C++ files of a folder: nothing is compiled."""
    read_path("cppimport.build_all", root_directory)


def force_rebuild(to: bool = True) -> None:
    """Read a flag: nothing is compiled."""
    settings["force_rebuild"] = read_flag("cppimport.force_rebuild: to", to)


def set_quiet(is_quiet: bool) -> None:
    """Read a flag: nothing is written."""
    read_flag("cppimport.set_quiet: is_quiet", is_quiet)


def _read_file(where: str, filepath: str | os.PathLike[str]) -> str:
    path = os.path.abspath(read_path(where, filepath))
    if not os.path.isfile(path):
        raise FileError(f"{where}: no such file, got {shown(path)}, expected a file of C++")
    return path


def _load(file: str, name: str) -> ModuleType:
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == file:
        return loaded
    module = importlib.util.module_from_spec(_hook.spec_of(name, file))
    assert module.__spec__ is not None
    loader = module.__spec__.loader
    assert loader is not None
    loader.exec_module(module)
    sys.modules[name] = module
    return module
