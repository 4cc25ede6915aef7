"""Reports as text and files: what they say, errors, atomic writes."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._support.text.amounts import bytes_text
from tests_py.report import programs
from tests_py.support.helpers import run_python


class Rows(HTMLParser):
    """Cells of all tables of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.is_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "td":
            self.is_cell = True
            self.cells.append("")
        self.is_cell = self.is_cell and tag != "title"  # of a strip

    def handle_endtag(self, tag: str) -> None:
        self.is_cell = self.is_cell and tag != "td"

    def handle_data(self, data: str) -> None:
        if self.is_cell:
            self.cells[-1] += data


def test_text_of_a_healthy_program() -> None:
    session = popsr.Session(programs.layers(4), profile=True)
    text = str(session.report())
    assert "none: every variable stays equal in its groups" in text
    assert "none: all of this is known before a run" in text
    assert "stored once for 8 replicas: saved" in text
    assert "replicated_all_reduce" in text
    programs.run(session)
    assert "1 run took" in str(session.report())


def test_copies_and_bytes_of_variables() -> None:
    ir = popsr.Ir(replication=8)
    with ir.main_graph, popsr.in_sequence():
        once = popsr.variable(np.zeros(500_000, np.float32), name="once")
        pairs = popsr.variable(
            np.arange(1_000_000, dtype=np.float32).reshape(4, -1),
            name="pairs",
            replica_grouping=ir.replica_grouping(group_size=2),
        )
        ops.scaled_add_(once, once, b=1.0)
        ops.scaled_add_(pairs, pairs, b=1.0)
    text = str(popsr.Session(ir).report())
    assert "stored once for 8 replicas: saved 14 MB" in text
    assert "stored 4 times for 8 replicas: saved 4 MB" in text
    assert "2 variables in 6 MB, 24 MB if each replica had its own: saved 18 MB." in text


def test_shards_are_not_copies() -> None:
    ir = popsr.Ir(replication=8)
    with ir.main_graph:
        _, shard = popsr.replica_sharded_variable(np.ones((16, 16), np.float32), name="w")
        ops.scaled_add_(shard, shard, b=0.5)
    with popsr.Session(ir) as session:
        text = str(session.report())
        assert session.memory()["variables"] == 8 * 128
    assert "1 variable in 1.02 kB." in text
    row = next(line for line in text.splitlines() if "float32[16,16]" in line)
    assert row.split("  ")[-1].strip() == "8 shards of 128 B"
    assert "in shards" in row


def test_the_cause_of_drift_comes_first_and_alone_is_red() -> None:
    with pytest.warns(popsr.ReplicaWarning):
        session = popsr.Session(programs.layers(16, drifting=True))
    (drift,) = session.facts.drifting()
    report = session.report()
    text = str(report)
    assert text.index(drift.cause) < text.index(f"'{drift.variable.name}' drifts")
    red = report.html.split('class="root"')[1:]
    codes = [f">{lint.code}<" for lint in session.facts.warnings if lint.code != "L2"]
    assert len(red) == 2 + 2 + len(codes)  # the summary's, the cause with its place, other lints


def test_memory_of_text_is_the_session_s() -> None:
    session = popsr.Session(programs.layers(10))
    text, memory = str(session.report()), session.memory()
    timeline = session._core.memory_timeline()
    total = memory["variables"] + memory["constants"] + memory["activations"]
    assert f"The session allocates {bytes_text(total)} for values" in text
    assert (
        f"{max(step.live for step in timeline.steps):,} bytes; their arena has {timeline.arena:,} bytes"
        in text
    )


def test_text_has_what_the_page_has() -> None:
    report = popsr.Session(programs.layers(3)).report()
    cells, text = Rows(report.html).cells, str(report)
    assert len(cells) > 60
    assert [cell for cell in cells if cell.strip() and cell.strip()[:150] not in text] == []


def test_user_strings_are_escaped() -> None:
    with pytest.warns(popsr.ReplicaWarning):
        html = popsr.Session(programs.hostile()).report().html
    assert "<b>" not in html
    assert html.count("</script>") == 2


def test_every_op_is_in_the_data() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((2,), popsr.float32, "x"))
        inner = ir.create_graph(lambda t: t * 2.0, x)
        outer = ir.create_graph(lambda t: ops.call(inner, t)[0] + 1.0, x)
        (y,) = ops.repeat(outer, 3, x)
        ops.host_store(popsr.d2h_stream(y.shape, y.dtype, "out"), y)
    from popsr._tools.report.graph import graph_section
    from popsr._tools.report.source import Source
    from popsr._tools.report.strips import Strips

    session = popsr.Session(ir)
    data = graph_section(Source.of_session(session), Strips()).data
    graphs = (ir.main_graph, inner, outer)
    assert sorted(data["ops"]["id"]) == sorted(op.id for graph in graphs for op in graph.ops)
    reached = [item for _, _, items in data["scopes"] for item in items if item >= 0]
    assert sorted(reached) == list(range(len(data["ops"]["id"])))


BAD_PATHS = {
    "number": (3, TypeError, "report: path: not the path of a file, got 3, expected a str or os.PathLike"),
    "empty": ("", TypeError, "report: path"),
    "null": ("a\0b", TypeError, "report: path"),
    "no folder": ("nowhere/run.html", popsr.errors.FileError, "report: cannot write"),
    "folder": (".", popsr.errors.FileError, "report: cannot"),
}


@pytest.mark.parametrize("name", BAD_PATHS)
def test_bad_paths(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    path, kind, text = BAD_PATHS[name]
    monkeypatch.chdir(tmp_path)
    session: Any = popsr.Session(programs.chain([1]))
    with pytest.raises(kind) as caught:
        session.report(path)
    assert str(caught.value).startswith(text)
    assert os.listdir(tmp_path) == []


def test_a_changed_program_is_refused() -> None:
    ir = programs.chain([1])
    session = popsr.Session(ir)
    with ir.main_graph:
        popsr.variable(np.zeros(3, np.float32), name="late") + 1.0
    with pytest.raises(popsr.errors.GraphError):
        session.report()


def test_a_file_is_replaced_and_text_is_text(tmp_path: Path) -> None:
    session = popsr.Session(programs.chain([1]))
    for name in ("run.html", "run.txt"):
        path = tmp_path / name
        path.write_text("old")
        report = session.report(path)
        assert path.read_text() == (report.html if name == "run.html" else str(report))
    assert sorted(os.listdir(tmp_path)) == ["run.html", "run.txt"]


SCRIPT = """
import sys
import numpy as np
import popsr
from popsr import ops
for _ in range(2):
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        s = popsr.h2d_stream((2,), popsr.float32, "x")
        w = popsr.variable(np.zeros(2, np.float32), name="w")
        ops.scaled_add_(w, ops.collectives.replicated_all_reduce(ops.host_load(s), "mean"), b=1.0)
    with popsr.Session(ir) as session:
        session.run({s: np.ones((2, 2), np.float32)})
print(sys.argv[1:])
"""


def test_command(tmp_path: Path, capsys: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = "import sys, popsr.__main__ as m; sys.exit(m.main({}))"
    run_python(command.format(["report", "-o", str(tmp_path / "r.html"), str(script), "--epochs", "3"]))
    names = sorted(each.name for each in tmp_path.glob("*.html"))
    assert names == ["r-2.html", "r.html"]
    assert "train.py" in (tmp_path / "r.html").read_text()
    output = run_python(command.format(["report", "--static", "--text", str(script)]))
    assert "none: all of this is known before a run" in str(output)
