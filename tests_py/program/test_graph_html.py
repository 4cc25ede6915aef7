"""Graphs as HTML: ops by name scope in the colours of the facts, called graphs, a picture; safe and small."""

from __future__ import annotations

import itertools
import random
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._program.op import Op
from popsr._tools.show.graph_picture import _places
from popsr.analysis import analyze
from popsr.ops import collectives
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
VOID = {"meta", "br", "hr", "img", "input"}


@dataclass
class Shown:
    """A row: the folded-up parts that it is in, from outside inwards, its class and its cells."""

    inside: tuple[str, ...]
    style: str
    cells: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """Reads what is shown, and refuses tags that do not match, scripts, and anything to fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[Shown] = []
        self.summaries: dict[tuple[str, ...], tuple[str, str]] = {}
        self.paragraphs: list[str] = []
        self.legend: dict[str, str] = {}
        self.boxes: dict[str, str] = {}
        self.lines = 0
        self.titles: list[str] = []
        self.title = self.style = ""
        self._tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside: list[str] = []
        self._box = self._text = ""
        self.feed(re.sub(r'<svg class="strip".*?</svg> ?', "", text))  # test_strips.py reads them
        self.close()
        assert self._tags == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in VOID | {"script", "iframe", "object", "link", "a"}
        attributes = dict(attrs)
        assert not any(name.startswith("on") or name in ("src", "href") for name in attributes)
        self._tags.append((tag, attributes))
        self._text = ""
        match tag:
            case "details":
                self._inside.append("")
            case "tr" if "class" in attributes:
                self.rows.append(Shown(tuple(self._inside), attributes["class"] or ""))
            case "rect":
                self._box = attributes["class"] or ""
            case "path":
                self.lines += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._tags.pop()

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        opened, attributes = self._tags.pop()
        assert opened == tag
        text, style = self._text, attributes.get("class") or ""
        match tag:
            case "details":
                self._inside.pop()
            case "summary":
                self._inside[-1] = unchecked(self)._name
                self.summaries[tuple(self._inside)] = (text.strip(), style)
            case "b" if not self._inside:
                self.title = text
            case "b":
                self._name = text
                self._text = ""
            case "td":
                self.rows[-1].cells.append(text)
            case "span":
                self.legend[style.removeprefix("key ")] = text
            case "p":
                self.paragraphs.append(text)
            case "text":
                self.boxes[text] = self._box.removeprefix("box ")
            case "title":
                self.titles.append(text)
            case "style":
                self.style = text


def page(graph: popsr.Graph) -> Page:
    return Page(graph.html())


def text_of(op: Op) -> str:
    return repr(op).partition("  # ")[0]


def program() -> tuple[popsr.Ir, popsr.Graph]:
    """Nested scopes, a scope that comes twice, a graph that is called twice, stores, three partitions."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        h = ops.host_load(popsr.h2d_stream((2, 3), F32, "x"))
        with popsr.name_scope("fc1"):
            w = popsr.variable(np.ones((3, 3)), F32, "weight")
            with popsr.name_scope("inner"):
                h = h @ w
            h = ops.relu(h)
            ops.host_store(popsr.d2h_stream(h.shape, h.dtype, "inside"), h)
            h = ops.relu(h)
        with popsr.name_scope("loss"):
            h = collectives.replicated_all_reduce(h, "mean", ir.replica_grouping(group_size=2))
            total = collectives.replicated_all_reduce(h, "mean")
        ops.host_store(popsr.d2h_stream(total.shape, total.dtype, "outside"), total)

        def body(a: popsr.Tensor) -> popsr.Tensor:
            with popsr.name_scope("deep"):
                return a + a

        called = ir.create_graph(body, total)
        (total,) = ops.call(called, total)
        ops.repeat(called, 2, total)
        with popsr.name_scope("fc1"):
            ops.scaled_add_(w, w, b=0.5)
    return ir, called


# Structure


