"""Random masks, which seeds decide, and scales by powers of two."""

from __future__ import annotations

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.ops._exact.linalg import matmul
from popsr.ops._exact.registry import Exact, exact
from popsr.ops._exact.windows import conv, conv_transpose

__all__: list[str] = []


@exact("dropout", "shaped_dropout")
def dropout(op: Exact, t: Numbers, seed: Array) -> Numbers:
    """The mask of the seed, as the kernel draws it, times what is masked."""
    (mask,) = op.run(np.ones(t.shape), seed)
    return t * Numbers.of(mask, op.low)


@exact("init")
def init(op: Exact) -> Numbers:
    """Zeros, or what is undefined until it is written."""
    return op.full(0.0 if op["init_type"] == "zero" else np.nan)


def _scaled(t: Numbers, log2_scale: Array) -> Numbers:
    power = int(np.clip(log2_scale.reshape(-1)[0], -32, 32))
    return t * t.constant(2.0**power)


@exact("pow2scale_cast_to_fp8", "pow2scale_cast_from_fp8")
def pow2scale_cast(_: Exact, t: Numbers, log2_scale: Array) -> Numbers:
    return _scaled(t, log2_scale)


@exact("matmul_pow2scaled")
def matmul_pow2scaled(op: Exact, a: Numbers, b: Numbers, log2_scale: Array) -> Numbers:
    return _scaled(matmul(op, a, b), log2_scale)


@exact("conv_pow2scaled")
def conv_pow2scaled(op: Exact, t: Numbers, weight: Numbers, log2_scale: Array) -> Numbers:
    return _scaled(conv(op, t, weight), log2_scale)


@exact("conv_transpose_pow2scaled")
def conv_transpose_pow2scaled(op: Exact, t: Numbers, weight: Numbers, log2_scale: Array) -> Numbers:
    return _scaled(conv_transpose(op, t, weight), log2_scale)
