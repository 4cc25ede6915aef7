"""Operators of ``builder.customOp``: rules of models from the functions that ``popsr.compat.custom_op`` registered."""

from __future__ import annotations

from typing import Any

from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._places import opset_of
from popsr.bridge.onnx._rules import OTHERS, Rule
from popsr.compat._objects.custom_ops import bound, entry_of, lines_of
from popsr.compat._objects.identifiers import OperatorIdentifier
from popsr.compat.popart._recording.graphcore_ops import DOMAIN
from popsr.errors import GraphError
from popsr.io._onnx.format import require_onnx

__all__ = ["hints"]


def _find(domain: str, op_type: str, version: int) -> Rule | None:
    """The rule of an operator that has a function."""
    if domain in ("", DOMAIN) or not op_type or version < 0:
        return None
    which = OperatorIdentifier(domain, op_type, version)
    function = entry_of(which)
    if function is None:
        return None

    def make(node: Node, *operands: Tensor) -> list[Tensor]:
        attributes = {name: _value(each) for name, each in node.attributes.items()}
        build = bound(str(which), function, list(operands), [], attributes)
        made = build(*operands, **attributes)
        results = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(results) != len(node.proto.output) or not all(isinstance(each, Tensor) for each in results):
            raise GraphError(
                f"{which}: its function must return a tensor an output, got {len(results)} results, expected "
                f"{len(node.proto.output)} tensors"
            )
        return results

    return Rule(make, version, "node", "custom")


OTHERS.append(_find)


def _value(attribute: Any) -> Any:
    value = require_onnx("Session").helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "data_type"):
        return require_onnx("Session").numpy_helper.to_array(value)
    if isinstance(value, list):
        return [each.decode() if isinstance(each, bytes) else each for each in value]
    return value


def hints(model: Any) -> list[str]:
    """Lines that register functions for the operators of a model that have none."""
    versions = {each.domain: each.version for each in model.opset_import}
    local = {(each.domain, each.name) for each in model.functions}
    found = {}
    for node in model.graph.node:
        version = opset_of(node, versions.get(node.domain))
        if node.domain in ("", "ai.onnx", DOMAIN) or version is None or (node.domain, node.op_type) in local:
            continue
        which = OperatorIdentifier(node.domain, node.op_type, version)
        if entry_of(which) is None:
            found[which] = f"{which}: {lines_of(which, len(node.input))}"
    return list(found.values())