def test_every_op_is_shown_once_in_its_order_and_scope() -> None:
    ir, called = program()
    rows = page(ir.main_graph).rows
    expect = [text_of(op) for op in ir.main_graph.ops]
    at = next(i for i, op in enumerate(ir.main_graph.ops) if op.kind == "call") + 1
    expect[at:at] = [text_of(op) for op in called.ops]
    assert [row.cells[1] for row in rows] == expect
    body = (f"↳ graph '{called.name}'", "deep/")
    assert [row.inside for row in rows] == [
        (),
        ("fc1/", "inner/"),
        *[("fc1/",)] * 3,  # the store has no name: it stands where the ops around it do
        *[("loss/",)] * 2,
        (),
        (),
        body,
        (),
        ("fc1/",),
    ]
    assert all(row.cells[0].startswith("test_graph_html.py:") for row in rows)


def test_scopes_are_folded_and_say_how_many_ops_and_who_agrees() -> None:
    ir, called = program()
    text = ir.main_graph.html()
    assert "<details open" not in text
    shown = Page(text)
    body = f"↳ graph '{called.name}'"
    assert shown.summaries == {
        ("fc1/", "inner/"): ("1 op, replicas that agree: none", "nowhere"),
        ("fc1/",): ("1 op, replicas that agree: all", "equal"),  # the last of the two
        ("loss/",): ("2 ops, replicas that agree: {0,1}{2,3}, all", "mixed"),
        (body,): ("1 op, replicas that agree: all", "equal"),
        (body, "deep/"): ("1 op, replicas that agree: all", "equal"),
    }
    assert "<b>fc1/</b> 4 ops, replicas that agree: none" in text
    assert f"↳ graph '{called.name}' of 1 op: shown at another call" in shown.paragraphs


def test_colours_are_those_of_the_facts() -> None:
    ir, _ = program()
    facts, shown = analyze(ir), page(ir.main_graph)
    assert shown.legend == {"nowhere": "none", "group0": "{0,1}{2,3}", "equal": "all"}
    ops_of = {text_of(op): op for graph in (ir.main_graph, *ir.main_graph.called_graphs) for op in graph.ops}
    for row in shown.rows:
        op = ops_of[row.cells[1]]
        expect = "plain" if not op.outputs else shown.legend[row.style]
        if op.outputs:
            partition = facts.partition(op.outputs[0], after=op)
            names = {1: "all", 4: "none"}
            assert expect == row.cells[2] == names.get(partition.num_blocks, str(partition))
        else:
            assert (row.style, row.cells[2]) == ("plain", "")
    for style in shown.legend:
        assert f"tr.{style}>td{{background:rgba(" in shown.style


