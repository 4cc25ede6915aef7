"""Initial data of variables: arrays, memory-mapped arrays, and iterators over groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.arguments import require_memory
from popsr.errors import DTypeError, ShapeError
from popsr.utils import host_data, is_mapped, mapped_data

__all__ = ["group_data", "is_mapped"]

Array = np.ndarray[Any, Any]


def group_data(
    where: str,
    data: Any,
    dtype: dtypes.dtype | None,
    downcast: bool,
    log2_scale: int | None,
    nan_on_overflow: bool | None,
    *,
    num_groups: int,
) -> Array:
    """Data of shape ``(num_groups, *shape)``, or ``shape`` if there is one group.

    Args:
        where: the caller, for messages.
        data: an array or what becomes one, or an iterator over the groups' values.
        dtype: element type. Default: the data's.
        downcast: without ``dtype``, narrow 64-bit types to 32 bits.
        log2_scale: of floats that become float8: they are multiplied by ``2**log2_scale``.
        nan_on_overflow: of floats that become float8: what is too large becomes NaN, or infinite where the type has
            infinity; else the largest float8.
        num_groups: number of groups.
    Returns:
        The data in that dtype and C order, which may be the caller's array; or the memory-mapped array itself.
    Raises:
        ShapeError: not one value per group, or values of different shapes.
        ValueError: memory-mapped data that would have to be converted.
    """
    if isinstance(data, Iterator):
        values = _Values(where, dtype, downcast, log2_scale, nan_on_overflow)
        return values.stack(data, num_groups)
    if is_mapped(data):
        array = mapped_data(data, dtype, downcast)
    else:
        array = host_data(where, data, dtype, downcast, False, log2_scale, nan_on_overflow)
        require_memory(where, array.nbytes)
    if num_groups > 1 and array.shape[:1] != (num_groups,):
        raise ShapeError(
            f"{where}: data has no row per group, got shape {array.shape}, expected ({num_groups}, ...)"
        )
    return array


class _Values:
    """Conversion of the groups' values, which all have the shape and dtype of the first."""

    def __init__(self, where: str, *options: Any) -> None:
        self._where = where
        self._options = options

    def stack(self, iterator: Iterator[Any], num_groups: int) -> Array:
        """One row a group; for a single group its value."""
        out: Array | None = None
        for row in range(num_groups):
            array = self._next(iterator, row, num_groups)
            if out is None:
                out = np.empty((num_groups, *array.shape), array.dtype)
            self._check(array, out, row)
            out[row] = array
        assert out is not None
        for _ in iterator:
            raise ShapeError(
                f"{self._where}: too many rows, got row {num_groups} from the iterator, expected {num_groups} in all"
            )
        return out if num_groups > 1 else out[0, ...]

    def _next(self, iterator: Iterator[Any], row: int, num_groups: int) -> Array:
        try:
            value = next(iterator)
        except StopIteration:
            raise ShapeError(
                f"{self._where}: too few rows, got no row {row} from the iterator, expected {num_groups} in all"
            ) from None
        dtype, downcast, log2_scale, nan_on_overflow = self._options
        return host_data(
            f"{self._where}: row {row}", value, dtype, downcast, False, log2_scale, nan_on_overflow
        )

    def _check(self, array: Array, out: Array, row: int) -> None:
        if array.shape != out.shape[1:]:
            raise ShapeError(
                f"{self._where}: rows differ in shape, got {array.shape} in row {row}, expected {out.shape[1:]}"
            )
        if array.dtype != out.dtype:
            raise DTypeError(
                f"{self._where}: rows differ in dtype, got {array.dtype} in row {row}, expected {out.dtype}"
            )
