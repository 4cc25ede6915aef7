"""Element-wise ops with operands or attributes that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


REFUSALS: list[Refusal] = [
    Refusal(
        "broadcast",
        lambda t: ops.add(t(2, 3), t(2, 4)),
        Shape,
        r"add: shapes do not broadcast, got \[2, 3\] and \[2, 4\], expected equal or 1",
    ),
    Refusal(
        "dtypes",
        lambda t: ops.mul(t(2), t(2, kind=BF16)),
        DType,
        r"mul: .*f32\[2\] and bf16\[2\], expected equal dtypes",
    ),
    Refusal(
        "loss-scale",
        lambda t: ops.mul(t(2, kind=F16), t(2)),
        DType,
        r"mul: .*f16\[2\] and f32\[2\], expected equal",
    ),
    Refusal("inplace-grows", lambda t: ops.add_(t(3), t(2, 3)), Shape, r"add_: .*expected a result of \[3\]"),
    Refusal(
        "constant",
        lambda t: ops.relu_(popsr.constant([1.0])),
        Graph,
        r"relu_: input t is modified but constant, got '.*t'",
    ),
    Refusal("maximum", lambda t: ops.maximum(t(2, 3), t(3), t(2)), Shape, r"maximum: .*\[2, 3\] and \[2\]"),
    Refusal("scaled", lambda t: ops.scaled_add(t(2), t(3)), Shape, r"scaled_add: .*f32\[2\] and f32\[3\]"),
    Refusal(
        "factor",
        lambda t: ops.scaled_add(t(2), t(2), a=t(2)),
        Shape,
        r"scaled_add: factor is not a scalar, got f32\[2\]",
    ),
    Refusal("text", lambda t: ops.scaled_add(t(2), t(2), a="x"), errors.Error, r"scaled_add: a .*'x'"),
    Refusal(
        "meta", lambda t: ops.add(t(3, meta=(5,)), t(3, meta=(6,))), Shape, r"add: .*got \[5\] and \[6\]"
    ),
    Refusal(
        "shapes",
        lambda t: ops.equal(t(2), t(3)),
        errors.ShapeError,
        r"equal: shapes do not broadcast, got \[2\] and \[3\]",
    ),
    Refusal(
        "types",
        lambda t: ops.greater(t(2), t(2, kind=popsr.int64)),
        errors.DTypeError,
        r"greater: no dtype holds the values of both operands, got f32\[2\] and i64\[2\], expected a cast of one",
    ),
    Refusal(
        "signs",
        lambda t: ops.equal(t(1, kind=popsr.uint64), t(1, kind=popsr.int8)),
        errors.DTypeError,
        r"equal: no dtype holds",
    ),
    Refusal(
        "where",
        lambda t: ops.where(t(2), t(2), t(2, kind=popsr.float64)),
        errors.DTypeError,
        r"where: operands differ in dtype, got f32\[2\] and f64\[2\]",
    ),
    Refusal(
        "where-shapes",
        lambda t: ops.where(t(3), t(2), t(1)),
        errors.ShapeError,
        r"where: shapes do not broadcast",
    ),
    Refusal(
        "fmod",
        lambda t: ops.fmod(t(2), t(2, kind=popsr.int32)),
        errors.DTypeError,
        r"fmod: .*expected equal dtypes",
    ),
    Refusal(
        "bound",
        lambda t: ops.clip(t(2), min=float("nan")),
        errors.AttributeValueError,
        r"clip: a bound is not a number, got min=nan and max=inf, expected numbers",
    ),
    Refusal("bound-type", lambda t: ops.clip(t(2), "x"), errors.Error, r"clip: min .*'x'"),
    Refusal(
        "modulus",
        lambda t: ops.increment_mod(t(2), 1, 0),
        errors.AttributeValueError,
        r"increment_mod: modulus is zero in the dtype, got 0 for f32\[2\], expected another number",
    ),
    Refusal(
        "small-modulus",
        lambda t: ops.increment_mod(t(2, kind=popsr.int32), 1, -0.5),
        errors.AttributeValueError,
        r"increment_mod: modulus is zero in the dtype, got -0.5 for i32\[2\]",
    ),
    Refusal(
        "negative-modulus",
        lambda t: ops.increment_mod_(t(2, kind=popsr.uint8), 1, -3),
        errors.AttributeValueError,
        r"increment_mod_: modulus is zero in the dtype, got -3 for u8\[2\]",
    ),
    Refusal(
        "increment",
        lambda t: ops.increment_mod(t(2), float("inf"), 1),
        errors.AttributeValueError,
        r"increment_mod: increment is not finite, got inf, expected a finite number",
    ),
    Refusal(
        "constant",
        lambda t: ops.swish_(popsr.constant([1.0])),
        errors.GraphError,
        r"swish_: input t is modified but constant",
    ),
]