def test_partitions_have_colours_of_their_own_as_far_as_these_go() -> None:
    ir = popsr.Ir(replication=12)
    with ir.main_graph:
        x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
        for partner in range(1, 11):  # of replica 0; the others are in pairs as they come
            others = [r for r in range(1, 12) if r != partner]
            labels = {0: 0, partner: 0} | {r: 1 + i // 2 for i, r in enumerate(others)}
            pairs = popsr.ReplicaGrouping.from_assignment([labels[r] for r in range(12)])
            collectives.replicated_all_reduce(x, group=pairs)
    styles = [row.style for row in page(ir.main_graph).rows]
    assert styles == ["nowhere", *[f"group{i}" for i in range(8)], "groups", "groups"]


def test_one_replica_agrees_with_itself() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.relu(popsr.variable(1.0))
    shown = page(ir.main_graph)
    assert shown.legend == {"equal": "all"}
    assert shown.title == "main graph of 1 op"


def test_both_branches_are_shown() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(1.0)
        then_branch, else_branch = ir.create_graph(ops.relu, x), ir.create_graph(ops.exp, x)
        ops.conditional(popsr.constant(True), then_branch, else_branch, [x], [x])
    assert [row.inside for row in page(ir.main_graph).rows[1:]] == [
        (f"↳ then_branch '{then_branch.name}'",),
        (f"↳ else_branch '{else_branch.name}'",),
    ]


# Unknown values


def test_a_graph_that_nothing_calls_has_no_colours() -> None:
    ir, _ = program()
    with ir.main_graph:
        unused = ir.create_graph(lambda a: ops.relu(a), popsr.TensorSpec((2,), F32))
    shown = page(unused)
    assert "nothing calls this graph" in shown.paragraphs
    assert [(row.style, row.cells[2]) for row in shown.rows] == [("plain", "")]
    assert shown.legend == {}
    assert shown.title == f"graph '{unused.name}'(a) of 1 op"


def test_a_called_graph_can_be_shown_alone() -> None:
    _, called = program()
    assert [row.style for row in page(called).rows] == ["equal"]


def test_a_program_that_is_wrong_is_shown_with_its_error() -> None:
    ir = popsr.Ir(replication=2)
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph, popsr.name_scope("fc1"):
        w = popsr.variable(np.zeros(2), F32)
        ops.relu(w)
        ops.add_(w, popsr.constant(1.0))
    shown = page(ir.main_graph)
    assert any("Inplacing ambiguity" in paragraph for paragraph in shown.paragraphs)
    assert [row.style for row in shown.rows] == ["plain", "plain"]
    assert shown.summaries == {("fc1/",): ("2 ops", "plain")}


def test_an_empty_graph_is_shown() -> None:
    shown = page(popsr.Ir().main_graph)
    assert shown.rows == []
    assert shown.title == "main graph of 0 ops"


# Hostile names

HOSTILE = [
    "<script>alert(1)</script>",
    "</details></div><b>",
    '" onload="x',
    "'><img src=x>",
    "&lt;b&gt;",
    "a\nb\u202e",
    "</title></svg>",
    "]]>",
    "/",
    "//a//",
    "é✓",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text(name: str) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.name_scope(name):
        t = popsr.variable(np.ones(2), F32, name)
        x = ops.host_load(popsr.h2d_stream((2,), F32, name))
        ops.call(ir.create_graph(ops.add, x, t), x, t)
    with ir.main_graph:
        ops.relu(x)
    shown = page(ir.main_graph)  # refuses tags and attributes that are not ours
    assert shown.rows[0].inside == tuple(f"{part}/" for part in name.split("/") if part)
    assert {text_of(op) for op in ir.main_graph.ops} <= {row.cells[1] for row in shown.rows}


def test_deep_scopes_and_calls_end_somewhere() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(1.0)
        with popsr.name_scope("/".join(["s"] * 3000)):
            ops.relu(x)
        graph = ir.create_graph(ops.relu, x)
        for _ in range(150):
            inner = graph
            graph = ir.create_graph(lambda a, inner=inner: ops.call(inner, a)[0], x)
        ops.call(graph, x)
    shown = page(ir.main_graph)
    assert max(len(row.inside) for row in shown.rows) == 8
    assert any(paragraph.endswith("of 1 op: too deep to be shown") for paragraph in shown.paragraphs)


# Size


def layers(scopes: int, ops_each: int) -> popsr.Graph:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
        for i in range(scopes):
            with popsr.name_scope(f"layer{i}"):
                for _ in range(ops_each):
                    x = ops.relu(x)
    return ir.main_graph


# Scopes, ops in each: rows shown, folded-up parts.
SIZES = {
    (10, 150): (1501, 10),
    (10, 250): (10 * 195 + 1, 10),
    (100, 50): (100 * 15 + 1, 100),
    (5, 1000): (1001, 5),
    (1, 5000): (201, 1),
    (1100, 2): (1000 * 2 + 1, 1000),
    (1100, 6): (1000 * 5 + 1, 1000),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]} of {size[1]}")
def test_large_graphs_are_cut_short_and_say_so(size: tuple[int, int]) -> None:
    graph = layers(*size)
    text = graph.html()
    shown = Page(text)
    rows, groups = SIZES[size]
    assert len(shown.rows) == rows
    assert len(shown.summaries) == groups
    left_out = sum(int(found[1]) for p in shown.paragraphs if (found := re.fullmatch(r"(\d+) ops? more", p)))
    assert rows + left_out == len(graph.ops)
    assert len(text) < 1_000_000


def test_long_texts_are_cut() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.concat([popsr.variable(np.ones(1), F32, f"part{i}") for i in range(2000)])
    assert len(page(ir.main_graph).rows[0].cells[1]) < 500


# The picture


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("fast_sugiyama")


def test_without_the_library_there_is_a_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    ir, _ = program()
    text = ir.main_graph.html()
    assert 'class="picture"' not in text
    assert len(Page(text).rows) == len(ir.main_graph.ops) + 1


def test_style_sheets_of_later_outputs_keep_the_colours_of_boxes(library: Any) -> None:
    """Outputs of a notebook share one document: the rule for all boxes must be weaker than the rules of colours."""
    ir, _ = program()
    text = ir.main_graph.html()
    assert ":where(.popsr svg .box){" in text
    assert ".popsr svg .box{" not in text
    assert ".popsr svg .nowhere{fill:rgba" in text


def test_boxes_are_scopes_and_ops_in_their_colours(library: Any) -> None:
    ir, _ = program()
    shown = page(ir.main_graph)
    assert shown.boxes == {
        "host_load": "nowhere",
        "fc1/": "equal",  # drawn twice, as the scope comes twice
        "loss/": "mixed",
        "host_store": "plain",
        "call": "equal",
        "repeat": "equal",
    }
    assert shown.lines == 5
    assert "fc1/matmul_out" not in shown.titles


def test_lines_name_the_tensors_that_flow(library: Any) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.ones((2, 2)), F32, "w")
        with popsr.name_scope("a"):
            b = popsr.variable(np.ones(2), F32, "hidden")
            x, y = ops.relu(w), ops.exp(w)
            x = x + b
        with popsr.name_scope("c"):
            z = x * y + b
        ops.relu(z)
    shown = page(ir.main_graph)
    assert set(shown.boxes) == {"a/", "c/", "relu", "w", "a/hidden"}
    lines = [title for title in shown.titles if "float32" in title and "=" not in title]
    assert "a/add_out float32[2, 2]\na/exp_out float32[2, 2]" in lines
    assert lines.count("w float32[2, 2]") == 2  # of the box and of the one line from it
    assert shown.lines == 5


