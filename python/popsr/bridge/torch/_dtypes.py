"""Element types of torch as those of popsr, and their promotion."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._program.tensor import Tensor
from popsr.bridge._step.reading import floats_are_wide
from popsr.errors import UnsupportedError

__all__ = ["Scalar", "common_dtype", "dtype_of", "is_float", "is_float8", "is_int", "promoted"]

_NAMES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
_FNUZ = {"float8_e4m3fnuz": "float8_143", "float8_e5m2fnuz": "float8_152"}
"""Names of torch, and popsr's."""

_BITS = {name: getattr(dtypes, name).as_numpy().itemsize * 8 for name in _NAMES}


@dataclass(frozen=True)
class Scalar:
    """A number of the step that is known only when it runs, such as ``step.item()``.

    It promotes as a number of Python does: its 64 bits do not widen a tensor.
    """

    tensor: Tensor


def dtype_of(torch_dtype: Any) -> dtypes.dtype:
    """The dtype of popsr for one of torch.

    Raises:
        UnsupportedError: popsr has no such element type.
    """
    found = _table().get(torch_dtype)
    if found is not None and floats_are_wide() and is_float(found):
        return dtypes.float64
    if found is None:
        raise UnsupportedError(
            f"bridge.torch: no such element type, got {torch_dtype}, expected {', '.join(_NAMES)}"
        )
    return found


@functools.cache
def _table() -> dict[Any, dtypes.dtype]:
    import torch

    found = {getattr(torch, name): getattr(dtypes, name) for name in _NAMES}
    return found | {
        getattr(torch, name): getattr(dtypes, own) for name, own in _FNUZ.items() if hasattr(torch, name)
    }


def is_float(kind: dtypes.dtype) -> bool:
    """True for floats of any width."""
    return "float" in kind.name


def is_float8(kind: dtypes.dtype) -> bool:
    """True for floats of 8 bits, which have conversions of their own."""
    return kind.name.startswith("float8")


def is_int(kind: dtypes.dtype) -> bool:
    """True for signed and unsigned integers, not for bool."""
    return "int" in kind.name


def promoted(a: dtypes.dtype, b: dtypes.dtype) -> dtypes.dtype:
    """The smallest type of torch that both convert to, as ``torch.promote_types``."""
    if a == b or b == dtypes.bool:
        return a
    if a == dtypes.bool:
        return b
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    wide, narrow = (a, b) if _BITS[a.name] > _BITS[b.name] else (b, a)
    if is_float(a):
        return dtypes.float32 if _BITS[a.name] == _BITS[b.name] else wide
    if a.name[0] == b.name[0] or (wide.name[0] == "i" and _BITS[wide.name] > _BITS[narrow.name]):
        return wide
    return dtypes.dtype.as_dtype(f"int{2 * _BITS[wide.name]}")  # unsigned that is as wide as the signed one


def common_dtype(values: Iterable[Any], default: dtypes.dtype = dtypes.float32) -> dtypes.dtype:
    """The type that an element-wise op computes in, as ``torch.result_type``.

    Tensors without dimensions count less than those with, and numbers less than these: they widen the result only
    if they are of a higher kind (bool, integer, float).

    Args:
        values: tensors, numbers and ``Scalar``.
        default: type of a float number beside integers, ``torch.get_default_dtype()``.
    """
    ranks: list[dtypes.dtype | None] = [None, None, None]
    for value in values:
        place, kind = _kind(value, default)
        seen = ranks[place]
        ranks[place] = kind if seen is None else promoted(seen, kind)
    found = _combined(ranks[0], _combined(ranks[1], ranks[2]))
    assert found is not None
    return found


def _kind(value: Any, default: dtypes.dtype) -> tuple[int, dtypes.dtype]:
    if isinstance(value, Tensor):
        return (0 if value.rank else 1), value.dtype
    if isinstance(value, Scalar):
        value = np.zeros((), value.tensor.dtype.as_numpy()).item()
    if isinstance(value, bool):
        return 2, dtypes.bool
    if isinstance(value, int):
        return 2, dtypes.int64
    return 2, dtypes.float64 if floats_are_wide() else default


def _combined(higher: dtypes.dtype | None, lower: dtypes.dtype | None) -> dtypes.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if is_float(higher):
        return higher
    return promoted(higher, lower) if higher == dtypes.bool or is_float(lower) else higher
