"""Single elements at indices and quantised numbers with operands or attributes that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal

F16, I8, U8, I32 = popsr.float16, popsr.int8, popsr.uint8, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError

REFUSALS: list[Refusal] = [
    Refusal(
        "rank",
        lambda t: ops.gather_elements(t(5, 3), t.i(4)),
        Shape,
        r"gather_elements: indices do not fit, got i32\[4\] for f32\[5, 3\], expected equal ranks",
    ),
    Refusal(
        "extent",
        lambda t: ops.gather_elements(t(5, 3), t.i(9, 4)),
        Shape,
        r"gather_elements: indices do not fit, got i32\[9, 4\] for f32\[5, 3\], .*but on axis 0",
    ),
    Refusal(
        "axis",
        lambda t: ops.gather_elements(t(5, 3), t.i(4, 3), axis=2),
        Attr,
        r"gather_elements: axis out of range, got 2",
    ),
    Refusal(
        "scalar",
        lambda t: ops.gather_elements(t(), t.i()),
        Attr,
        r"gather_elements: axis out of range, got 0",
    ),
    Refusal(
        "index-dtype",
        lambda t: ops.gather_elements(t(5, 3), t(4, 3)),
        DType,
        r"gather_elements: input indices has the wrong dtype, got f32",
    ),
    Refusal(
        "updates",
        lambda t: ops.scatter_elements(t(5, 3), t.i(4, 3), t(4, 2)),
        Shape,
        r"scatter_elements: ",
    ),
    Refusal(
        "update-dtype",
        lambda t: ops.scatter_elements(t(5, 3), t.i(4, 3), t(4, 3, kind=F16)),
        DType,
        r"scatter_elements: .*expected equal dtypes",
    ),
    Refusal(
        "scatter-extent",
        lambda t: ops.scatter_elements(t(5, 3), t.i(4, 5), t(4, 5)),
        Shape,
        r"scatter_elements: indices do not fit, got i32\[4, 5\]",
    ),
    Refusal(
        "reduction",
        lambda t: ops.scatter_elements(t(5), t.i(4), t(4), reduction="add"),  # type: ignore[arg-type]
        Attr,
        r"scatter_elements: unknown reduction, got 'add', expected one of 'none', 'sum'",
    ),
    Refusal(
        "scales",
        lambda t: ops.quantize_linear(t(2, 3), t(2)),
        Shape,
        r"quantize_linear: scales do not match, got f32\[2\] for f32\[2, 3\], expected shape \[3\] or one number",
    ),
    Refusal(
        "blocks",
        lambda t: ops.quantize_linear(t(2, 7), t(2, 2), block_size=3),
        Shape,
        r"quantize_linear: scales do not match, got f32\[2, 2\] for f32\[2, 7\], expected shape \[2, 3\]",
    ),
    Refusal(
        "block-size",
        lambda t: ops.quantize_linear(t(2, 7), t(), block_size=-1),
        Attr,
        r"quantize_linear: block_size is negative, got -1, expected 0 or more",
    ),
    Refusal(
        "quantized-axis",
        lambda t: ops.quantize_linear(t(2, 7), t(7), axis=2),
        Attr,
        r"quantize_linear: axis out of range, got 2",
    ),
    Refusal(
        "to",
        lambda t: ops.quantize_linear(t(2, 7), t(), data_type=I32),
        DType,
        r"quantize_linear: wrong data_type, got int32, expected int8, uint8, int16 or uint16",
    ),
    Refusal(
        "zero-dtype",
        lambda t: ops.quantize_linear(t(2, 7), t(), t(kind=I8)),
        DType,
        r"quantize_linear: zero_point has the wrong dtype, got i8\[\], expected uint8",
    ),
    Refusal(
        "zero-shape",
        lambda t: ops.quantize_linear(t(2, 7), t(7), t(kind=U8)),
        Shape,
        r"quantize_linear: ",
    ),
    Refusal(
        "codes",
        lambda t: ops.dequantize_linear(t(2, 7), t()),
        DType,
        r"dequantize_linear: input t has the wrong dtype, got f32",
    ),
    Refusal(
        "dequantize-zero",
        lambda t: ops.dequantize_linear(t(2, 7, kind=U8), t(), t(kind=I8)),
        DType,
        r"dequantize_linear: .*expected equal dtypes",
    ),
    Refusal(
        "dequantize-scales",
        lambda t: ops.dequantize_linear(t(2, 7, kind=U8), t(2)),
        Shape,
        r"dequantize_linear: scales do not match",
    ),
    Refusal(
        "product-inner",
        lambda t: ops.matmul_integer(t(2, 3, kind=U8), t(2, 3, kind=I8)),
        Shape,
        r"matmul_integer: inner dimensions differ, got u8\[2, 3\] @ i8\[2, 3\]",
    ),
    Refusal(
        "product-zeros",
        lambda t: ops.matmul_integer(t(2, 3, kind=U8), t(3, 4, kind=I8), None, t(3, kind=I8)),
        Shape,
        r"matmul_integer: rhs_zero does not match, got i8\[3\] for i8\[3, 4\], expected one number or shape \[4\]",
    ),
    Refusal(
        "product-lhs-zero",
        lambda t: ops.matmul_integer(t(2, 3, kind=U8), t(3, 4, kind=I8), t(2, kind=U8)),
        Shape,
        r"matmul_integer: ",
    ),
    Refusal(
        "product-zero-dtype",
        lambda t: ops.matmul_integer(t(2, 3, kind=U8), t(3, 4, kind=I8), t(kind=I8)),
        DType,
        r"matmul_integer: .*expected equal dtypes",
    ),
    Refusal(
        "product-dtype",
        lambda t: ops.matmul_integer(t(2, 3), t(3, 4)),
        DType,
        r"matmul_integer: input lhs has the wrong dtype, got f32",
    ),
]
