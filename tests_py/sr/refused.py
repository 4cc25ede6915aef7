"""Arrays and checks for refused calls of popsr.sr."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import errors, sr

__all__ = ["ARGUMENT", "DTYPE", "F32", "KEY", "SHAPE", "VALUE", "N", "frozen", "sevens"]

KEY = sr.Key(1)
N = 6
F32 = np.ones(N, np.float32)
ARGUMENT, VALUE, DTYPE, SHAPE = (
    errors.ArgumentTypeError,
    errors.AttributeValueError,
    errors.DTypeError,
    errors.ShapeError,
)


def sevens() -> np.ndarray[Any, Any]:
    """An array that a refused call must leave alone."""
    return np.full(N, 7.0, np.float32)


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Read-only from now on."""
    array.flags.writeable = False
    return array
