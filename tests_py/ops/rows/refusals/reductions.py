"""Reductions, products and losses with operands or attributes that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal
from tests_py.support.helpers import SCHEMAS, over_axes

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError

OVER_AXES = over_axes()

REFUSALS: list[Refusal] = [
    Refusal("axis", lambda t: ops.sum(t(2, 3), axis=2), Attr, r"sum: axis .* got 2"),
    Refusal("low-axis", lambda t: ops.mean(t(2, 3), axis=[0, -3]), Attr, r"mean: axis .* got -3"),
    Refusal("axis-twice", lambda t: ops.max(t(2, 3), axis=[1, -1]), Attr, r"max: axis given twice, got 1"),
    Refusal("axis-type", lambda t: ops.sum(t(2, 3), axis="x"), errors.Error, r"sum: .*axis.*'x'"),
    Refusal(
        "max-of-none",
        lambda t: ops.max(t(0, 3), axis=0),
        Shape,
        r"max: there is no largest of no elements, got f32\[0, 3\]",
    ),
    Refusal("softmax", lambda t: ops.softmax(t(2, 3), 2), Attr, r"softmax: axis .* got 2"),
    Refusal(
        "inner",
        lambda t: ops.matmul(t(2, 3), t(2, 3)),
        Shape,
        r"matmul: inner dimensions differ, got f32\[2, 3\] @ f32\[2, 3\]",
    ),
    Refusal(
        "batch",
        lambda t: ops.matmul(t(2, 4, 3), t(5, 3, 2)),
        Shape,
        r"matmul: shapes do not broadcast, got \[2\] and \[5\]",
    ),
    Refusal(
        "scalar",
        lambda t: ops.matmul(t(), t(3)),
        Shape,
        r"matmul: operand is a scalar, got f32\[\] @ f32\[3\]",
    ),
    Refusal(
        "partials",
        lambda t: ops.matmul(t(2, 3), t(3, 2), partials_type=popsr.int8),
        errors.Error,
        r"matmul: .*partials_type",
    ),
    Refusal(
        "output",
        lambda t: ops.matmul(t(2, 3), t(3, 2), output_type=popsr.int8),
        DType,
        r"matmul: output_type .*int8",
    ),
    Refusal(
        "labels",
        lambda t: ops.nll_loss(t(2, 3), t(3, kind=popsr.int32)),
        Shape,
        r"nll_loss: labels do not match, .*i32\[3\]",
    ),
    *(
        Refusal(
            f"{kind.name} labels",
            lambda t, op=op, kind=kind: getattr(ops, op)(t(2, 3), t(2, kind=kind)),
            DType,
            rf"{op}: input labels has the wrong dtype, got \w+\[2\] .*, expected one of int8",
        )
        for op in ("nll_loss", "nll_loss_with_softmax_grad")
        for kind in (F16, F32, popsr.bool)
    ),
    Refusal(
        "reduction",
        lambda t: ops.nll_loss(t(2, 3), t(2, kind=popsr.int32), reduction="max"),
        Attr,
        r"nll_loss: unknown reduction, got 'max', expected one of 'mean', 'sum', 'none'",
    ),
    Refusal(
        "loss-grad",
        lambda t: ops.nll_loss_with_softmax_grad(t(2, 3), t(2, kind=popsr.int32), t(2)),
        Shape,
        r"nll_loss_with_softmax_grad: loss_grad does not match the loss, got f32\[2\], expected one element",
    ),
    *(
        Refusal(
            f"{op}-axis",
            lambda t, op=op: getattr(ops, op)(t(2, 3), 2),
            Attr,
            rf"{op}: axis out of range, got 2, expected -2 <= axis < 2",
        )
        for op in OVER_AXES
    ),
    *(
        Refusal(
            f"{op}-twice",
            lambda t, op=op: getattr(ops, op)(t(2, 3), [1, -1]),
            Attr,
            rf"{op}: axis given twice, got 1, expected different axes",
        )
        for op in OVER_AXES
    ),
    *(
        Refusal(
            f"{op}-bool",
            lambda t, op=op: getattr(ops, op)(t(2, kind=popsr.bool)),
            DType,
            rf"{op}: .*bool.* expected one of",
        )
        for op in (*OVER_AXES, "argmax", "argmin", "cumsum")
    ),
    *(
        Refusal(
            f"{op}-int",
            lambda t, op=op: getattr(ops, op)(t(2, kind=I32)),
            DType,
            rf"{op}: .*i32.* expected one of",
        )
        for op in OVER_AXES
        if "int32" not in SCHEMAS[op]["inputs"][0]["dtypes"]
    ),
    Refusal(
        "min-empty",
        lambda t: ops.min(t(2, 0)),
        Shape,
        r"min: there is no smallest of no elements, got .*f32\[2, 0\].*, expected reduced extents > 0",
    ),
    Refusal(
        "median-empty",
        lambda t: ops.median(t(2, 0), 1),
        Shape,
        r"median: there is no middle of no elements, got .*f32\[2, 0\]",
    ),
    Refusal(
        "argmax-empty",
        lambda t: ops.argmax(t(0, 2)),
        Shape,
        r"argmax: there is no largest of no elements, got .*f32\[0, 2\].*, expected an extent > 0",
    ),
    Refusal(
        "argmin-empty", lambda t: ops.argmin(t(0, 2)), Shape, r"argmin: there is no smallest of no elements"
    ),
    *(
        Refusal(
            f"{op}-scalar", lambda t, op=op: getattr(ops, op)(t()), Attr, rf"{op}: axis out of range, got 0"
        )
        for op in ("argmax", "argmin", "cumsum")
    ),
    *(
        Refusal(
            f"{op}-dim",
            lambda t, op=op: getattr(ops, op)(t(2, 3), -3),
            Attr,
            rf"{op}: axis out of range, got -3, expected -2 <= axis < 2",
        )
        for op in ("argmax", "argmin", "cumsum", "log_softmax")
    ),
    Refusal(
        "topk-k",
        lambda t: ops.topk(t(2, 3), 4, 1, True, True),
        Attr,
        r"topk: k out of range, got 4 of .*f32\[2, 3\].*, expected 0 <= k <= 3",
    ),
    Refusal(
        "topk-negative", lambda t: ops.topk(t(2, 3), -1, 1, True, True), Attr, r"topk: k out of range, got -1"
    ),
    Refusal(
        "topk-axis", lambda t: ops.topk(t(2, 3), 1, 2, True, True), Attr, r"topk: axis out of range, got 2"
    ),
    Refusal(
        "median-numbers",
        lambda t: ops.median(t(1 << 16, 1 << 15)),
        Shape,
        r"median: too many elements to number with int32, got .*, expected an extent < 2\^31",
    ),
    Refusal(
        "log-softmax-int",
        lambda t: ops.log_softmax(t(2, kind=I32), 0),
        DType,
        r"log_softmax: .*i32.* expected one of",
    ),
]
