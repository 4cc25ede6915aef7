"""Pooling, resizing and regions with wrong operands or attributes: refused before anything is appended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from tests_py.support.helpers import assert_refused

F32, I32 = popsr.float32, popsr.int32
Attr, Shape, DType = errors.AttributeValueError, errors.ShapeError, errors.DTypeError
Argument = errors.ArgumentTypeError


class Operands:
    """Tensors of a graph by shape: ``t(2, 3)``; integers by ``t.i(2)``."""

    def __call__(self, *shape: int, kind: Any = F32) -> popsr.Tensor:
        return popsr.graph_input(shape, kind)

    def i(self, *shape: int) -> popsr.Tensor:
        return popsr.graph_input(shape, I32)


Bad = tuple[str, Callable[[Operands], Any], type[Exception], str]


def _pool(**attrs: Any) -> Callable[[Operands], Any]:
    return lambda t: ops.max_pool(t(1, 2, 5, 6), **{"kernel_size": (2, 2), **attrs})


def _mean(**attrs: Any) -> Callable[[Operands], Any]:
    return lambda t: ops.average_pool(t(1, 2, 5, 6), **{"kernel_size": (2, 2), **attrs})


def _resize(*shape: int, **attrs: Any) -> Callable[[Operands], Any]:
    return lambda t: ops.interpolate(t(*(shape or (1, 2, 5, 6))), **attrs)


def _regions(**attrs: Any) -> Callable[[Operands], Any]:
    def build(t: Operands) -> Any:
        given = {"output_size": (2, 2), "spatial_scale": 1.0, "sampling_ratio": 1}
        return ops.roi_align(t(2, 3, 5, 6), t(4, 4), t.i(4), **{**given, **attrs})

    return build


def _roi(t: popsr.Tensor, rois: popsr.Tensor, samples: Any) -> Any:
    return ops.roi_align(t, rois, samples, (2, 2), 1.0, 1)


_RANGE = r"expected 1 to 2147483647"

BAD: list[Bad] = [
    (
        "rank-2",
        lambda t: ops.max_pool(t(2, 3), ()),
        Shape,
        r"max_pool: operand does not have .*got shape \[2, 3\]",
    ),
    (
        "rank-6",
        lambda t: ops.average_pool(t(1, 1, 2, 2, 2, 2), (1,) * 4),
        Shape,
        r"average_pool: operand does not have 1 to 3 spatial dimensions, got shape \[1, 1, 2, 2, 2, 2\], expected",
    ),
    (
        "kernel-length",
        _pool(kernel_size=(2,)),
        Attr,
        r"max_pool: kernel_size has the wrong length, got \[2\], expected 2 numbers",
    ),
    ("stride-length", _pool(stride=(1, 1, 1)), Attr, r"max_pool: stride has .*\[1, 1, 1\], expected 2"),
    ("padding-length", _mean(padding=(1, 1)), Attr, r"average_pool: padding has .*\[1, 1\], expected 4"),
    ("margin-length", _mean(out_pads=(1, 1)), Attr, r"average_pool: out_pads has .*\[1, 1\], expected 4"),
    ("dilation-length", _pool(dilation=()), Attr, r"max_pool: dilation has .*\[\], expected 2"),
    ("spread-length", _pool(in_dilations=(2,)), Attr, r"max_pool: in_dilations has .*\[2\], expected 2"),
    ("kernel-zero", _pool(kernel_size=(2, 0)), Attr, rf"max_pool: kernel_size is .*\[2, 0\], {_RANGE}"),
    ("stride-zero", _mean(stride=(0, 1)), Attr, rf"average_pool: stride is .*\[0, 1\], {_RANGE}"),
    ("dilation-low", _pool(dilation=(1, -1)), Attr, rf"max_pool: dilation is .*\[1, -1\], {_RANGE}"),
    ("spread-zero", _pool(in_dilations=(0, 1)), Attr, rf"max_pool: in_dilations is .*\[0, 1\], {_RANGE}"),
    ("padding-low", _pool(padding=(0, 0, 0, -1)), Attr, r"max_pool: padding is .*-1\], expected 0 to"),
    ("margin-low", _mean(out_pads=(0, -1, 0, 0)), Attr, r"average_pool: out_pads is .*expected 0 to"),
    ("stride-big", _pool(stride=(1, 2**31)), Attr, rf"max_pool: stride is .*2147483648\], {_RANGE}"),
    ("kernel-int", _pool(kernel_size=2), Argument, r"max_pool: kernel_size is not a sequence of ints, got 2"),
    ("stride-int", _mean(stride=2), Argument, r"average_pool: stride is not a sequence of ints, got 2"),
    (
        "kernel-float",
        _pool(kernel_size=(1.5, 2)),
        Attr,
        r"max_pool: kernel_size has the wrong type or range, got \(1.5, 2\), expected ints",
    ),
    (
        "auto-pad",
        _pool(auto_pad="same"),
        Attr,
        r"max_pool: unknown auto_pad, got 'same', expected one of 'not_set', 'same_upper', 'same_lower', 'valid'",
    ),
    (
        "storage-order",
        _pool(storage_order="diagonal"),
        Attr,
        r"max_pool: unknown storage_order, got 'diagonal', expected one of 'row', 'column'",
    ),
    (
        "window",
        _pool(kernel_size=(2, 4), dilation=(1, 3), padding=(0, 1, 0, 2)),
        Shape,
        r"max_pool: window is larger than the padded operand, got 10 of 9 on axis 3",
    ),
    ("window-valid", _mean(kernel_size=(6, 1), auto_pad="valid"), Shape, r"average_pool: .*6 of 5 on axis 2"),
    (
        "spread-big",
        lambda t: ops.max_pool(t(1, 1, 2**33), (1,), in_dilations=(2**31 - 1,)),
        Shape,
        r"max_pool: extent is too big to be spread, got 8589934592 on axis 2",
    ),
    ("pool-ints", lambda t: ops.max_pool(t.i(1, 2, 5), (2,)), DType, r"max_pool: input t has .*got i32"),
    # Interpolation
    (
        "scale-length",
        _resize(2, 3, scale_factor=(1.0,)),
        Attr,
        r"interpolate: scale_factor has the wrong length, got 1 numbers, expected 2",
    ),
    (
        "scale-number",
        _resize(2, scale_factor=2),
        Argument,
        r"interpolate: scale_factor is not a .*floats, got 2",
    ),
    ("scale-default", _resize(2, 3), Attr, r"interpolate: scale_factor has .*got 4 numbers, expected 2"),
    ("scale-zero", _resize(2, scale_factor=(0.0,)), Attr, r"interpolate: scale_factor is .*got 0 on axis 0"),
    ("scale-low", _resize(2, scale_factor=(-1,)), Attr, r"interpolate: scale_factor is .*got -1 on axis 0"),
    ("scale-nan", _resize(2, scale_factor=(np.nan,)), Attr, r"interpolate: scale_factor is .*got nan"),
    ("scale-inf", _resize(2, scale_factor=(np.inf,)), Attr, r"interpolate: scale_factor is .*got inf"),
    ("scale-empty", _resize(0, scale_factor=(np.inf,)), Attr, r"interpolate: scale_factor is .*got inf"),
    ("scale-big", _resize(2, scale_factor=(1e18,)), Attr, r"interpolate: scale_factor is .*got 1e\+18"),
    (
        "scale-text",
        _resize(2, scale_factor=("x",)),
        Attr,
        r"interpolate: scale_factor has the wrong type or range, got \('x',\), expected floats",
    ),
    ("scale-number", _resize(2, scale_factor=2.0), Argument, r"interpolate: scale_factor is not a sequence"),
    (
        "nothing-left",
        _resize(1, 2, 5, 6, scale_factor=(1, 1, 0.1, 1)),
        Shape,
        r"interpolate: nothing would be left, got scale_factor 0.1 on axis 2 of \[1, 2, 5, 6\], expected 1 / 5",
    ),
    ("mode", _resize(mode="area"), Attr, r"interpolate: unknown mode, got 'area', expected one of 'nearest'"),
    ("nearest", _resize(nearest_mode="up"), Attr, r"interpolate: unknown nearest_mode, got 'up'"),
    (
        "coordinates",
        _resize(coordinate_transformation_mode="corners"),
        Attr,
        r"interpolate: unknown coordinate_transformation_mode, got 'corners'",
    ),
    (
        "resize-list",
        lambda t: ops.interpolate([1.0]),  # type: ignore[arg-type]
        Argument,
        r"interpolate: t is not a Tensor, got \[1.0\]",
    ),
    # Regions
    (
        "roi-rank",
        lambda t: _roi(t(3, 5, 6), t(4, 4), t.i(4)),
        Shape,
        r"roi_align: operand is not an image, got f32\[3, 5, 6\]",
    ),
    (
        "roi-corners",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 5), t.i(4)),
        Shape,
        r"roi_align: rois are not rows of corners, got f32\[4, 5\], expected shape \[regions, 4\]",
    ),
    (
        "roi-samples",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 4), t.i(3)),
        Shape,
        r"roi_align: batch_index does not match rois, got i32\[3\], expected shape \[4\]",
    ),
    (
        "roi-dtype",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 4, kind=popsr.float16), t.i(4)),
        DType,
        r"roi_align: .*f32\[2, 3, 5, 6\] and f16\[4, 4\], expected equal dtypes",
    ),
    (
        "roi-floats",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 4), t(4)),
        DType,
        r"roi_align: input batch_index has the wrong dtype, got f32",
    ),
    ("bins-length", _regions(output_size=(2,)), Attr, r"roi_align: output_size is .*got \[2\], expected two"),
    ("bins-zero", _regions(output_size=(2, 0)), Attr, r"roi_align: output_size is .*got \[2, 0\]"),
    (
        "bins-int",
        _regions(output_size=2),
        Argument,
        r"roi_align: output_size is not a sequence of ints, got 2",
    ),
    ("roi-scale", _regions(spatial_scale=0.0), Attr, r"roi_align: spatial_scale is out of range, got 0"),
    ("roi-scale-nan", _regions(spatial_scale=np.nan), Attr, r"roi_align: spatial_scale is .*got nan"),
    ("ratio-low", _regions(sampling_ratio=-1), Attr, r"roi_align: sampling_ratio is out of range, got -1"),
    ("ratio-big", _regions(sampling_ratio=2**31), Attr, r"roi_align: sampling_ratio is .*got 2147483648"),
]


@pytest.mark.parametrize(("build", "error", "match"), [pytest.param(*bad[1:], id=bad[0]) for bad in BAD])
def test_bad_input(build: Callable[[Operands], Any], error: type[Exception], match: str) -> None:
    assert_refused(lambda: build(Operands()), error, match)