def points(text: str) -> list[tuple[float, float]]:
    return [
        (float(x), float(y)) for x, y in re.findall(r'<rect class="[^"]*" x="([\d.]+)" y="([\d.]+)"', text)
    ]


def test_boxes_do_not_overlap_and_lines_lead_down(library: Any) -> None:
    ir, _ = program()
    text = ir.main_graph.html()
    boxes = points(text)
    assert len(boxes) == len(set(boxes)) == 7
    for i, (x, y) in enumerate(boxes):
        for to_x, to_y in boxes[i + 1 :]:
            assert abs(x - to_x) >= 150 or abs(y - to_y) >= 34
    for path in re.findall(r'class="edge" d="M([^m]*)m', text):
        heights = [float(pair.split()[1]) for pair in re.findall(r"[\d.]+ [\d.]+", path)]
        assert heights == sorted(heights)
    assert text == ir.main_graph.html()


def test_graphs_of_many_boxes_have_no_picture(library: Any) -> None:
    assert "<svg" in layers(99, 2).html()
    shown = page(layers(100, 2))
    assert "too large for a picture: 101 boxes and 100 lines" in shown.paragraphs
    assert shown.boxes == {}


# The last ones need parts that are laid out apart: bends of one would have the numbers of another's boxes.
@pytest.mark.parametrize("seed", [*range(12), 26, 2492, 2978])
def test_lines_of_any_graph_lead_down_past_its_boxes(library: Any, seed: int) -> None:
    rng = random.Random(seed)
    boxes = rng.randrange(2, 101)
    wanted = rng.randrange(min(301, boxes * (boxes - 1) // 2 + 1))
    edges = list({(min(pair), max(pair)) for _ in range(wanted) if (pair := rng.sample(range(boxes), 2))})
    places, paths = _places(library, boxes, edges)
    assert set(paths) == set(edges)
    for edge, path in paths.items():
        assert (path[0], path[-1]) == edge
        heights = [places[n][1] for n in path]
        assert all(upper < lower for upper, lower in itertools.pairwise(heights))
    for one, other in itertools.combinations(places.values(), 2):
        assert one[1] != other[1] or abs(one[0] - other[0]) > 0.99
