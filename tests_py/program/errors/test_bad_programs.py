"""Wrong programs, wrong data and wrong use of sessions are refused; variables keep their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from tests_py.support.helpers import assert_same_bits, make_variable, random_array
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Shape, DType, Attr, Graph = (
    errors.ShapeError,
    errors.DTypeError,
    errors.AttributeValueError,
    errors.GraphError,
)
Replica, Argument, Session = errors.ReplicaError, errors.ArgumentTypeError, errors.SessionError

PROGRAMS: list[tuple[str, Callable[[popsr.Ir], Any], type[Exception], str]] = [
    (
        "rows",
        lambda ir: popsr.variable(np.zeros((3, 2)), replica_grouping=ir.replica_grouping(1, 2)),
        Shape,
        r"variable .*\(3, 2\), expected \(2, \.\.\.\)",
    ),
    (
        "no-rows",
        lambda ir: popsr.variable(1.0, replica_grouping=ir.replica_grouping(1, 2)),
        Shape,
        r"variable .*\(\), expected \(2",
    ),
    (
        "mode",
        lambda ir: popsr.variable(1.0, retrieval_mode=unchecked("some")),
        Attr,
        r"variable: unknown retrieval_mode, got 'some'",
    ),
    (
        "other-grouping",
        lambda ir: popsr.variable(
            np.zeros(2), replica_grouping=popsr.Ir(replication=2).replica_grouping(1, 1)
        ),
        Replica,
        r"variable: grouping of another replica count, got 2",
    ),
    (
        "grouping-type",
        lambda ir: popsr.variable(1.0, replica_grouping=unchecked(2)),
        Argument,
        r"variable: replica_grouping is not a ReplicaGrouping, got 2",
    ),
    (
        "stride-0",
        lambda ir: ir.replica_grouping(0),
        Replica,
        r"replica_grouping: .*got stride 0 for 4 replicas",
    ),
    (
        "stride-3",
        lambda ir: ir.replica_grouping(3),
        Replica,
        r"replica_grouping: .*got stride 3 for 4 replicas",
    ),
    (
        "size-3",
        lambda ir: ir.replica_grouping(1, 3),
        Replica,
        r"replica_grouping: .*group_size 3 for 4 replicas",
    ),
    (
        "too-large",
        lambda ir: ir.replica_grouping(4, 4),
        Replica,
        r"replica_grouping: .*stride 4 and group_size 4",
    ),
    (
        "float",
        lambda ir: ir.replica_grouping(unchecked(1.0)),
        Argument,
        r"replica_grouping: stride is not an int, got 1.0",
    ),
    (
        "short",
        lambda ir: ir.replica_grouping_from_assignments([0, 1]),
        Replica,
        r"replica_grouping: .*got \[0, 1\], expected 4",
    ),
    (
        "unequal",
        lambda ir: ir.replica_grouping_from_assignments([0, 0, 0, 1]),
        Replica,
        r"groups differ in size",
    ),
    (
        "order",
        lambda ir: ir.replica_grouping_from_assignments([1, 1, 0, 0]),
        Replica,
        r"not numbered from 0 in order of first",
    ),
    (
        "stream-mode",
        lambda ir: popsr.h2d_stream((1,), F32, replicated_stream_mode=unchecked("all")),
        Attr,
        r"h2d_stream: unknown replicated_stream_mode, got 'all'",
    ),
    (
        "stream-shape",
        lambda ir: popsr.h2d_stream((-1,), F32),
        Shape,
        r"h2d_stream: negative extent, got \(-1,\)",
    ),
    (
        "stream-dtype",
        lambda ir: popsr.d2h_stream((1,), unchecked("float31")),
        DType,
        r"d2h_stream: .*float31",
    ),
    (
        "sequence",
        lambda ir: popsr.in_sequence(unchecked("x")).__enter__(),
        Attr,
        r"in_sequence: unknown mode, got 'x'",
    ),
    (
        "transfers",
        lambda ir: setattr(ir, "num_host_transfers", 0),
        Attr,
        r"num_host_transfers: got 0, expected an int from 1",
    ),
    (
        "contains",
        lambda ir: unchecked(1) in ir.main_graph,
        Argument,
        r"only tensors can be in a graph, got 1",
    ),
    ("compare", lambda ir: ir == 1, Argument, r"compares with an Ir only, got 1"),
    (
        "rounding",
        lambda ir: popsr.stochastic_rounding(unchecked(1)).__enter__(),
        Argument,
        r"stochastic_rounding: enabled is not a bool, got 1",
    ),
    ("no-ops", lambda ir: popsr.Session(ir), errors.StateError, r"Session: the program has no ops"),
    ("no-ir", lambda ir: popsr.Session(unchecked(1)), Argument, r"Session: ir is not an Ir, got 1"),
    (
        "analysis",
        lambda ir: unchecked(popsr.analysis.analyze)(1),
        Argument,
        r"analyze: ir is not an Ir, got 1",
    ),
    (
        "transform",
        lambda ir: transforms.stochastic_rounding(ir, unchecked("other")),
        Attr,
        r"unknown stochastic_rounding_mode, got 'other'",
    ),
]


@pytest.mark.parametrize(("build", "error", "match"), [pytest.param(*bad[1:], id=bad[0]) for bad in PROGRAMS])
def test_programs(build: Callable[[popsr.Ir], Any], error: type[Exception], match: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, pytest.raises(error, match=match) as caught:
        build(ir)
    assert isinstance(caught.value, errors.Error)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((0, Replica), (-4, Replica), (2**20 + 1, Replica), (2**31, Replica)),
        *((1.0, Argument), ("popdists", Argument), (True, Argument), (None, Argument)),
    ],
)
def test_replication(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"^Ir: .*got (replication )?{value!r}, expected (an int|1 to 1048576)"):
        popsr.Ir(replication=value)


def test_replication_is_fixed() -> None:
    ir = popsr.Ir()
    ir.replication_factor = 3
    assert ir.replication_factor == ir.instance_replication_factor == 3
    with ir.main_graph:
        popsr.constant(1.0)
    with pytest.raises(RuntimeError, match=r"^replication_factor: the Ir is not empty"):
        ir.replication_factor = 2
    for same in (3, np.int64(3), np.uint8(3)):
        ir.replication_factor = same  # type: ignore[assignment]
    with ir.main_graph:
        ops.relu(popsr.constant(1.0))
    popsr.Session(ir)
    ir.replication_factor = 3
    assert ir.replication_factor == 3


@pytest.mark.parametrize("value", ["3", 3.0, None, True])
def test_replication_is_set_to_ints(value: Any) -> None:
    ir = popsr.Ir(replication=3)
    with pytest.raises(TypeError, match=r"^Ir: replication is not an int, got "):
        ir.replication_factor = value


# Running


class Program:
    """Two replicas, three transfers; a variable grows each run."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=2)
        self.ir.num_host_transfers = 3
        with self.ir.main_graph, popsr.in_sequence():
            self.x, self.y = popsr.h2d_stream((4,), F32, "x"), popsr.h2d_stream((), popsr.int32, "labels")
            self.shared = popsr.h2d_stream((4,), F32, "shared", replicated_stream_mode="broadcast")
            self.out = popsr.d2h_stream((4,), F32, "out")
            self.v = make_variable(np.arange(4, dtype=np.float32), "v")
            self.c = popsr.constant([1.0])
            total = ops.add(ops.host_load(self.x), ops.host_load(self.shared))
            ops.add_(self.v, ops.mul(total, ops.cast(ops.host_load(self.y), F32)))
            ops.host_store(self.out, self.v)
        self.good = {
            self.x: np.ones((3, 2, 4), np.float32),
            self.y: np.ones((3, 2), np.int32),
            self.shared: np.ones((3, 4), np.float32),
        }

    def but(self, **changes: Any) -> dict[Any, Any]:
        return {**self.good, **{getattr(self, name): data for name, data in changes.items()}}

    def without(self, name: str) -> dict[Any, Any]:
        return {stream: data for stream, data in self.good.items() if stream is not getattr(self, name)}


