"""Numbers of four bits with a scale and an offset for each group of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.operands import read_axis, read_floats, read_tensor
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import read_int
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr.errors import AttributeValueError, DTypeError, ShapeError
from popsr.ops.utils import cast_if_needed
from popsr.utils import as_array

__all__ = [
    "group_quantize_compress_numpy",
    "group_quantize_decompress",
    "group_quantize_decompress_numpy",
]

Array = np.ndarray[Any, Any]

_PACKED = 4  # numbers in a uint16, the first in the lowest bits
_MOST = 15


@public
@transactional
def group_quantize_decompress(t: Tensor, group_scale: Tensor, group_bias: Tensor, dim: int = -1) -> Tensor:
    """Values that ``group_quantize_compress_numpy`` stored: ``number * scale + bias`` of the group.

    Args:
        t: uint16, four numbers of four bits each, along ``dim`` the first in the lowest bits: ``[..., n / 4, ...]``.
        group_scale: floats ``[..., groups, ...]``: one for each ``n / groups`` numbers along ``dim``.
        group_bias: floats of that shape and dtype.
        dim: the axis that the numbers lie along.
    Returns:
        Tensor ``[..., n, ...]`` of the dtype of ``group_scale``, rounded once. Differentiable to scale and bias.
    Raises:
        TypeError: an operand is not a tensor of these types.
        ValueError: shapes do not fit, there is no such axis, or a tensor is of another graph.
    """
    where = "group_quantize_decompress"
    if read_tensor(where, "t", t).dtype != dtypes.uint16:
        raise DTypeError(f"{where}: t is of another dtype, got {t.dtype.name}, expected uint16")
    read_floats(where, "group_scale", group_scale)
    if read_floats(where, "group_bias", group_bias).dtype != group_scale.dtype:
        raise DTypeError(
            f"{where}: group_bias is of another dtype, got {group_bias.dtype.name}, expected {group_scale.dtype.name}"
        )
    axis = read_axis(where, dim, t.shape)
    _check_shapes(where, t.shape, group_scale.shape, group_bias.shape, axis)
    outer, inner, shape = t.shape[:axis], t.shape[axis + 1 :], _whole(t.shape, axis)
    wide = dtypes.float64 if group_scale.dtype == dtypes.float64 else dtypes.float32
    # [..., n / 4, 4, ...], then [..., groups, n / groups, ...]
    column = constant(2 ** (_PACKED * np.arange(_PACKED)).reshape(_PACKED, *[1] * len(inner)), dtypes.int32)
    words = ops.reshape(ops.cast(t, dtypes.int32), (*outer, t.shape[axis], 1, *inner))
    numbers = ops.cast(ops.fmod(words / column, constant(_MOST + 1, dtypes.int32)), wide)
    groups = group_scale.shape[axis]
    scale, bias = (
        ops.reshape(cast_if_needed(each, wide), (*outer, groups, 1, *inner))
        for each in (group_scale, group_bias)
    )
    grouped = ops.reshape(numbers, (*outer, groups, shape[axis] // groups, *inner))
    return cast_if_needed(ops.reshape(grouped * scale + bias, shape), group_scale.dtype)


@public
@in_default_environment
def group_quantize_decompress_numpy(t: Array, group_scale: Array, group_bias: Array, dim: int) -> Array:
    """``group_quantize_decompress`` of host data: the same bits.

    Args:
        t: uint16 ``[..., n / 4, ...]``.
        group_scale: floats ``[..., groups, ...]``.
        group_bias: floats of that shape.
        dim: the axis that the numbers lie along.
    Returns:
        Array ``[..., n, ...]`` of the dtype of ``group_scale``.
    Raises:
        TypeError: ``t`` is not of uint16.
        ValueError: shapes do not fit, or there is no such axis.
    """
    where = "group_quantize_decompress_numpy"
    t, scale, bias = (as_array(where, each) for each in (t, group_scale, group_bias))
    if t.dtype != np.uint16:
        raise DTypeError(f"{where}: t is of another dtype, got {t.dtype}, expected uint16")
    axis = read_axis(where, dim, t.shape)
    _check_shapes(where, t.shape, scale.shape, bias.shape, axis)
    shape = _whole(t.shape, axis)
    wide = np.float64 if scale.dtype == np.float64 else np.float32
    words = np.moveaxis(t, axis, -1)[..., np.newaxis]
    numbers = (words >> (_PACKED * np.arange(_PACKED, dtype=np.uint16))) & _MOST
    groups = scale.shape[axis]
    grouped: Array = numbers.reshape(*words.shape[:-2], groups, shape[axis] // groups).astype(wide)
    factor: Any = np.moveaxis(scale.astype(wide), axis, -1)[..., np.newaxis]
    offset: Any = np.moveaxis(bias.astype(wide), axis, -1)[..., np.newaxis]
    rows = (grouped * factor + offset).astype(scale.dtype).reshape(*words.shape[:-2], shape[axis])
    return np.ascontiguousarray(np.moveaxis(rows, -1, axis))


@public
@in_default_environment
def group_quantize_compress_numpy(t: Array, group_size: int, dim: int) -> tuple[Array, Array, Array]:
    """Store numbers as 16 evenly spaced levels, from the least to the greatest of each group along an axis.

    Args:
        t: finite floats ``[..., n, ...]``.
        group_size: how many share a scale and an offset; it divides n. 0: all.
        dim: the axis that groups lie along; its extent is a multiple of 4.
    Returns:
        uint16 ``[..., n / 4, ...]``, then scales and offsets ``[..., n / group_size, ...]`` of the dtype of ``t``: as
        ``group_quantize_decompress`` takes them. Levels are the nearest to the given numbers.
    Raises:
        TypeError: ``t`` is not of floats.
        ValueError: ``n`` does not divide, there is no such axis, or a number is not finite.
    """
    where = "group_quantize_compress_numpy"
    t = as_array(where, t)
    kind = dtypes.dtype._of_numpy(t.dtype)
    if kind not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"{where}: t is not of floats, got {t.dtype}, expected float16, bfloat16, float32 or float64"
        )
    axis = read_axis(where, dim, t.shape)
    n = t.shape[axis]
    size = read_int(f"{where}: group_size", group_size, 0) or n
    if n == 0 or n % size or n % _PACKED:
        raise ShapeError(
            f"{where}: the axis does not divide, got {n} elements, expected a positive multiple of group_size {size} "
            f"and of {_PACKED}"
        )
    rows = np.moveaxis(t, axis, -1).astype(np.float64)
    if not np.isfinite(rows).all():
        raise AttributeValueError(f"{where}: t has infinities or NaN, expected finite numbers")
    grouped = rows.reshape(*rows.shape[:-1], n // size, size)
    bias = grouped.min(-1).astype(t.dtype)
    scale = ((grouped.max(-1) - bias.astype(np.float64)) / _MOST).astype(t.dtype)
    step = np.where(scale == 0, 1, scale.astype(np.float64))[..., np.newaxis]
    levels = np.clip(np.rint((grouped - bias.astype(np.float64)[..., np.newaxis]) / step), 0, _MOST)
    words = levels.astype(np.uint16).reshape(*rows.shape[:-1], n // _PACKED, _PACKED)
    packed = np.bitwise_or.reduce(words << (_PACKED * np.arange(_PACKED, dtype=np.uint16)), axis=-1)
    return _put_back(packed, axis), _put_back(scale, axis), _put_back(bias, axis)


def _put_back(rows: Array, axis: int) -> Array:
    """Rows with their last axis put back to its place."""
    return np.ascontiguousarray(np.moveaxis(rows, -1, axis))


def _whole(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of the numbers in words of some shape."""
    return (*shape[:axis], shape[axis] * _PACKED, *shape[axis + 1 :])


def _check_shapes(
    where: str, shape: tuple[int, ...], scale: tuple[int, ...], bias: tuple[int, ...], axis: int
) -> None:
    if bias != scale:
        raise ShapeError(f"{where}: group_bias has another shape, got {bias}, expected {scale}")
    whole = _whole(shape, axis)
    groups = scale[axis] if len(scale) == len(shape) else 0
    if groups == 0 or whole[axis] % groups or scale != (*shape[:axis], groups, *shape[axis + 1 :]):
        raise ShapeError(
            f"{where}: group_scale has another shape, got {scale}, expected {shape} with a number of groups "
            f"that divides {whole[axis]} at axis {axis}"
        )
