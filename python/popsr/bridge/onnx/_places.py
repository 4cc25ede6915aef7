"""Names and versions of nodes, graphs inside them, and how deep graphs and functions are in each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from popsr._support.text.shown import shown
from popsr.errors import GraphError

__all__ = [
    "MAX_DEPTH",
    "OPSET",
    "Depth",
    "domain_of",
    "function_key",
    "graphs_of",
    "name_of",
    "named",
    "opset_of",
    "place_of",
]

MAX_DEPTH = 32
"""Graphs and functions inside each other."""


class Depth:
    """A graph or function inside others: not too deep, and no function inside itself."""

    __slots__ = ("_name", "_stack", "_where")

    def __init__(self, stack: list[Any], name: Any, where: str) -> None:
        self._stack, self._name, self._where = stack, name, where

    def __enter__(self) -> None:
        if self._name != "graph" and self._name in self._stack:
            raise GraphError(
                f"{self._where}: function that calls itself, got {shown(self._name[1])}, expected none"
            )
        if len(self._stack) >= MAX_DEPTH:
            raise GraphError(
                f"{self._where}: graphs and functions inside each other, got more than {MAX_DEPTH}, expected at "
                "most so many"
            )
        self._stack.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._stack.pop()


def domain_of(proto: Any) -> str:
    """The domain of a node or an import; that of ONNX's own ops has two names."""
    return "" if proto.domain == "ai.onnx" else str(proto.domain)


def function_key(proto: Any, name: str) -> tuple[str, str, str]:
    """Domain, name and overload of a function, or of the one that a node calls."""
    return domain_of(proto), name, getattr(proto, "overload", "")  # older messages have no overloads


def graphs_of(proto: Any) -> Iterator[Any]:
    """Graphs that are attributes of a node, such as a branch or the body of a loop."""
    for each in proto.attribute:
        if each.HasField("g"):
            yield each.g
        yield from each.graphs


OPSET = "__opset"
"""Key of the version of ONNX of a node, which sessions of ``popart`` set where it is not the model's."""


def opset_of(proto: Any, opset: int | None) -> int | None:
    """The version of a node, in a model that has this one for its domain."""
    return next((int(each.value) for each in proto.metadata_props if each.key == OPSET), opset)


def place_of(proto: Any) -> str:
    """The file of a node's location: its name with its op type, or its op type."""
    op_type = proto.op_type[:80] or "node"
    return f"{proto.name} ({op_type})" if proto.name else str(op_type)


def name_of(location: str) -> str:
    """The name of the node of a location that ``place_of`` made; of a line of a file, the file."""
    place = location.rpartition(":")[0]
    name, bracket, _ = place.rpartition(" (")
    return name if bracket and place.endswith(")") else place.rpartition("/")[2]


def named(proto: Any, position: int) -> str:
    name = f" {shown(proto.name)}" if proto.name else ""
    return f"node{name} ({proto.op_type[:80]}) at position {position}"
