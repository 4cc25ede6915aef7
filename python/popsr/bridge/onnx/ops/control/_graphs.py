"""Graphs of a node: what they read of the graphs around, and graphs of popsr made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._places import graphs_of

__all__ = ["closed", "free_names", "free_values"]


def closed(node: Node, name: str, proto: Any, values: Sequence[Value]) -> tuple[Any, list[Tensor]]:
    """A graph of a node as one of popsr: what it reads of the graphs around are inputs after its own."""
    outer = free_values(proto, node.scope)

    def body(inner: list[Value]) -> Sequence[Value]:
        own, rest = inner[: len(values)], inner[len(values) :]
        scope = dict(zip(outer, rest, strict=True))
        return [node.tensor(each) for each in node.reader.subgraph(proto, scope, own)]

    return node.reader.make_graph(name, [*values, *outer.values()], body, once=True)


def free_values(proto: Any, scope: Mapping[str, Value]) -> dict[str, Value]:
    """Values of the graphs around that a graph reads, by name."""
    found: dict[str, Value] = {}
    for name in free_names(proto):
        if name in scope:
            found[name] = scope[name]
    return found


def free_names(proto: Any) -> list[str]:
    """Names that a graph reads and does not make."""
    made = {each.name for each in (*proto.input, *proto.initializer)}
    free: dict[str, None] = {}
    for each in proto.node:
        names = [name for name in each.input if name]
        for graph in graphs_of(each):
            names += free_names(graph)
        free.update((name, None) for name in names if name not in made)
        made.update(each.output)
    free.update((each.name, None) for each in proto.output if each.name not in made)
    return list(free)
