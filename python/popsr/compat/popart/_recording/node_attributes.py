"""Attributes of nodes that a Builder has recorded, by an output of the node.

PopART's attributes of placement, pipelines, recomputation and scheduling begin with two underscores. They change no
value on a simulator, and are metadata of a node, so that the model stays one of ONNX.
"""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Callable, Iterator
from typing import Any

from popsr._support.host.arguments import read_bool, read_choice, read_int, read_items, read_number, read_text
from popsr._support.text.shown import shown
from popsr.compat.popart._names import RecomputeType
from popsr.errors import ArgumentTypeError, AttributeValueError, UnknownNameError
from popsr.io._onnx.format import require_onnx

__all__ = ["NodeAttributes", "attribute_of"]


class NodeAttributes:
    """Attributes of nodes, and scopes that give them to all nodes that are added inside."""

    def __init__(self) -> None:
        """Without any."""
        self._nodes: dict[str, Any] = {}
        self._scopes: dict[str, Any] = {}

    def _node(self, where: str, names: Any) -> Any:
        """The node that makes a tensor, or all of several."""
        found = [self._nodes.get(name) for name in _ids(where, names)]
        if not found or any(each is None or each is not found[0] for each in found):
            raise UnknownNameError(f"{where}: no such node, got {shown(names)}, expected outputs of one node")
        return found[0]

    def _mark(self, node: Any, name: str, value: Any) -> None:
        """Record an attribute of PopART's."""
        self._unmark(node, name)
        plain = json.dumps(value, default=_plain, skipkeys=True)
        node.metadata_props.add(key=name, value=plain)

    def _unmark(self, node: Any, name: str) -> bool:
        for items, key in ((node.metadata_props, "key"), (node.attribute, "name")):
            for i, each in enumerate(items):
                if getattr(each, key) == name:
                    del items[i]
                    return True
        return False

    def _forget(self) -> None:
        """Forget types and shapes of results, which an attribute may change."""

    def _marks(self, node: Any) -> dict[str, Any]:
        read = require_onnx("Builder").helper.get_attribute_value
        marks = {each.name: read(each) for each in node.attribute}
        marks.update((each.key, json.loads(each.value)) for each in node.metadata_props)
        return {key: _text(value) for key, value in marks.items()}

    def addNodeAttribute(self, attributeName: str, attributeValue: Any, nodeOutputNames: Any) -> None:
        """Record an attribute of a node; a name that begins with two underscores is metadata."""
        where = "addNodeAttribute"
        node, name = self._node(where, nodeOutputNames), read_text(f"{where}: attributeName", attributeName)
        if name.startswith("__"):
            self._mark(node, name, attributeValue)
            return
        made = attribute_of(where, name, attributeValue)
        self._unmark(node, name)
        node.attribute.append(made)
        self._forget()

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Any) -> bool:
        """True if a node has an attribute."""
        name = read_text("nodeHasAttribute: attributeName", attributeName)
        return name in self.getAllNodeAttributeNames(nodeOutputNames)

    def getAllNodeAttributeNames(self, nodeOutputNames: Any) -> list[str]:
        """Names of a node's attributes."""
        return list(self._marks(self._node("getAllNodeAttributeNames", nodeOutputNames)))

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Any) -> None:
        """Remove an attribute of a node."""
        if not self._unmark(self._node("removeNodeAttribute", nodeOutputNames), attributeName):
            raise _unknown("removeNodeAttribute", attributeName)
        self._forget()

    def checkpointOutput(self, nodeOutputNames: list[str]) -> list[str]:
        """Record that these are kept for the backward pass; returns them."""
        ids = _ids("checkpointOutput", nodeOutputNames)
        for name in ids:
            self._mark(self._node("checkpointOutput", name), "__recompute_output", RecomputeType.Checkpoint)
        return ids

    @contextlib.contextmanager
    def _scope(self, name: str, value: Any) -> Iterator[None]:
        before = self._scopes
        self._scopes = {**before, name: value}
        try:
            yield
        finally:
            self._scopes = before


