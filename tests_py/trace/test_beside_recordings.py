"""A recording and a trace of one session at once: files are those of each alone, in any order of begins and ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._tools.record.reading import open_record
from tests_py.support.recorded_program import step
from tests_py.trace.test_trace import read

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")

# A letter begins (R, T) or ends (r, t) a recording or a trace; a point is a run.
ORDERS = [
    "RT.rt", "RT.tr", "TR.rt", "TR.tr",
    "R.T.r.t", "T.R.t.r", "R.T.t.r", "T.R.r.t", "R.T.t.r.",
    "R.rT.t", "T.tR.r", "T.R.r.R.r.t", "R.T.t.T.t.r", "TR.rR.rt", "RT..t.r",
]  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_threads": 1},
    {"optimise": False, "dedup": False},
    {"profile": True},
]

GOOD, BAD = np.array([[0, 1, 2], [2, 1, 0]], np.int32), np.array([[0, 1, 2], [2, 3, 0]], np.int32)

Run = Callable[[popsr.Session, int], None]
Files = dict[str, Any]


def followed(order: str, folder: Path, session: popsr.Session, run: Run, comm: Any = None) -> Files:
    """The bytes of recordings and the events of traces, by the name of each, after these calls."""
    folder.mkdir(exist_ok=True)
    watching: dict[str, Any] = {}
    for i, each in enumerate(order):
        if each == ".":
            run(session, order[:i].count("."))
        elif each.isupper():
            path = folder / f"{each}{order[:i].count(each)}"
            watching[each] = popsr.record(session, path) if each == "R" else session.trace(path)
        else:
            watching.pop(each.upper()).close()
    assert not watching
    assert not session._access.watchers
    if comm is not None:
        comm.Barrier()  # one rank writes
    return {
        path.name: path.read_bytes() if path.name[0] == "R" else events(path) for path in folder.iterdir()
    }


def events(path: Path) -> list[Any]:
    """All events of the thread of the runs, without times."""
    return [
        (each["ph"], each["name"], each.get("cat"), each["pid"], each["args"])
        for each in read(path)["traceEvents"]
        if each["tid"] == 0 and each["ph"] != "C"
    ]


def traced(path: Path) -> int:
    """Number of runs."""
    return sum(each[2] == "run" for each in events(path))


def recorded(path: Path) -> int:
    """Number of runs."""
    return len(list(open_record("diff", path).runs()))


def begin(order: str, session: popsr.Session, folder: Path) -> dict[str, Any]:
    """Begin a recording for R and a trace for T, in files of these names."""
    return {
        each: popsr.record(session, folder / each) if each == "R" else session.trace(folder / each)
        for each in order
        if each.isupper()
    }


def alone(order: str, kind: str) -> str:
    return "".join(each for each in order if each.upper() in (kind, "."))


def assert_as_alone(
    order: str, folder: Path, made: Callable[[], tuple[popsr.Session, Run]], *, comm: Any = None
) -> None:
    """The files of an order are those of its recordings alone and of its traces alone; values are as without any."""
    found: dict[str, Files] = {}
    values = set()
    for name, each in {
        "both": order,
        "R": alone(order, "R"),
        "T": alone(order, "T"),
        ".": alone(order, "."),
    }.items():
        session, run = made()
        with session:
            found[name] = followed(each, folder / f"{order}{name}", session, run, comm)
            values.add(variables(session))
    assert found["both"] == found["R"] | found["T"]
    assert all(found["both"].values())
    assert len(values) == 1


def variables(session: popsr.Session) -> bytes:
    return b"".join(session.get_tensor_data(v).tobytes() for v in session.ir.main_graph.variables)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_files_are_those_of_each_alone(order: str, options: dict[str, Any], tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(8, 4, 8, 16)).astype(np.float32)
    ir, stream = step()

    def run(session: popsr.Session, number: int) -> None:
        session.run({stream: data[number]})

    def made() -> tuple[popsr.Session, Run]:
        return popsr.Session(ir, **({"num_threads": 2} | options)), run

    assert_as_alone(order, tmp_path, made)


def failing() -> tuple[popsr.Ir, popsr.HostToDeviceStream]:
    """A program that raises where an element of its stream is not 0, 1 or 2."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((3,), popsr.int32, "at")
        w = popsr.variable(np.ones(3), popsr.float32, "w")
        row = ops.gather(ops.exp(w), ops.host_load(stream))
        ops.scaled_add_(w, ops.tanh(row), b=0.5)
    return ir, stream


@pytest.mark.parametrize("order", ["RT..rt", "TR..tr", "R.T.t.r", "T.R.r.t", "RT.t.r", "TR.r.t"])
@pytest.mark.parametrize("at", [0, 1])
def test_runs_that_raise(order: str, at: int, tmp_path: Path) -> None:
    ir, stream = failing()

    def run(session: popsr.Session, number: int) -> None:
        if number != at:
            session.run({stream: GOOD})
            return
        with pytest.raises(errors.OutOfRangeError):
            session.run({stream: BAD})

    assert_as_alone(order, tmp_path, lambda: (popsr.Session(ir), run))


