"""A graph as a picture: boxes are its scopes and ops, lines what flows between them, from top to bottom.

fast-sugiyama lays it out, where it is installed.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from popsr._program.graph import Graph
from popsr._program.tensor import Tensor
from popsr._support.text.html import Colours
from popsr._support.text.replica_sets import agreement_text, agreements_text
from popsr._tools.show.graph_tree import Group, Leaf, scope_of

__all__ = ["graph_picture"]

_MAX_NODES, _MAX_EDGES = 100, 300
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 150.0, 34.0, 16.0, 30.0
_LETTERS = 19
_TENSORS = 8  # that the text of a line names

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Node:
    label: str
    style: str
    text: str
    round: bool = False


def graph_picture(graph: Graph, tree: Group, colours: Colours, notes: list[str]) -> str:
    """The picture as SVG; empty when there is nothing to draw, too much, or no library to lay it out."""
    layout = _library()
    if layout is None or len(tree.items) < 2:
        return ""
    flow = _Flow(graph, tree)
    nodes = [_box(item, colours) for item in tree.items] + [_source(*source) for source in flow.sources]
    if len(nodes) > _MAX_NODES or len(flow.edges) > _MAX_EDGES:
        notes.append(f"too large for a picture: {len(nodes)} boxes and {len(flow.edges)} lines")
        return ""
    places, paths = _places(layout, len(nodes), list(flow.edges))
    return _svg(nodes, flow.edges, places, paths)


def _library() -> Any:
    try:
        return importlib.import_module("fast_sugiyama")
    except ImportError:
        return None


# Edges


class _Flow:
    """Lines between the items of a tree, numbered in its order, and tensors that come from outside.

    Attributes:
        edges: tensors that flow, by the numbers of two boxes. They lead to items that come later, so there is no cycle.
        sources: name and tensors of each further box: graph inputs, and variables of a scope together.
    """

    def __init__(self, graph: Graph, tree: Group) -> None:
        self.edges: dict[tuple[int, int], list[Tensor]] = {}
        self.sources: list[tuple[str, list[Tensor]]] = []
        readers = self._connect(tree.items)
        outside = {*graph.inputs, *graph.variables}
        numbers: dict[str, int] = {}
        for t, items in readers.items():
            scope = scope_of(t.name)[:1]
            if t not in outside or _is_inside(tree.items, items, scope):
                continue
            name = f"{scope[0]}/*" if scope else t.name
            if name not in numbers:
                numbers[name] = len(tree.items) + len(self.sources)
                self.sources.append((name, []))
            self.sources[numbers[name] - len(tree.items)][1].append(t)
            for item in items:
                self.edges.setdefault((numbers[name], item), []).append(t)

    def _connect(self, items: Sequence[Leaf | Group]) -> dict[Tensor, dict[int, None]]:
        """Lines between items; returns which items read each tensor that none of them made."""
        made_by: dict[Tensor, int] = {}
        readers: dict[Tensor, dict[int, None]] = {}
        for number, item in enumerate(items):
            for leaf in [item] if isinstance(item, Leaf) else item.leaves():
                for t in leaf.op.inputs:
                    if t is None:
                        continue
                    source = made_by.get(t)
                    if source is None:
                        readers.setdefault(t, {})[number] = None
                    elif source != number:
                        tensors = self.edges.setdefault((source, number), [])
                        if t not in tensors:
                            tensors.append(t)
                made_by |= dict.fromkeys(leaf.op.outputs, number)
        return readers


def _is_inside(items: Sequence[Leaf | Group], readers: Iterable[int], scope: list[str]) -> bool:
    """True if a tensor of that scope is read in this scope's box alone."""
    boxes = [items[number] for number in readers]
    return bool(scope) and all(isinstance(box, Group) and box.name == scope[0] for box in boxes)


# Boxes


def _box(item: Leaf | Group, colours: Colours) -> _Node:
    if isinstance(item, Leaf):
        row = item.row
        agree = (
            ""
            if row.partition is None
            else f"\nreplicas that agree: {agreement_text(row.partition)} {row.note}".rstrip()
        )
        return _Node(item.op.kind, colours.of(row.partition), f"{row.text}\n{row.location}{agree}")
    partitions = item.partitions()
    text = f"{item.name}/ of {sum(1 for _ in item.leaves())} ops\nreplicas that agree: {agreements_text(partitions)}"
    return _Node(f"{item.name}/", colours.of_all(partitions), text)


def _source(name: str, tensors: list[Tensor]) -> _Node:
    label = tensors[0].name if len(tensors) == 1 else name
    return _Node(label, "plain", _names(tensors), round=True)


