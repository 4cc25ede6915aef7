"""Versions of the frameworks whose steps are read."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from popsr.errors import MissingPackageError

__all__ = ["OLDEST", "framework"]

OLDEST = {"jax": (0, 8, 0), "onnx": (1, 16, 0), "torch": (2, 13, 0)}
"""The oldest version of each that is read; newer ones are tried."""

_NAMES = {"jax": "JAX", "onnx": "ONNX", "torch": "PyTorch"}


@functools.cache
def framework(where: str, name: str) -> Any:
    """The package of a framework.

    Raises:
        MissingPackageError: it is not installed, or too old.
    """
    oldest = OLDEST[name]
    wanted = ".".join(map(str, oldest[:2]))
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{where}: {_NAMES[name]} is not installed, expected `pip install '{name}>={wanted}'`"
        ) from error
    version = str(package.__version__)
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < oldest:
        raise MissingPackageError(
            f"{where}: {_NAMES[name]} is too old, got {name} {version}, expected {wanted} or newer"
        )
    return package
