"""Representations of objects: one line, a table, HTML of bounded size, treescope's protocol; at any size."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.addons import NamedTensors
from popsr.replicas import Partition, ReplicaGrouping

REPLICAS = 4096
NAME = "<script>alert('w')</script>"
VOID = {"br", "hr", "img", "meta"}


class Program:
    """Many ops and variables on many replicas, one with a name that HTML must escape."""

    def __init__(self, replicas: int, layers: int) -> None:
        self.ir = popsr.Ir(replication=replicas)
        stride = replicas // 2 or 1
        groups = self.ir.replica_grouping(stride=stride)
        with self.ir.main_graph, popsr.in_sequence():
            self.variables = [
                popsr.variable(
                    np.ones((groups.num_groups, 2), np.float32)
                    if groups.num_groups > 1
                    else np.ones(2, np.float32),
                    name=NAME if i == 0 else f"layer{i}.weight",
                    replica_grouping=groups,
                )
                for i in range(layers)
            ]
            y = self.variables[0] + 0.0
            for w in self.variables:
                y = ops.relu(ops.add(y, w))
            self.y = y


@pytest.fixture(scope="module")
def large() -> Program:
    return Program(REPLICAS, 1000)


@pytest.fixture(scope="module")
def small() -> Program:
    return Program(4, 3)


def irregular(program: Program) -> list[int]:
    """Group of each replica, in the order 0110 1001 0110 …: pairs whose members are not equally far apart."""
    return [(i % 4 in (1, 2)) ^ (i // 4 % 2) for i in range(program.ir.replication_factor)]


OBJECTS: dict[str, Callable[[Program], Any]] = {
    "Ir": lambda p: p.ir,
    "Graph": lambda p: p.ir.main_graph,
    "Session": lambda p: popsr.Session(p.ir),
    "Tensor": lambda p: p.y,
    "Variable": lambda p: p.variables[0],
    "PartitionAnalysis": lambda p: popsr.analysis.analyze(p.ir),
    "Partition": lambda p: Partition.from_labels([i % 97 for i in range(p.ir.replication_factor)]),
    "Partition of single replicas": lambda p: Partition.from_labels(list(range(p.ir.replication_factor))),
    "ReplicaGrouping": lambda p: p.ir.replica_grouping(group_size=1),
    "ReplicaGrouping of pairs": lambda p: ReplicaGrouping.from_assignment(
        [i % (p.ir.replication_factor // 2) for i in range(p.ir.replication_factor)]
    ),
    "ReplicaGrouping of no constant stride": lambda p: ReplicaGrouping.from_assignment(irregular(p)),
    "NamedTensors": lambda p: NamedTensors.from_dict({f"w{i}": v for i, v in enumerate(p.variables)}),
}
# These print the program, or all blocks: what a user asks for by `print`.
WHOLE = {"Ir", "Graph", "Partition", "Partition of single replicas"}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("size", ["small", "large"])
def test_repr_is_one_line(name: str, size: str, request: pytest.FixtureRequest) -> None:
    text = repr(OBJECTS[name](request.getfixturevalue(size)))
    assert 10 < len(text) <= 200
    assert text.isprintable()


@pytest.mark.parametrize("name", [name for name in OBJECTS if name not in WHOLE])
def test_print_is_a_short_table(name: str, large: Program) -> None:
    lines = str(OBJECTS[name](large)).splitlines()
    assert 1 <= len(lines) <= 60
    assert max(map(len, lines)) <= 300


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("size", ["small", "large"])
def test_html_is_small_and_well_formed(name: str, size: str, request: pytest.FixtureRequest) -> None:
    html = OBJECTS[name](request.getfixturevalue(size))._repr_html_()
    assert len(html.encode()) <= 20_000
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    assert "script" not in tags.seen
    assert "http" not in html
    assert len(tags.text) > 20


def test_the_whole_graph_is_a_call_away(large: Program) -> None:
    graph = large.ir.main_graph
    assert "graph.html() shows all of it" in graph._repr_html_()
    assert len(graph.html()) > 20_000


@pytest.mark.parametrize("name", OBJECTS)
def test_treescope_shows_the_summary(name: str, large: Program) -> None:
    treescope = pytest.importorskip("treescope")
    text = treescope.render_to_text(OBJECTS[name](large))
    assert len(text) < 20_000
    assert type(OBJECTS[name](large)).__name__ in text


def test_checkpoints_show_their_tensors(tmp_path: Path, small: Program) -> None:
    file = str(tmp_path / "w.safetensors")
    with popsr.Session(small.ir) as session:
        popsr.io.save_safetensors(session, file)
    checkpoint = popsr.io.load_safetensors(file)
    assert len(repr(checkpoint)) <= 200
    assert str(checkpoint).splitlines()[3].split() == ["layer1.weight", "float32", "(2,", "2)", "{0,2}{1,3}"]
    assert len(checkpoint._repr_html_().encode()) <= 20_000


def test_a_tree_shows_whole_leaves(small: Program, large: Program) -> None:
    first, second, third = small.variables
    tree = NamedTensors.from_dict({"a": second, "b": third})
    assert repr(tree) == f"NamedTensors({{a: {second!r}, b: {third!r}}})"
    assert repr(NamedTensors()) == "NamedTensors({})"
    text = repr(OBJECTS["NamedTensors"](large))
    assert text.startswith(f"NamedTensors({{w0: {large.variables[0]!r}, w1: ")
    assert text.endswith("(2,)], … 998 more})")
    long = NamedTensors.from_dict({"k" * 300: first, "l": second})
    assert repr(long) == "NamedTensors({… 2 more})"


def test_a_long_assignment_shows_its_ends(small: Program, large: Program) -> None:
    assert (
        repr(ReplicaGrouping.from_assignment(irregular(small))) == "ReplicaGrouping(assignment=[0, 1, 1, 0])"
    )
    assert repr(ReplicaGrouping.from_assignment(irregular(large))) == (
        "ReplicaGrouping(assignment=[0, 1, 1, ..., 0, 1], num_replicas=4096, group_size=2048, num_groups=2)"
    )


def test_groups_of_single_replicas_have_a_name() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        w = popsr.variable(
            np.arange(4.0), popsr.float32, "w", replica_grouping=ir.replica_grouping(group_size=1)
        )
        ops.relu(w)
    row = str(popsr.Session(ir)).splitlines()[2]
    assert re.split(" {2,}", row.strip()) == ["w", "float32", "()", "each replica", "each replica"]


def test_tables_say_what_a_session_holds(small: Program) -> None:
    lines = str(popsr.Session(small.ir)).splitlines()
    assert lines[0] == f"Session[{small.ir!r} detached step=0]"
    assert lines[1].split() == ["variable", "dtype", "shape", "groups", "stored", "once", "for"]
    assert lines[3].split() == ["layer1.weight", "float32", "(2,)", "{0,2}{1,3}", "all"]