def attribute_of(where: str, name: str, value: Any) -> Any:
    """A value as ONNX's message.

    Raises:
        ArgumentTypeError: no attribute has such a value.
    """
    try:
        return require_onnx(where).helper.make_attribute(name, value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentTypeError(
            f"{where}: no attribute has this value, got {shown(value)}, expected numbers or texts"
        ) from None


def _text(value: Any) -> Any:
    """A value of ONNX's with texts for bytes."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def _plain(value: Any) -> str:
    return value.name if isinstance(value, enum.Enum) else shown(value)


def _unknown(where: str, name: str) -> UnknownNameError:
    return UnknownNameError(f"{where}: no such attribute, got {shown(name)}, expected one that the node has")


def _ids(where: str, names: Any) -> list[str]:
    """One id, or several, as a list."""
    given = [names] if isinstance(names, str) else read_items(where, "nodeOutputNames", names, kind="ids")
    return [read_text(f"{where}: nodeOutputNames", name) for name in given]


def _one(values: list[Any], default: Any) -> Any:
    return values[0] if len(values) == 1 else values or default


def _proportion(where: str, value: Any) -> None:
    if not 0 < read_number(where, value) <= 1:
        raise AttributeValueError(f"{where}: got {shown(value)}, expected a number above 0, and at most 1")


def _serialization(where: str, mode: Any, factor: Any = 0, keep_precision: Any = False) -> None:
    read_choice(where, "mode", mode, ("none", "input_channels", "reducing_dim", "output_channels"))
    read_int(f"{where}: factor", factor, 0)
    read_bool(f"{where}: keep_precision", keep_precision)


def _setter(method: str, name: str, check: Callable[..., None] | None = None) -> Callable[..., None]:
    """Record ``{}`` of nodes."""

    def record(self: NodeAttributes, nodeOutputNames: Any, *values: Any, **named: Any) -> None:
        if check is not None:
            check(method, *values, *named.values())
        for each in _ids(method, nodeOutputNames):
            self._mark(self._node(method, each), name, _one([*values, *named.values()], True))

    return record


def _scoped(method: str, name: str) -> Callable[..., Any]:
    """Record ``{}`` of the node of these outputs; without them, a scope for the nodes added inside."""

    def place(self: NodeAttributes, *values: Any, **named: Any) -> Any:
        first, *rest = [*values, *named.values()] or [0]
        ids = [first] if isinstance(first, str) else first
        if isinstance(ids, (list, tuple, set)) and ids and all(isinstance(each, str) for each in ids):
            return self._mark(self._node(method, ids), name, _one(rest, 0))
        return self._scope(name, _one([first, *rest], 0))

    return place


def _getter(method: str, name: str, default: Any = None) -> Callable[..., Any]:
    """``{}`` of a node, or of the current scope."""

    def get(self: NodeAttributes, nodeOutputNames: Any = None) -> Any:
        marks = self._scopes if nodeOutputNames is None else self._marks(self._node(method, nodeOutputNames))
        if name not in marks and default is None:
            raise _unknown(method, name)
        return marks.get(name, default)

    return get


def _has(_: str, name: str) -> Callable[..., bool]:
    """True inside a scope of ``{}``."""
    return lambda self: name in self._scopes


def _typed(method: str, kind: str) -> Callable[..., Any]:
    """An attribute of kind {}."""

    def get(self: NodeAttributes, attributeName: str, nodeOutputNames: Any) -> Any:
        marks = self._marks(self._node(method, nodeOutputNames))
        value = marks.get(read_text(f"{method}: attributeName", attributeName))
        if value is None:
            raise _unknown(method, attributeName)
        is_list = isinstance(value, (list, tuple))
        one = value[0] if is_list and value else value
        found = ("str" if isinstance(one, (str, bytes)) else type(one).__name__) + "s" * is_list
        if found != kind:
            raise ArgumentTypeError(
                f"{method}: attribute {shown(attributeName)} is of another type, got {found}, expected {kind}"
            )
        return value

    return get


# Methods that differ by a name only: what makes them, the name that they record or read, and a default.
_METHODS: dict[str, tuple[Any, ...]] = {
    "excludePatterns": (_setter, "__exclude_patterns"),
    "setPartialsType": (_setter, "__partials_type"),
    "setAvailableMemoryProportion": (_setter, "__available_memory_proportion", _proportion),
    "setEnableConvDithering": (_setter, "__enable_conv_dithering"),
    "setInplacePreferences": (_setter, "__inplace_preferences"),
    "recomputeOutputInBackwardPass": (_setter, "__recompute_output_in_backward_pass"),
    "setSerializeMatMul": (_setter, "__serialize_matmul", _serialization),
    "virtualGraph": (_scoped, "__ipu_number"),
    "pipelineStage": (_scoped, "__pipeline_stage"),
    "executionPhase": (_scoped, "__execution_phase"),
    "recomputeOutput": (_scoped, "__recompute_output"),
    "outputTensorLocation": (_scoped, "__output_tensor_location"),
    "schedulePriority": (_scoped, "__schedule_priority"),
    "commGroup": (_scoped, "__comm_group"),
    "outlineAttributes": (_scoped, "__outline"),
    "getVirtualGraph": (_getter, "__ipu_number"),
    "getPipelineStage": (_getter, "__pipeline_stage"),
    "getExecutionPhase": (_getter, "__execution_phase"),
    "getPartialsType": (_getter, "__partials_type", "FLOAT"),
    "getRecomputeOutputInBackwardPass": (_getter, "__recompute_output_in_backward_pass", False),
    "hasVirtualGraph": (_has, "__ipu_number"),
    "hasPipelineStage": (_has, "__pipeline_stage"),
    "hasExecutionPhase": (_has, "__execution_phase"),
    "getInt64NodeAttribute": (_typed, "int"),
    "getInt64VectorNodeAttribute": (_typed, "ints"),
    "getFloatNodeAttribute": (_typed, "float"),
    "getFloatVectorNodeAttribute": (_typed, "floats"),
    "getStringNodeAttribute": (_typed, "str"),
    "getStringVectorNodeAttribute": (_typed, "strs"),
}
for _method, (_make, _name, *_default) in _METHODS.items():
    _function = _make(_method, _name, *_default)
    _function.__name__, _function.__qualname__ = _method, f"NodeAttributes.{_method}"
    _function.__doc__ = (_make.__doc__ or "").format(_name)
    setattr(NodeAttributes, _method, _function)
