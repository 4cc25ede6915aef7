"""The progress bar of a run, and stopping a run between two iterations."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.ops import var_updates
from tests_py.support.helpers import Streams, assert_same_bits, make_variable, run_python
from tests_py.support.unchecked import unchecked

pytest.importorskip("tqdm")

F32 = popsr.float32


class Bar:
    """Stands for tqdm: what it was told. ``stop_after`` updates it behaves as when Ctrl-C was pressed."""

    made: list[Bar]
    stop_after = 0

    def __init__(self, total: int, desc: str | None, unit: str) -> None:
        self.total, self.description, self.unit = total, desc, unit
        self.updates: list[int] = []
        self.closed = False
        self.made.append(self)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        self.closed = True

    def update(self, n: int) -> None:
        self.updates.append(n)
        if len(self.updates) == self.stop_after:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    monkeypatch.setattr(Bar, "made", [], raising=False)
    return Bar.made


# Programs


def count_up(w: popsr.TensorByRef) -> None:
    """A graph that adds one to its input."""
    var_updates.accumulate_(w, popsr.constant(1, F32))


def counted(times: int, **options: Any) -> tuple[popsr.Ir, popsr.Variable]:
    """A program that adds one to a variable so many times."""
    ir = popsr.Ir(**options)
    with ir.main_graph:
        w = popsr.variable(0, F32, "w")
        ops.repeat(ir.create_graph(count_up, w), times, w)
    return ir, w


def nested(w: popsr.Variable) -> None:
    ir = popsr.gir()

    def three_times(x: popsr.TensorByRef) -> None:
        ops.repeat(ir.create_graph(count_up, x), 3, x)

    ops.repeat(ir.create_graph(three_times, w), 5, w)


def in_a_call(w: popsr.Variable) -> None:
    ir = popsr.gir()

    def four_times(x: popsr.TensorByRef) -> None:
        ops.repeat(ir.create_graph(count_up, x), 4, x)

    graph = ir.create_graph(four_times, w)
    with popsr.in_sequence():
        ops.call(graph, w)
        ops.call(graph, w)


def one_after_the_other(w: popsr.Variable) -> None:
    with popsr.in_sequence():
        for times in (2, 0, 3):
            ops.repeat(popsr.gir().create_graph(count_up, w), times, w)


def beside_loads(w: popsr.Variable) -> None:
    """Five passes of a loop; that it loads twice in each is not counted."""
    stream = popsr.h2d_stream((), F32, "in")

    def add_two(x: popsr.TensorByRef) -> None:
        with popsr.in_sequence():
            for _ in range(2):
                var_updates.accumulate_(x, ops.host_load(stream))

    ops.repeat(popsr.gir().create_graph(add_two, w), 5, w)


def in_a_branch(w: popsr.Variable) -> None:
    ir = popsr.gir()

    def loop(x: popsr.TensorByRef) -> None:
        ops.repeat(ir.create_graph(count_up, x), 4, x)

    then_branch, else_branch = ir.create_graph(loop, w), ir.create_graph(count_up, w)
    ops.conditional(popsr.constant(True), then_branch, else_branch, [w], [w])


def three_loads(w: popsr.Variable) -> None:
    stream = popsr.h2d_stream((), F32, "in")
    other = popsr.h2d_stream((), F32, "other")
    with popsr.in_sequence():
        for _ in range(3):
            var_updates.accumulate_(w, ops.host_load(stream))
        var_updates.accumulate_(w, ops.host_load(other))


def straight(w: popsr.Variable) -> None:
    count_up(w)


def once(w: popsr.Variable) -> None:
    ops.repeat(popsr.gir().create_graph(count_up, w), 1, w)


# Program: the iterations that it reports; [] = no bar.
PROGRAMS: dict[str, tuple[Callable[[popsr.Variable], None], list[int]]] = {
    "passes of the outer loop": (nested, [1] * 5),
    "a loop that is called twice": (in_a_call, [1] * 8),
    "several loops": (one_after_the_other, [1] * 5),
    "a loop that loads": (beside_loads, [1] * 5),
    "a loop in a branch is none": (in_a_branch, []),
    "elements of the stream that moves most": (three_loads, [1] * 3),
    "no loop and no stream": (straight, []),
    "one pass": (once, []),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("check", [False, True])
def test_a_bar_moves_on_with_each_iteration(name: str, check: bool, bars: list[Bar]) -> None:
    build, expect = PROGRAMS[name]
    ir = popsr.Ir()
    ir.num_host_transfers = 10
    with ir.main_graph:
        build(popsr.variable(0, F32, "w"))
    with popsr.Session(ir, check=check) as session:
        inputs = {stream: np.zeros(10, np.float32) for stream in session.expected_inputs()}
        session.run(inputs, progress=True)
    assert [bar.updates for bar in bars] == ([expect] if expect else [])
    assert all(bar.total == sum(expect) and bar.closed for bar in bars)


def test_loads_that_are_merged_count_once_for_each_element(bars: list[Bar]) -> None:
    ir = popsr.Ir()
    ir.num_host_transfers = 3
    io = Streams()
    with ir.main_graph:
        streams = [popsr.h2d_stream((2,), F32, name) for name in "ab"]
        for x in [ops.host_load(stream) for _ in range(3) for stream in streams]:
            io.fetch(x)
    assert popsr.transforms.merge_exchange(ir=ir) > 0
    with popsr.Session(ir) as session:
        session.run(dict.fromkeys(streams, np.zeros((3, 2), np.float32)), progress=True)
    assert sum(bars[0].updates) == bars[0].total == 3


@pytest.mark.parametrize(
    ("progress", "description"), [(True, None), ("epoch 1", "epoch 1"), ("", ""), (False, False)]
)
def test_a_str_is_the_description(progress: bool | str, description: Any, bars: list[Bar]) -> None:
    ir, _ = counted(3)
    with popsr.Session(ir) as session:
        session.run(progress=progress)
        session.run_with_outputs(progress=progress)
    assert [bar.description for bar in bars] == ([] if description is False else [description] * 2)
    assert {bar.unit for bar in bars} <= {"iteration"}


def test_the_bar_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    ir, _ = counted(7)
    with popsr.Session(ir) as session:
        session.run(progress="training")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("training") >= 1
    assert "7/7" in err


def test_nothing_is_imported_or_printed_without_it() -> None:
    code = """
