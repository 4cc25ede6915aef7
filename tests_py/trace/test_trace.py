"""``Session.trace``: files by the rules of the trace event format, and what they say of a run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._tools.trace import tracing
from tests_py.support.recorded_program import LINES, step

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")

Event = dict[str, Any]


def traced(path: Path, runs: int = 2, threads: int = 2) -> dict[str, Any]:
    ir, stream = step()
    data = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    with popsr.Session(ir, num_threads=threads) as session, session.trace(path):
        for _ in range(runs):
            session.run({stream: data})
    return read(path)


def read(path: Path) -> dict[str, Any]:
    """The file, after a check of the rules that importers rely on."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    found = json.loads(text)
    assert len(text) <= tracing.MAX_BYTES
    assert found.keys() == {"displayTimeUnit", "otherData", "traceEvents"}
    names = set()
    for event in found["traceEvents"]:
        assert event["ph"] in "XMC"
        assert isinstance(event["name"], str)
        assert event["name"]
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert isinstance(event["ts"], float | int)
        assert event["ts"] >= 0
        assert isinstance(event.get("args"), dict)
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "M":
            names.add((event["pid"], event["tid"]))
    tracks: dict[tuple[int, int], list[Event]] = {}
    for event in complete(found):
        assert (event["pid"], event["tid"]) in names
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in tracks.values():
        assert_nested(events)
    return found


def complete(found: dict[str, Any]) -> list[Event]:
    return [event for event in found["traceEvents"] if event["ph"] == "X"]


def assert_nested(events: list[Event]) -> None:
    """Two events of a track lie inside each other or apart, to the nanosecond."""
    open_: list[tuple[int, int]] = []
    for event in sorted(events, key=lambda e: (nanoseconds(e["ts"]), -nanoseconds(e["dur"]))):
        begin, end = nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"])
        while open_ and open_[-1][1] <= begin:
            open_.pop()
        assert not open_ or end <= open_[-1][1], event
        open_.append((begin, end))


def nanoseconds(micros: float) -> int:
    return round(micros * 1000)


def test_tracks_and_arguments(tmp_path: Path) -> None:
    found = complete(traced(tmp_path / "run.json.gz"))
    assert [e["name"] for e in found if e["cat"] == "run"] == ["run 0", "run 1"]
    softmax = [e for e in found if "softmax" in e["name"]]
    assert len(softmax) == 2
    assert softmax[0]["args"]["line"].endswith(f"recorded_program.py:{LINES['softmax']}")
    assert softmax[0]["args"].keys() == {"op", "path", "line", "bytes", "blocks"}
    inner = [e for e in found if "tanh" in e["name"] and "turn" in e["args"]["path"]]
    assert len(inner) == 6
    turns = [e for e in found if e["cat"] == "iteration"]
    assert [e["name"] for e in turns] == ["iteration 0", "iteration 1", "iteration 2"] * 2
    for turn, each in zip(turns, inner, strict=True):
        assert turn["ts"] <= each["ts"]
        assert each["ts"] + each["dur"] <= turn["ts"] + turn["dur"] + 1e-3


def test_threads_have_tracks(tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones((512, 512)), popsr.float32, "x")
        total = popsr.variable(np.zeros((512, 512)), popsr.float32, "total")
        ops.var_updates.accumulate_(total, x @ x)
    with popsr.Session(ir, num_threads=2) as session, session.trace(tmp_path / "run.json"):
        for _ in range(200):  # the session runs parts itself while its worker is kept from a processor
            session.run()
    found = read(tmp_path / "run.json")
    parts = [e for e in complete(found) if e["tid"] == 1]
    assert parts
    assert all(e["cat"] == "part" and "matmul" in e["name"] for e in parts)
    tracks = {e["args"]["name"] for e in found["traceEvents"] if e["name"] == "thread_name"}
    assert tracks == {"session", "worker 1"}


@pytest.mark.parametrize("limit", ["bytes", "events"])
def test_later_instructions_are_counted(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones(4), popsr.float32, "x")
        for _ in range(50):
            ops.add_(x, x)
    if limit == "bytes":
        monkeypatch.setattr(tracing, "MAX_BYTES", 320_000)
    else:
        monkeypatch.setattr(tracing, "EVENTS", 300)
    with popsr.Session(ir) as session, session.trace(tmp_path / "run.json"):
        for _ in range(40):
            session.run()
    found = read(tmp_path / "run.json")
    kept = sum(e["cat"] == "op" for e in complete(found))
    counters = [e for e in found["traceEvents"] if e["ph"] == "C"]
    assert 0 < kept < 2000
    assert kept + sum(e["args"]["count"] for e in counters) == 2000
    assert len(json.dumps(found)) <= tracing.MAX_BYTES + 10_000


def test_a_run_that_fails_is_traced(tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones(4), popsr.float32, "x")
        scores = popsr.variable(np.ones((4, 3)), popsr.float32, "scores")
        labels = popsr.variable(np.full(4, 7), popsr.int32, "labels")
        ops.add_(x, x)
        ops.nll_loss(ops.softmax(scores, axis=-1), labels)
    with (
        popsr.Session(ir, strict=True) as session,
        session.trace(tmp_path / "run.json"),
        pytest.raises(errors.Error),
    ):
        session.run()
    assert any(e["name"] == "run 0" for e in complete(read(tmp_path / "run.json")))


def test_wrong_calls(tmp_path: Path) -> None:
    session = popsr.Session(step().ir)
    with (
        session.trace(tmp_path / "a.json"),
        pytest.raises(errors.SessionError, match=r"^trace: the session is watched already, got a trace"),
    ):
        session.trace(tmp_path / "b.json")
    with pytest.raises(errors.FileError, match=r"^trace: cannot write"):
        session.trace(tmp_path / "no" / "a.json")
    with pytest.raises(errors.ArgumentTypeError, match=r"^trace"):
        session.trace(1)  # type: ignore[arg-type]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json"]


def test_traces_change_no_bit(tmp_path: Path) -> None:
    ir, stream = step()
    data = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    values = []
    for watched in (False, True):
        with popsr.Session(ir) as session:
            if watched:
                with session.trace(tmp_path / "run.json"):
                    session.run({stream: data})
            else:
                session.run({stream: data})
            values.append([session.get_tensor_data(v).tobytes() for v in ir.main_graph.variables])
    assert values[0] == values[1]
