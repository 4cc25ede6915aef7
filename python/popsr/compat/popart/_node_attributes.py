"""Attributes of nodes that a Builder has recorded, by an output of the node.

PopART's attributes of placement, pipelines, recomputation and scheduling begin with two underscores. They change no value
on a simulator, and are metadata of a node, so that the model stays one of ONNX.
"""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Callable, Iterator
from typing import Any

from popsr._host.arguments import read_text
from popsr._host.choices import Choices
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError, UnknownNameError
from popsr.io._onnx_format import require_onnx

__all__ = ["NodeAttributes", "RecomputeType"]


class RecomputeType(Choices):
    """Recomputation of an output in the backward pass."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


# Method: the name that it records.
_SETTERS = {
    "excludePatterns": "__exclude_patterns",
    "setPartialsType": "__partials_type",
    "setAvailableMemoryProportion": "__available_memory_proportion",
    "setEnableConvDithering": "__enable_conv_dithering",
    "setInplacePreferences": "__inplace_preferences",
    "recomputeOutputInBackwardPass": "__recompute_output_in_backward_pass",
    "setSerializeMatMul": "__serialize_matmul",
}
_SCOPED = {
    "virtualGraph": "__ipu_number",
    "pipelineStage": "__pipeline_stage",
    "executionPhase": "__execution_phase",
    "recomputeOutput": "__recompute_output",
    "outputTensorLocation": "__output_tensor_location",
    "schedulePriority": "__schedule_priority",
    "commGroup": "__comm_group",
    "outlineAttributes": "__outline",
}
_GETTERS = {
    "getVirtualGraph": "__ipu_number",
    "getPipelineStage": "__pipeline_stage",
    "getExecutionPhase": "__execution_phase",
    "getPartialsType": "__partials_type",
    "getRecomputeOutputInBackwardPass": "__recompute_output_in_backward_pass",
}
_DEFAULTS = {"getPartialsType": "FLOAT", "getRecomputeOutputInBackwardPass": False}
_ATTRIBUTE_KINDS = {"Int64": "INT", "Int64Vector": "INTS", "Float": "FLOAT", "FloatVector": "FLOATS"}
_ATTRIBUTE_KINDS |= {"String": "STRING", "StringVector": "STRINGS"}


class NodeAttributes:
    """Attributes of nodes, and scopes that give them to all nodes that are added inside."""

    def __init__(self) -> None:
        """Without any."""
        self._nodes: dict[str, Any] = {}
        self._scopes: dict[str, Any] = {}

    def _node(self, where: str, names: Any) -> Any:
        """The node that makes a tensor, or all of several."""
        outputs = [names] if isinstance(names, str) else list(names)
        found = [self._nodes.get(read_text(f"{where}: nodeOutputNames", name)) for name in outputs]
        if not found or any(each is None or each is not found[0] for each in found):
            raise UnknownNameError(
                f"{where}: no node makes all of these, got {shown(names)}, expected outputs of one node"
            )
        return found[0]

    def _mark(self, node: Any, name: str, value: Any) -> None:
        """Record an attribute of PopART's."""
        self._unmark(node, name)
        node.metadata_props.add(key=name, value=json.dumps(value, default=_plain))

    def _unmark(self, node: Any, name: str) -> bool:
        for items, key in ((node.metadata_props, "key"), (node.attribute, "name")):
            for i, each in enumerate(items):
                if getattr(each, key) == name:
                    del items[i]
                    return True
        return False

    def _marks(self, node: Any) -> dict[str, Any]:
        helper = require_onnx("Builder").helper
        marks = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        marks.update((each.key, json.loads(each.value)) for each in node.metadata_props)
        return {key: value.decode() if isinstance(value, bytes) else value for key, value in marks.items()}

    def addNodeAttribute(self, attributeName: str, attributeValue: Any, nodeOutputNames: Any) -> None:
        """Record an attribute of a node; a name that begins with two underscores is metadata."""
        where = "addNodeAttribute"
        node, name = self._node(where, nodeOutputNames), read_text(f"{where}: attributeName", attributeName)
        if name.startswith("__"):
            self._mark(node, name, attributeValue)
            return
        try:
            made = require_onnx("Builder").helper.make_attribute(name, attributeValue)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"{where}: no attribute has this value, got {shown(attributeValue)}, expected numbers or texts"
            ) from None
        self._unmark(node, name)
        node.attribute.append(made)

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Any) -> bool:
        """True if a node has an attribute."""
        return attributeName in self._marks(self._node("nodeHasAttribute", nodeOutputNames))

    def getAllNodeAttributeNames(self, nodeOutputNames: Any) -> list[str]:
        """Names of a node's attributes."""
        return list(self._marks(self._node("getAllNodeAttributeNames", nodeOutputNames)))

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Any) -> None:
        """Remove an attribute of a node."""
        if not self._unmark(self._node("removeNodeAttribute", nodeOutputNames), attributeName):
            raise _unknown("removeNodeAttribute", attributeName)

    def _read(self, where: str, name: str, names: Any, kind: str) -> Any:
        marks = self._marks(self._node(where, names))
        if name not in marks:
            raise _unknown(where, name)
        value = marks[name]
        one = value[0] if isinstance(value, list) and value else value
        word = "STRING" if isinstance(one, (str, bytes)) else "FLOAT" if isinstance(one, float) else "INT"
        found = word + "S" * isinstance(value, list)
        if found != kind:
            raise ArgumentTypeError(f"{where}: attribute is of another type, got {found} {name!r}, expected {kind}")
        return value

    @contextlib.contextmanager
    def _scope(self, name: str, value: Any) -> Iterator[None]:
        before = self._scopes
        self._scopes = {**before, name: value}
        try:
            yield
        finally:
            self._scopes = before

    def checkpointOutput(self, nodeOutputNames: list[str]) -> list[str]:
        """Record that these are kept for the backward pass; returns them."""
        for name in nodeOutputNames:
            self._mark(self._node("checkpointOutput", name), "__recompute_output", RecomputeType.Checkpoint)
        return list(nodeOutputNames)


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, enum.Enum) else str(value)