@pytest.mark.parametrize("order", ["RT....rt", "TR..t..r", "R..T..r.t", "T.R..r.t"])
def test_plans_that_are_made_in_between(order: str, tmp_path: Path) -> None:
    """Rows of a small stream that are equal in one run and not in the next one: each has its plan."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((3,), popsr.float32, "x")
        own = ir.replica_grouping(group_size=1)
        w = popsr.variable(np.ones((4, 3)), popsr.float32, "w", replica_grouping=own)
        ops.scaled_add_(w, ops.exp(ops.host_load(stream)), b=0.5)
    rows = [np.ones((4, 3)), np.eye(4, 3), np.repeat(np.eye(2, 3), 2, axis=0), np.ones((4, 3))]

    def run(session: popsr.Session, number: int) -> None:
        session.run({stream: rows[number % 4].astype(np.float32)})

    assert_as_alone(order, tmp_path, lambda: (popsr.Session(ir), run))


@pytest.mark.parametrize("order", ["RT.g.rt", "TR.g.tr", "R.gT.rt", "T.gR.rt"])
def test_a_program_that_grows_in_between(order: str, tmp_path: Path) -> None:
    """The session refuses its further runs; files have the runs before."""
    ir, stream = failing()
    before, after = order.split("g")
    with popsr.Session(ir) as session:
        watching = begin(before, session, tmp_path)
        session.run({stream: GOOD})
        with ir.main_graph:
            ops.exp(popsr.constant(1.0))
        watching |= begin(after, session, tmp_path)
        with pytest.raises(errors.GraphError, match="the program changed"):
            session.run({stream: GOOD})
        for each in order[-2:]:
            watching[each.upper()].close()
    assert recorded(tmp_path / "R") == ("R" in before)
    assert traced(tmp_path / "T") == ("T" in before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("order", ["RT", "TR"])
def test_an_error_of_the_recording_leaves_the_trace(
    error: type[BaseException], order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ir, stream = failing()
    data = {stream: GOOD}

    def fail(_: bytes) -> None:
        raise error

    with popsr.Session(ir) as session:
        watching = begin(order, session, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(watching["R"]._file, "write", fail)
            with pytest.raises(error):
                session.run(data)
            with pytest.raises(error):
                watching["R"].close()
        session.run(data)
        watching["T"].close()
        assert not session._access.watchers
        with popsr.record(session, tmp_path / "next"), session.trace(tmp_path / "next.json"):
            session.run(data)
    assert not (tmp_path / "R").exists()
    assert traced(tmp_path / "T") == 2
    assert recorded(tmp_path / "next") == 1


@pytest.mark.parametrize(("again", "other"), [("record", "trace"), ("trace", "record")])
def test_calls_that_are_refused_leave_both(again: str, other: str, tmp_path: Path) -> None:
    ir, stream = failing()
    data = {stream: GOOD}
    with popsr.Session(ir) as session:
        calls: dict[str, Callable[[str], Any]] = {
            "record": lambda name: popsr.record(session, tmp_path / name),
            "trace": lambda name: session.trace(tmp_path / name),
        }
        with calls["record"]("R"), calls["trace"]("T"):
            session.run(data)
            text = f"{again}: the session is watched already, got a {again} in progress, expected a call after its end"
            with pytest.raises(errors.SessionError, match=f"^{text}$"):
                calls[again]("again")
            session.run(data)
        with calls[other]("long"):
            with pytest.raises(errors.FileError, match=f"^{again}: cannot write"):
                calls[again]("no/file")
            session.run(data)
            with calls[again]("short"):
                session.run(data)
    counts = {"record": recorded, "trace": traced}
    assert (recorded(tmp_path / "R"), traced(tmp_path / "T")) == (2, 2)
    assert (counts[other](tmp_path / "long"), counts[again](tmp_path / "short")) == (2, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"R", "T", "long", "short"}


def test_an_error_that_leaves_both_blocks(tmp_path: Path) -> None:
    ir, stream = failing()
    with popsr.Session(ir) as session:
        with (
            pytest.raises(errors.OutOfRangeError),
            session.trace(tmp_path / "T"),
            popsr.record(session, tmp_path / "R"),
        ):
            session.run({stream: BAD})
        session.run({stream: GOOD})
    assert not session._access.watchers
    assert recorded(tmp_path / "R") == traced(tmp_path / "T") == 1


def test_both_come_and_go_while_another_thread_runs(tmp_path: Path) -> None:
    ir, stream = failing()
    data = {stream: GOOD}
    done = threading.Event()

    def runs() -> None:
        while not done.is_set():
            session.run(data)

    with popsr.Session(ir) as session:
        thread = threading.Thread(target=runs)
        thread.start()
        try:
            for order in ORDERS[:4] * 5:
                watching = begin(order, session, tmp_path)
                for each in order[3:]:
                    watching[each.upper()].close()
                counts = {"R": recorded(tmp_path / "R"), "T": traced(tmp_path / "T")}
                if order[0] == order[-1].upper():  # the other one lies inside
                    assert counts[order[0]] >= max(counts.values())
        finally:
            done.set()
            thread.join()
