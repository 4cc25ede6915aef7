"""Convolutions with operands or attributes that they refuse."""

from __future__ import annotations

from typing import Any

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError

T2, W2 = (1, 4, 5, 6), (6, 4, 3, 2)
Attrs = dict[str, Any]
Row = tuple[tuple[int, ...], tuple[int, ...], Attrs, type[Exception], str]

BOTH: list[Row] = [
    (
        (4, 5),
        (4, 4),
        {},
        Shape,
        r"t does not have 1 to 3 spatial axes, got \[4, 5\], expected \[N, C, spatial",
    ),
    ((1,) * 6, (1,) * 6, {}, Shape, r"t does not have 1 to 3 spatial axes, got \[1, 1, 1, 1, 1, 1\]"),
    (T2, (6, 4, 3), {}, Shape, r"weight and t differ in rank, got \[6, 4, 3\] and \[1, 4, 5, 6\]"),
    (T2, (4, 4, 0, 2), {}, Shape, r"the kernel has no elements, got weight \[4, 4, 0, 2\]"),
    ((1, 4, 2**31, 1), (4, 4, 1, 1), {}, Shape, r"t is too large, got \[1, 4, 2147483648, 1\]"),
    (T2, (4, 4, 3, 2), {"stride": (1,)}, Attr, r"stride has a wrong length, got \[1\], expected 2 numbers"),
    (
        T2,
        (4, 4, 3, 2),
        {"stride": (0, 1)},
        Attr,
        r"stride is out of range, got \[0, 1\], expected 1 <= stride",
    ),
    (T2, (4, 4, 3, 2), {"stride": (1, 2**31)}, Attr, r"stride is out of range, got \[1, 2147483648\]"),
    (T2, (4, 4, 3, 2), {"stride": 2}, Argument, r"stride is not a sequence of ints, got 2"),
    (T2, (4, 4, 3, 2), {"stride": ("a", "b")}, errors.Error, r"stride .*'a'"),
    (T2, (4, 4, 3, 2), {"dilation": (1, 1, 1)}, Attr, r"dilation has a wrong length, got \[1, 1, 1\]"),
    (T2, (4, 4, 3, 2), {"dilation": (1, -1)}, Attr, r"dilation is out of range, got \[1, -1\]"),
    (
        T2,
        (4, 4, 3, 2),
        {"padding": (1, 1)},
        Attr,
        r"padding has a wrong length, got \[1, 1\], expected 4 numbers",
    ),
    (T2, (4, 4, 3, 2), {"padding": (0, 0, -1, 0)}, Attr, r"padding is out of range, got \[0, 0, -1, 0\]"),
    (
        (1, 4, 5),
        (4, 4, 3),
        {"stride": (2, 2)},
        Attr,
        r"stride has a wrong length, got \[2, 2\], expected 1 num",
    ),
    (T2, (4, 4, 3, 2), {"groups": 0}, Attr, r"groups is not positive, got 0, expected 1 or more"),
    (T2, (4, 4, 3, 2), {"groups": "2"}, errors.Error, r"groups .*'2'"),
    (
        T2,
        (4, 4, 3, 2),
        {"pad_type": "same"},
        Attr,
        r"unknown pad_type, got 'same', expected one of 'not_set', 'same_upper'",
    ),
    (T2, (4, 4, 3, 2), {"pad_type": 1}, errors.Error, r"pad_type .*1"),
    (
        T2,
        (4, 4, 3, 2),
        {"partials_types": ["int"]},
        Attr,
        r"unknown partials_types entry, got 'int', expected one",
    ),
    (T2, (4, 4, 3, 2), {"partials_types": "half"}, Argument, r"partials_types is not a list, got 'half'"),
    (
        T2,
        (4, 4, 3, 2),
        {"available_memory_proportions": [1.5]},
        Attr,
        r"available_memory_.* got 1.5, expected 0",
    ),
    (T2, (4, 4, 3, 2), {"available_memory_proportions": ["a"]}, Attr, r"available_memory_.* got 'a'"),
    (T2, (4, 4, 3, 2), {"available_memory_proportions": 0.5}, Argument, r"available_memory_.* is not a list"),
    (T2, (4, 4, 3, 2), {"enable_conv_dithering": [2]}, Attr, r"unknown enable_conv_dithering entry, got 2"),
]
CONV: list[Row] = [
    (
        T2,
        (6, 3, 3, 2),
        {},
        Shape,
        r"weight does not fit the channels, got \[6, 3, 3, 2\] for \[1, 4, 5, 6\] in 1 g",
    ),
    (
        T2,
        (6, 2, 3, 2),
        {"groups": 4},
        Shape,
        r"weight does not fit the channels, .* in 4 groups, expected weight.s",
    ),
    (T2, (5, 2, 3, 2), {"groups": 2}, Shape, r"weight does not fit .*weight.shape\[0\] a multiple of groups"),
    (T2, (6, 1, 3, 2), {"groups": 3}, Shape, r"weight does not fit .* in 3 groups"),
    (
        T2,
        (6, 4, 6, 2),
        {},
        Shape,
        r"the kernel is larger than the padded input, got 6 positions for 5 along spatial",
    ),
    (
        T2,
        (6, 4, 3, 2),
        {"dilation": (1, 6)},
        Shape,
        r"larger than the padded input, got 7 positions for 6 along .* 1",
    ),
    (
        T2,
        (6, 4, 3, 7),
        {"pad_type": "valid", "padding": (1, 1, 1, 1)},
        Shape,
        r"larger than the padded input",
    ),
    (
        (1, 1, 1, 1, 1),
        (1, 1, 1, 1, 1),
        {"padding": (2**31 - 1,) * 6},
        Shape,
        r"the result is too large, got \[1, 1, 4294967295,",
    ),
]
TRANSPOSE: list[Row] = [
    (
        T2,
        (6, 4, 3, 2),
        {},
        Shape,
        r"weight does not fit the channels, .* expected weight.shape\[0\] == t.shape\[1\]",
    ),
    (T2, (4, 4, 3, 2), {"groups": 3}, Shape, r"weight does not fit the channels, .* in 3 groups"),
    (
        T2,
        (4, 4, 3, 2),
        {"padding": (5, 0, 3, 0)},
        Shape,
        r"padding takes more than .* 5 and 3 for 7 positions",
    ),
    (
        T2,
        (4, 4, 3, 2),
        {"output_padding": (1, 0)},
        Attr,
        r"output_padding is too large, got \[1, 0\], expected less",
    ),
    (T2, (4, 4, 3, 2), {"output_padding": (0,)}, Attr, r"output_padding has a wrong length, got \[0\]"),
    (T2, (4, 4, 3, 2), {"output_padding": (-1, 0)}, Attr, r"output_padding is out of range, got \[-1, 0\]"),
    (
        T2,
        (4, 4, 3, 2),
        {"output_shape": (9, 7)},
        Attr,
        r"output_shape is larger .* got \[9, 7\], expected at most 7",
    ),
    (T2, (4, 4, 3, 2), {"output_shape": (7,)}, Attr, r"output_shape has a wrong length, got \[7\]"),
    (T2, (4, 4, 3, 2), {"output_shape": (7, -1)}, Attr, r"output_shape is out of range, got \[7, -1\]"),
]

REFUSALS: list[Refusal] = [
    Refusal(
        "",
        lambda t, op=op, x=x, w=w, attrs=attrs: op(t(*x), t(*w), **attrs),
        error,
        rf"{op.__name__}: .*{match}",
    )
    for op, rows in ((ops.conv, [*BOTH, *CONV]), (ops.conv_transpose, [*BOTH, *TRANSPOSE]))
    for x, w, attrs, error, match in rows
] + [
    Refusal(
        "dtypes",
        lambda t, op=op: op(t(1, 2, 3, kind=F16), t(2, 2, 2, kind=BF16)),
        DType,
        rf"{op.__name__}: .*f16\[1, 2, 3\] and bf16\[2, 2, 2\]",
    )
    for op in (ops.conv, ops.conv_transpose)
]