MADE = r" made at test_bad_programs\.py:\d+"
Run = tuple[str, Callable[[Program, popsr.Session], Any], type[Exception], str]
RUNS: list[Run] = [
    (
        "missing",
        lambda p, s: s.run(p.without("x")),
        Session,
        rf"run: inputs .*unexpected \[\] and missing \['x'{MADE}\]",
    ),
    (
        "none",
        lambda p, s: s.run(),
        Session,
        rf"run: inputs .*missing \['x'{MADE}, 'labels'{MADE}, 'shared'{MADE}\], expected ",
    ),
    (
        "unexpected",
        lambda p, s: s.run(unchecked({**unchecked(p.good), p.out: 1.0})),
        Session,
        rf"run: inputs .*unexpected \['out'{MADE}\]",
    ),
    (
        "instead",
        lambda p, s: s.run(unchecked({**unchecked(p.without("x")), p.out: 1.0})),
        Session,
        rf"unexpected \['out'{MADE}\] and missing \['x'{MADE}\]",
    ),
    (
        "key",
        lambda p, s: s.run(unchecked({**unchecked(p.good), "x": 1.0})),
        Session,
        rf"^run: keys of inputs are streams, not names, got 'x', expected the stream 'x'{MADE} itself",
    ),
    (
        "key-like",
        lambda p, s: s.run(unchecked({**unchecked(p.good), "label": 1.0})),
        Session,
        rf"got 'label', expected one of \[.*\]; did you mean the stream 'labels'{MADE}\?",
    ),
    (
        "shape",
        lambda p, s: s.run(p.but(x=np.ones((3, 2, 5), np.float32))),
        Shape,
        r"stream 'x', got \(3, 2, 5\), expected \(3, 2, 4\)",
    ),
    (
        "replicas",
        lambda p, s: s.run(p.but(x=np.ones((3, 1, 4), np.float32))),
        Shape,
        r"'x', got \(3, 1, 4\), expected \(3, 2, 4\)",
    ),
    (
        "transfers",
        lambda p, s: s.run(p.but(x=np.ones((2, 2, 4), np.float32))),
        Shape,
        r"'x', got \(2, 2, 4\), expected \(3, 2, 4\)",
    ),
    (
        "no-transfers",
        lambda p, s: s.run(p.but(x=np.ones((2, 4), np.float32))),
        Shape,
        r"'x', got \(2, 4\), expected \(3, 2, 4\)",
    ),
    ("scalar", lambda p, s: s.run(p.but(x=1.0)), Shape, r"'x', got \(\), expected \(3, 2, 4\)"),
    (
        "one-element",
        lambda p, s: s.run(p.but(x=np.ones((3, 2), np.float32))),
        Shape,
        r"'x', got \(3, 2\), expected \(3, 2, 4\)",
    ),
    (
        "broadcast",
        lambda p, s: s.run(p.but(shared=np.ones((3, 2, 4), np.float32))),
        Shape,
        r"'shared', got \(3, 2, 4\), expected \(3, 4\)",
    ),
    (
        "dtype",
        lambda p, s: s.run(p.but(x=np.ones((3, 2, 4), np.float16))),
        DType,
        r"'x', got float16, expected float32",
    ),
    (
        "float-labels",
        lambda p, s: s.run(p.but(y=np.ones((3, 2), np.float32))),
        DType,
        r"'labels', got float32, expected int32",
    ),
    (
        "float-list",
        lambda p, s: s.run(p.but(y=[[1.5, 1.0]] * 3)),
        DType,
        r"'labels', got float32, expected int32",
    ),
    ("text", lambda p, s: s.run(p.but(x="text")), DType, r"no supported dtype"),
    ("ragged", lambda p, s: s.run(p.but(x=[[1.0], [1.0, 2.0]])), Shape, r"not an array"),
    ("tensor", lambda p, s: s.run(p.but(x=p.v)), Argument, r"a tensor of a program has no data"),
    (
        "no-outputs",
        lambda p, s: s.run_with_outputs(p.good, {}),
        Session,
        rf"run_with_outputs: outputs .*missing \['out'{MADE}\]",
    ),
    (
        "output-shape",
        lambda p, s: s.run_with_outputs(p.good, {p.out: np.ones((3, 4), np.float32)}),
        Shape,
        r"'out', got \(3, 4\)",
    ),
    (
        "output-dtype",
        lambda p, s: s.run_with_outputs(p.good, {p.out: np.ones((3, 2, 4))}),
        DType,
        r"'out', got float64",
    ),
    (
        "output-type",
        lambda p, s: s.run_with_outputs(p.good, unchecked({p.out: [0.0]})),
        Argument,
        r"not an array for stream 'out', got list",
    ),
    (
        "read-only",
        lambda p, s: s.run_with_outputs(p.good, {p.out: _frozen((3, 2, 4))}),
        Session,
        r"'out' is read-only",
    ),
    (
        "write-shape",
        lambda p, s: s.write_variable_data(p.v, np.ones(3, np.float32)),
        Shape,
        r"'v', got \(3,\), expected \(4,\)",
    ),
    (
        "write-dtype",
        lambda p, s: s.write_variable_data(p.v, np.ones(4)),
        DType,
        r"'v', got float64, expected float32",
    ),
    (
        "write-constant",
        lambda p, s: s.write_variable_data(unchecked(p.c), np.ones(1, np.float32)),
        Argument,
        r"is not of type Variable",
    ),
    (
        "write-half",
        lambda p, s: s.write_variables_data(unchecked({p.v: np.zeros(4, np.float32), p.c: 1.0})),
        Argument,
        r"not of type",
    ),
    (
        "read-stream",
        lambda p, s: s.get_tensor_data(unchecked(p.x)),
        Argument,
        r"get_tensor_data: no variable or constant",
    ),
    (
        "stranger",
        lambda p, s: s.get_tensor_data(Program().v),
        Session,
        r"get_tensor_data: tensor of another Ir",
    ),
    ("step", lambda p, s: setattr(s, "step", -1), errors.Error, r"step"),
]


