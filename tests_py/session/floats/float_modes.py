"""Floating-point environments that a caller of popsr may have set."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Iterator

MODES = {"down": 0x2000, "up": 0x4000, "towards zero": 0x6000, "flush to zero": 0x8040}
"""Bits added to the default MXCSR of x86-64."""

AVAILABLE = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"

_DEFAULT = 0x1F80
_EXCEPTIONS = 0x3F  # flags that any operation may raise
_TRAPPED = 0x1D


class _Environment(ctypes.Structure):
    """glibc's fenv_t."""

    _fields_ = [("x87", ctypes.c_uint8 * 28), ("mxcsr", ctypes.c_uint32)]


def _get() -> _Environment:
    environment = _Environment()
    ctypes.CDLL("libm.so.6").fegetenv(ctypes.byref(environment))
    return environment


def mxcsr() -> int:
    """The control bits of this thread."""
    return int(_get().mxcsr) & ~_EXCEPTIONS


@contextlib.contextmanager
def traps() -> Iterator[None]:
    """Invalid operations, divisions by zero, overflow and underflow end the process."""
    libm, saved = ctypes.CDLL("libm.so.6"), _get()
    libm.feenableexcept(_TRAPPED)
    try:
        yield
        assert libm.fegetexcept() == _TRAPPED
    finally:
        libm.fesetenv(ctypes.byref(saved))


@contextlib.contextmanager
def float_mode(name: str) -> Iterator[int]:
    """Set a mode of ``MODES``; gives the control bits."""
    libm, saved, changed = ctypes.CDLL("libm.so.6"), _get(), _get()
    changed.mxcsr = _DEFAULT | MODES[name]
    libm.fesetenv(ctypes.byref(changed))
    try:
        yield int(changed.mxcsr)
    finally:
        libm.fesetenv(ctypes.byref(saved))
