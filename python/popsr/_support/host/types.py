"""Types of host data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, Union

import numpy as np

__all__ = ["HostTensor", "ScalarType", "SupportsArray", "host_tensor_types"]

ScalarType = Union[int, float, bool]  # noqa: UP007 - as PopXL has it
"""Numbers of Python."""


class SupportsArray(Protocol):
    """Arrays of any library, by their ``__array__``: so torch's tensors have a type where torch is not installed."""

    def __array__(self) -> np.ndarray[Any, Any]: ...


class _Torch(type):
    """Its instances are torch's tensors; torch is not imported to find that out."""

    def __instancecheck__(cls, instance: object) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(instance, torch.Tensor)


class TorchTensor(metaclass=_Torch):
    """Stands for ``torch.Tensor`` in ``isinstance``, whether or not torch is there."""


if TYPE_CHECKING:
    HostTensor = np.ndarray[Any, Any] | Sequence[Any] | SupportsArray
else:
    HostTensor = np.ndarray[Any, Any] | Sequence[Any] | TorchTensor
"""Arrays, nested sequences of numbers, and torch's tensors on the CPU."""

host_tensor_types: tuple[type, ...] = (np.ndarray, TorchTensor)
"""Types of whole arrays, for ``isinstance``."""
