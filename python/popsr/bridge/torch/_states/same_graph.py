"""Comparison of two traces of a step: op by op, by type and bits of operands."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from popsr.bridge.torch._ranks.same import DISTRIBUTED, key_of
from popsr.bridge.torch._states.storage import aliases
from popsr.bridge.torch._tracing.capture import Recorded

__all__ = ["Rows", "difference"]

_ABSENT = "gradient"
_ZEROED = "aten.zero_.default"
_ADDED = ("aten.add.Tensor", "aten.add_.Tensor")
_DETACHED = "aten.detach.default"
_STOLEN = (_DETACHED, "aten.clone.default")


class Rows:
    """Rows of a graph by which traces are compared: one for each op that is not made of constants alone, in order.

    Args:
        recorded: the graph with its writes.
        paths: of its inputs, in order.
        gradients: those of inputs that a first step has none of.
        made: keys of constants that an earlier trace made, by their id.
    Attributes:
        constants: keys of what is made of constants alone, by node.
        reads_gradients: True if the graph depends on an input that a first step has none of.
    """

    def __init__(
        self,
        recorded: Recorded,
        paths: Sequence[str],
        gradients: Sequence[str],
        made: Mapping[int, Hashable],
    ) -> None:
        """The rows of a graph."""
        self.constants: dict[Any, Hashable] = {}
        self.paths = list(paths)
        self._recorded, self._made = recorded, made
        nodes = list(recorded.module.graph.nodes)
        self._roots, writes = aliases(nodes)
        written = {root for root, _ in writes}
        for node in nodes:
            if node.op == "get_attr":
                self.constants[node] = self._key_of_value(getattr(recorded.module, node.target))
                continue
            unwritten = _is_pure(node) and self._roots[node] not in written
            if unwritten and all(each in self.constants for each in node.all_input_nodes):
                self.constants[node] = ("made", str(node.target), self._operands(node, self.constants))
        inputs = dict(zip((n for n in nodes if n.op == "placeholder"), paths, strict=True))
        absent = {node for node, path in inputs.items() if path in gradients}
        self.reads_gradients = any(
            self._roots[each] in absent and not self._is_view(node, each)
            for node in nodes[:-1]
            for each in node.all_input_nodes
        )
        self.rows = self._all_rows(nodes, inputs, set())
        self.bare = self._all_rows(nodes, inputs, absent) if absent else self.rows

    def _is_view(self, node: Any, source: Any) -> bool:
        """True for an op that is a view of a node and writes nothing."""
        is_mutable = getattr(getattr(node.target, "_schema", None), "is_mutable", True)
        return not is_mutable and self._roots[node] is self._roots[source]

    def _key_of_value(self, value: Any) -> Hashable:
        if id(value) in self._made:
            return self._made[id(value)]
        if not hasattr(value, "graph"):
            return ("value", key_of(value))
        inner = Rows(Recorded(value, self._recorded.groups), _places(value), (), self._made)
        return ("graph", *(row for row, _ in inner.rows))

    def _operands(self, node: Any, keys: Mapping[Any, Hashable]) -> Hashable:
        args = node.args
        if getattr(node.target, "namespace", None) in DISTRIBUTED:
            groups = self._recorded.groups
            args = tuple(groups.get(each, each) if isinstance(each, str) else each for each in args)
        return key_of((args, dict(node.kwargs)), keys.__getitem__)

    def _all_rows(
        self, nodes: Sequence[Any], paths: Mapping[Any, str], absent: set[Any]
    ) -> list[tuple[Hashable, Any]]:
        """The rows, without what is done to inputs that are absent: they are cleared, or something is added to them."""
        found: list[tuple[Hashable, Any]] = []
        keys: dict[Any, Hashable] = dict(self.constants)
        keys.update(dict.fromkeys(absent, _ABSENT))
        left_out = {
            i for i, node in enumerate(paths) if node in absent
        }  # states are returned in the same order
        for node in nodes:
            if node in self.constants or node in absent:
                continue
            name, operands = str(node.target), [keys.get(n) for n in node.all_input_nodes]
            gone = [n for n in node.all_input_nodes if keys.get(n) == _ABSENT]
            if gone and (name == _ZEROED or self._is_view(node, gone[0])):
                keys[node] = _ABSENT
                continue
            if name == _DETACHED and str(node.args[0].target) == _DETACHED:
                # Older versions record one detach once for each mode around it.
                keys[node] = keys[node.args[0]]
                continue
            if node.op == "placeholder":
                row: Hashable = ("input", paths[node], _kind_of(node))
            elif node.op == "output":
                args = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
                kept = [each for i, each in enumerate(args) if i not in left_out]
                row = ("output", key_of(kept, keys.__getitem__), self._recorded.messages.key)
            elif len(gone) == 1 and len(operands) == 2 and name in _ADDED and not node.kwargs:
                (other,) = (n for n in node.all_input_nodes if n is not gone[0])
                row = ("accumulated", keys[other])
                if name == "aten.add_.Tensor":
                    aliases = [
                        n for n in keys if keys[n] == _ABSENT and self._roots[n] is self._roots[gone[0]]
                    ]
                    keys.update(dict.fromkeys(aliases, len(found)))
            else:
                row = ("op", name, self._operands(node, keys))
            keys[node] = len(found)
            found.append((row, node))
        return found


def _places(module: Any) -> list[str]:
    """Paths of the inputs of a graph inside another, which are their places."""
    return [str(i) for i, node in enumerate(module.graph.nodes) if node.op == "placeholder"]


def _is_pure(node: Any) -> bool:
    """True for an op whose result is the same whenever its operands are."""
    import torch

    tags = getattr(node.target, "tags", ())
    return (
        getattr(node.target, "namespace", "") in ("aten", "prims")
        and not node.target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in tags
        and "empty" not in str(node.target)
        and "resize" not in str(node.target)
    )


def _kind_of(node: Any) -> Hashable:
    t = node.meta.get("val")
    return None if t is None else key_of((t.dtype, tuple(t.shape), tuple(t.stride())))


def difference(first: Rows, second: Rows) -> tuple[Any, Any] | None:
    """The nodes at which two traces differ.

    Where the second begins with gradients that the first has none of, what is done to them is left out.
    """
    rows = second.rows if first.paths == second.paths else second.bare
    for a, b in zip_longest(first.rows, rows):
        if a is None or b is None or (a[0] != b[0] and not _is_stolen(a[0], b[0])):
            return (a or first.rows[-1])[1], (b or rows[-1])[1]
    return None


def _is_stolen(first: Any, second: Any) -> bool:
    """True for a gradient that is the first one, where the second trace adds it to one that is there."""
    return bool(
        second[0] == "accumulated"
        and first[0] == "op"
        and first[1] in _STOLEN
        and first[2][1][1] == ("node", second[1])
    )
