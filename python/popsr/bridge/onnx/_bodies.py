"""The function bodies that ONNX publishes for ops that are made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._schemas import defaults_of, element_of, shape_in

__all__ = ["body_of", "require_body"]


def require_body(onnx: Any, domain: str, op_type: str | bytes, opset: int) -> None:
    """Refuse an op that ONNX does not give as a function of others.

    Raises:
        NotSupportedError: it does not in this version.
    """
    if _has_body(onnx, domain, op_type, opset):
        return
    if domain:
        raise NotSupportedError(f"of the domain {domain}")
    later = range(opset + 1, onnx.defs.onnx_opset_version() + 1)
    first = next((each for each in later if _has_body(onnx, domain, op_type, each)), None)
    raise NotSupportedError("" if first is None else f"of opset {opset}, expected {first} or later")


def _has_body(onnx: Any, domain: str, op_type: str | bytes, opset: int) -> bool:
    """True for an op that ONNX gives as a function of others."""
    if not isinstance(op_type, str) or not onnx.defs.has(op_type, opset, domain):  # bytes, if damaged
        return False
    schema = onnx.defs.get_schema(op_type, opset, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def body_of(onnx: Any, node: Node, domain: str, operands: Sequence[Value]) -> tuple[Any, dict[str, Any]]:
    """The function of a node's op, for operands of these types, and the attributes that it is called with.

    Raises:
        NotSupportedError: there is none.
    """
    require_body(onnx, domain, node.proto.op_type, node.opset)
    schema = onnx.defs.get_schema(node.proto.op_type, node.opset, domain)
    body = None
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function:
        types = [_type(onnx, value).SerializeToString() for value in operands]
        body = onnx.FunctionProto.FromString(
            schema.get_context_dependent_function(_with_attributes(node), types)
        )
    if body is None or not body.node:
        raise NotSupportedError("")
    return body, {**defaults_of(schema), **node.attributes}


def _with_attributes(node: Node) -> bytes:
    """The message of a node with attributes in place of references."""
    copy = type(node.proto)()
    copy.CopyFrom(node.proto)
    del copy.attribute[:]
    for name, each in node.attributes.items():
        made = copy.attribute.add()
        made.CopyFrom(each)
        made.name = name
    return bytes(copy.SerializeToString())


def _type(onnx: Any, value: Value) -> Any:
    """ONNX's type of a value."""
    if value is None:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(element_of(value), shape_in(value))