def _unknown(where: str, name: str) -> UnknownNameError:
    return UnknownNameError(f"{where}: the node has no such attribute, got {shown(name)}, expected one that it has")


def _setter(method: str, name: str) -> Callable[..., None]:
    def record(self: NodeAttributes, nodeOutputNames: Any, *values: Any, **named: Any) -> None:
        given = [*values, *named.values()]
        value = given[0] if len(given) == 1 else given or True
        for each in [nodeOutputNames] if isinstance(nodeOutputNames, str) else nodeOutputNames:
            self._mark(self._node(method, each), name, value)

    return record


def _scoped(method: str, name: str) -> Callable[..., Any]:
    def place(self: NodeAttributes, *values: Any, **named: Any) -> Any:
        given = [*values, *named.values()]
        names = given[:1] if given and isinstance(given[0], str) else given[0] if given and _are_ids(given[0]) else None
        if names is None:
            return self._scope(name, given[0] if len(given) == 1 else given)
        node = self._node(method, names)
        self._mark(node, name, given[1] if len(given) == 2 else given[1:] or 0)
        return None

    return place


def _are_ids(value: Any) -> bool:
    return isinstance(value, (list, tuple, set)) and bool(value) and all(isinstance(each, str) for each in value)


def _getter(method: str, name: str) -> Callable[..., Any]:
    def get(self: NodeAttributes, nodeOutputNames: Any = None) -> Any:
        marks = self._scopes if nodeOutputNames is None else self._marks(self._node(method, nodeOutputNames))
        if name not in marks and method not in _DEFAULTS:
            raise _unknown(method, name)
        return marks.get(name, _DEFAULTS.get(method))

    return get


def _has(name: str) -> Callable[..., bool]:
    return lambda self: name in self._scopes


def _typed(method: str, kind: str) -> Callable[..., Any]:
    def get(self: NodeAttributes, attributeName: str, nodeOutputNames: Any) -> Any:
        return self._read(method, attributeName, nodeOutputNames, kind)

    return get


def _add_methods() -> None:
    """The methods that differ by a name only."""
    made: dict[str, tuple[Callable[..., Any], str]] = {}
    for method, name in _SETTERS.items():
        made[method] = _setter(method, name), f"Record ``{name}`` of the nodes of these outputs."
    for method, name in _SCOPED.items():
        text = f"Record ``{name}`` of the node of these outputs; without them, a scope for the nodes added inside."
        made[method] = _scoped(method, name), text
    for method, name in _GETTERS.items():
        made[method] = _getter(method, name), f"The value of ``{name}`` of a node, or of the current scope."
    for what in ("VirtualGraph", "PipelineStage", "ExecutionPhase"):
        made[f"has{what}"] = _has(_GETTERS[f"get{what}"]), f"True inside a scope of ``{_GETTERS[f'get{what}']}``."
    for word, kind in _ATTRIBUTE_KINDS.items():
        made[f"get{word}NodeAttribute"] = _typed(f"get{word}NodeAttribute", kind), f"An attribute of kind {kind}."
    for method, (function, text) in made.items():
        function.__name__, function.__qualname__, function.__doc__ = method, f"NodeAttributes.{method}", text
        setattr(NodeAttributes, method, function)


_add_methods()
