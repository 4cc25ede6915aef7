"""Names that writing and reading safetensors files share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["DIGEST_PREFIX", "METADATA", "TYPES"]

METADATA = "__metadata__"
DIGEST_PREFIX = b'{"__metadata__":{"popsr.digest":"'
"""The begin of the header of every file that popsr wrote."""

TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "F64": np.float64,
        "F32": np.float32,
        "F16": np.float16,
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
        "F4": ml_dtypes.float4_e2m1fn,
        "I64": np.int64,
        "I32": np.int32,
        "I16": np.int16,
        "I8": np.int8,
        "U64": np.uint64,
        "U32": np.uint32,
        "U16": np.uint16,
        "U8": np.uint8,
        "BOOL": np.bool_,
    }.items()
}
"""NumPy's type by the format's name of it."""
