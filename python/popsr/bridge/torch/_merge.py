"""One graph of what all ranks do: the same ops, with what differs between ranks as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.bridge.torch._capture import Recorded
from popsr.bridge.torch._draws import draw_of
from popsr.bridge.torch._locations import place_of_node, shown_place
from popsr.bridge.torch._ranks import grouping_of_all
from popsr.errors import UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["Merged", "merge"]

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "eq", "ne", "lt", "gt", "le", "ge"})
_DISTRIBUTED = ("_c10d_functional", "_c10d_functional_autograd", "_dtensor")


@dataclass
class Merged:
    """The ops of all ranks.

    Attributes:
        module: the graph of the first rank, with a placeholder more for each value that differs.
        varying: such values, a tensor for each rank, in the order of their placeholders.
        groupings: replica groupings by the names of process groups in the graph.
        numbers: places of the nodes of the first rank's graph before it was changed.
        draws: random ops whose generators ranks have seeded apart: a state for each rank, and the node.
    """

    module: Any
    varying: list[list[Any]] = field(default_factory=list)
    groupings: dict[str, ReplicaGrouping] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict, repr=False)
    draws: list[tuple[list[str], Any]] = field(default_factory=list, repr=False)


def merge(recorded: Sequence[Recorded], where: str) -> Merged:
    """Compare the graphs of all ranks.

    Raises:
        UnsupportedError: ranks run different ops.
        ReplicaError: their process groups do not fit together.
    """
    merged = Merged(recorded[0].module)
    graphs = [list(each.module.graph.nodes) for each in recorded]
    numbers = [{node: i for i, node in enumerate(nodes)} for nodes in graphs]
    merged.numbers = numbers[0]
    for together in zip(*graphs, strict=False):
        _compare_node(together, numbers, recorded, merged, where)
    shortest = min(graphs, key=len)
    for rank, nodes in enumerate(graphs):
        if len(nodes) != len(shortest):
            raise _different(graphs[0][-1], nodes[-1], rank, where, f"{len(graphs[0])} and {len(nodes)} ops")
    merged.module.graph.lint()
    merged.module.recompile()
    return merged


def _compare_node(
    nodes: Sequence[Any],
    numbers: Sequence[dict[Any, int]],
    recorded: Sequence[Recorded],
    merged: Merged,
    where: str,
) -> None:
    first = nodes[0]
    for rank, node in enumerate(nodes):
        if (node.op, str(node.target)) != (first.op, str(first.target)) and node.op != "get_attr":
            raise _different(first, node, rank, where, f"{first.target} and {node.target}")
    if first.op == "get_attr":
        values = [getattr(each.module, node.target) for each, node in zip(recorded, nodes, strict=True)]
        if hasattr(values[0], "graph"):
            _compare_inner(values, recorded, merged, where)
        elif any(not _same(value, values[0]) for value in values):
            placeholder = _placeholder(merged, values)
            merged.numbers[placeholder] = merged.numbers[first]
            first.replace_all_uses_with(placeholder)
        return
    if getattr(first.target, "namespace", None) in _DISTRIBUTED:
        _note_groups(nodes, recorded, merged, where)
    draws = [draw_of(node) for node in nodes]
    states = [draw[0] if draw else "" for draw in draws]
    if len(set(states)) > 1:
        merged.draws.append((states, first))
    plain = [_plain((node.args, node.kwargs), number) for node, number in zip(nodes, numbers, strict=True)]
    if all(each == plain[0] for each in plain):
        return
    rank = next(r for r, each in enumerate(plain) if each != plain[0])
    if not _vary(nodes, numbers, merged):
        raise _different(first, nodes[rank], rank, where, f"{plain[0]!s:.80} and {plain[rank]!s:.80}")


def _compare_inner(modules: Sequence[Any], recorded: Sequence[Recorded], merged: Merged, where: str) -> None:
    """Compare the graphs of a branch or loop, to which nothing can be given that differs."""
    inner = [Recorded(module, each.groups) for module, each in zip(modules, recorded, strict=True)]
    graphs = [list(module.graph.nodes) for module in modules]
    numbers = [{node: i for i, node in enumerate(nodes)} for nodes in graphs]
    found = Merged(modules[0], groupings=merged.groupings, numbers=numbers[0])
    for together in zip(*graphs, strict=False):
        _compare_node(together, numbers, inner, found, where)
        if found.varying or len({len(nodes) for nodes in graphs}) > 1:
            first = together[0]
            raise _different(
                first, together[-1], len(graphs) - 1, where, "a branch that differs between them"
            )


def _same(a: Any, b: Any) -> bool:
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return bool(a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b))
    return bool(a == b)


def _plain(value: Any, numbers: dict[Any, int]) -> Any:
    """Operands with numbers in place of nodes."""
    if isinstance(value, list | tuple):
        return [_plain(each, numbers) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each, numbers) for key, each in value.items()}
    return f"%{numbers[value]}" if type(value).__name__ == "Node" else value


def _note_groups(nodes: Sequence[Any], recorded: Sequence[Recorded], merged: Merged, where: str) -> None:
    """Give the process group one name on all ranks."""
    names = [next((a for a in reversed(node.args) if isinstance(a, str)), None) for node in nodes]
    if names[0] is None or str(nodes[0].target).split(".")[1] == "wait_tensor":
        return
    name = names[0] if len(set(names)) == 1 else f"{names[0]} (of ranks: {', '.join(map(str, names))})"
    place = place_of_node(nodes[0])
    at = f"{where} at {place[0]}:{place[1]}" if place else where
    if name not in merged.groupings:
        members = [each.groups[str(own)] for each, own in zip(recorded, names, strict=True)]
        merged.groupings[name] = grouping_of_all(name, members, at)
    for node, own in zip(nodes, names, strict=True):
        last = max(i for i, a in enumerate(node.args) if isinstance(a, str) and a == own)
        node.args = (*node.args[:last], name, *node.args[last + 1 :])


# Operands that differ


def _vary(nodes: Sequence[Any], numbers: Sequence[dict[Any, int]], merged: Merged) -> bool:
    """Give an op what differs between ranks as a tensor; False where it cannot take one."""
    first, name = nodes[0], str(nodes[0].target)
    plain = [_plain((node.args, node.kwargs), number) for node, number in zip(nodes, numbers, strict=True)]
    places = [
        i
        for i in range(len(first.args))
        if any(each[0][i : i + 1] != plain[0][0][i : i + 1] for each in plain)
    ]
    if any(each[1] != plain[0][1] for each in plain) or len({len(each[0]) for each in plain}) > 1:
        return False
    if getattr(first.target, "__name__", "") == "getitem":
        return (
            places == [1]
            and _is_split(first.args[0])
            and _vary_part(first, [n.args[1] for n in nodes], merged)
        )
    if name in ("aten.slice.Tensor", "aten.select.int"):
        return not {0, 1} & set(places) and _vary_slice(nodes, merged, name)
    return all(_vary_operand(nodes, numbers, i, merged) for i in places)


def _vary_operand(nodes: Sequence[Any], numbers: Sequence[dict[Any, int]], i: int, merged: Merged) -> bool:
    """Give an op one operand that differs: a part of a split, or a number of an arithmetic op."""
    import torch

    first, name, values = nodes[0], str(nodes[0].target), [node.args[i] for node in nodes]
    if all(getattr(getattr(value, "target", None), "__name__", "") == "getitem" for value in values):
        sources = {number[value.args[0]] for value, number in zip(values, numbers, strict=True)}
        if len(sources) > 1 or not _is_split(values[0].args[0]):
            return False
        chosen = _part(first, values[0].args[0], [value.args[1] for value in values], merged)
        if chosen is not None:
            first.args = (*first.args[:i], chosen, *first.args[i + 1 :])
        return chosen is not None
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    parts = name.split(".")
    if not is_number or parts[1].rstrip("_") not in _ARITHMETIC or parts[2] not in ("Tensor", "Scalar"):
        return False
    tensors = [torch.tensor(value, dtype=_number_dtype(value)) for value in values]
    if len({t.dtype for t in tensors}) > 1:
        return False
    first.args = (*first.args[:i], _placeholder(merged, tensors), *first.args[i + 1 :])
    first.target = getattr(torch.ops.aten, parts[1]).Tensor
    return True


def _is_split(node: Any) -> bool:
    return str(node.target).startswith(("aten.split.", "aten.split_with_sizes."))


def _number_dtype(value: Any) -> Any:
    import torch

    return torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def _vary_slice(nodes: Sequence[Any], merged: Merged, name: str) -> bool:
    import torch

    first = nodes[0]
    dim = first.args[1] if len(first.args) > 1 else 0
    extent = first.args[0].meta["val"].shape[dim]
    if name == "aten.select.int":
        places = [[node.args[2] % extent] for node in nodes]
    else:
        places = [list(range(extent)[slice(*(*node.args[2:5], None, None, None)[:3])]) for node in nodes]
    if len({len(each) for each in places}) > 1:
        return False
    made = _selected(first, first.args[0], dim, [torch.tensor(each) for each in places], merged)
    if name == "aten.select.int":
        made = _called(first, torch.ops.aten.squeeze.dim, (made, dim), merged)
    _replace(first, made, merged)
    return True


def _vary_part(node: Any, chosen: Sequence[int], merged: Merged) -> bool:
    made = _part(node, node.args[0], chosen, merged)
    if made is None:
        return False
    _replace(node, made, merged)
    return True


def _part(node: Any, split: Any, chosen: Sequence[int], merged: Merged) -> Any:
    """The part of a split that each rank chooses; None where they have different extents."""
    import torch

    dim = split.args[2] if len(split.args) > 2 else 0
    sizes = [part.shape[dim] for part in split.meta["val"]]
    if len({sizes[i] for i in chosen}) > 1:
        return None
    places = [torch.arange(sizes[i]) + sum(sizes[:i]) for i in chosen]
    return _selected(node, split.args[0], dim, places, merged)


def _selected(node: Any, source: Any, dim: int, places: list[Any], merged: Merged) -> Any:
    import torch

    operands = (source, dim, _placeholder(merged, places))
    return _called(node, torch.ops.aten.index_select.default, operands, merged)


def _called(node: Any, op: Any, operands: tuple[Any, ...], merged: Merged) -> Any:
    """A call before a node, on its line."""
    with merged.module.graph.inserting_before(node):
        made = merged.module.graph.call_function(op, operands)
    made.meta = dict(node.meta)
    merged.numbers[made] = merged.numbers[node]
    return made


def _replace(node: Any, made: Any, merged: Merged) -> None:
    node.replace_all_uses_with(made)
    merged.module.graph.erase_node(node)


def _placeholder(merged: Merged, values: list[Any]) -> Any:
    graph = merged.module.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(last):
        made = graph.placeholder(f"of_rank_{len(merged.varying)}")
    merged.varying.append(values)
    return made


def _different(first: Any, other: Any, rank: int, where: str, what: str) -> UnsupportedError:
    texts = [shown_place(place_of_node(node)) for node in (first, other)]
    return UnsupportedError(
        f"{where}: ranks 0 and {rank} run different ops at {texts[0]} and {texts[1]}, got {what}, expected the same "
        "ops on all ranks"
    )
