"""The fields of a model's file, counted before the file becomes messages, which take many times its bytes."""

from __future__ import annotations

import functools
from typing import Any

from popsr.io._budget import Budget
from popsr.io._onnx.wire import DELIMITED, Cursor
from popsr.io._open_file import OpenFile

__all__ = ["count_fields"]

_MAX_DEPTH = 100  # of messages, as the reader of messages has it
_PARTS = {
    "ModelProto": {"graph": "GraphProto", "functions": "FunctionProto", "opset_import": "OperatorSetIdProto"},
    "GraphProto": {
        "node": "NodeProto",
        "initializer": "TensorProto",
        "input": "ValueInfoProto",
        "output": "ValueInfoProto",
        "value_info": "ValueInfoProto",
    },
    "FunctionProto": {
        "node": "NodeProto",
        "attribute_proto": "AttributeProto",
        "opset_import": "OperatorSetIdProto",
        "value_info": "ValueInfoProto",
    },
    "NodeProto": {"attribute": "AttributeProto"},
    "AttributeProto": {
        "g": "GraphProto",
        "graphs": "GraphProto",
        "t": "TensorProto",
        "tensors": "TensorProto",
        "tp": "TypeProto",
        "type_protos": "TypeProto",
    },
    "ValueInfoProto": {"type": "TypeProto"},
}
"""Messages inside messages, by the name of the field."""


def count_fields(onnx: Any, file: OpenFile) -> None:
    """Refuse a file of more fields than a checkpoint of its size may have, or of messages too deep in each other.

    Raises:
        CheckpointError: it exceeds a limit, or is not made of fields.
    """
    budget = Budget(file.bad, file.size)
    cursor = Cursor(file, budget, 0, file.size, keep=False)
    _walk(onnx, file, cursor, file.size, "ModelProto", 0)


def _walk(onnx: Any, file: OpenFile, cursor: Cursor, end: int, message: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise file.bad(f"has messages inside each other, got more than {_MAX_DEPTH}")
    parts = _numbers(onnx, message)
    for number, kind, length in cursor.fields(end):
        inner = parts.get(number) if kind == DELIMITED else None
        if inner is not None:
            _walk(onnx, file, cursor, cursor.at + length, inner, depth + 1)


@functools.cache
def _numbers(onnx: Any, message: str) -> dict[int, str]:
    """Messages inside a message, by the number of the field."""
    fields = getattr(onnx, message).DESCRIPTOR.fields_by_name
    return {fields[name].number: inner for name, inner in _PARTS.get(message, {}).items() if name in fields}
