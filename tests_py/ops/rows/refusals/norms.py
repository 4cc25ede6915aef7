"""Normalisations with operands or attributes that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


def _batch(make: Operands, /, **changed: popsr.Tensor) -> popsr.Tensor:
    operands = {"t": make(2, 3, 4), **{name: make(3) for name in ("scale", "bias", "mean", "var")}, **changed}
    return ops.batch_norm_inference(**operands)


REFUSALS: list[Refusal] = [
    Refusal(
        "",
        lambda t: ops.group_norm(t(4), t(4), t(4), 2),
        Shape,
        r"group_norm: too few dimensions, got f32\[4\], expected at least 2",
    ),
    Refusal(
        "", lambda t: ops.layer_norm(t(), t(1), t(1)), Shape, r"layer_norm: too few dimensions, got f32\[\]"
    ),
    Refusal(
        "",
        lambda t: ops.group_norm(t(2, 4), t(2), t(4), 2),
        Shape,
        r"group_norm: weight does not match the channels, got f32\[2\] for t f32\[2, 4\], expected shape \[4\]",
    ),
    Refusal(
        "",
        lambda t: ops.layer_norm(t(2, 4), t(4), t(4, 1)),
        Shape,
        r"layer_norm: bias does not .*f32\[4, 1\]",
    ),
    Refusal(
        "",
        lambda t: ops.layer_norm(t(2, 3, 4), t(4), t(4)),
        Shape,
        r"layer_norm: weight does not .*shape \[3\]",
    ),
    Refusal(
        "",
        lambda t: ops.layer_norm(t(2, 4), t(4, kind=F64), t(4)),
        DType,
        r"layer_norm: operands differ in dtype, got f32\[2, 4\] and f64\[4\], expected equal",
    ),
    Refusal(
        "", lambda t: ops.layer_norm(t(2, 4), t(4), t(4, kind=F64)), DType, r"layer_norm: operands differ"
    ),
    *(
        Refusal(
            "",
            lambda t, n=n: ops.group_norm(t(2, 4), t(4), t(4), n),
            Attr,
            rf"group_norm: num_groups does not divide the channels, got {n} groups of 4 channels",
        )
        for n in (3, 0, -2, 8)
    ),
    Refusal(
        "",
        lambda t: ops.group_norm(t(2, 4), t(4), t(4), 1.5),
        errors.Error,
        r"group_norm: .*num_groups.*1\.5",
    ),
    *(
        Refusal(
            "",
            lambda t, eps=eps: ops.layer_norm(t(2, 4), t(4), t(4), eps),
            Attr,
            rf"layer_norm: eps is not a finite number of at least 0, got {eps}, expected one",
        )
        for eps in (-1e-05, float("nan"), float("inf"))
    ),
    Refusal(
        "",
        lambda t: _batch(t, t=t(2, 3)),
        Shape,
        r"batch_norm_inference: too few dimensions, got f32\[2, 3\], expected at least 3",
    ),
    *(
        Refusal(
            "",
            lambda t, name=name: _batch(t, **{name: t(2)}),
            Shape,
            rf"batch_norm_inference: {name} does not match the channels, got f32\[2\]",
        )
        for name in ("scale", "bias", "mean", "var")
    ),
    Refusal(
        "", lambda t: _batch(t, var=t(3, kind=F64)), DType, r"batch_norm_inference: operands differ in dtype"
    ),
    Refusal(
        "",
        lambda t: ops.batch_norm_inference(t(2, 3, 4), *[t(3)] * 4, epsilon=-1.0),
        Attr,
        r"batch_norm_inference: epsilon is not a finite number of at least 0, got -1, expected one",
    ),
]
