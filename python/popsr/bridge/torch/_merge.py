"""One graph of what all ranks do: the same ops, with what differs between ranks as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.bridge.torch._capture import Recorded
from popsr.bridge.torch._locations import place_of_node
from popsr.bridge.torch._ranks import grouping_of_all
from popsr.errors import UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["Merged", "merge"]

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "eq", "ne", "lt", "gt", "le", "ge"})
_DISTRIBUTED = ("_c10d_functional", "_c10d_functional_autograd", "_dtensor")


@dataclass
class Merged:
    """What all ranks do.

    Attributes:
        module: the graph of the first rank, with a placeholder more for each value that differs.
        varying: such values, a tensor for each rank, in the order of their placeholders.
        groupings: replica groupings by the names of process groups in the graph.
        numbers: places of the nodes of the first rank's graph before it was changed.
    """

    module: Any
    varying: list[list[Any]] = field(default_factory=list)
    groupings: dict[str, ReplicaGrouping] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict, repr=False)


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
    for nodes in zip(*graphs, strict=False):
        _compare_node(nodes, numbers, recorded, merged, where)
    shortest = min(graphs, key=len)
    for rank, nodes in enumerate(graphs):
        if len(nodes) != len(shortest):
            raise _different(graphs[0][-1], nodes[-1], rank, where, f"{len(graphs[0])} and {len(nodes)} ops")
    merged.module.graph.lint()
    merged.module.recompile()
    return merged


def _compare_node(
    nodes: Sequence[Any], numbers: Sequence[dict[Any, int]], recorded: Sequence[Recorded], merged: Merged, where: str
) -> None:
    first = nodes[0]
    for rank, node in enumerate(nodes):
        if (node.op, str(node.target)) != (first.op, str(first.target)) and node.op != "get_attr":
            raise _different(first, node, rank, where, f"{first.target} and {node.target}")
    if first.op == "get_attr":
        values = [getattr(each.module, node.target) for each, node in zip(recorded, nodes, strict=True)]
        if any(not _same(value, values[0]) for value in values):
            placeholder = _placeholder(merged, values)
            merged.numbers[placeholder] = merged.numbers[first]
            first.replace_all_uses_with(placeholder)
        return
    if getattr(first.target, "namespace", None) in _DISTRIBUTED:
        _note_groups(nodes, recorded, merged, where)
    plain = [_plain((node.args, node.kwargs), number) for node, number in zip(nodes, numbers, strict=True)]
    if all(each == plain[0] for each in plain):
        return
    rank = next(r for r, each in enumerate(plain) if each != plain[0])
    if not _vary(nodes, merged):
        raise _different(first, nodes[rank], rank, where, f"{plain[0]!s:.80} and {plain[rank]!s:.80}")


def _same(a: Any, b: Any) -> bool:
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
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


def _vary(nodes: Sequence[Any], merged: Merged) -> bool:
    """Give an op what differs between ranks as a tensor; False where it cannot take one."""
    import torch

    first, name = nodes[0], str(nodes[0].target)
    if name in ("aten.slice.Tensor", "aten.select.int"):
        return _vary_slice(nodes, merged, name)
    if getattr(first.target, "__name__", "") == "getitem" and str(first.args[0].target).startswith("aten.split"):
        return _vary_part(nodes, merged)
    schema = getattr(first.target, "_schema", None)
    takes_scalars = schema is not None and name.split(".")[1].rstrip("_") in _ARITHMETIC
    numbers = [i for i, a in enumerate(first.args) if isinstance(a, int | float) and not isinstance(a, bool)]
    if not takes_scalars or len(numbers) != 1 or any(node.kwargs != first.kwargs for node in nodes):
        return False
    i = numbers[0]
    overload = "Tensor" if name.rsplit(".", 1)[1] in ("Scalar", "Tensor") else None
    values = [torch.tensor(node.args[i], dtype=_number_dtype(node.args[i])) for node in nodes]
    if overload is None or len({value.dtype for value in values}) > 1:
        return False
    placeholder = _placeholder(merged, values)
    first.args = (*first.args[:i], placeholder, *first.args[i + 1 :])
    first.target = getattr(getattr(torch.ops.aten, name.split(".")[1]), overload)
    return True


def _number_dtype(value: Any) -> Any:
    import torch

    return torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def _vary_slice(nodes: Sequence[Any], merged: Merged, name: str) -> bool:
    import torch

    first = nodes[0]
    dims = [node.args[1] if len(node.args) > 1 else 0 for node in nodes]
    extent = first.args[0].meta["val"].shape[dims[0]]
    if name == "aten.select.int":
        places = [[node.args[2] % extent] for node in nodes]
    else:
        bounds = [slice(*(*node.args[2:5], None, None, None)[:3]) for node in nodes]
        places = [list(range(extent)[each]) for each in bounds]
    if len(set(dims)) > 1 or len({len(each) for each in places}) > 1:
        return False
    _select(first, first.args[0], dims[0], [torch.tensor(each) for each in places], merged, name == "aten.select.int")
    return True


def _vary_part(nodes: Sequence[Any], merged: Merged) -> bool:
    """A part of a split that is chosen by the rank."""
    import torch

    first = nodes[0]
    split = first.args[0]
    dim = split.args[2] if len(split.args) > 2 else 0
    sizes = [part.shape[dim] for part in split.meta["val"]]
    chosen = [node.args[1] for node in nodes]
    if len({sizes[i] for i in chosen}) > 1:
        return False
    places = [torch.arange(sizes[i]) + sum(sizes[:i]) for i in chosen]
    _select(first, split.args[0], dim, places, merged, False)
    return True


def _select(node: Any, source: Any, dim: int, places: list[Any], merged: Merged, squeeze: bool) -> None:
    import torch

    placeholder = _placeholder(merged, places)
    graph = merged.module.graph
    with graph.inserting_before(node):
        made = graph.call_function(torch.ops.aten.index_select.default, (source, dim, placeholder))
        if squeeze:
            made = graph.call_function(torch.ops.aten.squeeze.dim, (made, dim))
        made.meta = dict(node.meta)
    merged.numbers[made] = merged.numbers[node]
    node.replace_all_uses_with(made)
    if not node.users:
        graph.erase_node(node)


def _placeholder(merged: Merged, values: list[Any]) -> Any:
    graph = merged.module.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(last):
        made = graph.placeholder(f"of_rank_{len(merged.varying)}")
    merged.varying.append(values)
    return made


def _different(first: Any, other: Any, rank: int, where: str, what: str) -> UnsupportedError:
    places = [place_of_node(node) for node in (first, other)]
    texts = [f"{place[0]}:{place[1]}" if place else "an unknown line" for place in places]
    return UnsupportedError(
        f"{where}: ranks 0 and {rank} run different ops at {texts[0]} and {texts[1]}, got {what}, expected the same "
        "ops on all ranks"
    )
