"""Float8 tensors and scales that ops refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from popsr.ops import collectives, var_updates
from tests_py.ops.rows.refusals.refusal import Refusal
from tests_py.support.helpers import FLOAT8

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError

F8, F8W = popsr.float8_143, popsr.float8_152

REFUSALS: list[Refusal] = [
    Refusal(
        "cast-to",
        lambda t: ops.cast(t(2), F8),
        errors.DTypeError,
        r"cast: float8 needs a scale, got float8_143, expected",
    ),
    Refusal(
        "cast-from",
        lambda t: ops.cast(t(2, kind=F8), popsr.float32),
        errors.DTypeError,
        r"cast: input t has the wrong dty",
    ),
    Refusal(
        "add",
        lambda t: t(2, kind=F8) + t(2, kind=F8),
        errors.DTypeError,
        r"add: input lhs has the wrong dtype, got f8_143",
    ),
    Refusal(
        "equal",
        lambda t: ops.equal(t(2, kind=F8), t(2)),
        errors.DTypeError,
        r"equal: input \w+ has the wrong dtype",
    ),
    Refusal(
        "not",
        lambda t: ops.logical_not(t(2, kind=F8)),
        errors.DTypeError,
        r"logical_not: input \w+ has the wrong dtype, got f8_143\[2\]",
    ),
    Refusal(
        "where",
        lambda t: ops.where(t(2, kind=F8), t(2), t(2)),
        errors.DTypeError,
        r"where: input \w+ has the wrong dtype, got f8_143\[2\]",
    ),
    Refusal(
        "reduce",
        lambda t: collectives.replicated_all_reduce(t(2, kind=F8)),
        errors.DTypeError,
        r"replicated_all_reduce: input t has the wrong dtype, got f8_143\[2\]",
    ),
    Refusal(
        "copy",
        lambda t: var_updates.copy_var_update_(t(2), t(2, kind=F8)),
        errors.DTypeError,
        r"copy_var_update_: operands differ in dtype, got f32\[2\] and f8_143\[2\]",
    ),
    Refusal(
        "output-type",
        lambda t: ops.matmul(t(2, 2), t(2, 2), output_type=F8),
        errors.DTypeError,
        r"matmul: output_type is not a floating type, got float8_143",
    ),
    Refusal(
        "matmul",
        lambda t: ops.matmul(t(2, 2, kind=F8), t(2, 2, kind=F8)),
        errors.DTypeError,
        r"matmul: input lhs has the w",
    ),
    Refusal(
        "to",
        lambda t: ops.pow2scale_cast_to_fp8(t(2), t(kind=popsr.int32), popsr.float16),
        errors.DTypeError,
        rf"pow2scale_cast_to_fp8: wrong data_type, got float16, expected {', '.join(FLOAT8[:-1])} or {FLOAT8[-1]}",
    ),
    Refusal(
        "from",
        lambda t: ops.pow2scale_cast_from_fp8(t(2, kind=F8W), t(kind=popsr.int32), F8),
        errors.DTypeError,
        r"pow2scale_cast_from_fp8: wrong data_type, got float8_143, expected float16, bfloat16, float32 or float64",
    ),
    Refusal(
        "complex",
        lambda t: ops.pow2scale_cast_from_fp8(t(2, kind=F8W), t(kind=popsr.int32), popsr.complex64),
        errors.DTypeError,
        r"pow2scale_cast_from_fp8: tensors are not complex, got complex64",
    ),
    Refusal(
        "of-ints",
        lambda t: ops.pow2scale_cast_to_fp8(t(2, kind=popsr.int8), t(kind=popsr.int32), F8),
        errors.DTypeError,
        r"pow2scale_cast_to_fp8: input t has the wrong dtype, got i8\[2\]",
    ),
    Refusal(
        "scale-rank",
        lambda t: ops.pow2scale_cast_to_fp8(t(2), t(1, kind=popsr.int32), F8),
        errors.ShapeError,
        r"pow2scale_cast_to_fp8: log2_scale is not a scalar, got i32\[1\], expected i32\[\]",
    ),
    Refusal(
        "scale-dtype",
        lambda t: ops.pow2scale_cast_from_fp8(t(2, kind=F8), t(kind=popsr.int8), popsr.float16),
        errors.DTypeError,
        r"pow2scale_cast_from_fp8: input log2_scale has the wrong dtype, got i8\[\] .* expected one of int32",
    ),
    Refusal(
        "product-scale",
        lambda t: ops.matmul_pow2scaled(t(2, 2, kind=F8), t(2, 2, kind=F8), t(1, 1, kind=popsr.int32)),
        errors.ShapeError,
        r"matmul_pow2scaled: log2_scale is not a scalar, got i32\[1, 1\]",
    ),
    Refusal(
        "product-inner",
        lambda t: ops.matmul_pow2scaled(t(2, 3, kind=F8), t(2, 3, kind=F8W), t(kind=popsr.int32)),
        errors.ShapeError,
        r"matmul_pow2scaled: inner dimensions differ, got f8_143\[2, 3\] @ f8_152\[2, 3\]",
    ),
    Refusal(
        "product-scalar",
        lambda t: ops.matmul_pow2scaled(t(kind=F8), t(2, kind=F8), t(kind=popsr.int32)),
        errors.ShapeError,
        r"matmul_pow2scaled: operand is a scalar, got f8_143\[\] @ f8_143\[2\]",
    ),
]
