"""Names that writing and reading ONNX files share: dtypes, popsr's keys, the record that ends a file."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from popsr._support.host.frameworks import framework
from popsr.io._onnx.wire import delimited

__all__ = [
    "DATA_BYTES",
    "DATA_DIGEST",
    "DATA_FILE",
    "DIGEST",
    "OLD_DATA",
    "ONNX_TYPES",
    "PRODUCER",
    "digest_record",
    "entries_of",
    "field_names",
    "metadata",
    "require_onnx",
    "set_entries",
    "type_names",
]

PRODUCER = "popsr"
DIGEST = "popsr.digest"
DATA_FILE, DATA_BYTES, DATA_DIGEST = "popsr.dataFile", "popsr.dataBytes", "popsr.dataDigest"
OLD_DATA = "popsr.oldDataFiles"

ONNX_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "FLOAT": np.float32,
        "DOUBLE": np.float64,
        "FLOAT16": np.float16,
        "BFLOAT16": ml_dtypes.bfloat16,
        "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
        "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "FLOAT8E5M2": ml_dtypes.float8_e5m2,
        "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
        "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
        "INT8": np.int8,
        "INT16": np.int16,
        "INT32": np.int32,
        "INT64": np.int64,
        "UINT8": np.uint8,
        "UINT16": np.uint16,
        "UINT32": np.uint32,
        "UINT64": np.uint64,
        "BOOL": np.bool_,
    }.items()
}
"""NumPy's type by ONNX's name of it."""


def require_onnx(where: str) -> Any:
    """The onnx package.

    Raises:
        MissingPackageError: it is not installed, or too old.
    """
    return framework(where, "onnx")


@functools.cache
def field_names(message: Any) -> dict[int, str]:
    """Names of the fields of a message of the onnx package, by number."""
    return {field.number: field.name for field in message.DESCRIPTOR.fields}


@functools.cache
def type_names(onnx: Any) -> dict[int, str]:
    """ONNX's names of dtypes, by number."""
    return {code: name for name, code in onnx.TensorProto.DataType.items()}


def metadata(onnx: Any, entries: dict[str, str]) -> list[Any]:
    """Entries of ``metadata_props``."""
    return [onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items()]


def entries_of(message: Any) -> dict[str, str]:
    """``metadata_props`` of a message."""
    return {each.key: each.value for each in message.metadata_props}


def set_entries(message: Any, entries: dict[str, str]) -> None:
    """Set entries of ``metadata_props`` of a message; those of other keys stay."""
    known = {**entries_of(message), **entries}
    del message.metadata_props[:]
    for key, value in known.items():
        message.metadata_props.add(key=key, value=value)


def digest_record(onnx: Any, digest: str) -> bytes:
    """The last field of a file that popsr wrote: the digest of all that comes before."""
    entry = onnx.StringStringEntryProto(key=DIGEST, value=digest).SerializeToString()
    return delimited(onnx.ModelProto.METADATA_PROPS_FIELD_NUMBER, len(entry)) + bytes(entry)