import io, sys
import popsr
from tests_py.session.test_progress import counted
for name in [name for name in sys.modules if name.partition(".")[0] == "tqdm"]:
    del sys.modules[name]
sys.stderr = io.StringIO()
ir, w = counted(5)
with popsr.Session(ir) as session:
    session.run()
print(repr(sys.stderr.getvalue()), [name for name in sys.modules if "tqdm" in name], session.get_tensor_data(w))
"""
    assert run_python(code) == "'' [] 5.0\n"


def rounded_training() -> tuple[popsr.Ir, popsr.Variable, Any]:
    """bf16 updates rounded stochastically, on two replicas with a mean."""
    ir = popsr.Ir(replication=2)
    ir.options.enable_stochastic_rounding = True
    ir.num_host_transfers = 6
    with ir.main_graph:
        stream = popsr.h2d_stream((3,), popsr.bfloat16, "x")
        w = make_variable(np.ones(3, popsr.bfloat16.as_ml_dtypes()), "w")

        def step(w: popsr.TensorByRef) -> None:
            ops.scaled_add_(w, ops.collectives.replicated_all_reduce(ops.host_load(stream), "mean"), b=0.01)

        ops.repeat(ir.create_graph(step, w), 6, w)
    return ir, w, stream


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_are_the_same_with_a_bar(threads: int, bars: list[Bar]) -> None:
    data = np.random.default_rng(0).standard_normal((6, 2, 3)).astype(popsr.bfloat16.as_ml_dtypes())
    results = []
    for progress in (False, True):
        ir, w, stream = rounded_training()
        with popsr.Session(ir, num_threads=threads) as session:
            for _ in range(2):
                session.run({stream: data}, progress=progress)
            results.append(session.get_tensor_data(w))
    assert len(bars) == 2
    assert_same_bits(results[1], results[0])


# Errors


@pytest.mark.parametrize("progress", [None, 1, 0, 1.5, b"epoch", print, ["epoch"]], ids=repr)
def test_other_values_are_refused_before_anything_runs(progress: Any) -> None:
    ir, w = counted(3)
    with popsr.Session(ir) as session:
        for call in (session.run, session.run_with_outputs):
            with pytest.raises(
                popsr.errors.ArgumentTypeError, match=r"^run: progress is not a bool or str, got "
            ):
                call(progress=progress)
        assert session.get_tensor_data(w) == 0
        session.run()


def test_a_missing_tqdm_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    ir, w = counted(3)
    with popsr.Session(ir) as session:
        with pytest.raises(popsr.errors.MissingPackageError) as caught:
            session.run(progress=True)
        assert str(caught.value) == (
            "run: the package tqdm is not installed, expected it from pip install popsr[progress]"
        )
        assert session.get_tensor_data(w) == 0
        session.run()
        assert session.get_tensor_data(w) == 3


def test_an_error_of_the_program_closes_the_bar(bars: list[Bar]) -> None:
    ir = popsr.Ir()
    ir.num_host_transfers = 4
    with ir.main_graph:
        stream, out = popsr.h2d_stream((1,), popsr.int32, "index"), popsr.d2h_stream((1,), F32, "out")
        table = popsr.variable(np.arange(3), F32, "table")

        def look_up(table: popsr.Tensor) -> None:
            ops.host_store(out, ops.gather(table, ops.host_load(stream)))

        ops.repeat(ir.create_graph(look_up, table), 4, table)
    with popsr.Session(ir) as session:
        with pytest.raises(popsr.errors.OutOfRangeError):
            session.run({stream: np.array([[0], [1], [9], [0]], np.int32)}, progress=True)
        assert bars[0].updates == [1, 1]
        assert bars[0].closed
        stored = session.run({stream: np.array([[0], [1], [2], [0]], np.int32)}, progress=True)[out]
    np.testing.assert_array_equal(stored, [[0], [1], [2], [0]])


# Stopping a run


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("check", [False, True])
def test_ctrl_c_stops_at_the_next_iteration(
    check: bool, bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bar, "stop_after", 3)
    ir, w = counted(10)
    with popsr.Session(ir, check=check) as session:
        with pytest.raises(KeyboardInterrupt) as stopped:
            session.run(progress=True)
        assert stopped.value.__notes__ == [
            "run: stopped after 3 of 10 iterations, the variables hold the last update that completed"
        ]
        assert bars[0].closed
        assert session.get_tensor_data(w) == 3
        assert session.step == 0
        session.run()
        assert session.get_tensor_data(w) == 13
        assert session.step == 1


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_that_leaves_the_session_keeps_the_host_copy(
    bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    ir, w = counted(10)
    session = popsr.Session(ir)
    with session:
        session.run()
    monkeypatch.setattr(Bar, "stop_after", 3)
    with pytest.raises(KeyboardInterrupt), session:
        session.run(progress=True)
    assert session.get_tensor_data(w) == 10
    with session:
        session.run()
    assert session.get_tensor_data(w) == 20


class Announces:
    """A standard error that sets an event when the program prints: then it runs."""

    def __init__(self) -> None:
        self.printed = threading.Event()

    def write(self, text: str) -> int:
        self.printed.set()
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_stops_a_run_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    times = 2 * 10**8  # more than any machine does before the signal comes
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(0, popsr.int64, "w")
        ops.print_tensor(w)

        def count(x: popsr.TensorByRef) -> None:
            var_updates.accumulate_(x, popsr.constant(1, popsr.int64))

        ops.repeat(ir.create_graph(count, w), times, w)
    announces = Announces()
    monkeypatch.setattr(sys, "stderr", announces)
    interrupter = threading.Thread(
        target=lambda: (announces.printed.wait(), unchecked(_thread).interrupt_main())
    )
    interrupter.start()
    with popsr.Session(ir) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run()
        interrupter.join()
        done = int(session.get_tensor_data(w))
    assert 0 <= done < times


def test_errors_of_print_tensor_end_the_run_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError("closed")

    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(popsr.variable(0, F32, "w"))
    with popsr.Session(ir) as session:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", Closed())
            with pytest.raises(BrokenPipeError) as stopped:
                session.run()
        assert stopped.value.__notes__ == ["run: stopped, the variables hold the last update that completed"]
        session.run()
