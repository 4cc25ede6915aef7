"""What counts as host data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Union

import numpy as np

__all__ = ["HostTensor", "ScalarType", "host_tensor_types"]

ScalarType = Union[int, float, bool]  # noqa: UP007 - as PopXL has it
"""Numbers of Python."""


class _Torch(type):
    """Its instances are torch's tensors; torch is not imported to find that out."""

    def __instancecheck__(cls, instance: object) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(instance, torch.Tensor)


class TorchTensor(metaclass=_Torch):
    """Stands for ``torch.Tensor`` in ``isinstance``, whether or not torch is there."""


HostTensor = np.ndarray[Any, Any] | Sequence[Any] | TorchTensor
"""Arrays, nested sequences of numbers, and torch's tensors on the CPU."""

host_tensor_types: tuple[type, ...] = (np.ndarray, TorchTensor)
"""Types of whole arrays, for ``isinstance``."""
