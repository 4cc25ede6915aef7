"""One graph of what all ranks do: the same ops, with what differs between ranks as inputs.

Ranks are merged when their graphs have neither writes nor views: a view whose place differs between ranks may be
written, and what takes its place here is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.bridge.torch._locations import Place, place_of_node, shown_place
from popsr.bridge.torch._ranks.job import grouping_of_all
from popsr.bridge.torch._ranks.same import attribute_of, group_name, key_of, meta_key
from popsr.bridge.torch._ranks.varying import Operands, Varying, is_part
from popsr.bridge.torch._tracing.capture import Recorded
from popsr.bridge.torch._tracing.draws import draw_of
from popsr.errors import UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["Merged", "merge"]


@dataclass
class Merged:
    """The ops of all ranks.

    Attributes:
        module: the graph of the first rank without writes, with a placeholder more for each value that differs.
        varying: such values, in the order of their placeholders.
        groupings: replica groupings by the names of process groups in the graph.
        draws: random ops whose generators ranks have seeded apart: a state for each rank, and the node.
    """

    module: Any
    varying: list[Varying] = field(default_factory=list)
    groupings: dict[str, ReplicaGrouping] = field(default_factory=dict)
    draws: list[tuple[list[str], Any]] = field(default_factory=list, repr=False)


def merge(recorded: Sequence[Recorded], where: str) -> Merged:
    """Compare the graphs of all ranks.

    Raises:
        UnsupportedError: ranks run different ops.
        ReplicaError: their process groups do not fit together.
    """
    _compare_communication(recorded, where)
    merged = Merged(recorded[0].functional)
    if len(recorded) > 1:
        _compare_graphs([each.functional for each in recorded], recorded, merged, where)
        merged.module.graph.lint()
        merged.module.recompile()
    return merged


def _compare_communication(recorded: Sequence[Recorded], where: str) -> None:
    """Refuse ranks that take part in other collectives: those whose results nobody reads wait all the same."""
    calls = [
        [node for way in each.ways for node in way.module.graph.nodes if group_name(node) is not None]
        for each in recorded
    ]
    for together in zip(*calls, strict=False):
        for rank, node in enumerate(together):
            if (str(node.target), meta_key(node)) != (str(together[0].target), meta_key(together[0])):
                raise _different(together[0], node, rank, where, f"{together[0].target} and {node.target}")
    for rank, each in enumerate(calls):
        if len(each) != len(calls[0]):
            more = max(each, calls[0], key=len)[min(len(each), len(calls[0]))]
            raise _different(more, more, rank, where, f"{len(calls[0])} and {len(each)} collectives")


def _compare_graphs(modules: Sequence[Any], recorded: Sequence[Recorded], merged: Merged, where: str) -> None:
    """Compare node by node; parts of a result that ranks choose apart belong to the operands of who reads them."""
    graphs = [[node for node in module.graph.nodes if not is_part(node)] for module in modules]
    operands = Operands(modules, merged.varying)
    for together in zip(*graphs, strict=False):
        _compare_node(together, modules, operands, recorded, merged, where)
    for rank, nodes in enumerate(graphs):
        if len(nodes) != len(graphs[0]):
            raise _different(graphs[0][-1], nodes[-1], rank, where, f"{len(graphs[0])} and {len(nodes)} ops")


def _compare_node(
    nodes: Sequence[Any],
    modules: Sequence[Any],
    operands: Operands,
    recorded: Sequence[Recorded],
    merged: Merged,
    where: str,
) -> None:
    first = nodes[0]
    for rank, node in enumerate(nodes):
        if node.op != first.op or (str(node.target) != str(first.target) and first.op == "call_function"):
            raise _different(first, node, rank, where, f"{first.target} and {node.target}")
        if meta_key(node) != meta_key(first):
            made = [str(each.meta.get("val"))[:60] for each in (first, node)]
            raise _different(first, node, rank, where, f"{first.target} of {made[0]} and {made[1]}")
    if first.op == "get_attr":
        values = [attribute_of(module, node) for module, node in zip(modules, nodes, strict=True)]
        if hasattr(values[0], "graph"):
            _compare_inner(first, values, recorded, merged, where)
            return
        keys = [key_of(value) for value in values]
        if len(set(keys)) > 1 and not operands.vary_attribute(nodes, values):
            rank = next(r for r, key in enumerate(keys) if key != keys[0])
            raise _different(first, nodes[rank], rank, where, "constants that differ")
        return
    if group_name(first) is not None:
        _note_groups(nodes, recorded, merged, where)
    states = [draw[0] if draw else "" for draw in map(draw_of, nodes)]
    if len(set(states)) > 1:
        merged.draws.append((states, first))
    other = operands.vary(nodes)
    if other is not None:
        texts = [f"{first.target}{each.args!s:.80}" for each in (first, nodes[other])]
        raise _different(first, nodes[other], other, where, " and ".join(texts))


def _compare_inner(
    node: Any, modules: Sequence[Any], recorded: Sequence[Recorded], merged: Merged, where: str
) -> None:
    """Compare the graphs of a branch or loop, to which nothing can be given that differs."""
    found = Merged(modules[0], groupings=merged.groupings)
    _compare_graphs(modules, recorded, found, where)
    if found.varying:
        raise _different(node, node, len(modules) - 1, where, "a branch that differs between them")


def _note_groups(nodes: Sequence[Any], recorded: Sequence[Recorded], merged: Merged, where: str) -> None:
    """Give the process group one name on all ranks."""
    names: list[Any] = [group_name(node) for node in nodes]
    name = names[0] if len(set(names)) == 1 else f"{names[0]} (of ranks: {', '.join(names)})"
    place = place_of_node(nodes[0])
    at = f"{where} at {place[0]}:{place[1]}" if place else where
    if name not in merged.groupings:
        members = [each.groups[own] for each, own in zip(recorded, names, strict=True)]
        merged.groupings[name] = grouping_of_all(name, members, at)
    for node, own in dict(zip(nodes, names, strict=True)).items():
        node.args = tuple(name if each is own else each for each in node.args)


def _place(node: Any) -> Place | None:
    """The line of a node, or of the first one that is computed with it: numbers have none of their own."""
    while node is not None:
        place = place_of_node(node)
        if place is not None:
            return place
        node = next(iter(node.users), None)
    return None


def _different(first: Any, other: Any, rank: int, where: str, what: str) -> UnsupportedError:
    texts = [shown_place(_place(node)) for node in (first, other)]
    return UnsupportedError(
        f"{where}: ranks 0 and {rank} run different ops at {texts[0]} and {texts[1]}, got {what}, expected the same "
        "ops on all ranks"
    )