def _names(tensors: list[Tensor]) -> str:
    lines = [f"{t.name} {t.dtype.name}{list(t.shape)}" for t in tensors[:_TENSORS]]
    return "\n".join([*lines, *([f"and {len(tensors) - _TENSORS} more"] if len(tensors) > _TENSORS else [])])


# Positions


def _places(
    library: Any, num_nodes: int, edges: list[tuple[int, int]]
) -> tuple[dict[int, _Point], dict[tuple[int, int], list[int]]]:
    """Column and row of each box, and of bends of lines, which have further numbers; and what each line passes.

    Boxes without lines are in a row of their own below the others.
    """
    places: dict[int, _Point] = {}
    bends: dict[int, list[int]] = {}
    left, free = 0.0, itertools.count(num_nodes)
    for part in _connected(edges):
        joined = sorted({n for edge in part for n in edge})
        number = {n: i for i, n in enumerate(joined)}  # the library's bends have the numbers after these
        ((positions, _, _, links),) = library.from_edges(
            [(number[start], number[end]) for start, end in part], vertex_spacing=1, dummy_vertices=True
        )
        start, top = min(x for _, (x, _) in positions), max(y for _, (_, y) in positions)
        name = {n: joined[n] if n < len(joined) else next(free) for n, _ in positions}
        places |= {name[n]: (x - start + left, top - y) for n, (x, y) in positions}
        left = max(x for x, _ in places.values()) + 1
        for source, end in links:
            bends.setdefault(name[source], []).append(name[end])
    below = max((y for _, y in places.values()), default=-1.0) + 1
    alone = [n for n in range(num_nodes) if n not in places]
    places |= {n: (float(column), below) for column, n in enumerate(alone)}
    return places, dict(_paths(bends, num_nodes))


def _connected(edges: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The lines of each connected part: the library confuses bends of one with boxes of another."""
    parts: list[tuple[set[int], list[tuple[int, int]]]] = []
    for edge in edges:
        touched = [part for part in parts if not part[0].isdisjoint(edge)]
        parts = [part for part in parts if part[0].isdisjoint(edge)]
        nodes = {*edge}.union(*(nodes for nodes, _ in touched))
        parts.append((nodes, [each for _, lines in touched for each in lines] + [edge]))
    return [lines for _, lines in sorted(parts, key=lambda part: min(part[0]))]


def _paths(bends: dict[int, list[int]], num_nodes: int) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Each line as the numbers that it passes; a bend leads to one other number."""
    for start in [n for n in bends if n < num_nodes]:
        for following in bends[start]:
            path = [start, following]
            while path[-1] >= num_nodes:
                path.append(bends[path[-1]][0])
            yield (start, path[-1]), path


# SVG


def _svg(
    nodes: list[_Node],
    edges: dict[tuple[int, int], list[Tensor]],
    places: dict[int, _Point],
    paths: dict[tuple[int, int], list[int]],
) -> str:
    step_x, step_y = _WIDTH + _GAP_X, _HEIGHT + _GAP_Y
    centres = {
        n: (x * step_x + step_x / 2, y * step_y + _GAP_Y / 2 + _HEIGHT / 2) for n, (x, y) in places.items()
    }
    width = max(x for x, _ in centres.values()) + step_x / 2
    height = max(y for _, y in centres.values()) + _HEIGHT / 2 + _GAP_Y / 2
    lines = [_line([centres[n] for n in paths[edge]], _names(tensors)) for edge, tensors in edges.items()]
    boxes = [_drawn(node, centres[number]) for number, node in enumerate(nodes)]
    return (
        f'<div class="picture"><svg role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
        f"{''.join(lines)}{''.join(boxes)}</svg></div>"
    )


def _line(points: list[_Point], text: str) -> str:
    """A curve from the lower edge of a box to the upper one of another, with an arrow."""
    (x, y), (end_x, end_y) = points[0], points[-1]
    points = [(x, y + _HEIGHT / 2), *points[1:-1], (end_x, end_y - _HEIGHT / 2)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        middle = (y + to_y) / 2
        path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
    path += "m-4 -7l4 7l4 -7"
    return f'<path class="edge" d="{path}"><title>{escape(text)}</title></path>'


def _drawn(node: _Node, centre: _Point) -> str:
    x, y = centre
    label = node.label if len(node.label) <= _LETTERS else f"{node.label[: _LETTERS - 1]}…"
    radius = _HEIGHT / 2 if node.round else 4
    return (
        f'<g><title>{escape(node.text)}</title><rect class="box {node.style}" x="{x - _WIDTH / 2:.1f}" '
        f'y="{y - _HEIGHT / 2:.1f}" width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" rx="{radius:.0f}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}">{escape(label)}</text></g>'
    )
