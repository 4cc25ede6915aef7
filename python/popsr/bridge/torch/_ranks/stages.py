"""Ranks that run different programs and send each other messages, such as the stages of a pipeline.

Ranks whose calls of communication are the same, with ranks that are in one place of these calls, too, make a stage. The
ops of a stage are aligned among its ranks, as those of all ranks are elsewhere; the ops of two stages follow each other
in an order in which each message is sent before it is received.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from popsr.bridge.torch._ranks.align import Column, aligned
from popsr.bridge.torch._ranks.exchange import Sources, check_order, sources_of
from popsr.bridge.torch._ranks.same import communicates, group_name, key_of, meta_key
from popsr.bridge.torch._ranks.varying import is_part
from popsr.bridge.torch._tracing.capture import Recorded
from popsr.bridge.torch._tracing.draws import generator_draw_of
from popsr.bridge.torch._tracing.messages import call_of, is_received, is_sent
from popsr.bridge.torch._user.locations import place_of_node, shown_place
from popsr.errors import UnsupportedError

__all__ = ["Stages", "communicating", "have_messages", "stages_of"]

_Point = tuple[int, int]
"""A rank, and the number of one of its nodes that communicate."""


def have_messages(recorded: Sequence[Recorded]) -> bool:
    """True if a rank sends or receives a message."""
    return any(way.messages for each in recorded for way in each.ways)


@dataclass
class Stages:
    """Ranks by stage.

    Attributes:
        labels: the stage of each rank.
        points: the nodes of each rank's functional graph that communicate, in order.
        partners: the nodes that a node communicates with.
        where: the call, for messages.
    """

    labels: list[int]
    points: list[list[Any]]
    partners: dict[_Point, tuple[_Point, ...]]
    where: str

    def columns(self, graphs: Sequence[Sequence[Any]]) -> Iterator[Column]:
        """The ops of all ranks, in an order that each rank and each message has, too.

        Args:
            graphs: the nodes of each rank, whose communication is that of ``points``; of a stage alone.
        """
        return _Columns(self, graphs).run()

    def source(self, rank: int, node: Any) -> tuple[int, Any]:
        """The rank that sends what a rank receives, and the node that does."""
        ((source, i),) = self.partners[rank, self.points[rank].index(node)]
        return source, self.points[source][i]


def stages_of(recorded: Sequence[Recorded], held: Sequence[Hashable], where: str) -> Stages:
    """The stages of ranks.

    Args:
        recorded: what the ranks recorded.
        held: keys of the tensors that ranks hold: other ones are of another stage.
        where: the call, for messages.
    Raises:
        ReplicaError: messages do not fit together, or ranks may wait for each other.
        UnsupportedError: with numbers of a generator that the step gives.
    """
    events = [each.messages.events for each in recorded]
    sources = sources_of(events, where)
    check_order(events, sources, where)
    points = [communicating(each.functional.graph.nodes) for each in recorded]
    partners = _partners(recorded, points, sources)
    _check(recorded, points, partners, where)
    colours: list[Hashable] = [
        (key, tuple(_kind(node, each) for node in own))
        for key, own, each in zip(held, points, recorded, strict=True)
    ]
    while True:
        numbers: dict[Hashable, int] = {}
        labels = [numbers.setdefault(colour, len(numbers)) for colour in colours]
        colours = [
            (
                labels[rank],
                *(tuple((labels[r], i) for r, i in partners[rank, i]) for i in range(len(own))),
            )
            for rank, own in enumerate(points)
        ]
        if len(set(colours)) == len(numbers):
            return Stages(labels, points, partners, where)


def communicating(nodes: Iterable[Any]) -> list[Any]:
    """The collectives and messages among nodes."""
    return [node for node in nodes if communicates(node)]


def _kind(node: Any, recorded: Recorded) -> Hashable:
    """Equal for nodes that may be one op of all ranks of a stage."""
    name = group_name(node)
    if name is None:
        return (str(node.target), meta_key(node))
    size = len(recorded.groups[name])
    args = tuple(size if each is name else each for each in node.args)
    return (str(node.target), meta_key(node), key_of((args, node.kwargs), lambda _: 0))


def _partners(
    recorded: Sequence[Recorded], points: Sequence[Sequence[Any]], sources: Sources
) -> dict[_Point, tuple[_Point, ...]]:
    """The nodes that each node communicates with; a message whose receive ends nowhere has none."""
    found: dict[_Point, tuple[_Point, ...]] = {}
    numbers: dict[tuple[str, int, int], int] = {}
    of_groups: dict[tuple[tuple[int, ...], int], list[_Point]] = {}
    for rank, (own, each) in enumerate(zip(points, recorded, strict=True)):
        counts: dict[tuple[int, ...], int] = {}
        for i, node in enumerate(own):
            name = group_name(node)
            if name is None:
                numbers["send" if is_sent(node) else "receive", rank, call_of(node)] = i
                found[rank, i] = ()
                continue
            members = each.groups[name]
            counts[members] = counts.get(members, 0) + 1
            of_groups.setdefault((members, counts[members]), []).append((rank, i))
    for receive, send in sources.items():
        here, there = numbers.get(("receive", *receive)), numbers.get(("send", *send))
        if here is not None and there is not None:
            found[receive[0], here] = ((send[0], there),)
            found[send[0], there] = ((receive[0], here),)
    for group in of_groups.values():
        found |= dict.fromkeys(group, tuple(group))
    return found


def _check(
    recorded: Sequence[Recorded],
    points: Sequence[Sequence[Any]],
    partners: dict[_Point, tuple[_Point, ...]],
    where: str,
) -> None:
    """Refuse other collectives of the members of a group, and what generators of the step draw."""
    for (rank, i), others in partners.items():
        node = points[rank][i]
        name = group_name(node)
        if name is None:
            continue
        members = recorded[rank].groups[name]
        other = next((r for r in members if r not in {r for r, _ in others}), None)
        kinds = {r: _kind(points[r][k], recorded[r]) for r, k in others}
        different = next((r for r, kind in kinds.items() if kind != kinds[rank]), None)
        if other is None and different is None:
            continue
        told = next((points[r][k] for r, k in others if r == different), None)
        texts = "none" if told is None else f"{told.target} at {shown_place(place_of_node(told))}"
        raise UnsupportedError(
            f"{where}: ranks {rank} and {different if other is None else other} take part in different collectives, "
            f"got {node.target} at {shown_place(place_of_node(node))} and {texts}, expected the same collective on "
            "all ranks of its process group"
        )
    for each in recorded:
        drawn = next((n for n in each.functional.graph.nodes if generator_draw_of(n) is not None), None)
        if drawn is not None:
            raise UnsupportedError(
                f"{where}: a generator draws at {shown_place(place_of_node(drawn))} in a step with messages between "
                "two ranks, expected torch's own generator"
            )


class _Columns:
    """Columns of all stages.

    Args:
        stages: the stages.
        graphs: the nodes of each rank.
    """

    def __init__(self, stages: Stages, graphs: Sequence[Sequence[Any]]) -> None:
        self._stages, self._graphs = stages, graphs
        self._places = [{node: i for i, node in enumerate(own)} for own in stages.points]
        self._of_stage = {label: self._aligned(label) for label in sorted(set(stages.labels))}
        self._at = dict.fromkeys(self._of_stage, 0)
        self._sent: set[Any] = set()

    def _aligned(self, label: int) -> list[Column]:
        """The columns of one stage, with an entry for each rank of the job."""
        ranks = [rank for rank, each in enumerate(self._stages.labels) if each == label]
        different = list({id(self._graphs[rank]): self._graphs[rank] for rank in ranks}.values())
        place = {id(nodes): i for i, nodes in enumerate(different)}
        return [
            [column[place[id(nodes)]] if rank in ranks else None for rank, nodes in enumerate(self._graphs)]
            for column in aligned([[node for node in nodes if not is_part(node)] for nodes in different])
        ]

    def run(self) -> Iterator[Column]:
        """The columns in order."""
        yield from self._together("placeholder")
        while True:
            before = dict(self._at)
            for label in self._of_stage:
                yield from self._advance(label)
            if self._at == before:
                break
        yield from self._together("output")

    def _together(self, op: str) -> Iterator[Column]:
        """Columns of all stages as one, of inputs or of what is returned, which stages have in common."""
        of_stages = [
            [column for column in columns if _first(column).op == op] for columns in self._of_stage.values()
        ]
        for same in zip(*of_stages, strict=True):
            yield _joined(same)

    def _advance(self, label: int) -> Iterator[Column]:
        """Columns of a stage up to one that has to wait for another stage."""
        columns = self._of_stage[label]
        while self._at[label] < len(columns):
            column = columns[self._at[label]]
            node = _first(column)
            if node.op == "output":
                return
            if group_name(node) is not None:
                yield from self._collective(column)
                if self._at[label] < len(columns) and columns[self._at[label]] is column:
                    return
                continue
            if is_received(node) and not self._is_sent(column):
                return
            if is_sent(node):
                self._sent |= {self._number(rank, each) for rank, each in enumerate(column) if each}
            self._at[label] += 1
            if node.op != "placeholder":
                yield column

    def _is_sent(self, column: Column) -> bool:
        return all(
            self._stages.partners[self._number(rank, node)][0] in self._sent
            for rank, node in enumerate(column)
            if node is not None
        )

    def _collective(self, column: Column) -> Iterator[Column]:
        """A collective once all stages of its groups have come to it, as one column."""
        wanted: dict[int, Column] = {}
        waiting = [column]
        while waiting:
            for rank, node in enumerate(waiting.pop()):
                if node is None:
                    continue
                for other, i in self._stages.partners[self._number(rank, node)]:
                    label = self._stages.labels[other]
                    if label in wanted:
                        continue
                    current = self._of_stage[label][self._at[label]]
                    if current[other] is None or self._number(other, current[other]) != (other, i):
                        return
                    wanted[label] = current
                    waiting.append(current)
        for label in wanted:
            self._at[label] += 1
        yield _joined(list(wanted.values()))

    def _number(self, rank: int, node: Any) -> _Point:
        """The point of a node; number -1 of one that does not communicate."""
        return rank, self._places[rank].get(node, -1)


def _first(column: Column) -> Any:
    return next(node for node in column if node is not None)


def _joined(columns: Sequence[Column]) -> Column:
    return [next((node for node in entry if node is not None), None) for entry in zip(*columns, strict=True)]
