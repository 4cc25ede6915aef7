"""Resizing, samples at computed places and Fourier transforms with operands or attributes that they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal

F16, I32 = popsr.float16, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError


def _resize(**attrs: Any) -> Callable[[Operands], Any]:
    return lambda t: ops.resize(t(1, 2, 5), **attrs)


def _crop(*roi: float) -> Callable[[Operands], Any]:
    rule: Any = "tf_crop_and_resize"
    return _resize(sizes=(3,), axes=(2,), coordinate_transformation_mode=rule, roi=roi)


REFUSALS: list[Refusal] = [
    Refusal(
        "size-missing",
        _resize(),
        Attr,
        r"resize: the size of the result is missing, got neither, expected sizes or scales",
    ),
    Refusal(
        "sizes-length",
        _resize(sizes=(2, 3)),
        Attr,
        r"resize: sizes has the wrong length, got 2 numbers, expected 3",
    ),
    Refusal(
        "scales-length",
        _resize(scales=(2.0, 3.0), axes=(1,)),
        Attr,
        r"resize: scales has the wrong length, got 2 numbers, expected 1",
    ),
    Refusal(
        "scale-zero",
        _resize(scales=(0.0,), axes=(2,)),
        Attr,
        r"resize: scales is out of range, got 0 on axis 2, expected a positive number",
    ),
    Refusal(
        "scale-nan",
        _resize(scales=(np.nan,), axes=(2,)),
        Attr,
        r"resize: scales is out of range, got nan on axis 2",
    ),
    Refusal(
        "axes-repeat",
        _resize(sizes=(2, 3), axes=(1, -2)),
        Attr,
        r"resize: axes repeat, got \[1, -2\], expected different ones",
    ),
    Refusal("axes-range", _resize(sizes=(2,), axes=(3,)), Attr, r"resize: axis out of range, got 3"),
    Refusal(
        "nothing-left",
        _resize(scales=(0.1,), axes=(2,)),
        Shape,
        r"resize: extents do not fit, got 0 for 5 on axis 2, expected elements from elements",
    ),
    Refusal(
        "of-nothing",
        lambda t: ops.resize(t(0, 2), sizes=(1, 2)),
        Shape,
        r"resize: extents do not fit, got 1 for 0 on axis 0",
    ),
    Refusal("roi", _crop(0.0), Attr, r"resize: roi has the wrong length, got 1 numbers, expected 2"),
    Refusal(
        "integers",
        lambda t: ops.resize(t(2, 3, kind=I32), sizes=(4, 6), mode="linear"),
        DType,
        r"resize: the mode needs floating numbers, got i32\[2, 3\], expected a float dtype or mode 'nearest'",
    ),
    Refusal("mode", _resize(mode="area"), Attr, r"resize: unknown mode, got 'area'"),
    Refusal("nearest", _resize(nearest_mode="up"), Attr, r"resize: unknown nearest_mode, got 'up'"),
    Refusal(
        "coordinates",
        _resize(coordinate_transformation_mode="corners"),
        Attr,
        r"resize: unknown coordinate_transformation_mode, got 'corners'",
    ),
    Refusal(
        "rank",
        lambda t: ops.grid_sample(t(2, 3), t(2, 3)),
        Shape,
        r"grid_sample: operand has no spatial axes, got f32\[2, 3\], expected \[samples, channels, 1 to 3",
    ),
    Refusal(
        "image-empty",
        lambda t: ops.grid_sample(t(2, 3, 0), t(2, 5, 1)),
        Shape,
        r"grid_sample: operand has no spatial axes, got f32\[2, 3, 0\]",
    ),
    Refusal(
        "grid",
        lambda t: ops.grid_sample(t(2, 3, 4, 5), t(2, 6, 7, 3)),
        Shape,
        r"grid_sample: grid does not match, got f32\[2, 6, 7, 3\] for f32\[2, 3, 4, 5\], expected \[2, ..., 2\]",
    ),
    Refusal(
        "grid-dtype",
        lambda t: ops.grid_sample(t(2, 3, 4, 5), t(2, 6, 7, 2, kind=F16)),
        DType,
        r"grid_sample: .*expected equal dtypes",
    ),
    Refusal(
        "padding",
        lambda t: ops.grid_sample(t(2, 3, 4, 5), t(2, 6, 7, 2), padding_mode="wrap"),  # type: ignore[arg-type]
        Attr,
        r"grid_sample: unknown padding_mode, got 'wrap'",
    ),
    Refusal(
        "grid-mode",
        lambda t: ops.grid_sample(t(2, 3, 4, 5), t(2, 6, 7, 2), mode="bilinear"),  # type: ignore[arg-type]
        Attr,
        r"grid_sample: unknown mode, got 'bilinear'",
    ),
    Refusal(
        "parts",
        lambda t: ops.fft(t(2, 3)),
        Shape,
        r"fft: operand has no parts, got f32\[2, 3\] and axis 0, expected 1 or 2 on another axis, the last one",
    ),
    Refusal("last-axis", lambda t: ops.fft(t(4, 2), axis=1), Shape, r"fft: operand has no parts, .* axis 1"),
    Refusal("fft-axis", lambda t: ops.fft(t(4, 2), axis=2), Attr, r"fft: axis out of range, got 2"),
]
