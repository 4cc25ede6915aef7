"""Corners of PopXL's behaviour when programs run: host data, sessions, threads, gradients, printing."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.transforms import autodiff
from popsr.utils import to_numpy
from tests_py.support.unchecked import unchecked

F32, BF16 = popsr.float32, popsr.bfloat16
Argument, DType, Graph = errors.ArgumentTypeError, errors.DTypeError, errors.GraphError
Shape, Session = errors.ShapeError, errors.SessionError


def _variable(data: Any = (1.0, 2.0, 3.0), name: str = "x", dtype: Any = F32) -> popsr.Variable:
    return popsr.variable(np.asarray(data), dtype, name)


# Host data


@pytest.mark.parametrize("kind", ["f4", "i4", "f2", "u8", "i2"])
def test_foreign_byte_order(kind: str) -> None:
    data = np.arange(3, dtype=f">{kind}")
    assert to_numpy(data, downcast=False).dtype.isnative
    assert to_numpy(data).tolist() == [0, 1, 2]
    with popsr.Ir().main_graph as graph:
        v = popsr.variable(data, downcast=False)
        ops.abs(ops.cast(v, F32))
    session = popsr.Session(graph.ir)
    assert session.get_tensor_data(v).tolist() == [0, 1, 2]
    session.write_variable_data(v, data[::-1])
    assert session.get_tensor_data(v).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (np.zeros(2, [("a", "f4")]), "f4"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        (2**70, "object"),
        (1j, "complex128"),
        (None, "object"),
    ],
)
@pytest.mark.parametrize("dtype", [None, F32])
def test_no_numbers(x: Any, kind: str, dtype: Any) -> None:
    with pytest.raises(
        DType, match=rf"^to_numpy: data of no supported dtype, got .*{kind}.*expected one of bool"
    ):
        to_numpy(x, dtype)


def _echo(shape: tuple[int, ...], dtype: Any, replicas: int, transfers: int, loads: int) -> Any:
    ir = popsr.Ir(replicas)
    ir.num_host_transfers = transfers
    with ir.main_graph, popsr.in_sequence():
        x, y = popsr.h2d_stream(shape, dtype, "x"), popsr.d2h_stream(shape, dtype, "y")
        for _ in range(loads):
            ops.host_store(y, ops.host_load(x))
    return popsr.Session(ir), x, y


BF = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "data", "expect"),
    [
        # one element may have any rank
        ((), F32, (1, 1, 1), [2.0], 2),
        ((1,), F32, (1, 1, 1), 2.0, [2]),
        ((1, 1), F32, (1, 1, 1), [2.0], [[2]]),
        ((), F32, (2, 1, 1), [[1], [2]], [1, 2]),
        ((1,), F32, (2, 1, 1), [1, 2], [[1], [2]]),
        ((1,), F32, (2, 2, 2), [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]]),
        ((1,), F32, (1, 2, 2), [1, 2, 3], [[1], [2]]),
        ((1,), F32, (1, 2, 2), [1], Shape),
        ((), F32, (2, 1, 1), 1, Shape),
        ((2,), F32, (1, 1, 1), 2.0, Shape),
        ((2,), F32, (1, 1, 1), [[1, 2]], Shape),
        ((2,), F32, (1, 1, 1), [[1, 2], [3, 4]], Shape),  # without that dimension there are no further rows
        # positions wrap exactly at the end, else they overrun
        ((), F32, (1, 2, 4), [1, 2], [1, 2]),
        ((), F32, (1, 2, 3), [1, 2], Shape),
        ((), F32, (1, 2, 1), [1, 2], [1, 0]),
        ((), F32, (1, 1, 3), 7, 7),
        # dtypes
        ((2,), popsr.int32, (1, 1, 1), np.array([1, 2]), [1, 2]),
        ((2,), popsr.int32, (1, 1, 1), [1.5, 2], DType),
        ((2,), popsr.int32, (1, 1, 1), [True, False], DType),
        ((2,), popsr.bool, (1, 1, 1), [1, 0], DType),
        ((2,), popsr.int8, (1, 1, 1), np.array([1, 2]), DType),
        ((2,), popsr.int8, (1, 1, 1), [1, 2], [1, 2]),
        ((2,), popsr.int64, (1, 1, 1), [2**40, 2], [2**40, 2]),
        ((2,), popsr.float64, (1, 1, 1), np.array([0.1, 2]), [0.1, 2]),
        ((2,), BF16, (1, 1, 1), [1.5, 2], [1.5, 2]),
        ((2,), BF16, (1, 1, 1), np.array([1.5, 2], BF), [1.5, 2]),
        ((2,), BF16, (1, 1, 1), np.array([1.5, 2], np.float32), DType),
        ((2,), F32, (1, 1, 1), np.array([1.5, 2], ">f4"), [1.5, 2]),
        ((2,), F32, (1, 1, 1), "ab", DType),
        ((2,), F32, (1, 1, 1), [[1], [1, 2]], Shape),
    ],
)
def test_data_of_streams(shape: Any, dtype: Any, layout: Any, data: Any, expect: Any) -> None:
    session, x, y = _echo(shape, dtype, *layout)
    with session:
        if isinstance(expect, type):
            with pytest.raises(expect, match=r"^run: .*stream '[xy]'"):
                session.run({x: data})
        else:
            out = session.run({x: data})[y]
            assert out.dtype == dtype.as_numpy()
            assert out.tolist() == expect


@pytest.mark.parametrize("inputs", [[1], 3, "x"])
def test_inputs_are_a_mapping(inputs: Any) -> None:
    session, x, y = _echo((2,), F32, 1, 1, 1)
    with session:
        with pytest.raises(Argument, match="run: inputs is not a mapping"):
            session.run(inputs)
        with pytest.raises(Argument, match="run_with_outputs: outputs is not a mapping"):
            session.run_with_outputs({x: [1.0, 2.0]}, inputs)
        assert session.run({x: [1.0, 2.0]})[y].tolist() == [1, 2]


def test_host_types_that_were_narrowed_are_named() -> None:
    session, x, _ = _echo((2,), popsr.int32, 1, 1, 1)
    with session:
        with pytest.raises(DType, match=r"stream 'x', got float64, expected int32"):
            session.run({x: np.ones(2)})
        with pytest.raises(DType, match=r"stream 'x', got int64, expected int32"):
            session.run({x: np.arange(2)}, downcast_inputs=False)


def test_outputs_in_arrays_of_any_layout() -> None:
    session, x, y = _echo((2, 3), F32, 1, 1, 1)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for base, view in (
        (np.zeros((3, 2), np.float32), lambda a: a.T),
        (np.zeros((4, 6), np.float32), lambda a: a[1::2, ::-2]),
        (np.zeros(7, np.float32), lambda a: a[1:].reshape(2, 3)),
    ):
        with session:
            session.run_with_outputs({x: data}, {y: view(base)})
        assert view(base).tolist() == data.tolist()
        assert np.count_nonzero(base) == 5  # nothing else is written


# Sessions


class Counter:
    """``v += 1`` in each run, beside variables that nothing touches."""

    def __init__(self, **options: Any) -> None:
        self.ir = popsr.Ir()
        with self.ir.main_graph, popsr.in_sequence():
            self.v, self.w = _variable([0.0], "v"), _variable(5, "w", popsr.int8)
            self.c = popsr.constant(7.0, name="c")
            ops.add_(self.v, popsr.constant(1.0))
            self.out = popsr.d2h_stream((1,), F32, "out")
            ops.host_store(self.out, self.v)
        self.session = popsr.Session(self.ir, **options)

    def value(self) -> float:
        return float(self.session.get_tensor_data(self.v)[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda p, s: s.run(),
        lambda p, s: s.run_with_outputs({}, {}),  # before it looks at the streams
        lambda p, s: s.weights_to_host(),
        lambda p, s: s.weights_from_host(),
        lambda p, s: s.__exit__(None, None, None),
    ],
)
def test_calls_that_a_detached_session_refuses(call: Callable[..., Any]) -> None:
    program = Counter()
    with program.session:
        pass
    with pytest.raises(Session, match="the session is detached, expected a call inside `with session:`"):
        call(program, program.session)
    with program.session as session:
        assert session.run()[program.out].tolist() == [1]


def test_errors_inside_with_attach_again() -> None:
    program = Counter()
    with program.session:
        program.session.run()
    with contextlib.suppress(KeyError), program.session, program.session:
        program.session.run()
        raise KeyError
    assert not program.session.is_attached
    assert program.value() == 1  # an exception keeps the host's copy
    with program.session:
        assert program.value() == 1
        program.session.run()
    assert program.value() == 2


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda p, s: s.get_tensor_data(3), Argument, "no variable or constant, got 3"),
        (lambda p, s: s.get_tensor_data(p.out), Argument, "no variable or constant, got DeviceToHost"),
        (lambda p, s: s.get_tensors_data(3), Argument, "tensors are not a sequence, got 3"),
        (lambda p, s: s.get_tensors_data(p.v), Argument, "tensors are not a sequence"),
        (lambda p, s: s.write_variables_data([p.v]), Argument, "tensors is not a mapping"),
        (lambda p, s: s.write_variable_data(p.v, "a"), DType, "write_variable_data 'v': data of no"),
        (lambda p, s: s.write_variable_data(p.v, p.w), Argument, "'v': a tensor of a program has no data"),
        (lambda p, s: s.write_variable_data(p.v, np.ones(1)), DType, "'v', got float64, expected float32"),
        (lambda p, s: s.write_variable_data(p.v, 1.0), Shape, r"'v', got \(\), expected \(1,\)"),
        (lambda p, s: s.write_variables_data({p.v: [9], p.w: [1]}), Shape, "'w', got"),
    ],
)
@pytest.mark.parametrize("attached", [False, True])
def test_refused_data(call: Callable[..., Any], error: type[Exception], match: str, attached: bool) -> None:
    program = Counter()
    with program.session as session:
        session.run()
        if attached:
            with pytest.raises(error, match=match):
                call(program, session)
    if not attached:
        with pytest.raises(error, match=match):
            call(program, session)
    data = session.get_tensors_data(unchecked(iter([program.v, program.w, program.c])))
    assert [float(value) for value in (data[program.v][0], data[program.w], data[program.c])] == [1, 5, 7]


def test_variables_made_after_the_session() -> None:
    program = Counter()
    with program.ir.main_graph:
        late = _variable(1.0, "late")
    session = program.session
    for call in (lambda: session.get_tensor_data(late), lambda: session.write_variable_data(late, 2.0)):
        with pytest.raises(Session, match=r"variable is newer than the session, got Variable\[late"):
            call()
    with session:  # still shows its own
        assert program.value() == 0
        with pytest.raises(Graph, match=r"^run: the program changed since the session was made, got "):
            session.run()


def test_threads_share_a_session() -> None:
    program = Counter(num_threads=2)
    failures: list[BaseException] = []
    seen: list[float] = []

    def work() -> None:
        try:
            for _ in range(50):
                seen.append(float(program.session.run()[program.out][0]))
                program.session.get_tensors_data([program.v, program.w])
                program.session.write_variable_data(program.w, 5)
        except BaseException as error:
            failures.append(error)

    with program.session:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert sorted(seen) == list(range(1, 201))  # every run was one whole step
        assert program.value() == 200


def test_sessions_in_threads() -> None:
    programs = [Counter(num_threads=2) for _ in range(2)]

    def work(program: Counter) -> None:
        with program.session:
            for _ in range(50):
                program.session.run()

    threads = [threading.Thread(target=work, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [program.value() for program in programs] == [50, 50]


def _big(size: int = 512) -> tuple[popsr.Session, Any]:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(np.full((size, size), 0.5, np.float32), name="x")
        out = popsr.d2h_stream((size, size), F32)
        ops.host_store(out, ops.gelu(x @ x))
    return popsr.Session(ir, num_threads=2), out


def _run_in_child(session: popsr.Session, out: Any, queue: Any) -> None:
    with session:
        queue.put(float(session.run()[out].sum()))
    session, out = _big()
    with session:
        queue.put(float(session.run()[out].sum()))


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where another test started it
def test_fork_after_a_run() -> None:
    session, out = _big()
    with session:
        expect = float(session.run()[out].sum())  # starts threads
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_run_in_child, args=(session, out, queue))
    child.start()
    try:
        assert [queue.get(timeout=30) for _ in range(2)] == [expect] * 2
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()
    with session:
        assert float(session.run()[out].sum()) == expect


def test_reprs_for_notebooks() -> None:
    program = Counter()
    assert repr(program.session) == f"Session[{program.ir!r} detached step=0]"
    assert repr(program.out) == "DeviceToHostStream[out popsr.dtypes.float32 (1,)]"
    assert str(program.out) == "out: float32[1] from device to host"
    assert "add_" in str(program.ir.main_graph)
    assert "add_" in str(program.ir)
    assert repr(program.ir.options).startswith("Options(enable_stochastic_rounding=False")


def test_long_programs_build_fast() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        x = _variable(np.ones((4, 4)))
        y: popsr.Tensor = x
        for _ in range(1000):
            y = ops.relu(y + x)
    assert len(ir.main_graph.ops) == 2000
    session = popsr.Session(ir)
    with session:
        session.run()


# Autodiff


def _layer(a: popsr.Tensor, b: popsr.Tensor) -> list[popsr.Tensor]:
    h = ops.tanh(a * b)
    return [ops.sum(h * h), h]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda g, x: autodiff(g, g.outputs[0]), Argument, "grads_provided is not a sequence of tensors"),
        (lambda g, x: autodiff(g, None, g.inputs[0]), Argument, "grads_required is not a sequence"),
        (
            lambda g, x: unchecked(autodiff)(g, None, 3),
            Argument,
            "grads_required is not a sequence of tensors, got 3",
        ),
        (lambda g, x: autodiff(g, None, [unchecked(3)]), Argument, "grads_required holds no Tensor, got 3"),
        (lambda g, x: autodiff(g, None, [x]), Graph, "grads_required holds a tensor of another graph"),
        (lambda g, x: autodiff(g, None, []), Graph, "no gradients are required"),
        (lambda g, x: autodiff(g, []), Graph, "unable to provide required gradient of '.*/a'"),
        (
            lambda g, x: unchecked(autodiff)(g, None, None, 3),
            Argument,
            "called_graphs_grad_info is not a mapping",
        ),
        (lambda g, x: autodiff(g, None, None, unchecked({g: 3})), Argument, "has no GradGraphInfo of graph"),
        (lambda g, x: autodiff(g, None, None, {x.ir.main_graph: autodiff(g)}), Argument, "no GradGraphInfo"),
        (lambda g, x: autodiff(g).inputs_dict(unchecked(3)), Argument, "inputs_dict: no call of graph"),
    ],
)
def test_refused_differentiation(call: Callable[..., Any], error: type[Exception], match: str) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = _variable()
        graph = ir.create_graph(_layer, x, x)
        with pytest.raises(error, match=match) as caught:
            call(graph, x)
        assert isinstance(caught.value, popsr.Error)


def _gradient(fn: Callable[..., Any], seeds: list[Any]) -> list[float]:
    """Gradient of ``fn`` at [1, 1] for the given gradients of its outputs."""
    ir = popsr.Ir()
    with ir.main_graph:
        x = _variable([1.0, 1.0])
        graph = ir.create_graph(fn, x)
        info = autodiff(graph)
        call = ops.call_with_info(graph, x)
        grads = ops.call_with_info(info.graph, *seeds, inputs_dict=info.inputs_dict(call))
        gradient = info.fwd_parent_ins_to_grad_parent_outs(call, grads)[x]
        out = popsr.d2h_stream((2,), F32)
        ops.host_store(out, gradient)
    with popsr.Session(ir) as session:
        values: list[float] = session.run()[out].tolist()
        return values


def _uses_one_result_twice(a: popsr.Tensor) -> popsr.Tensor:
    def inner(t: popsr.Tensor) -> tuple[popsr.Tensor, popsr.Tensor]:
        u = t * 3.0
        return u, u

    p, q = ops.call(popsr.gir().create_graph(inner, a), a)
    return p * 2.0 + q * 5.0


@pytest.mark.parametrize(
    ("fn", "seeds", "expect"),
    [
        (lambda a: (a * 3.0, a), [[[1.0, 1.0]], [[10.0, 10.0]]], [13, 13]),  # an input as output
        (lambda a: a, [[[4.0, 5.0]]], [4, 5]),
        (_uses_one_result_twice, [[[1.0, 1.0]]], [21, 21]),  # a graph with one tensor as two outputs
    ],
)
def test_gradients_of_unusual_graphs(fn: Callable[..., Any], seeds: list[Any], expect: list[float]) -> None:
    assert _gradient(fn, seeds) == expect


# Printing


@pytest.mark.parametrize("call", ["run", "weights_to_host", "weights_from_host"])
def test_no_calls_from_inside_a_run(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        v = _variable([1.0])
        ops.add_(v, popsr.constant(1.0))
        ops.print_tensor(v)

    class Writer:
        def write(self, text: str) -> None:
            getattr(session, call)()

    with popsr.Session(ir) as session:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", Writer())
            with pytest.raises(Session, match=f"^{call}: the session is running"):
                session.run()
        assert session.get_tensor_data(v) == 2
