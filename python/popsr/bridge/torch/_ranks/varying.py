"""Operands that differ between ranks, in graphs without writes: numbers, places in a tensor, parts of a split."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from popsr.bridge.torch._ranks.same import attribute_of, key_of, meta_key
from popsr.bridge.torch._tracing.messages import message_ops

__all__ = ["Operands", "Varying", "is_part"]

_SPLITS = ("aten.split", "aten.unbind")
_NOTHING: Any = object()
"""Stands for an operand that cannot be given."""


@dataclass(frozen=True)
class Varying:
    """A value that differs between ranks.

    Attributes:
        values: a tensor for each rank.
        is_number: True for a number of Python, which promotes as such.
    """

    values: list[Any]
    is_number: bool = False


def is_part(node: Any) -> bool:
    """True for a node that takes one of several results."""
    return node.target is operator.getitem


class Operands:
    """Compares operands of aligned ops, and gives the merged graph what differs: placeholders and selections by rank.

    Args:
        module: the merged graph, which is changed.
        world: number of ranks.
        varying: the values of the placeholders that were made; this adds to them.
    """

    def __init__(self, module: Any, world: int, varying: list[Varying]) -> None:
        """No op is aligned yet."""
        self._module, self._graph, self._world, self._varying = module, module.graph, world, varying
        self._numbers: dict[Any, int] = {}
        self._merged: dict[int, Any] = {}
        self._selections: dict[tuple[Hashable, ...], Any] = {}
        self._masks: dict[tuple[bool, ...], Any] = {}

    def align(self, node: Any, nodes: Iterable[Any]) -> None:
        """Say that a node of the merged graph stands for nodes of ranks."""
        number = len(self._merged)
        self._merged[number] = node
        self._numbers |= dict.fromkeys((node, *nodes), number)

    def copy(self, node: Any, module: Any, before: Any) -> Any:
        """A node of the merged graph that computes what a node of another graph does.

        Args:
            node: the node, of operands that are aligned.
            module: its graph.
            before: the node of the merged graph that comes next.
        """
        if node.op == "get_attr":
            name = f"of_rank_{len(self._merged)}"
            setattr(self._module, name, attribute_of(module, node))
            with self._graph.inserting_before(before):
                made = self._graph.create_node("get_attr", name)  # get_attr warns of plain tensors
            made.meta = dict(node.meta)
            return made
        with self._graph.inserting_before(before):
            return self._graph.node_copy(node, lambda each: self._in_merged(each, before))

    def vary_attribute(self, node: Any, values: Sequence[Any]) -> bool:
        """Replace a constant that differs by a placeholder; False where it is not tensors of one shape and type."""
        import torch

        if not all(isinstance(value, torch.Tensor) for value in values):
            return False
        if len({(value.dtype, value.shape) for value in values}) > 1:
            return False
        self._replace(node, self._placeholder(Varying(list(values))))
        return True

    def vary(self, merged: Any, nodes: Sequence[Any]) -> int | None:
        """Replace the operands that differ; the first rank with one that cannot be given as a tensor, if there is.

        Args:
            merged: the node of the merged graph.
            nodes: that of each rank.
        """
        called = [_arguments(node) for node in nodes]
        differing = self._differing(called)
        if not differing:
            return None
        rank = self._first_other(called)
        if any(each.keys() != called[0].keys() for each in called):
            return rank
        selection = _SELECTIONS.get(str(merged.target).split(".")[1]) if "." in str(merged.target) else None
        if selection is not None and differing <= selection.counts:
            return None if self._select(merged, called, selection) else rank
        own = _arguments(merged)
        new = {
            name: self._varied([each[name] for each in called], own[name], merged, _type_of(merged, name))
            for name in differing
        }
        if any(value is _NOTHING for value in new.values()):
            return rank
        for name, value in new.items():
            _set_argument(merged, name, value)
        return None

    def receive(self, nodes: Sequence[Any], sent: Any, destinations: list[int], before: Any) -> None:
        """Let what ranks receive be what others send.

        Args:
            nodes: the receive of each rank; None of those that receive nothing.
            sent: the send, on one of the ranks that send.
            destinations: the rank that each rank sends to; -1: none.
            before: the node of the merged graph that comes next.
        """
        own = [node for node in nodes if node is not None]
        operands = (self._in_merged(sent, before), destinations)
        made = self._called(own[0], before, message_ops().message_moved.default, operands)
        if nodes[0] is not None:
            nodes[0].replace_all_uses_with(made)
            self._graph.erase_node(nodes[0])
        self.align(made, own)

    def key(self, node: Any) -> Hashable:
        """Equal for aligned ops of the same operands."""
        return self._key(_arguments(node))

    # Comparing

    def _key(self, value: Any) -> Hashable:
        return key_of(value, self._node_key)

    def _node_key(self, node: Any) -> Hashable:
        if is_part(node):
            return ("part", self._node_key(node.args[0]), node.args[1])
        return self._numbers[node]

    def _differing(self, called: Sequence[dict[str, Any]]) -> set[str]:
        names = {name for each in called for name in each}
        return {name for name in names if len({self._key(each.get(name)) for each in called}) > 1}

    def _first_other(self, called: Sequence[dict[str, Any]]) -> int:
        keys = [self._key(each) for each in called]
        return next(rank for rank, key in enumerate(keys) if key != keys[0])

    # Replacing

    def _in_merged(self, node: Any, before: Any) -> Any:
        """The node of the merged graph for a node of a rank; one that takes a part of it is made."""
        if node.graph is self._graph:
            return node
        if not is_part(node):
            return self._merged[self._numbers[node]]
        source = self._in_merged(node.args[0], before)
        return self._called(node, before, operator.getitem, (source, node.args[1]))

    def _varied(self, values: Sequence[Any], own: Any, node: Any, kind: str) -> Any:
        """An operand to take the place of one that differs, before a node; ``_NOTHING`` where nothing can.

        Args:
            values: the operand of each rank.
            own: that of the node.
            node: the node of the merged graph.
            kind: torch's name of the operand's type.
        """
        import torch

        if len({self._key(value) for value in values}) == 1:
            return own
        if all(isinstance(value, list | tuple) for value in values):
            if len({len(value) for value in values}) > 1:
                return _NOTHING
            rows = zip(zip(*values, strict=True), own, strict=True)
            made = [self._varied(each, mine, node, kind) for each, mine in rows]
            return _NOTHING if any(each is _NOTHING for each in made) else made
        if all(isinstance(value, torch.fx.Node) for value in values):
            chosen = self._chosen(values, own, node)
            return self._selected(values, node) if chosen is None else chosen
        # A number where torch takes any number or a tensor; elsewhere it says what is computed, not with what.
        if "number" not in kind and "Tensor" not in kind:
            return _NOTHING
        dtype = _number_dtype(values)
        if dtype is None:
            return _NOTHING
        return self._placeholder(Varying([torch.tensor(value, dtype=dtype) for value in values], True))

    def _selected(self, values: Sequence[Any], before: Any) -> Any:
        """The tensor of each rank, of ops that not all ranks run; ``_NOTHING`` where kinds differ."""
        import torch

        if len({meta_key(value) for value in values}) > 1:
            return _NOTHING
        if not isinstance(values[0].meta.get("val"), torch.Tensor):
            return _NOTHING
        keys = tuple(self._node_key(value) for value in values)
        if keys not in self._selections:
            made = self._in_merged(values[0], before)
            for key, value in dict(zip(keys, values, strict=True)).items():
                if key == keys[0]:
                    continue
                mask = self._mask(tuple(each == key for each in keys))
                operands = (mask, self._in_merged(value, before), made)
                made = self._called(value, before, torch.ops.aten.where.self, operands)
            self._selections[keys] = made
        return self._selections[keys]

    def _mask(self, ranks: tuple[bool, ...]) -> Any:
        """A placeholder that is true on some ranks."""
        import torch

        if ranks not in self._masks:
            self._masks[ranks] = self._placeholder(Varying([torch.tensor(each) for each in ranks]))
        return self._masks[ranks]

    def _chosen(self, values: Sequence[Any], own: Any, node: Any) -> Any:
        """The part that each rank chooses of one split tensor."""
        if not all(is_part(value) and _is_split(value.args[0]) for value in values):
            return None
        sources = [value.args[0] for value in values]
        if len({self._node_key(source) for source in sources}) > 1:
            return None
        split = _arguments(own.args[0])
        places = [_places_of_part(value) for value in values]
        if len({len(each) if isinstance(each, list) else -1 for each in places}) > 1:
            return None
        return self._gathered(values[0], node, split["self"], split["dim"], places)

    def _select(self, merged: Any, called: Sequence[dict[str, Any]], selection: _Selection) -> bool:
        """Replace a part of a tensor at a place that differs, or the tensor with such a part replaced."""
        import torch

        own = _arguments(merged)
        if any(not all(_is_place(each.get(name)) for name in selection.counts) for each in called):
            return False
        axis = own["dim"] % len(own["self"].meta["val"].shape)
        extent = own["self"].meta["val"].shape[axis]
        places = [selection.places(each, extent) for each in called]
        if len({len(each) if isinstance(each, list) else -1 for each in places}) > 1:
            return False
        if not selection.writes:
            made = self._gathered(merged, merged, own["self"], axis, places)
        else:
            index = [*[None] * axis, self._placeholder(_of_places(places))]
            made = self._called(
                merged, merged, torch.ops.aten.index_put.default, (own["self"], index, own["src"])
            )
        self._replace(merged, made)
        return True

    def _gathered(self, like: Any, before: Any, source: Any, dim: int, places: Sequence[Any]) -> Any:
        import torch

        axis = dim % len(source.meta["val"].shape)
        index = [*[None] * axis, self._placeholder(_of_places(places))]
        return self._called(like, before, torch.ops.aten.index.Tensor, (source, index))

    def _called(self, like: Any, before: Any, op: Any, operands: tuple[Any, ...]) -> Any:
        """A call before a node that makes what another one made, on its line."""
        with self._graph.inserting_before(before):
            made = self._graph.call_function(op, operands)
        made.meta = dict(like.meta)
        return made

    def _replace(self, node: Any, made: Any) -> None:
        self._numbers[made] = self._numbers[node]
        self._merged[self._numbers[node]] = made
        node.replace_all_uses_with(made)
        self._graph.erase_node(node)

    def _placeholder(self, varying: Varying) -> Any:
        last = [node for node in self._graph.nodes if node.op == "placeholder"][-1]
        with self._graph.inserting_after(last):
            made = self._graph.placeholder(f"of_rank_{len(self._varying)}")
        self._varying.append(varying)
        return made


# Ops that take or replace a part of a tensor


@dataclass(frozen=True)
class _Selection:
    """An op on a part of a tensor along an axis.

    Attributes:
        counts: the operands that say which part.
        places: the part, a number or a list of them, of the operands and the extent of the axis.
        writes: True if the part is replaced.
    """

    counts: frozenset[str]
    places: Callable[[dict[str, Any], int], Any]
    writes: bool


def _sliced(values: dict[str, Any], extent: int) -> list[int]:
    return list(range(extent)[slice(values["start"], values["end"], values["step"])])


def _selected(values: dict[str, Any], extent: int) -> int:
    return int(values["index"]) % extent


_BOUNDS = frozenset({"start", "end", "step"})
_SELECTIONS = {
    "slice": _Selection(_BOUNDS, _sliced, False),
    "slice_copy": _Selection(_BOUNDS, _sliced, False),
    "slice_scatter": _Selection(_BOUNDS, _sliced, True),
    "select": _Selection(frozenset({"index"}), _selected, False),
    "select_copy": _Selection(frozenset({"index"}), _selected, False),
    "select_scatter": _Selection(frozenset({"index"}), _selected, True),
}


def _is_place(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _of_places(places: Sequence[Any]) -> Varying:
    import torch

    return Varying([torch.tensor(each, dtype=torch.int64) for each in places])


def _is_split(node: Any) -> bool:
    return str(node.target).startswith(_SPLITS)


def _places_of_part(part: Any) -> Any:
    """Places along the axis that a part of a split takes: a list, or one number where the axis goes."""
    split, number = part.args
    dim = _arguments(split)["dim"]
    if str(split.target).startswith("aten.unbind"):
        return number
    sizes = [each.shape[dim] for each in split.meta["val"]]
    return [sum(sizes[:number]) + i for i in range(sizes[number])]


# Operands by their names


def _arguments(node: Any) -> dict[str, Any]:
    """Operands by name, with the defaults of those that are not given; by number where an op does not name them."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(i): each for i, each in enumerate(node.args)} | dict(node.kwargs)
    found = {each.name: each.default_value for each in schema.arguments if each.has_default_value()}
    found |= dict(zip([each.name for each in schema.arguments], node.args, strict=False))
    return found | dict(node.kwargs)


def _type_of(node: Any, name: str) -> str:
    """Torch's name of the type of an operand."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:  # of Python's operators on numbers that are known when the step runs
        return "number" if getattr(node.target, "__module__", "") == operator.mul.__module__ else ""
    return next(str(each.type) for each in schema.arguments if each.name == name)


def _set_argument(node: Any, name: str, value: Any) -> None:
    schema = getattr(node.target, "_schema", None)
    names = [str(i) for i in range(len(node.args))] if schema is None else [a.name for a in schema.arguments]
    place = names.index(name) if name in names else len(node.args)
    if place < len(node.args):
        node.args = (*node.args[:place], value, *node.args[place + 1 :])
    else:
        node.kwargs = {**node.kwargs, name: value}


def _number_dtype(values: Sequence[Any]) -> Any:
    """The type of numbers of one kind that torch computes with; None where they are of other kinds."""
    import torch

    if all(type(value) is float for value in values):
        return torch.float64
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return torch.int64
    return None
