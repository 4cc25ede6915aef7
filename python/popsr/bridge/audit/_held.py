"""A tensor that a rank saved, and all that a file of it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Array", "Contents", "Held", "add_counts"]

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


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a file.

    Attributes:
        tensors: by name.
        left_out: how many objects are not compared, by the names of their classes.
        notes: data that a file has and that cannot be compared.
        value: of a file of ``torch.save``, its pickle as inert records.
    """

    tensors: dict[str, Held]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    value: Any = None


def add_counts(total: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add counts by name."""
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count
