"""Products of matrices."""

from __future__ import annotations

import math

import numpy as np

from popsr._support.fields import Numbers
from popsr.ops._exact.registry import Exact, exact

__all__ = ["product"]


@exact("matmul")
def matmul(op: Exact, a: Numbers, b: Numbers) -> Numbers:
    a = a.reshape((1, *a.shape)) if a.ndim == 1 else a
    b = b.reshape((*b.shape, 1)) if b.ndim == 1 else b
    if op["transpose_lhs"]:
        a = a.transpose([*range(a.ndim - 2), a.ndim - 1, a.ndim - 2])
    if op["transpose_rhs"]:
        b = b.transpose([*range(b.ndim - 2), b.ndim - 1, b.ndim - 2])
    return product(a, b).reshape(op.shape)


def product(a: Numbers, b: Numbers) -> Numbers:
    """Products of the last two axes, over axes before them that broadcast."""
    if a.ndim == b.ndim == 2:
        return a[None].matmul(b[None]).reshape((a.shape[0], b.shape[1]))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)
    left = a.broadcast_to((*batch, *a.shape[-2:])).reshape((count, *a.shape[-2:]))
    right = b.broadcast_to((*batch, *b.shape[-2:])).reshape((count, *b.shape[-2:]))
    return left.matmul(right).reshape((*batch, a.shape[-2], b.shape[-1]))
