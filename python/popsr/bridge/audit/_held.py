"""A tensor that a rank saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Array", "Held"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor of one rank: its dtype by name, its shape, and a function that maps or reads its bytes."""

    kind: str
    shape: tuple[int, ...]
    read: Callable[[], Array]
    nbytes: int
    itemsize: int
    dtype: np.dtype[Any] | None
