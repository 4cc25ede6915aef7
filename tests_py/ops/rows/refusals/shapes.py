"""Ops that move or view elements, with operands or attributes that they refuse."""

from __future__ import annotations

import numpy as np

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError

X = np.arange(24, dtype=np.float32).reshape(4, 6) - 11

REFUSALS: list[Refusal] = [
    Refusal(
        "small", lambda t: ops.expand(t(2, 3), (3,)), Shape, r"expand: shape is too small, got f32\[2, 3\]"
    ),
    Refusal(
        "other",
        lambda t: ops.expand(t(2, 3), (2, 4)),
        Shape,
        r"expand: shapes do not broadcast, got \[2, 3\]",
    ),
    Refusal("negative", lambda t: ops.expand(t(1), (-1,)), Attr, r"expand: extent is negative, got \[-1\]"),
    Refusal(
        "permutation-length",
        lambda t: ops.transpose(t(2, 3), (0,)),
        Attr,
        r"transpose: .*\[0\], expected 2 axes",
    ),
    Refusal("permutation-range", lambda t: ops.transpose(t(2, 3), (0, 2)), Attr, r"transpose: axis .* got 2"),
    Refusal(
        "permutation-twice",
        lambda t: ops.transpose(t(2, 3), (0, 0)),
        Attr,
        r"transpose: axis given twice, got 0",
    ),
    Refusal(
        "count",
        lambda t: ops.reshape(t(2, 3), (4,)),
        Shape,
        r"reshape: .*f32\[2, 3\] to \[4\], expected 6 elements",
    ),
    Refusal(
        "inferred-count",
        lambda t: ops.reshape(t(2, 3), (4, -1)),
        Shape,
        r"reshape: .*f32\[2, 3\] to \[4, -1\]",
    ),
    Refusal(
        "two-inferred",
        lambda t: ops.reshape(t(4), (-1, -1)),
        Attr,
        r"reshape: more than one extent .*\[-1, -1\]",
    ),
    Refusal(
        "zero-extent", lambda t: ops.reshape(t(4), (0, 4)), Attr, r"reshape: .*not positive, got \[0, 4\]"
    ),
    Refusal(
        "low-extent", lambda t: ops.reshape(t(4), (-2, 2)), Attr, r"reshape: .*not positive, got \[-2, 2\]"
    ),
    Refusal(
        "squeeze-size",
        lambda t: ops.squeeze(t(2, 1), [0]),
        Shape,
        r"squeeze: axis 0 .*f32\[2, 1\], expected extent 1",
    ),
    Refusal(
        "squeeze-twice", lambda t: ops.squeeze(t(1, 1), [0, -2]), Attr, r"squeeze: axis given twice, got 0"
    ),
    Refusal("squeeze-range", lambda t: ops.squeeze(t(1), [1]), Attr, r"squeeze: axis .* got 1"),
    Refusal("slice-lengths", lambda t: ops.slice(t(4, 4), [0, 1], [2]), Attr, r"slice: .*differ in length"),
    Refusal(
        "slice-step",
        lambda t: ops.slice(t(4), 0, 4, 0),
        Attr,
        r"slice: step must not be 0, got 0, expected another int",
    ),
    Refusal(
        "slice-inverted",
        lambda t: ops.slice(t(4), 3, 1),
        Shape,
        r"slice: range is inverted, got 3 to 1 of extent 4",
    ),
    Refusal("slice-axis", lambda t: ops.slice(t(4), 0, 1, axis=1), Attr, r"slice: axis .* got 1"),
    Refusal("slice-type", lambda t: ops.slice(t(4), "a"), Argument, r"slice: bound is not an int.*'a'"),
    Refusal("cast", lambda t: ops.cast(t(2), "float31"), errors.Error, r"cast: .*float31"),
    Refusal(
        "constant",
        lambda t: ops.relu_(popsr.constant(X).T_),
        errors.GraphError,
        r"relu_: input t is modified but c",
        operands=("transpose_",),
    ),
    Refusal(
        "constant-beside",
        lambda t: ops.add_(ops.concat_([t(4, 6), popsr.constant(X)]), t(4, 6)),
        errors.GraphError,
        r"add_: input lhs is modified but constant, got '.*concat__out'",
        operands=("concat_",),
    ),
    Refusal(
        "twice",
        lambda t: ops.relu_(ops.concat_([t(4, 6)] * 2)),
        errors.GraphError,
        r"relu_: input t is modified but it, or what it is a part of, holds an element twice, got",
        operands=("concat_",),
    ),
    Refusal(
        "no-operand",
        lambda t: ops.concat([]),
        errors.GraphError,
        r"concat: no operands, expected at least one",
    ),
    Refusal(
        "no-view",
        lambda t: ops.concat_([]),
        errors.GraphError,
        r"concat_: no operands, expected at least one",
    ),
    Refusal(
        "concat-shapes",
        lambda t: ops.concat([t(4, 6), t(4, 5)]),
        errors.ShapeError,
        r"concat: shapes differ beside axis 0, got .*\[4, 6\].* and .*\[4, 5\].*, expected equal other extents",
    ),
    Refusal(
        "concat-ranks",
        lambda t: ops.concat_([t(4, 6), t(4)], 1),
        errors.ShapeError,
        r"concat_: shapes differ",
    ),
    Refusal("concat-dtypes", lambda t: ops.concat([t(4, 6), t.i(4, 6)]), errors.DTypeError, r"concat: "),
    Refusal("concat-axis", lambda t: ops.concat([t(4, 6)], 2), errors.AttributeValueError, r"concat: "),
    Refusal("concat-scalars", lambda t: ops.concat([t()]), errors.AttributeValueError, r"concat: "),
    Refusal(
        "concat-tensor",
        lambda t: ops.concat(t(4, 6)),
        errors.ArgumentTypeError,
        r"concat: ts is not a Tensor list, got Ten",
    ),
    Refusal(
        "concat-number",
        lambda t: ops.concat_(3),
        errors.ArgumentTypeError,
        r"concat_: ts is not a Tensor list, got 3",
    ),
    Refusal(
        "concat-array",
        lambda t: ops.concat_([t(4, 6), X]),
        errors.ArgumentTypeError,
        r"concat_: ts\[1\] is not a Tensor",
    ),
    Refusal(
        "slice-lists",
        lambda t: ops.slice_(t(4, 6), [0, 1], [2]),
        errors.AttributeValueError,
        r"slice_: lists differ in",
    ),
    Refusal(
        "slice-step",
        lambda t: ops.slice_(t(4, 6), 0, 2, 0),
        errors.AttributeValueError,
        r"slice_: step must not be 0",
    ),
    Refusal(
        "slice-inverted", lambda t: ops.slice_(t(4, 6), 2, 0), errors.ShapeError, r"slice_: range is inverted"
    ),
    Refusal(
        "slice-bound",
        lambda t: ops.slice_(t(4, 6), "a"),
        errors.ArgumentTypeError,
        r"slice_: bound is not an int",
    ),
    Refusal(
        "slice-axis", lambda t: ops.slice_(t(4, 6), 0, 1, axis=2), errors.AttributeValueError, r"slice_: "
    ),
    Refusal(
        "reshape",
        lambda t: ops.reshape_(t(4, 6), (5,)),
        errors.ShapeError,
        r"reshape_: numbers of elements differ",
    ),
    Refusal(
        "reshape-0",
        lambda t: t(4, 6).reshape_((0, -1)),
        errors.AttributeValueError,
        r"reshape_: shape holds an extent",
    ),
    Refusal(
        "transpose",
        lambda t: ops.transpose_(t(4, 6), (0, 0)),
        errors.AttributeValueError,
        r"transpose_: axis given twice",
    ),
    Refusal(
        "transpose-1",
        lambda t: t(4, 6).transpose_((1,)),
        errors.AttributeValueError,
        r"transpose_: permutation has the wr",
    ),
    Refusal(
        "split-parts",
        lambda t: ops.split(t(4, 6), 3),
        errors.ShapeError,
        r"split: parts are not equal, got 3 of extent 4",
    ),
    Refusal(
        "split-0",
        lambda t: ops.split(t(4, 6), 0),
        errors.AttributeValueError,
        r"split: number of parts is not positive",
    ),
    Refusal(
        "split-sum",
        lambda t: ops.split(t(4, 6), [1, 2]),
        errors.ShapeError,
        r"split: extents do not fill axis 0, got",
    ),
    Refusal(
        "split-negative",
        lambda t: ops.split(t(4, 6), [5, -1]),
        errors.AttributeValueError,
        r"split: an extent is negative",
    ),
    Refusal(
        "split-axis",
        lambda t: ops.split(t(4, 6), 2, 2),
        errors.AttributeValueError,
        r"split: axis is out of range, got 2",
    ),
    Refusal("split-type", lambda t: ops.split(X, 2), errors.ArgumentTypeError, r"split: t is not a Tensor"),
    Refusal("split-word", lambda t: ops.split(t(4, 6), "ab"), errors.ArgumentTypeError, r"split: splits"),
]
