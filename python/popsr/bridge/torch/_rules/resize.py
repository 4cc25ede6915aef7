"""Rules of the gradients of resized images; the images themselves are decomposed by torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._rules.pools import planes_of, scattered_sums
from popsr.bridge.torch._rules.table import Site, rule

__all__: list[str] = []

Array = np.ndarray[Any, Any]


@rule("upsample_nearest2d_backward.default")
def _upsample_nearest_backward(
    site: Site, dy: Tensor, out: Sequence[int], shape: Sequence[int], *scales: float | None
) -> Tensor:
    """Each element receives the sum of the gradients of its copies."""
    given = (*scales, None, None)[:2]
    rows, columns = (
        _nearest(extent, wide, scale) for extent, wide, scale in zip(shape[2:], out, given, strict=True)
    )
    places = (rows[:, None] * shape[3] + columns[None, :]).reshape(1, -1)
    planes = planes_of(dy, 2)
    every = constant(np.broadcast_to(places, planes.shape).copy(), dtypes.int64)
    return scattered_sums(planes, every, site.shape, 2)


def _nearest(extent: int, wide: int, scale: float | None) -> Array:
    """Number of the element that each element of the larger axis copies."""
    step = np.float32(extent / wide if scale is None else 1 / scale)
    copied = np.floor(np.arange(wide, dtype=np.float32) * step).astype(np.int64)
    return np.asarray(np.minimum(copied, extent - 1))


@rule("upsample_bilinear2d_backward.default")
def _upsample_bilinear_backward(
    _site: Site, dy: Tensor, out: Sequence[int], shape: Sequence[int], corners: bool, *scales: float | None
) -> Tensor:
    """Products with the weights of both axes, transposed."""
    given = (*scales, None, None)[:2]
    rows, columns = (
        constant(_weights(extent, wide, corners, scale), dy.dtype)
        for extent, wide, scale in zip(shape[2:], out, given, strict=True)
    )
    return ops.matmul(ops.matmul(ops.transpose(rows, (1, 0)), dy), columns)


def _weights(extent: int, wide: int, corners: bool, scale: float | None) -> Array:
    """``[wide, extent]``: the weights of the elements between which each element of the larger axis lies."""
    numbers = np.arange(wide)
    if corners:
        position = numbers * ((extent - 1) / (wide - 1) if wide > 1 else 0.0)
    else:
        step = extent / wide if scale is None else 1 / scale
        position = np.maximum((numbers + 0.5) * step - 0.5, 0)
    first = np.minimum(np.floor(position).astype(np.int64), extent - 1)
    second = np.minimum(first + 1, extent - 1)
    weights = np.zeros((wide, extent))
    np.add.at(weights, (numbers, first), 1 - (position - first))
    np.add.at(weights, (numbers, second), position - first)
    return weights
