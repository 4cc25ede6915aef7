"""Fourier transforms."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import counting, reshaped
from popsr.bridge.onnx.ops.shape._shape import cut

__all__: list[str] = []


def _first_half(t: Tensor, axis: int) -> Tensor:
    """The part of a spectrum of real numbers that tells the rest."""
    return cut(t, [0], [t.shape[axis] // 2 + 1], [axis], [1])


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
    made = ops.fft(t, along, inverse)
    return _first_half(made, along) if one_sided else made


def _real_of_half(node: Node, t: Tensor, along: int, length: int | None) -> Tensor:
    """The real signal whose first half of the spectrum is given."""
    count = 2 * (t.shape[along] - 1) if length is None else length
    half = _of_length(t, along, count // 2 + 1)
    mirrored = cut(half, [1], [count - count // 2], [along], [1])
    conjugate = ops.mul(ops.reverse(mirrored, [along]), node.like(np.array([1.0, -1.0]), t))
    return ops.fft(ops.concat([half, conjugate], along), along, inverse=True, real_part=True)


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
    made = ops.fft(made)
    return _first_half(made, made.rank - 2) if node.integer("onesided", 1) else made
