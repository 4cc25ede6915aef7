"""``popsr.record`` and ``popsr.diff``: the hash by an independent reference, causes of differences, bad files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.__main__ import main
from popsr._tools.record.reading import open_record
from popsr.errors import ArgumentTypeError, FileError, SessionError

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")

MASK = 2**64 - 1


def scatter(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def reference(data: bytes) -> int:
    """The hash of version 1, word by word."""
    value = len(data)
    for begin in range(0, len(data), 65536):
        piece = data[begin : begin + 65536]
        words = np.frombuffer(piece + bytes(-len(piece) % 64), "<u8").tolist()
        lanes = [0xD6E8FEB86659FD93 * (i + 1) & MASK for i in range(8)]
        for w, word in enumerate(words):
            product = (lanes[w % 8] ^ word) * 0x9E3779B97F4A7C15 & MASK
            lanes[w % 8] = (product << 29 | product >> 35) & MASK
        total = len(piece)
        for lane in lanes:
            total = scatter(total ^ lane)
        value = scatter(value ^ total)
    return value or 1


@pytest.mark.parametrize("size", [1, 7, 16, 1000, 16384, 40001, 300000])
def test_hashes_follow_the_reference(size: int, tmp_path: Path) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((size,), popsr.float32, "x")
        ops.negate(ops.host_load(stream))
    data = np.random.default_rng(size).normal(size=(2, size)).astype(np.float32)
    data[1, 0] = np.nan
    with popsr.Session(ir) as session, popsr.record(session, tmp_path / "a.rec"):
        session.run({stream: data})
    (run,) = open_record("diff", tmp_path / "a.rec").runs()
    bits = (-data).view(np.uint32).copy()
    bits[1, 0] = 0x7FFFFFFF  # all NaNs count as one
    assert run.rows[-1].outputs()[0] == [reference(row.tobytes()) for row in bits]


def program(**edit: Any) -> tuple[popsr.Ir, popsr.HostToDeviceStream]:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((8, 16), popsr.float32, "x")
        weight = np.full((16, 16), 0.01, np.float32)
        weight.view(np.uint32)[3, 4] ^= edit.get("bit", 0)
        w = popsr.variable(weight, popsr.float32, "w")
        x = ops.host_load(stream)
        y = ops.matmul(x, w)
        if edit.get("gelu", True):
            y = ops.gelu(y)
        z = ops.sub(x, y) if edit.get("swapped") else ops.sub(y, x)
        z = z * popsr.constant(edit.get("constant", 0.5), popsr.float32, "half")
        total = ops.matmul(ops.transpose(x), z)
        if edit.get("reduced", True):
            group = ir.replica_grouping(group_size=edit.get("group", 4))
            total = ops.collectives.replicated_all_reduce(total, group=group)
        ops.scaled_add_(w, total, b=edit.get("rate", -0.1))
    return ir, stream


def recorded(
    path: Path, *, row: int | None = None, options: dict[str, Any] | None = None, **edit: Any
) -> str:
    ir, stream = program(**edit)
    data = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    with popsr.Session(ir, **(options or {})) as session, popsr.record(session, path):
        session.run({stream: data})
        if row is not None:
            data[row, 0, 0] += 1
        session.run({stream: data})
    return str(path)


EQUAL: list[dict[str, Any]] = [{}, {"optimise": False}, {"num_threads": 1}, {"dedup": False}]


@pytest.mark.parametrize("options", EQUAL, ids=str)
def test_settings_do_not_matter(options: dict[str, Any], tmp_path: Path) -> None:
    a, b = recorded(tmp_path / "a.rec"), recorded(tmp_path / "b.rec", options=options)
    assert not popsr.diff(a, b)
    assert main(["diff", a, b]) == 0


ALL = (0, 1, 2, 3)
# The edit; kind, name, replicas and run of the difference.
CAUSES: list[tuple[dict[str, Any], tuple[str, str, tuple[int, ...], int]]] = [
    ({"row": 2}, ("stream", "x", (2,), 1)),
    ({"bit": 1}, ("variable", "w", ALL, 0)),
    ({"gelu": False}, ("only in a", "gelu", ALL, 0)),
    ({"swapped": True}, ("changed", "sub", ALL, 0)),
    ({"constant": 0.25}, ("changed", "mul", ALL, 0)),
    ({"reduced": False}, ("only in a", "replicated_all_reduce", ALL, 0)),
    ({"group": 2}, ("changed", "replicated_all_reduce", ALL, 0)),
    ({"rate": -0.2}, ("changed", "scaled_add_", ALL, 0)),
]


@pytest.mark.parametrize(("edit", "expected"), CAUSES, ids=str)
def test_causes_are_named(
    edit: dict[str, Any], expected: tuple[str, str, tuple[int, ...], int], tmp_path: Path
) -> None:
    a, b = recorded(tmp_path / "a.rec"), recorded(tmp_path / "b.rec", **edit)
    found = popsr.diff(a, b)
    assert (found.kind, found.name, found.replicas, found.step) == expected
    assert main(["diff", a, b]) == 1


def test_bad_files(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.rec")
    data = Path(a).read_bytes()
    bad = {
        "another kind of file": b"x" * 100,
        "version 2": data[:8] + b"\2" + data[9:],
        "cut file": data[:-5],
        "do not fit its digest": data[:600] + bytes([data[600] ^ 1]) + data[601:],
    }
    for text, content in bad.items():
        (tmp_path / "b.rec").write_bytes(content)
        with pytest.raises(FileError, match=text):
            popsr.diff(a, tmp_path / "b.rec")
    with pytest.raises(FileError, match="cannot read"):
        popsr.diff(a, tmp_path / "no.rec")
    assert main(["diff", a, str(tmp_path / "no.rec")]) == 2


def test_wrong_calls(tmp_path: Path) -> None:
    session = popsr.Session(program()[0])
    with popsr.record(session, tmp_path / "a.rec"), pytest.raises(SessionError, match="watched already"):
        popsr.record(session, tmp_path / "b.rec")
    with pytest.raises(ArgumentTypeError, match="not a session"):
        popsr.record(1, tmp_path / "a.rec")
    with pytest.raises(FileError, match="cannot write"):
        popsr.record(session, tmp_path / "no" / "a.rec")


def two_streams(path: Path, first_loaded: int, data: tuple[float, float], *, unused: bool = False) -> Path:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        if unused:
            popsr.h2d_stream((3,), popsr.float32, "unused")
        streams = [popsr.h2d_stream((3,), popsr.float32, name) for name in "ab"]
        for stream in (streams[first_loaded], streams[1 - first_loaded]):
            ops.negate(ops.host_load(stream))
    with popsr.Session(ir) as session, popsr.record(session, path):
        rows = [np.full((2, 3), value, np.float32) for value in data]
        session.run(dict(zip(streams, rows, strict=True)))
    return path


@pytest.mark.parametrize(("first", "name", "other"), [(0, "a", "b"), (1, "b", "a")])
def test_of_several_streams_the_one_that_is_seen_first_is_named(
    tmp_path: Path, first: int, name: str, other: str
) -> None:
    """Streams are numbered as they are made, not as they are loaded."""
    a = two_streams(tmp_path / "a.rec", first, (1, 2))
    found = popsr.diff(a, two_streams(tmp_path / "b.rec", first, (3, 4)))
    assert (found.kind, found.name) == ("stream", name)
    assert any(note.startswith(f"also stream: {other} ") for note in found.notes)


def test_streams_are_compared_by_name_where_a_program_has_another_one(tmp_path: Path) -> None:
    a = two_streams(tmp_path / "a.rec", 0, (1, 2))
    assert popsr.diff(a, two_streams(tmp_path / "b.rec", 0, (1, 2), unused=True)).kind == "equal"
