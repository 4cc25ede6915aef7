"""Attributes that ONNX defines for an op in a version: others, which rules would pass over, are refused."""

from __future__ import annotations

import functools
from typing import Any

from popsr.bridge.onnx._node import Node

__all__ = ["check_attributes"]


def check_attributes(onnx: Any, node: Node, domain: str) -> None:
    """Refuse attributes that an op of this version does not have, and nodes without one that it must have.

    Names that begin with two underscores are notes of a tool.

    Raises:
        ValueError: it has another attribute, or lacks one.
    """
    found = _attributes(onnx, domain, node.proto.op_type, node.opset)
    if found is None:
        return
    known, needed = found
    other = sorted(
        name for name in node.attributes.keys() - known if not name.startswith("__") and name != _NONE
    )
    if other:
        raise ValueError(f"attribute {other[0]}, which it does not have in opset {node.opset}")
    missing = sorted(needed - node.attributes.keys())
    if missing:
        raise ValueError(f"no attribute {missing[0]}, which it must have in opset {node.opset}")


_NONE = "noop_with_empty_axes"
"""Sessions of ``popart`` give it to reductions of any version."""


@functools.cache
def _attributes(
    onnx: Any, domain: str, op_type: str, opset: int
) -> tuple[frozenset[str], frozenset[str]] | None:
    """Names of all attributes and of those that must be given; None for an op that this onnx does not know."""
    if not onnx.defs.has(op_type, opset, domain) or (not domain and opset > onnx.defs.onnx_opset_version()):
        return None
    given = onnx.defs.get_schema(op_type, opset, domain).attributes
    return frozenset(given), frozenset(name for name, each in given.items() if each.required)
