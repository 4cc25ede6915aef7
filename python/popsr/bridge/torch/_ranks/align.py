"""Alignment of the graphs of ranks: which op of one rank takes the place of which op of another.

Collectives are aligned by their order, as ranks wait for each other in it. Between them ops are aligned that are wired
alike: the same op of operands that are wired alike, from the same inputs. What is left is aligned by op and line.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from popsr.bridge.torch._ranks.same import communicates, meta_key
from popsr.bridge.torch._user.locations import place_of_node

__all__ = ["Column", "aligned"]

Column = list[Any]
"""One op: its node in each graph, None where a graph lacks it."""

_Pairs = Iterator[tuple[int, int]]


def aligned(graphs: Sequence[Sequence[Any]]) -> list[Column]:
    """The ops of all graphs, in an order that each graph has, too; with one number of collectives in each.

    Args:
        graphs: the nodes of each graph.
    """
    table: dict[Hashable, int] = {}
    wiring: dict[Any, int] = {}
    for nodes in graphs:
        _add_wiring(nodes, table, wiring)
    columns: list[Column] = [[node] for node in graphs[0]]
    for number, nodes in enumerate(graphs[1:], 1):
        columns = list(_joined(columns, nodes, number, wiring))
    return columns


def _add_wiring(nodes: Sequence[Any], table: dict[Hashable, int], wiring: dict[Any, int]) -> None:
    """Number each node, so that equal numbers mean the same ops on the same inputs, with any numbers as operands."""

    def of(node: Any) -> Hashable:
        return wiring[node] if node in wiring else ("part", of(node.args[0]), node.args[1])

    for place, node in enumerate(nodes):
        own: Hashable = place if node.op == "placeholder" else str(node.target)
        operands = tuple(of(each) for each in node.all_input_nodes) if node.op == "call_function" else ()
        wiring[node] = table.setdefault((node.op, own, meta_key(node), operands), len(table))


def _joined(
    columns: Sequence[Column], nodes: Sequence[Any], number: int, wiring: dict[Any, int]
) -> Iterator[Column]:
    """Columns with one graph more, as the last entry."""
    firsts = [next(node for node in column if node is not None) for column in columns]
    i = j = 0
    for a, b in [*_matched(firsts, nodes, wiring), (len(columns), len(nodes))]:
        yield from ([*column, None] for column in columns[i:a])
        yield from ([*[None] * number, node] for node in nodes[j:b])
        if a < len(columns):
            yield [*columns[a], nodes[b]]
        i, j = a + 1, b + 1


def _matched(a: Sequence[Any], b: Sequence[Any], wiring: dict[Any, int]) -> _Pairs:
    """Places of nodes that are aligned, in order."""
    ends = zip([*_anchors(a), len(a)], [*_anchors(b), len(b)], strict=True)
    i = j = 0
    for p, q in ends:
        for k, m in _between(a[i:p], b[j:q], wiring):
            yield i + k, j + m
        if p < len(a):
            yield p, q
        i, j = p + 1, q + 1


def _anchors(nodes: Sequence[Any]) -> list[int]:
    return [i for i, node in enumerate(nodes) if node.op == "output" or communicates(node)]


def _between(a: Sequence[Any], b: Sequence[Any], wiring: dict[Any, int]) -> _Pairs:
    """As ``_matched``, of ops between two calls of communication."""
    if [_kind(node) for node in a] == [_kind(node) for node in b]:
        yield from zip(range(len(a)), range(len(b)), strict=True)
        return
    i = j = 0
    for p, q, size in _blocks([wiring[node] for node in a], [wiring[node] for node in b]):
        for k, m, others in _blocks(
            [_kind(node, place_of_node(node)) for node in a[i:p]],
            [_kind(node, place_of_node(node)) for node in b[j:q]],
        ):
            yield from ((i + k + n, j + m + n) for n in range(others))
        yield from ((p + n, q + n) for n in range(size))
        i, j = p + size, q + size


def _kind(node: Any, *more: Hashable) -> Hashable:
    target = "" if node.op in ("placeholder", "get_attr") else str(node.target)
    return (node.op, target, meta_key(node), *more)


def _blocks(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int, int]]:
    """Places and lengths of equal runs, in order; an empty one at the ends comes last."""
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    stop = 0
    while stop < min(len(left), len(right)) - start and left[-1 - stop] == right[-1 - stop]:
        stop += 1
    yield 0, 0, start
    middle = difflib.SequenceMatcher(
        None, left[start : len(left) - stop], right[start : len(right) - stop], autojunk=False
    )
    for block in middle.get_matching_blocks():
        if block.size:
            yield start + block.a, start + block.b, block.size
    yield len(left) - stop, len(right) - stop, stop
