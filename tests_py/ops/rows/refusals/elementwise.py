"""Element-wise ops with operands or attributes that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal
from tests_py.support.unchecked import unchecked

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


REFUSALS: list[Refusal] = [
    Refusal(
        "bits-of-floats",
        lambda t: ops.bitwise_and(t(2), t(2)),
        DType,
        r"bitwise_and: input lhs has the wrong dtype, got f32\[2\]",
    ),
    Refusal(
        "bits-dtypes", lambda t: ops.bitwise_or(t.i(2), t.seed(2)), DType, r"bitwise_or: .*i32\[2\] and u32"
    ),
    Refusal("bits-shapes", lambda t: ops.bitwise_xor(t.i(2), t.i(3)), Shape, r"bitwise_xor: shapes do not"),
    Refusal(
        "bits-dtype", lambda t: ops.bitwise_not(t(2)), DType, r"bitwise_not: input t has the wrong dtype"
    ),
    Refusal(
        "of-bool",
        lambda t: ops.shift_left(t(2, kind=popsr.bool), t(2, kind=popsr.bool)),
        DType,
        r"shift_left: input t has the wrong dtype, got bool\[2\]",
    ),
    Refusal(
        "amount",
        lambda t: ops.shift_right_logical(t.seed(2), t.i(2)),
        DType,
        r"shift_right_logical: operands differ in dtype, got u32\[2\] and i32\[2\]",
    ),
    Refusal(
        "no-integers", lambda t: ops.expm1(t.i(2)), DType, r"expm1: input t has the wrong dtype, got i32\[2\]"
    ),
    Refusal("mixed", lambda t: ops.atan2(t(2), t(2, kind=F64)), DType, r"atan2: .*f32\[2\] and f64\[2\]"),
    Refusal("signs", lambda t: ops.copysign(t(2), t(3)), Shape, r"copysign: shapes do not broadcast"),
    Refusal("half", lambda t: ops.round(t(2), half=unchecked("up")), Attr, r"round: .*'up'"),
    Refusal(
        "negative",
        lambda t: ops.integer_pow(t.i(2), -1),
        Attr,
        r"integer_pow: exponent is out of range, got -1 for i32\[2\], expected 0 to 2147483647",
    ),
    Refusal("large", lambda t: ops.integer_pow(t(2), 2**31), Attr, r"integer_pow: exponent is out of range"),
    Refusal(
        "fraction",
        lambda t: ops.integer_pow(t(2), unchecked(0.5)),
        Argument,
        r"integer_pow: exponent is not an int",
    ),
    Refusal(
        "types-of-less",
        lambda t: ops.less(t(2), t(2, kind=popsr.int64)),
        DType,
        r"less: no dtype holds the values of both operands",
    ),
    Refusal("xor", lambda t: ops.logical_xor(t(2), t(3)), Shape, r"logical_xor: shapes do not broadcast"),
    Refusal("none", lambda t: ops.minimum(), Graph, r"minimum: no operands, expected at least one"),
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
