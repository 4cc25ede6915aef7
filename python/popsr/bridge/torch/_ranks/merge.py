"""One graph of what all ranks do, with what differs between ranks as inputs.

Ranks are merged when their graphs have neither writes nor views: a view whose place differs between ranks may be
written, and what takes its place here is a copy.

Ops of ranks are aligned, and an op of the merged graph stands for those aligned with it: one op of one kind of result,
whose operands on each rank are that rank's. Operands that differ are selected by rank: numbers and constants by a
placeholder that has each rank's, results of other ops by ``where`` of a placeholder that is true on the ranks that use
them. An op that some ranks lack is computed on all, of no effect where nothing selects its result. So each value of the
merged graph, on each rank that runs its op, is what that rank computes: whichever ops are aligned, and a poor alignment
makes more selections, whose results count as different, and nothing equal that is not. This holds for ops whose results
depend on their operands alone. Collectives and random ops do not: all ranks must run the same ones in one order.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.bridge.torch._ranks.align import aligned
from popsr.bridge.torch._ranks.job import grouping_of_all
from popsr.bridge.torch._ranks.repetition import without_repetition
from popsr.bridge.torch._ranks.same import attribute_of, group_name, key_of, meta_key
from popsr.bridge.torch._ranks.stages import Stages
from popsr.bridge.torch._ranks.varying import Operands, Varying, is_part
from popsr.bridge.torch._tracing.capture import Recorded
from popsr.bridge.torch._tracing.draws import draw_of, generator_draw_of
from popsr.bridge.torch._tracing.messages import is_received
from popsr.bridge.torch._user.locations import Place, place_of_node, shown_place
from popsr.errors import UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["Merged", "merge"]


@dataclass
class Merged:
    """The ops of all ranks.

    Attributes:
        module: the graph of the first rank without writes, with ops that only others run, and a placeholder more for
            each value that differs.
        varying: such values, in the order of their placeholders.
        groupings: replica groupings by the names of process groups in the graph.
        draws: random ops whose generators ranks have seeded apart, in this step or for the next one: a state for each
            rank, and the node.
    """

    module: Any
    varying: list[Varying] = field(default_factory=list)
    groupings: dict[str, ReplicaGrouping] = field(default_factory=dict)
    draws: list[tuple[list[str], Any]] = field(default_factory=list, repr=False)


def merge(recorded: Sequence[Recorded], where: str, stages: Stages | None = None) -> Merged:
    """Merge the graphs of all ranks.

    Args:
        recorded: what the ranks recorded.
        where: the call, for messages.
        stages: of ranks that send each other messages.
    Raises:
        UnsupportedError: ranks take part in other collectives, draw other random numbers, or return other kinds.
        ReplicaError: their process groups do not fit together.
    """
    merged = Merged(recorded[0].functional)
    if len(recorded) > 1:
        ways = [[way.module for way in each.ways] for each in recorded]
        modules = [each.functional for each in recorded]
        labels = [0] * len(recorded) if stages is None else stages.labels
        if stages is None:
            _compare_communication(ways, where)
            _compare_communication([[each] for each in modules], where)
        for label in dict.fromkeys(labels):
            _compare_draws({rank: way for rank, way in enumerate(ways) if labels[rank] == label}, where)
        first = next((n for own in ways for way in own for n in way.graph.nodes if draw_of(n)), None)
        ends = [f"{label} {each.end}" for label, each in zip(labels, recorded, strict=True)]
        if first is not None and len(set(ends)) > 1:
            merged.draws.append((ends, first))
        _Merge(modules, recorded, merged, where, stages=stages).run()
        if stages is not None:
            without_repetition(merged.module, merged.varying)
        merged.module.graph.eliminate_dead_code()
        merged.module.graph.lint()
        merged.module.recompile()
    return merged


def _compare_communication(of_ranks: Sequence[Sequence[Any]], where: str) -> None:
    """Refuse ranks that take part in other collectives: those whose results nobody reads wait all the same."""
    calls = [
        [node for way in ways for node in way.graph.nodes if group_name(node) is not None]
        for ways in of_ranks
    ]
    for rank, own in enumerate(calls):
        for node, first in zip(own, calls[0], strict=False):
            if (str(node.target), meta_key(node)) != (str(first.target), meta_key(first)):
                raise _different(first, node, rank, where, f"{first.target} and {node.target}")
        if len(own) != len(calls[0]):
            ends, goes_on = (0, rank) if len(own) > len(calls[0]) else (rank, 0)
            count = min(len(own), len(calls[0]))
            more = calls[goes_on][count]
            raise UnsupportedError(
                f"{where}: ranks {goes_on} and {ends} take part in different collectives, got {more.target} of rank "
                f"{goes_on} at {shown_place(_place(more))} after the {count} that both run, where rank {ends} had "
                "ended, expected the same collectives on all ranks"
            )


def _compare_draws(of_ranks: Mapping[int, Sequence[Any]], where: str) -> None:
    """Refuse ranks that draw random numbers at other places: generators do not go on together."""
    draws = {
        rank: [node for way in ways for node in way.graph.nodes if _draw(node) is not None]
        for rank, ways in of_ranks.items()
    }
    begin = min(draws)
    for rank, own in draws.items():
        for node, first in itertools.zip_longest(own, draws[begin]):
            if node is None or first is None or _draw(node) != _draw(first):
                texts = [shown_place(_place(each)) if each else "no line" for each in (first, node)]
                raise UnsupportedError(
                    f"{where}: ranks {begin} and {rank} draw different random numbers, got {_told(first)} at "
                    f"{texts[0]} and {_told(node)} at {texts[1]}, expected random ops that all ranks run, in one order"
                )


def _draw(node: Any) -> tuple[str, Any, Any] | None:
    """The op of a node that draws, and its number among all that draw, which ranks have in common."""
    draw, given = draw_of(node), generator_draw_of(node)
    return None if draw is None and given is None else (str(node.target), draw and draw[1], given)


def _told(node: Any) -> str:
    return "nothing" if node is None else str(node.target)


class _Merge:
    """The merge of some graphs into the first one.

    Args:
        modules: a graph of each rank; ranks that do the same share one.
        recorded: what the ranks recorded.
        merged: the result.
        where: the call, for messages.
        is_inner: True for the graphs of a branch or loop, to which nothing can be given that differs.
        stages: of ranks that send each other messages.
    """

    def __init__(
        self,
        modules: Sequence[Any],
        recorded: Sequence[Recorded],
        merged: Merged,
        where: str,
        is_inner: bool = False,
        stages: Stages | None = None,
    ) -> None:
        """Nothing is merged yet."""
        self._modules, self._recorded, self._merged, self._where = modules, recorded, merged, where
        self._is_inner, self._stages = is_inner, stages
        self._operands = Operands(modules[0], len(modules), merged.varying)
        different = list({id(module): module for module in modules}.values())
        numbers = {id(module): i for i, module in enumerate(different)}
        self._graphs = [[node for node in each.graph.nodes if not is_part(node)] for each in different]
        self._of_rank = [numbers[id(module)] for module in modules]

    def run(self) -> None:
        """Merge op by op."""
        columns = self._columns()
        output = self._graphs[0][-1]
        places, before = [], output
        for nodes in reversed(columns):
            before = nodes[0] or before
            places.append(before)
        for nodes, before in zip(columns, reversed(places), strict=True):
            if self._stages is not None and any(node is not None and is_received(node) for node in nodes):
                self._receive(self._stages, nodes, before)
            elif None in nodes:
                self._add_local(nodes, before)
            else:
                self._operands.align(nodes[0], nodes)
                self._compare(nodes, before)

    def _columns(self) -> list[list[Any]]:
        """The ops in order, with the node of each rank."""
        if self._stages is not None:
            return list(self._stages.columns([self._graphs[number] for number in self._of_rank]))
        return [[column[number] for number in self._of_rank] for column in aligned(self._graphs)]

    def _receive(self, stages: Stages, nodes: Sequence[Any], before: Any) -> None:
        """Add a message of some ranks, each to another one."""
        destinations, sent = [-1] * len(nodes), None
        for rank, node in enumerate(nodes):
            if node is not None:
                source, sent = stages.source(rank, node)
                destinations[source] = rank
        self._operands.receive(nodes, sent, destinations, before)

    def _add_local(self, nodes: Sequence[Any], before: Any) -> None:
        """Add an op that only some ranks run, for all ranks."""
        ranks = [rank for rank, node in enumerate(nodes) if node is not None]
        missing = nodes.index(None)
        own = nodes[ranks[0]]
        if self._stages is None or group_name(own) is None:
            self._check_local(own, ranks[0], missing)
        else:
            _note_groups(nodes, self._recorded, self._merged, self._where)
        filled = [own if node is None else node for node in nodes]
        made = nodes[0] or self._operands.copy(own, self._modules[ranks[0]], before)
        self._operands.align(made, filled)
        self._vary(made, filled, before)

    def _check_local(self, node: Any, rank: int, other: int) -> None:
        """Refuse an op of some ranks whose results depend on more than its operands, or that others wait for."""
        value = attribute_of(self._modules[rank], node) if node.op == "get_attr" else None
        if (
            self._is_inner
            or hasattr(value, "graph")
            or node.op not in ("call_function", "get_attr")
            or group_name(node) is not None
            or (_draw(node) is not None and self._stages is None)
            or getattr(node.target, "namespace", "") == "higher_order"
        ):
            first, second = sorted((rank, other))
            raise UnsupportedError(
                f"{self._where}: ranks {first} and {second} run different ops, got {node.target} at "
                f"{shown_place(_place(node))} on rank {rank} alone, expected a branch, loop or random op that all "
                "ranks run"
            )

    def _compare(self, nodes: Sequence[Any], before: Any) -> None:
        """Compare an op that all ranks run."""
        first = nodes[0]
        if first.op == "get_attr":
            values = [attribute_of(module, node) for module, node in zip(self._modules, nodes, strict=True)]
            if hasattr(values[0], "graph"):
                inner = Merged(values[0], groupings=self._merged.groupings)
                _Merge(values, self._recorded, inner, self._where, is_inner=True).run()
                return
        if group_name(first) is not None:
            _note_groups(nodes, self._recorded, self._merged, self._where)
        states = [draw[0] if draw else "" for draw in map(draw_of, nodes)]
        if len(set(states)) > 1:
            self._merged.draws.append((states, first))
        self._vary(first, nodes, before)

    def _vary(self, made: Any, nodes: Sequence[Any], before: Any) -> None:
        """Give a merged op the operands of each rank; ranks with others in kind get an op of their own."""
        if len(set(nodes)) == 1:
            return
        if self._is_inner:
            self._check_inner(made, nodes)
            return
        keys = [self._key(node) for node in nodes]
        if len(set(keys)) == 1:
            return
        if made.op == "get_attr":
            values = [attribute_of(self._module_of(node), node) for node in nodes]
            if self._operands.vary_attribute(made, values):
                return
        else:
            other = self._operands.vary(made, nodes)
            if other is None:
                return
            if made.op != "call_function" or group_name(made) is not None or _draw(made) is not None:
                if made.op == "output":
                    raise UnsupportedError(
                        f"{self._where}: ranks 0 and {other} return different results, got {len(nodes[0].args[0])} and "
                        f"{len(nodes[other].args[0])} states and results of one shape and type, expected the same "
                        "tensors on all ranks"
                    )
                texts = [f"{made.target}{each.args!s:.80}" for each in (nodes[0], nodes[other])]
                raise _different(made, nodes[other], other, self._where, " and ".join(texts))
        for rank in [keys.index(key) for key in dict.fromkeys(keys)][1:]:
            same = [node for node, key in zip(nodes, keys, strict=True) if key == keys[rank]]
            self._check_local(nodes[rank], rank, 0)
            self._operands.align(self._operands.copy(nodes[rank], self._module_of(nodes[rank]), before), same)

    def _check_inner(self, made: Any, nodes: Sequence[Any]) -> None:
        keys = [self._key(node) for node in nodes]
        other = next((rank for rank, key in enumerate(keys) if key != keys[0]), None)
        if other is not None:
            raise _different(made, nodes[other], other, self._where, "a branch that differs between them")

    def _key(self, node: Any) -> Hashable:
        """Equal for aligned nodes that make the same of what they are given."""
        return (
            key_of(attribute_of(self._module_of(node), node))
            if node.op == "get_attr"
            else self._operands.key(node)
        )

    def _module_of(self, node: Any) -> Any:
        return next(module for module in self._modules if module.graph is node.graph)


def _note_groups(nodes: Sequence[Any], recorded: Sequence[Recorded], merged: Merged, where: str) -> None:
    """Give the process group one name on all ranks that take part."""
    own_names = {rank: str(group_name(node)) for rank, node in enumerate(nodes) if node is not None}
    names = list(own_names.values())
    name = names[0] if len(set(names)) == 1 else f"{names[0]} (of ranks: {', '.join(names)})"
    if len(own_names) < len(nodes):
        name = f"{name} (on ranks {', '.join(map(str, own_names))})"
    place = place_of_node(next(node for node in nodes if node is not None))
    at = f"{where} at {place[0]}:{place[1]}" if place else where
    if name not in merged.groupings:
        members = {rank: recorded[rank].groups[own] for rank, own in own_names.items()}
        merged.groupings[name] = grouping_of_all(name, members, len(nodes), at)
    for node, own in {node: group_name(node) for node in nodes if node is not None}.items():
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
