"""Fourier transforms, as products with matrices that are known when a model is read."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.onnx._node import Node, Value, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import counting, moved, reshaped
from popsr.bridge.onnx._types import Array
from popsr.bridge.onnx.ops.shape._shape import cut
from popsr.tensor import Tensor

__all__: list[str] = []


def _waves(length: int, count: int, inverse: bool) -> tuple[Array, Array]:
    """``[length, count]``: cosines and sines, of the inverse with its share."""
    counting(length, count)
    places = np.outer(np.arange(length), np.arange(count)) % length
    angles = (2 if inverse else -2) * np.pi * places / length
    share = length if inverse else 1
    return np.cos(angles) / share, np.sin(angles) / share


def _transformed(node: Node, t: Tensor, parts: int, inverse: bool, one_sided: bool) -> Tensor:
    """``[..., length, 2]`` of ``[..., length, parts]``: real parts, then imaginary ones."""
    length = t.shape[-2]
    count = length // 2 + 1 if one_sided else length
    cosines, sines = (node.like(each, t) for each in _waves(length, count, inverse))
    real = reshaped(cut(t, [0], [1], [-1], [1]), t.shape[:-1])
    results = [ops.matmul(real, cosines), ops.matmul(real, sines)]
    if parts == 2:
        imaginary = reshaped(cut(t, [1], [2], [-1], [1]), t.shape[:-1])
        results = [
            ops.sub(results[0], ops.matmul(imaginary, sines)),
            ops.add(results[1], ops.matmul(imaginary, cosines)),
        ]
    wide = [reshaped(each, (*each.shape, 1)) for each in results]
    return ops.concat(wide, wide[0].rank - 1)


def _of_length(t: Tensor, axis: int, length: int) -> Tensor:
    """Cut, or padded with zeros at the end."""
    have = t.shape[axis]
    if length < have:
        return cut(t, [0], [length], [axis], [1])
    high = [length - have if i == axis else 0 for i in range(t.rank)]
    return ops.pad(t, [0] * t.rank, high) if length > have else t


@rule("DFT", since=17, kind="raw")
def _dft(node: Node, value: Value, length: Value = None, axis: Value = None) -> Tensor:
    t = node.tensor(value)
    if not is_float(t.dtype) or t.rank < 2:
        raise NotSupportedError(f"{t.dtype.name} of rank {t.rank}")
    along = (
        node.integer("axis", 1) if node.opset < 20 else -2 if axis is None else node.known_int(axis, "axis")
    )
    along %= t.rank
    inverse, one_sided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    if inverse and one_sided:
        return _real_of_half(node, t, along, None if length is None else node.known_int(length, "dft_length"))
    if length is not None:
        t = _of_length(t, along, node.known_int(length, "dft_length"))
    order = [i for i in range(t.rank - 1) if i != along] + [along, t.rank - 1]
    made = _transformed(node, moved(t, order), t.shape[-1], inverse, one_sided)
    return moved(made, sorted(range(t.rank), key=lambda i: order[i]))


def _real_of_half(node: Node, t: Tensor, along: int, length: int | None) -> Tensor:
    """The real signal whose first half of the spectrum is given."""
    count = 2 * (t.shape[along] - 1) if length is None else length
    t = _of_length(t, along, count // 2 + 1)
    order = [i for i in range(t.rank - 1) if i != along] + [along, t.rank - 1]
    half = moved(t, order)
    cosines, sines = _waves(count, count, inverse=True)
    twice = np.full((count // 2 + 1, 1), 2.0)  # for the part of the spectrum that is not given
    twice[0] = 1
    if count % 2 == 0:
        twice[-1] = 1
    kept = slice(0, count // 2 + 1)
    real = reshaped(cut(half, [0], [1], [-1], [1]), half.shape[:-1])
    imaginary = reshaped(cut(half, [1], [2], [-1], [1]), half.shape[:-1])
    made = ops.sub(
        ops.matmul(real, node.like(cosines[kept] * twice, t)),
        ops.matmul(imaginary, node.like(sines[kept] * twice, t)),
    )
    return moved(reshaped(made, (*made.shape, 1)), sorted(range(t.rank), key=lambda i: order[i]))


@rule("STFT", since=17, kind="raw")
def _stft(node: Node, signal: Value, step: Value, window: Value = None, length: Value = None) -> Tensor:
    """Transforms of frames, each times the window."""
    t, stride = node.tensor(signal), node.known_int(step, "frame_step")
    shape = None if window is None else node.tensor(window)
    if length is not None:
        size = node.known_int(length, "frame_length")
    elif shape is not None:
        size = shape.shape[0]
    else:
        raise NotSupportedError("without a window and a frame length")
    frames = (t.shape[1] - size) // stride + 1
    places = counting(frames, size)[:, None] * stride + counting(size)[None, :]
    made = ops.gather(t, node.constant(places, dtypes.int64), 1)
    if shape is not None:
        made = ops.mul(made, reshaped(shape, (size, 1)))
    return _transformed(node, made, t.shape[-1], False, bool(node.integer("onesided", 1)))
