"""Keys of what traces recorded: equal keys mean the same ops of operands of the same types and bits.

A value that ranks or steps have in common is compared by these keys alone. ``==`` takes 0.0 for -0.0, 2 for 2.0 and
True for 1, whose results differ.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from popsr.bridge.torch._tracing.draws import draw_of, generator_draw_of
from popsr.bridge.torch._tracing.messages import is_received, is_sent

__all__ = ["DISTRIBUTED", "GraphKey", "attribute_of", "communicates", "group_name", "key_of", "meta_key"]

DISTRIBUTED = ("_c10d_functional", "_c10d_functional_autograd", "_dtensor")
"""Namespaces of functional collectives."""


class _Itself:
    """An object that equals nothing but itself; it is kept, so that no other takes its place in memory."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def key_of(value: Any, of_node: Callable[[Any], Hashable] = id) -> Hashable:
    """The key of an operand.

    Args:
        value: numbers, texts, tensors and types of torch, nodes, graph modules, in lists and dicts.
        of_node: the key of a node.
    """
    if value is None or isinstance(value, bool | int | str | bytes):
        return (type(value).__name__, value)
    import torch

    if isinstance(value, torch.fx.Node):
        return ("node", of_node(value))
    if isinstance(value, list | tuple):
        return ("list", *(key_of(each, of_node) for each in value))
    if isinstance(value, dict):
        return ("dict", *((str(name), key_of(value[name], of_node)) for name in sorted(value, key=str)))
    if isinstance(value, slice):
        return ("slice", key_of((value.start, value.stop, value.step), of_node))
    if isinstance(value, float | complex):
        return (type(value).__name__, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return ("symbol", str(value))
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return (type(value).__name__, str(value))
    if isinstance(value, torch.fx.GraphModule):
        inner = GraphKey(value)
        return ("graph", inner.rows, tuple(inner.groups))
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        return _tensor_key(value)
    return _Itself(value)


def _tensor_key(t: Any) -> Hashable:
    import torch

    t = t.detach()
    bits = t.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
    return ("tensor", str(t.dtype), tuple(t.shape), t.stride(), bits.numpy().tobytes())


def _made_by(node: Any) -> Sequence[Any]:
    """Torch's fake results of a node."""
    value = node.meta.get("val")
    return value if isinstance(value, list | tuple) else [value]


def meta_key(node: Any) -> Hashable:
    """Shapes and element types of what a node makes."""
    import torch

    return tuple(
        (str(each.dtype), tuple(map(str, each.shape)))
        if isinstance(each, torch.Tensor)
        else type(each).__name__
        for each in _made_by(node)
    )


def group_name(node: Any) -> str | None:
    """The process group of a functional collective; None for other nodes."""
    target = node.target
    if getattr(target, "namespace", None) not in DISTRIBUTED or str(target).split(".")[1] == "wait_tensor":
        return None
    return next((each for each in reversed(node.args) if isinstance(each, str)), None)


def communicates(node: Any) -> bool:
    """True for a collective, and for a message of two ranks that is sent or received."""
    return group_name(node) is not None or is_sent(node) or is_received(node)


def attribute_of(module: Any, node: Any) -> Any:
    """The value of a node that reads an attribute of its module."""
    value = module
    for part in node.target.split("."):
        value = getattr(value, part)
    return value


class GraphKey:
    """A graph as rows of keys, one for each node.

    Attributes:
        rows: the keys; process groups are numbered in the order in which they are used.
        groups: their names in that order.
    """

    def __init__(self, module: Any) -> None:
        """The key of a graph module."""
        self.groups: list[str] = []
        numbers = {node: number for number, node in enumerate(module.graph.nodes)}
        self.rows = tuple(self._row(node, module, numbers) for node in module.graph.nodes)

    def _row(self, node: Any, module: Any, numbers: dict[Any, int]) -> Hashable:
        name, args = group_name(node), node.args
        if name is not None:
            if name not in self.groups:
                self.groups.append(name)
            args = tuple(self.groups.index(name) if each is name else each for each in args)
        operands = key_of((args, node.kwargs), numbers.__getitem__)
        if node.op == "get_attr":
            return (node.op, key_of(attribute_of(module, node), numbers.__getitem__))
        target = "" if node.op == "placeholder" else str(node.target)
        draws = (draw_of(node), generator_draw_of(node))
        return (node.op, target, operands, meta_key(node), _strides(node), draws)


def _strides(node: Any) -> Hashable:
    """Strides of the tensors that a node makes, which say what a view of them is."""
    import torch

    return tuple(
        str(each.stride()) if isinstance(each, torch.Tensor) and each.layout is torch.strided else ""
        for each in _made_by(node)
    )
