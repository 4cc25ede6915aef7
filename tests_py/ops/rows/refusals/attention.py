"""Attention with operands that do not fit."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal

Shape, DType, Argument = errors.ShapeError, errors.DTypeError, errors.ArgumentTypeError

REFUSALS: list[Refusal] = [
    Refusal(
        "rank",
        lambda t: ops.attention(t(4), t(5, 4), t(5, 2)),
        Shape,
        r"attention: operands have other batches, got f32\[4\], f32\[5, 4\] and f32\[5, 2\], expected equal axes",
    ),
    Refusal(
        "batch",
        lambda t: ops.attention(t(2, 3, 4), t(3, 5, 4), t(3, 5, 2)),
        Shape,
        r"attention: operands have other batches, got f32\[2, 3, 4\], f32\[3, 5, 4\]",
    ),
    Refusal(
        "sizes",
        lambda t: ops.attention(t(3, 4), t(5, 6), t(5, 2)),
        Shape,
        r"attention: sizes of queries and keys differ, got f32\[3, 4\] and f32\[5, 6\], expected equal last axes",
    ),
    Refusal(
        "numbers",
        lambda t: ops.attention(t(3, 4), t(5, 4), t(6, 2)),
        Shape,
        r"attention: numbers of keys and values differ, got f32\[5, 4\] and f32\[6, 2\]",
    ),
    Refusal(
        "mask-shape",
        lambda t: ops.attention(t(3, 4), t(5, 4), t(5, 2), t(5, 5)),
        Shape,
        r"attention: mask does not fit, got f32\[5, 5\], expected a shape that broadcasts to \[3, 5\]",
    ),
    Refusal(
        "mask-axes",
        lambda t: ops.attention(t(3, 4), t(5, 4), t(5, 2), t(1, 3, 5)),
        Shape,
        r"attention: mask does not fit, got f32\[1, 3, 5\], expected a shape that broadcasts to \[3, 5\]",
    ),
    Refusal(
        "dtypes",
        lambda t: ops.attention(t(3, 4), t(5, 4, kind=popsr.float16), t(5, 2)),
        DType,
        r"attention: .*expected equal dtypes",
    ),
    Refusal(
        "mask-dtype",
        lambda t: ops.attention(t(3, 4), t(5, 4), t(5, 2), t(3, 5, kind=popsr.float16)),
        DType,
        r"attention: .*expected equal dtypes",
    ),
    Refusal(
        "mask-kind",
        lambda t: ops.attention(t(3, 4), t(5, 4), t(5, 2), 1.0),  # type: ignore[arg-type]
        Argument,
        r"attention: mask is not a Tensor, got 1.0, expected a Tensor",
    ),
]
