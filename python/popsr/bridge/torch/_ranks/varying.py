"""Operands that differ between ranks, in graphs without writes: numbers, places in a tensor, parts of a split."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from popsr.bridge.torch._ranks.same import key_of

__all__ = ["Operands", "Varying", "is_part"]

_SPLITS = ("aten.split", "aten.unbind")


@dataclass(frozen=True)
class Varying:
    """A value that differs between ranks.

    Attributes:
        values: a tensor for each rank.
        is_number: True for a number of Python, which promotes as such.
    """

    values: list[Any]
    is_number: bool = False


def _numbered(module: Any) -> dict[Any, int]:
    return {node: i for i, node in enumerate(n for n in module.graph.nodes if not is_part(n))}


def is_part(node: Any) -> bool:
    """True for a node that takes one of several results."""
    return node.target is operator.getitem


class Operands:
    """Compares operands of the same nodes on all ranks, and gives the first rank's what differs as placeholders.

    Args:
        modules: a graph of each rank; the first one is changed.
        varying: the values of the placeholders that were made; this adds to them.
    """

    def __init__(self, modules: Sequence[Any], varying: list[Varying]) -> None:
        """Numbers of the nodes, by which ranks are compared."""
        self._graph, self._varying = modules[0].graph, varying
        numbers = {id(module): _numbered(module) for module in modules}  # ranks may share a graph
        self._numbers = [numbers[id(module)] for module in modules]

    def vary_attribute(self, nodes: Sequence[Any], values: Sequence[Any]) -> bool:
        """Replace a constant that differs by a placeholder; False where it is not tensors of one shape and type."""
        import torch

        if not all(isinstance(value, torch.Tensor) for value in values):
            return False
        if len({(value.dtype, value.shape) for value in values}) > 1:
            return False
        made = self._placeholder(Varying(list(values)))
        self._replace(nodes[0], made)
        return True

    def vary(self, nodes: Sequence[Any]) -> int | None:
        """Replace the operands that differ; the first rank with one that cannot be given as a tensor, if there is."""
        called = [_arguments(node) for node in nodes]
        differing = self._differing(called)
        if not differing:
            return None
        rank = self._first_other(called)
        if any(each.keys() != called[0].keys() for each in called):
            return rank
        selection = (
            _SELECTIONS.get(str(nodes[0].target).split(".")[1]) if "." in str(nodes[0].target) else None
        )
        if selection is not None and differing <= selection.counts:
            return None if self._select(nodes, called, selection) else rank
        for name in differing:
            new = self._varied([each[name] for each in called], nodes[0], _type_of(nodes[0], name))
            if new is None:
                return rank
            _set_argument(nodes[0], name, new)
        return None

    # Comparing

    def _key(self, rank: int, value: Any) -> Hashable:
        return key_of(value, lambda node: self._node_key(rank, node))

    def _node_key(self, rank: int, node: Any) -> Hashable:
        if is_part(node):
            return ("part", self._node_key(rank, node.args[0]), node.args[1])
        return self._numbers[rank][node]

    def _differing(self, called: Sequence[dict[str, Any]]) -> set[str]:
        names = {name for each in called for name in each}
        return {
            name for name in names if len({self._key(r, each.get(name)) for r, each in enumerate(called)}) > 1
        }

    def _first_other(self, called: Sequence[dict[str, Any]]) -> int:
        keys = [self._key(rank, each) for rank, each in enumerate(called)]
        return next(rank for rank, key in enumerate(keys) if key != keys[0])

    # Replacing

    def _varied(self, values: Sequence[Any], node: Any, kind: str) -> Any:
        """An operand to take the place of one that differs, before a node; None where nothing can."""
        import torch

        first = values[0]
        if len({self._key(rank, value) for rank, value in enumerate(values)}) == 1:
            return first
        if all(isinstance(value, list | tuple) for value in values):
            if len({len(value) for value in values}) > 1:
                return None
            made = [self._varied(each, node, kind) for each in zip(*values, strict=True)]
            return None if any(m is None is not f for m, f in zip(made, first, strict=True)) else made
        if all(isinstance(value, torch.fx.Node) for value in values):
            return self._chosen(values, node)
        # A number where torch takes any number or a tensor; elsewhere it says what is computed, not with what.
        if "number" not in kind and "Tensor" not in kind:
            return None
        dtype = _number_dtype(values)
        if dtype is None:
            return None
        return self._placeholder(Varying([torch.tensor(value, dtype=dtype) for value in values], True))

    def _chosen(self, values: Sequence[Any], node: Any) -> Any:
        """The part that each rank chooses of one split tensor."""
        if not all(is_part(value) and _is_split(value.args[0]) for value in values):
            return None
        sources = [value.args[0] for value in values]
        if len({self._node_key(rank, source) for rank, source in enumerate(sources)}) > 1:
            return None
        split = _arguments(sources[0])
        places = [_places_of_part(value) for value in values]
        if len({len(each) if isinstance(each, list) else -1 for each in places}) > 1:
            return None
        return self._gathered(values[0], node, split["self"], split["dim"], places)

    def _select(self, nodes: Sequence[Any], called: Sequence[dict[str, Any]], selection: _Selection) -> bool:
        """Replace a part of a tensor at a place that differs, or the tensor with such a part replaced."""
        import torch

        first, own = nodes[0], called[0]
        if any(not all(_is_place(each.get(name)) for name in selection.counts) for each in called):
            return False
        axis = own["dim"] % len(own["self"].meta["val"].shape)
        extent = own["self"].meta["val"].shape[axis]
        places = [selection.places(each, extent) for each in called]
        if len({len(each) if isinstance(each, list) else -1 for each in places}) > 1:
            return False
        if not selection.writes:
            made = self._gathered(first, first, own["self"], axis, places)
        else:
            index = [*[None] * axis, self._placeholder(_of_places(places))]
            made = self._called(
                first, first, torch.ops.aten.index_put.default, (own["self"], index, own["src"])
            )
        self._replace(first, made)
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
        self._numbers[0][made] = self._numbers[0][node]
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
