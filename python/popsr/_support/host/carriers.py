"""Carriers on the host: OCP's scales and 4-bit floats, which are stored, moved and cast to and from float32.

``float8_e8m0fnu`` are the powers of two from 2**-127 to 2**127 and NaN, ``float4_e2m1fn`` are 0, 0.5, 1, 1.5, 2, 3, 4
and 6 of either sign, one element per byte. Both have ml_dtypes' types and casts; files hold two float4 a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.float_environment import in_default_environment

Array = np.ndarray[Any, Any]

__all__ = ["CARRIERS", "FLOAT4", "decode_carrier", "encode_carrier", "pack", "packed_bytes", "unpack"]

CARRIERS: frozenset[dtypes.dtype] = frozenset(kind for kind in dtypes.dtype._all.values() if kind._is_carrier)

FLOAT4 = dtypes.float4_e2m1fn.as_numpy()
"""NumPy's type of elements of which files have two a byte."""


@in_default_environment
def encode_carrier(values: Array, to: dtypes.dtype) -> Array:
    """float32 values as a carrier, as ml_dtypes casts them.

    To ``float8_e8m0fnu``: the nearest power of two, the greater one of two and between 2**-127 and 2**-126; positive
    values below become 2**-127; 0, negative values, NaN, infinities and what rounds to 2**128 become NaN. To
    ``float4_e2m1fn``: to nearest even; beyond 6, and infinities, 6 of their sign; NaN has no code and becomes a zero
    of the other sign.
    """
    with np.errstate(all="ignore"):
        return values.astype(to.as_numpy())


@in_default_environment
def decode_carrier(array: Array) -> Array:
    """The values of a carrier as float32, exactly."""
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def packed_bytes(count: int) -> int:
    """Bytes of so many 4-bit elements."""
    return (count + 1) // 2


def pack(codes: Array) -> Array:
    """4-bit elements in C order, two a byte, the first in the low bits; an odd one has zeros above it."""
    flat = np.ascontiguousarray(codes).view(np.uint8).reshape(-1) & 0x0F
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return np.asarray(flat[0::2] | (flat[1::2] << 4), np.uint8)


def unpack(packed: Array, shape: tuple[int, ...]) -> Array:
    """The elements of packed bytes, one per byte."""
    data = np.ascontiguousarray(packed).view(np.uint8).reshape(-1)
    codes = np.empty((data.size, 2), np.uint8)
    codes[:, 0] = data & 0x0F
    codes[:, 1] = data >> 4
    count = int(np.prod(shape, dtype=np.int64))
    return codes.reshape(-1)[:count].reshape(shape).view(FLOAT4)
