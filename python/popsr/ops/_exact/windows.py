"""Convolutions, pools and other linear ops, whose weights and windows their own kernels tell.

A kernel that runs on the unit vectors of a small plane gives the positions that meet, or the weights of a linear op.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.errors import UnsupportedError
from popsr.ops._exact.elementwise import defined
from popsr.ops._exact.linalg import product
from popsr.ops._exact.registry import Exact, exact

__all__: list[str] = []

_MOST = 1 << 24


def _units(shape: tuple[int, ...]) -> Array:
    """Planes [n, 1, shape] of one element of 1."""
    n = int(np.prod(shape, dtype=np.int64))
    if n * n > _MOST:
        raise UnsupportedError(f"planes of {n} elements are too large, expected {int(_MOST**0.5)} at most")
    return np.eye(n).reshape(n, 1, *shape)


def _rows(found: Array) -> Array:
    """Results of the units, a row for each."""
    return found.reshape(len(found), int(np.prod(found.shape[1:], dtype=np.int64)))


def _taps(
    op: Exact, kind: str, shape: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Array, tuple[int, ...]]:
    """Input position of each output position and kernel element, -1 for none; and the shape of the output."""
    names = ("stride", "padding", "dilation", "pad_type", "output_padding", "output_shape")
    attributes: dict[str, Any] = {name: op[name] for name in names if op[name] is not None}
    if kind == "conv":
        attributes = {name: value for name, value in attributes.items() if not name.startswith("output")}
    count = int(np.prod(kernel, dtype=np.int64))
    weights = np.arange(1, count + 1, dtype=np.float64).reshape(1, 1, *kernel)
    (met,) = op.run(_units(shape), weights, kind=kind, only={**attributes, "groups": 1})
    flat = _rows(met).astype(np.int64)
    taps = np.full((flat.shape[1], count), -1)
    inputs, outputs = np.nonzero(flat)
    taps[outputs, flat[inputs, outputs] - 1] = inputs
    return taps, met.shape[2:]


def _columns(op: Exact, t: Numbers, taps: Array, groups: int) -> Numbers:
    """[groups, samples * positions, channels of a group * taps] of planes [samples, channels, ...]."""
    samples, channels = t.shape[:2]
    planes = t.reshape((samples, groups, channels // groups, t.size // max(samples * channels, 1)))
    size = planes.shape[-1]
    pool = Numbers.concat([planes.reshape((planes.size,)), op.number(0).reshape((1,))])
    at = (
        np.arange(samples * channels).reshape(samples, groups, channels // groups)[..., None, None] * size
        + taps
    )
    at = np.where(taps < 0, planes.size, at)  # [samples, groups, channels, positions, taps]
    positions = len(taps)
    return pool.at(
        at.transpose(1, 0, 3, 2, 4).reshape(groups, samples * positions, at.shape[2] * taps.shape[1])
    )


def _back(found: Numbers, samples: int, positions: int, shape: tuple[int, ...]) -> Numbers:
    """[groups, samples * positions, channels] as [samples, channels, ...]."""
    groups, _, channels = found.shape
    planes = found.reshape((groups, samples, positions, channels)).transpose([1, 0, 3, 2])
    return planes.reshape(shape)


def _gathered(op: Exact, t: Numbers, weight: Numbers, taps: Array, groups: int) -> Numbers:
    """Products of the columns with weights [groups, channels of a group, taps, output channels]."""
    columns = _columns(op, t, taps, groups)
    found = product(columns, weight.reshape((groups, columns.shape[-1], weight.shape[-1])))
    return _back(found, t.shape[0], len(taps), op.shape)


def _of_conv(weight: Numbers, groups: int, transposed: bool) -> Numbers:
    """Weights of conv [o, c / groups, ...] or, transposed, [c, o / groups, ...] as `_gathered` takes them."""
    count = int(np.prod(weight.shape[2:], dtype=np.int64))
    rows = weight.reshape((groups, weight.shape[0] // groups, weight.shape[1], count))
    return rows.transpose([0, 1, 3, 2] if transposed else [0, 2, 3, 1])


@exact("conv")
def conv(op: Exact, t: Numbers, weight: Numbers) -> Numbers:
    taps, _ = _taps(op, "conv", t.shape[2:], weight.shape[2:])
    return _gathered(op, t, _of_conv(weight, op["groups"], False), taps, op["groups"])


@exact("conv_transpose")
def conv_transpose(op: Exact, t: Numbers, weight: Numbers) -> Numbers:
    taps, _ = _taps(op, "conv_transpose", t.shape[2:], weight.shape[2:])
    return _gathered(op, t, _of_conv(weight, op["groups"], True), taps, op["groups"])


@exact("conv_data_grad")
def conv_data_grad(op: Exact, dy: Numbers, weight: Numbers) -> Numbers:
    back = _back_taps(op, "conv", op.shape[2:], weight.shape[2:])
    return _gathered(op, dy, _of_conv(weight, op["groups"], True), back, op["groups"])


@exact("conv_transpose_data_grad")
def conv_transpose_data_grad(op: Exact, dy: Numbers, weight: Numbers) -> Numbers:
    back = _back_taps(op, "conv_transpose", op.shape[2:], weight.shape[2:])
    return _gathered(op, dy, _of_conv(weight, op["groups"], False), back, op["groups"])


@exact("conv_weight_grad")
def conv_weight_grad(op: Exact, t: Numbers, dy: Numbers) -> Numbers:
    return _weight_grad(op, t, dy, _taps(op, "conv", t.shape[2:], op.shape[2:])[0])


@exact("conv_transpose_weight_grad")
def conv_transpose_weight_grad(op: Exact, dy: Numbers, t: Numbers) -> Numbers:
    return _weight_grad(op, dy, t, _back_taps(op, "conv_transpose", t.shape[2:], op.shape[2:]))


def _back_taps(op: Exact, kind: str, shape: tuple[int, ...], kernel: tuple[int, ...]) -> Array:
    """Output position that each input position and kernel element reach, -1 for none."""
    taps, _ = _taps(op, kind, shape, kernel)
    back = np.full((int(np.prod(shape, dtype=np.int64)), taps.shape[1]), -1)
    outputs, elements = np.nonzero(taps >= 0)
    back[taps[outputs, elements], elements] = outputs
    return back


def _weight_grad(op: Exact, t: Numbers, dy: Numbers, taps: Array) -> Numbers:
    """Products of the columns of t with dy, summed over samples and positions."""
    groups = op["groups"]
    columns = _columns(op, t, taps, groups)
    samples, channels = dy.shape[:2]
    slopes = dy.reshape((samples, groups, channels // groups, len(taps))).transpose([1, 2, 0, 3])
    slopes = slopes.reshape((groups, channels // groups, samples * len(taps)))
    return product(slopes, columns).reshape(op.shape)


def _linear(op: Exact, t: Numbers) -> Numbers:
    """An op that is linear and the same on each plane [samples, channels]."""
    shape = {**op.attributes}.get("shape")
    changed = {} if shape is None else {"shape": [int(np.prod(t.shape[2:], dtype=np.int64)), 1, *shape[2:]]}
    units = _units(t.shape[2:])
    (weights,) = op.run(units, **changed)
    matrix = Numbers.of(weights.reshape(len(units), -1), op.low)
    planes = t.reshape((1, t.shape[0] * t.shape[1], len(units)))
    return planes.matmul(matrix.reshape((1, *matrix.shape))).reshape(op.shape)


def _whole_linear(op: Exact, t: Numbers) -> Numbers:
    """An op that is linear in all elements, but for a constant."""
    if t.size * t.size > _MOST:
        raise UnsupportedError(f"arrays of {t.size} elements are too large")
    constant = op.run(np.zeros(t.shape))[0].reshape(-1)
    columns = [op.run(unit.reshape(t.shape))[0].reshape(-1) - constant for unit in np.eye(t.size)]
    matrix = Numbers.of(np.stack(columns) if columns else np.zeros((0, len(constant))), op.low)
    found = t.reshape((1, 1, t.size)).matmul(matrix.reshape((1, *matrix.shape)))
    return (found.reshape((len(constant),)) + Numbers.of(constant, op.low)).reshape(op.shape)


exact("resize", "resize_grad", "fft", "interpolate", "interpolate_grad")(_whole_linear)
exact("average_pool", "average_pool_grad")(_linear)


def _pool_windows(op: Exact, shape: tuple[int, ...]) -> Array:
    """[outputs, inputs]: True where a window meets an element."""
    names = (
        "kernel_size",
        "stride",
        "padding",
        "out_pads",
        "dilation",
        "in_dilations",
        "auto_pad",
        "ceil_mode",
    )
    attributes = {name: op[name] for name in names if op[name] is not None}
    units = _units(shape)
    (met,) = op.run(units, kind="average_pool", only=attributes)
    return np.asarray(_rows(met).T != 0)


def _picks(op: Exact, planes: Numbers, windows: Array, largest: bool = True) -> Array:
    """[planes, outputs]: position of the first extreme in each window; -1 for a window that meets nothing."""
    defined(planes)
    if not planes.size:
        return np.full((planes.shape[0], len(windows)), -1)
    ranks = planes.ranks(op.draw) * (1 if largest else -1)
    least = ranks.min(initial=0) - 1
    found = np.where(windows, ranks[:, None, :], least).argmax(-1)
    return np.where(windows.any(-1), found, -1)


def _as_planes(t: Numbers) -> Numbers:
    return t.reshape((t.shape[0] * t.shape[1], t.size // max(t.shape[0] * t.shape[1], 1)))


@exact("max_pool")
def max_pool(op: Exact, t: Numbers) -> Numbers:
    if any(op["out_pads"] or ()):
        raise UnsupportedError("margins around the result")
    planes = _as_planes(t)
    picks = _picks(op, planes, _pool_windows(op, t.shape[2:]))
    flat = Numbers.concat([planes.reshape((planes.size,)), op.number(-np.inf).reshape((1,))])
    at = np.arange(planes.shape[0])[:, None] * planes.shape[1] + picks
    return flat.at(np.where(picks < 0, planes.size, at)).reshape(op.shape)


@exact("max_pool_grad")
def max_pool_grad(op: Exact, t: Numbers, dy: Numbers) -> Numbers:
    if any(op["out_pads"] or ()):
        raise UnsupportedError("margins around the result")
    planes = _as_planes(t)
    picks = _picks(op, planes, _pool_windows(op, t.shape[2:]))
    at = np.where(picks < 0, -1, np.arange(planes.shape[0])[:, None] * planes.shape[1] + picks)
    zeros = op.number(0).broadcast_to((t.size, 1))
    return zeros.scatter_add(at.reshape(-1), dy.reshape((dy.size, 1))).reshape(t.shape)


def _windows(op: Exact, shape: tuple[int, ...]) -> Array:
    """[outputs, inputs]: windows of reduce_window, by its sums over unit vectors."""
    n = int(np.prod(shape, dtype=np.int64))
    if n * n > _MOST:
        raise UnsupportedError(f"windows over {n} elements are too many")
    names = ("window", "strides", "low", "high", "base_dilation", "window_dilation")
    attributes = {
        name: [1 if name != "low" and name != "high" else 0, *op[name]]
        for name in names
        if op[name] is not None
    }
    units = np.eye(n).reshape(n, *shape)
    (met,) = op.run(units, kind="reduce_window", only={**attributes, "reduction": "sum"})
    return np.asarray(_rows(met).T != 0)


@exact("reduce_window")
def reduce_window(op: Exact, t: Numbers) -> Numbers:
    windows = _windows(op, t.shape)
    flat = t.reshape((t.size,))
    if op["reduction"] == "sum":
        return (
            Numbers.of(windows, op.low)
            .reshape((1, *windows.shape))
            .matmul(flat.reshape((1, t.size, 1)))
            .reshape(op.shape)
        )
    if op["reduction"] == "mul":
        pool = Numbers.concat([flat, op.number(1).reshape((1,))])
        found = op.number(1).broadcast_to((len(windows),))
        for column in np.where(windows, np.arange(t.size), t.size).T:
            found = found * pool.at(column)
        return found.reshape(op.shape)
    largest = op["reduction"] == "max"
    picks = _picks(op, flat.reshape((1, t.size)), windows, largest)[0]
    pool = Numbers.concat([flat, op.number(-np.inf if largest else np.inf).reshape((1,))])
    return pool.at(np.where(picks < 0, t.size, picks)).reshape(op.shape)


@exact("reduce_window_grad")
def reduce_window_grad(op: Exact, dy: Numbers, t: Numbers | None = None) -> Numbers:
    size = int(np.prod(op.shape, dtype=np.int64))
    windows = _windows(op, op.shape)
    column = dy.reshape((dy.size, 1))
    if t is None:
        return (
            Numbers.of(windows.T, op.low)
            .reshape((1, size, dy.size))
            .matmul(column.reshape((1, dy.size, 1)))
            .reshape(op.shape)
        )
    picks = _picks(op, t.reshape((1, size)), windows, op["reduction"] == "max")[0]
    return op.number(0).broadcast_to((size, 1)).scatter_add(picks, column).reshape(op.shape)
