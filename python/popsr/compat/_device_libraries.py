"""Shared objects that hold a program's operators for the device: nothing of them can run here.

After ``popsr.compat.install`` ``ctypes`` goes on, with a warning in the log, where such a library cannot be loaded
because it needs libraries of the SDK, or because it was never compiled and a function for an operator is registered;
all other errors stay what they are.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
from typing import Any

from popsr._support.host.arguments import read_path
from popsr._support.text.frames import absolute_path
from popsr._support.text.shown import shown
from popsr.compat._objects.custom_ops import any_entry
from popsr.errors import AttributeAccessError, FileError

__all__ = ["DeviceLibrary", "expect", "load_library", "start", "stop"]

_logger = logging.getLogger("popsr")
_ELF = b"\x7fELF"
# Libraries of the SDK that the loader does not find, or names of their functions and classes.
_SDK = r"(?:popart|popxl|popdist|popef|poplar|poplin|popnn|popops|poprand|popsparse|popsys|poputil|gcl|gcda)"
_NEEDS_SDK = re.compile(
    rf"^lib(?:{_SDK}|poprithms)[\w.-]*: cannot open shared object file|undefined symbol: \w*?\d{_SDK}"
)
_expected: set[str] = set()
_load = ctypes.CDLL.__init__


class DeviceLibrary(ctypes.CDLL):
    """Stands for a shared object that only the device could use; it has no functions."""

    def __init__(self) -> None:
        raise FileError("DeviceLibrary: cannot be constructed, use ctypes.CDLL(path)")

    def __getattr__(self, name: str) -> Any:
        """Refuse a function.

        Raises:
            AttributeAccessError: always.
        """
        raise AttributeAccessError(
            f"ctypes: {shown(self.__dict__.get('_name'))} needs the SDK and is not loaded, got {shown(name)}, expected "
            "popsr.compat.custom_op"
        )

    __getitem__ = __getattr__

    def __repr__(self) -> str:
        return f"<DeviceLibrary {self._name!r}>"


def expect(path: str) -> None:
    """Let ``ctypes`` go on with a path where nothing is, because nothing was compiled."""
    _expected.add(absolute_path(path))


def load_library(path: str | os.PathLike[str]) -> None:
    """Read the shared object of a program's operators, which ``popsr.compat.custom_op`` replaces.

    Nothing of it is loaded. A file that does not exist is accepted: without the SDK it cannot be compiled.

    Args:
        path: the file.
    Raises:
        ArgumentTypeError: not a path.
        FileError: a file that is not a shared object, or cannot be read.
    """
    file = os.fspath(read_path("load_library", path))
    try:
        with open(file, "rb") as opened:
            start = opened.read(len(_ELF))
    except FileNotFoundError:
        _logger.info("load_library: %s does not exist; operators are functions of popsr here", shown(file))
        return
    except OSError as error:
        raise _error(f"load_library: cannot read {shown(file)}: {error.strerror}", error.errno) from None
    if start != _ELF:
        raise _error(
            f"load_library: {shown(file)} is not a shared object, got {shown(start)} at its start, expected ELF",
            errno.ENOEXEC,
        )
    _logger.warning("load_library: %s is not loaded; operators are functions of popsr here", shown(file))


def _error(text: str, number: int | None) -> FileError:
    error = FileError(text)
    error.errno = number
    return error


def _init(self: ctypes.CDLL, *args: Any, **kwargs: Any) -> None:
    """``ctypes.CDLL.__init__`` that goes on with libraries of operators."""
    try:
        _load(self, *args, **kwargs)
    except OSError as error:
        name = args[0] if args else kwargs.get("name")
        is_missing = _is_missing_file(name)
        if not _is_for_device(name, str(error)) and not (is_missing and any_entry()):
            if is_missing:
                error.add_note(
                    "popsr: operators in C++ are functions of popsr ops here; a library that was never compiled is "
                    "passed over once popsr.compat.custom_op registered one"
                )
            raise
        _logger.warning("ctypes: %s is not loaded, as only the device could use it: %s", shown(name), error)
        self._name = str(name)
        self._handle = 0
        self.__class__ = DeviceLibrary


def _is_missing_file(name: Any) -> bool:
    """True for the path, not the bare name, of a shared object where nothing is."""
    text = os.fspath(name) if isinstance(name, (str, os.PathLike)) else ""
    return isinstance(text, str) and os.sep in text and text.endswith(".so") and not os.path.exists(text)


def _is_for_device(name: Any, text: str) -> bool:
    if not isinstance(name, (str, os.PathLike)):
        return False
    path = absolute_path(os.fspath(name))
    if path in _expected:
        return not os.path.exists(path)
    missing = _NEEDS_SDK.search(text)
    return os.path.isfile(path) and missing is not None and not text.startswith(f"{os.path.basename(path)}: ")


def start() -> None:
    """Let ``ctypes`` go on from now on. Twice is once."""
    ctypes.CDLL.__init__ = _init  # type: ignore[method-assign] # the one way that also holds for ctypes.cdll


def stop() -> None:
    """Let ``ctypes`` be as before."""
    if ctypes.CDLL.__init__ is _init:
        ctypes.CDLL.__init__ = _load  # type: ignore[method-assign] # as above