def _frozen(shape: tuple[int, ...]) -> Any:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(("use", "error", "match"), [pytest.param(*bad[1:], id=bad[0]) for bad in RUNS])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # v takes what each replica loads
def test_runs(use: Callable[[Program, popsr.Session], Any], error: type[Exception], match: str) -> None:
    program = Program()
    with popsr.Session(program.ir) as session:
        session.run(program.good)
        before = session.get_tensor_data(program.v)
        step = session.step
        with pytest.raises(error, match=match) as caught:
            use(program, session)
        assert isinstance(caught.value, errors.Error)
        assert_same_bits(session.get_tensor_data(program.v), before)
        assert session.step == step
        # The session still works.
        assert_same_bits(session.run(program.good)[program.out][0, 0], before + 2)


def test_stream_overrun() -> None:
    """More loads than data is an error, and nothing ran; landing exactly on the end starts again."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((), F32, "x")
        v = make_variable(unchecked(np.float32(0)), "v")

        def body(total: popsr.TensorByRef) -> None:
            ops.add_(total, ops.host_load(x))

        ops.repeat(ir.create_graph(body, v), 6, v)
    ir.num_host_transfers = 4
    with popsr.Session(ir) as session:
        with pytest.raises(
            Shape, match=r"run: stream 'x' moves on 6 times in a run, got data for 4, expected .* >= 6"
        ):
            session.run({x: np.ones(4, np.float32)})
        assert session.get_tensor_data(v) == 0
    ir.num_host_transfers = 3
    with popsr.Session(ir) as session:
        session.run({x: np.array([1, 10, 100], np.float32)})
        assert session.get_tensor_data(v) == 222


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the same
def test_a_changed_program_is_refused() -> None:
    program = Program()
    with popsr.Session(program.ir) as session:
        with program.ir.main_graph:
            ops.relu(program.v)
        text = (
            r"^run: the program changed since the session was made, got \w+ at .*test_bad_programs\.py:\d+, "
        )
        with pytest.raises(Graph, match=text + "which is newer; make the session again"):
            session.run(program.good)
        assert_same_bits(session.get_tensor_data(program.v), np.arange(4, dtype=np.float32))


def test_tensors_of_another_ir() -> None:
    one, two = popsr.Ir(), popsr.Ir()
    with one.main_graph:
        x = popsr.constant(random_array(np.random.default_rng(0), (2,), "float32"))
    with two.main_graph:
        y = popsr.constant([1.0, 2.0])
        stream = popsr.h2d_stream((2,), F32)
        with pytest.raises(Graph, match=r"^add: rhs is of another graph, got 't'"):
            ops.add(y, x)
    with one.main_graph:
        with pytest.raises(Graph, match=r"^host_load: stream of another Ir"):
            ops.host_load(stream)
        with pytest.raises(Graph, match=r"^call: graph of another Ir"):
            ops.call(two.create_empty_graph())


def test_nothing_is_current() -> None:
    for call in (
        lambda: popsr.variable(1.0),
        lambda: popsr.h2d_stream((1,), F32),
        lambda: ops.init((1,), F32),
    ):
        with pytest.raises(errors.StateError, match="no graph is current"):
            call()


@pytest.mark.parametrize("cls", [popsr.Tensor, popsr.Variable, popsr.Graph])
def test_not_constructible(cls: Any) -> None:
    with pytest.raises(TypeError, match="cannot be constructed"):
        cls()
