"""Packages of other frameworks, which are optional: imported when a call needs one, and checked for their versions."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from popsr.errors import MissingPackageError

__all__ = ["OLDEST", "framework", "not_installed"]

OLDEST = {"jax": (0, 5, 0), "mpi4py": (4, 1, 0), "onnx": (1, 16, 0), "torch": (2, 6, 0)}
"""The oldest version of each that is read; newer ones are tried."""

_WANTED = {name: ".".join(map(str, release[:2])) for name, release in OLDEST.items()} | {
    "lightning": "2.6",
    "optax": "0.2.4",
    "tensorstore": "0.1.86",
    "transformers": "5.0",
}
_NAMES = {"jax": "JAX", "mpi4py": "mpi4py", "onnx": "ONNX", "torch": "PyTorch"}


def framework(where: str, name: str) -> Any:
    """The package of a framework.

    Args:
        where: the call that needs it, for messages.
        name: one of ``OLDEST``.

    Raises:
        MissingPackageError: it is not installed, or too old.
    """
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise not_installed(where, name) from error
    version = str(package.__version__)
    if _release(version) < OLDEST[name]:
        raise MissingPackageError(
            f"{where}: {_NAMES[name]} is too old, got {name} {version}, expected {_WANTED[name]} or newer"
        )
    return package


def not_installed(where: str, name: str) -> MissingPackageError:
    """The error of a call, or of a module, that needs a package which cannot be imported."""
    return MissingPackageError(
        f"{where}: {_NAMES.get(name, name)} is not installed, expected `pip install '{name}>={_WANTED[name]}'`"
    )


@functools.cache
def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, as ``(1, 16, 0)``."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
