"""Dropout, random numbers and seeds with operands or attributes that they refuse."""

from __future__ import annotations

from typing import Any

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError

INF, NAN = float("inf"), float("nan")


def _uniform(t: Operands, low: float, high: float, kind: Any = F32) -> popsr.Tensor:
    return ops.random_uniform(t.seed(), (3,), low, high, kind)


REFUSALS: list[Refusal] = [
    *(
        Refusal(
            "",
            lambda t, p=p: ops.dropout(t(3), t.seed(), p),
            Attr,
            rf"dropout: p is not a chance below 1, got {p:g}, expected 0 <= p < 1",
        )
        for p in (1.0, -0.25, 2.0, float("nan"), float("inf"))
    ),
    Refusal(
        "",
        lambda t: ops.shaped_dropout(t(3), t.seed(), (3,), 1.0),
        Attr,
        r"shaped_dropout: ratio is not a chance below 1, got 1, expected 0 <= ratio < 1",
    ),
    Refusal(
        "",
        lambda t: ops.dropout(t(3), t.seed(3), 0.5),
        Shape,
        r"dropout: seed_tensor is not a seed, got u32\[3\]",
    ),
    Refusal(
        "",
        lambda t: ops.shaped_dropout(t(3), t.seed(1, 2), (3,), 0.5),
        Shape,
        r"shaped_dropout: seed_tensor is not a seed, got u32\[1, 2\], expected u32\[2\]",
    ),
    Refusal(
        "",
        lambda t: ops.dropout(t(3), t.seed(kind=popsr.int32), 0.5),
        DType,
        r"dropout: input seed_tensor has the wrong dtype, got i32\[2\]",
    ),
    Refusal(
        "",
        lambda t: ops.dropout(t(3, kind=popsr.int32), t.seed(), 0.5),
        DType,
        r"dropout: input t .*i32\[3\]",
    ),
    *(
        Refusal(
            "",
            lambda t, mask=mask: ops.shaped_dropout(t(2, 3), t.seed(), mask, 0.5),
            Shape,
            r"shaped_dropout: shape",
        )
        for mask in ((2,), (3, 3), (1, 2, 3), (4, 2, 3), (0, 3))
    ),
    Refusal(
        "",
        lambda t: ops.shaped_dropout(t(1, 3), t.seed(), (2, 3), 0.5),
        Shape,
        r"shaped_dropout: shape of the mask",
    ),
    Refusal(
        "",
        lambda t: ops.shaped_dropout(t(3), t.seed(), (-3,), 0.5),
        Shape,
        r"shaped_dropout: negative extent",
    ),
    Refusal(
        "",
        lambda t: ops.shaped_dropout(t(3), t.seed(), 3, 0.5),
        errors.ArgumentTypeError,
        r"shaped_dropout: shape is not a sequence of ints, got 3",
    ),
    Refusal("", lambda t: ops.dropout(t(3), t.seed(), "x"), errors.Error, r"dropout: .*p .*'x'"),
    Refusal(
        "",
        lambda t: ops.random_uniform(t.seed(3), (3,)),
        Shape,
        r"random_uniform: seed_tensor is not a seed, got u32\[3\], expected u32\[2\]",
    ),
    Refusal(
        "",
        lambda t: ops.random_normal(t.seed(1, 2), (3,)),
        Shape,
        r"random_normal: seed_tensor is not a seed, got u32\[1, 2\], expected u32\[2\]",
    ),
    Refusal(
        "",
        lambda t: ops.random_uniform(t.seed(kind=popsr.int32), (3,)),
        DType,
        r"random_uniform: input seed_tensor has the wrong dtype, got i32\[2\] .*, expected one of uint32",
    ),
    Refusal(
        "",
        lambda t: ops.random_uniform(t.seed(), (-1,)),
        Shape,
        r"random_uniform: negative extent, got \(-1,\)",
    ),
    Refusal(
        "",
        lambda t: ops.random_normal(t.seed(), (2, -3)),
        Shape,
        r"random_normal: negative extent, got \(2, -3\)",
    ),
    Refusal(
        "",
        lambda t: ops.random_normal(t.seed(), 3),
        Argument,
        r"random_normal: shape is not a sequence of ints, got 3",
    ),
    Refusal(
        "",
        lambda t: _uniform(t, 0.0, 1.0, popsr.int32),
        DType,
        r"random_uniform: dtype is not floating, got int32, expected one of float16",
    ),
    *(
        Refusal(
            "",
            lambda t, f8=f8: ops.random_normal(t.seed(), (3,), dtype=f8),
            DType,
            r"random_normal: dtype is not floating, got float8_1.., expected one of float16",
        )
        for f8 in (popsr.float8_143, popsr.float8_152)
    ),
    Refusal("", lambda t: ops.random_normal(t.seed(), (3,), dtype="x"), errors.Error, r"random_normal: .*x"),
    *(
        Refusal(
            "",
            lambda t, a=a, b=b: _uniform(t, a, b),
            Attr,
            r"random_uniform: range holds no number of float32, got low=",
        )
        for a, b in ((1.0, 1.0), (2.0, 1.0), (1.0 + 2.0**-30, 1.0 + 2.0**-29))
    ),
    *(
        Refusal(
            "",
            lambda t, a=a, b=b: _uniform(t, a, b),
            Attr,
            r"random_uniform: range is not finite in float32, got low=",
        )
        for a, b in ((-INF, 0.0), (0.0, INF), (NAN, 1.0), (0.0, NAN), (0.0, 1e39), (-1e39, 0.0))
    ),
    Refusal(
        "",
        lambda t: _uniform(t, 0.0, 65505.0, popsr.float16),
        Attr,
        r"random_uniform: range is not finite in float16, got low=0 and high=65505, expected finite bounds",
    ),
    Refusal(
        "",
        lambda t: _uniform(t, -1.7e308, 1.7e308, popsr.float64),
        Attr,
        r"random_uniform: range is not finite",
    ),
    Refusal("", lambda t: _uniform(t, "a", 1.0), errors.Error, r"random_uniform: .*low.*'a'"),
    *(
        Refusal(
            "",
            lambda t, m=m: ops.random_normal(t.seed(), (3,), m),
            Attr,
            rf"random_normal: mean is not finite, got {m}, expected a finite number",
        )
        for m in (INF, -INF, NAN)
    ),
    *(
        Refusal(
            "",
            lambda t, s=s: ops.random_normal(t.seed(), (3,), 0.0, s),
            Attr,
            rf"random_normal: std is not a deviation, got {s:g}, expected a finite number of at least 0",
        )
        for s in (-1.0, INF, NAN)
    ),
    Refusal(
        "",
        lambda t: ops.split_random_seed(t(3, kind=popsr.uint32)),
        errors.ShapeError,
        r"split_random_seed: seed is not a seed, got u32\[3\], expected u32\[2\]",
    ),
    Refusal(
        "",
        lambda t: ops.split_random_seed(t(kind=popsr.uint32)),
        ValueError,
        r"split_random_seed: seed is not a seed, got u32\[\]",
    ),
    *(
        Refusal(
            "",
            lambda t, error=error: ops.split_random_seed(t(2, kind=popsr.int32)),
            error,
            r"split_random_seed: input seed has the wrong dtype, got int32\[2\], expected one of uint32",
        )
        for error in (errors.DTypeError, ValueError)
    ),
    *(
        Refusal(
            "",
            lambda t, n=n: ops.split_random_seed(t(2, kind=popsr.uint32), n),
            errors.AttributeValueError,
            rf"split_random_seed: number of seeds is not positive, got {n}, expected 1 or more",
        )
        for n in (0, -1)
    ),
    *(
        Refusal(
            "",
            lambda t, n=n: ops.split_random_seed(t(2, kind=popsr.uint32), n),
            errors.AttributeValueError,
            rf"split_random_seed: too many seeds, got {n}, expected at most 65536",
        )
        for n in (65537, 2**62)
    ),
    Refusal(
        "",
        lambda t: ops.split_random_seed(t(2, kind=popsr.uint32), "x"),
        errors.Error,
        r"split_random_seed: .*n .*'x'",
    ),
    Refusal(
        "",
        lambda t: ops.create_random_seed(t(1, 2, kind=popsr.uint32), t(kind=popsr.uint32)),
        ValueError,
        r"create_random_seed: seed is not a seed, got u32\[1, 2\]",
    ),
    Refusal(
        "",
        lambda t: ops.create_random_seed(t(2, kind=popsr.float32), t(kind=popsr.uint32)),
        ValueError,
        r"create_random_seed: input seed has the wrong dtype, got float32\[2\]",
    ),
    Refusal(
        "",
        lambda t: ops.create_random_seed(t(2, kind=popsr.uint32), t(2, kind=popsr.uint32)),
        errors.ShapeError,
        r"create_random_seed: modifier is not a scalar, got u32\[2\], expected one element",
    ),
    Refusal(
        "",
        lambda t: ops.create_random_seed(t(2, kind=popsr.uint32), t(kind=popsr.float32)),
        errors.DTypeError,
        r"create_random_seed: input modifier has the wrong dtype, got f32\[\]",
    ),
]
