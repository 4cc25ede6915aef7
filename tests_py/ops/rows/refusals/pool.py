"""Pooling, resizing and regions with operands or attributes that they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


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

REFUSALS: list[Refusal] = [
    Refusal(
        "rank-2",
        lambda t: ops.max_pool(t(2, 3), ()),
        Shape,
        r"max_pool: operand does not have .*got shape \[2, 3\]",
    ),
    Refusal(
        "rank-6",
        lambda t: ops.average_pool(t(1, 1, 2, 2, 2, 2), (1,) * 4),
        Shape,
        r"average_pool: operand does not have 1 to 3 spatial dimensions, got shape \[1, 1, 2, 2, 2, 2\], expected",
    ),
    Refusal(
        "kernel-length",
        _pool(kernel_size=(2,)),
        Attr,
        r"max_pool: kernel_size has the wrong length, got \[2\], expected 2 numbers",
    ),
    Refusal(
        "stride-length", _pool(stride=(1, 1, 1)), Attr, r"max_pool: stride has .*\[1, 1, 1\], expected 2"
    ),
    Refusal(
        "padding-length", _mean(padding=(1, 1)), Attr, r"average_pool: padding has .*\[1, 1\], expected 4"
    ),
    Refusal(
        "margin-length", _mean(out_pads=(1, 1)), Attr, r"average_pool: out_pads has .*\[1, 1\], expected 4"
    ),
    Refusal("dilation-length", _pool(dilation=()), Attr, r"max_pool: dilation has .*\[\], expected 2"),
    Refusal(
        "spread-length", _pool(in_dilations=(2,)), Attr, r"max_pool: in_dilations has .*\[2\], expected 2"
    ),
    Refusal(
        "kernel-zero", _pool(kernel_size=(2, 0)), Attr, rf"max_pool: kernel_size is .*\[2, 0\], {_RANGE}"
    ),
    Refusal("stride-zero", _mean(stride=(0, 1)), Attr, rf"average_pool: stride is .*\[0, 1\], {_RANGE}"),
    Refusal("dilation-low", _pool(dilation=(1, -1)), Attr, rf"max_pool: dilation is .*\[1, -1\], {_RANGE}"),
    Refusal(
        "spread-zero", _pool(in_dilations=(0, 1)), Attr, rf"max_pool: in_dilations is .*\[0, 1\], {_RANGE}"
    ),
    Refusal("padding-low", _pool(padding=(0, 0, 0, -1)), Attr, r"max_pool: padding is .*-1\], expected 0 to"),
    Refusal("margin-low", _mean(out_pads=(0, -1, 0, 0)), Attr, r"average_pool: out_pads is .*expected 0 to"),
    Refusal("stride-big", _pool(stride=(1, 2**31)), Attr, rf"max_pool: stride is .*2147483648\], {_RANGE}"),
    Refusal(
        "kernel-int",
        _pool(kernel_size=2),
        Argument,
        r"max_pool: kernel_size is not a sequence of ints, got 2",
    ),
    Refusal(
        "stride-int", _mean(stride=2), Argument, r"average_pool: stride is not a sequence of ints, got 2"
    ),
    Refusal(
        "kernel-float",
        _pool(kernel_size=(1.5, 2)),
        Attr,
        r"max_pool: kernel_size has the wrong type or range, got \(1.5, 2\), expected ints",
    ),
    Refusal(
        "auto-pad",
        _pool(auto_pad="same"),
        Attr,
        r"max_pool: unknown auto_pad, got 'same', expected one of 'not_set', 'same_upper', 'same_lower', 'valid'",
    ),
    Refusal(
        "storage-order",
        _pool(storage_order="diagonal"),
        Attr,
        r"max_pool: unknown storage_order, got 'diagonal', expected one of 'row', 'column'",
    ),
    Refusal(
        "window",
        _pool(kernel_size=(2, 4), dilation=(1, 3), padding=(0, 1, 0, 2)),
        Shape,
        r"max_pool: window is larger than the padded operand, got 10 of 9 on axis 3",
    ),
    Refusal(
        "window-valid",
        _mean(kernel_size=(6, 1), auto_pad="valid"),
        Shape,
        r"average_pool: .*6 of 5 on axis 2",
    ),
    Refusal(
        "spread-big",
        lambda t: ops.max_pool(t(1, 1, 2**33), (1,), in_dilations=(2**31 - 1,)),
        Shape,
        r"max_pool: extent is too big to be dilated, got 8589934592 on axis 2",
    ),
    Refusal(
        "pool-ints", lambda t: ops.max_pool(t.i(1, 2, 5), (2,)), DType, r"max_pool: input t has .*got i32"
    ),
    Refusal(
        "scale-length",
        _resize(2, 3, scale_factor=(1.0,)),
        Attr,
        r"interpolate: scale_factor has the wrong length, got 1 numbers, expected 2",
    ),
    Refusal(
        "scale-number",
        _resize(2, scale_factor=2),
        Argument,
        r"interpolate: scale_factor is not a .*floats, got 2",
    ),
    Refusal(
        "scale-default", _resize(2, 3), Attr, r"interpolate: scale_factor has .*got 4 numbers, expected 2"
    ),
    Refusal(
        "scale-zero", _resize(2, scale_factor=(0.0,)), Attr, r"interpolate: scale_factor is .*got 0 on axis 0"
    ),
    Refusal(
        "scale-low", _resize(2, scale_factor=(-1,)), Attr, r"interpolate: scale_factor is .*got -1 on axis 0"
    ),
    Refusal("scale-nan", _resize(2, scale_factor=(np.nan,)), Attr, r"interpolate: scale_factor is .*got nan"),
    Refusal("scale-inf", _resize(2, scale_factor=(np.inf,)), Attr, r"interpolate: scale_factor is .*got inf"),
    Refusal(
        "scale-empty", _resize(0, scale_factor=(np.inf,)), Attr, r"interpolate: scale_factor is .*got inf"
    ),
    Refusal(
        "scale-big", _resize(2, scale_factor=(1e18,)), Attr, r"interpolate: scale_factor is .*got 1e\+18"
    ),
    Refusal(
        "scale-text",
        _resize(2, scale_factor=("x",)),
        Attr,
        r"interpolate: scale_factor has the wrong type or range, got \('x',\), expected floats",
    ),
    Refusal(
        "scale-number", _resize(2, scale_factor=2.0), Argument, r"interpolate: scale_factor is not a sequence"
    ),
    Refusal(
        "nothing-left",
        _resize(1, 2, 5, 6, scale_factor=(1, 1, 0.1, 1)),
        Shape,
        r"interpolate: nothing would be left, got scale_factor 0.1 on axis 2 of \[1, 2, 5, 6\], expected 1 / 5",
    ),
    Refusal(
        "mode",
        _resize(mode="area"),
        Attr,
        r"interpolate: unknown mode, got 'area', expected one of 'nearest'",
    ),
    Refusal("nearest", _resize(nearest_mode="up"), Attr, r"interpolate: unknown nearest_mode, got 'up'"),
    Refusal(
        "coordinates",
        _resize(coordinate_transformation_mode="corners"),
        Attr,
        r"interpolate: unknown coordinate_transformation_mode, got 'corners'",
    ),
    Refusal(
        "resize-list",
        lambda t: ops.interpolate([1.0]),
        Argument,
        r"interpolate: t is not a Tensor, got \[1.0\]",
    ),
    Refusal(
        "roi-rank",
        lambda t: _roi(t(3, 5, 6), t(4, 4), t.i(4)),
        Shape,
        r"roi_align: operand is not an image, got f32\[3, 5, 6\]",
    ),
    Refusal(
        "roi-corners",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 5), t.i(4)),
        Shape,
        r"roi_align: rois are not rows of corners, got f32\[4, 5\], expected shape \[regions, 4\]",
    ),
    Refusal(
        "roi-samples",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 4), t.i(3)),
        Shape,
        r"roi_align: batch_index does not match rois, got i32\[3\], expected shape \[4\]",
    ),
    Refusal(
        "roi-dtype",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 4, kind=popsr.float16), t.i(4)),
        DType,
        r"roi_align: .*f32\[2, 3, 5, 6\] and f16\[4, 4\], expected equal dtypes",
    ),
    Refusal(
        "roi-floats",
        lambda t: _roi(t(2, 3, 5, 6), t(4, 4), t(4)),
        DType,
        r"roi_align: input batch_index has the wrong dtype, got f32",
    ),
    Refusal(
        "bins-length",
        _regions(output_size=(2,)),
        Attr,
        r"roi_align: output_size is .*got \[2\], expected two",
    ),
    Refusal("bins-zero", _regions(output_size=(2, 0)), Attr, r"roi_align: output_size is .*got \[2, 0\]"),
    Refusal(
        "bins-int",
        _regions(output_size=2),
        Argument,
        r"roi_align: output_size is not a sequence of ints, got 2",
    ),
    Refusal(
        "roi-scale", _regions(spatial_scale=0.0), Attr, r"roi_align: spatial_scale is out of range, got 0"
    ),
    Refusal("roi-scale-nan", _regions(spatial_scale=np.nan), Attr, r"roi_align: spatial_scale is .*got nan"),
    Refusal(
        "ratio-low", _regions(sampling_ratio=-1), Attr, r"roi_align: sampling_ratio is out of range, got -1"
    ),
    Refusal(
        "ratio-big", _regions(sampling_ratio=2**31), Attr, r"roi_align: sampling_ratio is .*got 2147483648"
    ),
]
