"""``Session.stop`` and Ctrl-C end a run between two of its instructions, wherever it is."""

from __future__ import annotations

import operator
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops, transforms
from popsr.errors import SessionError, StoppedError
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import run_python

F32, I64 = popsr.float32, popsr.int64
LONG = 10**12  # passes of a loop that no test waits for


class Calls:
    """A standard error that calls a function the n-th time that the program prints."""

    def __init__(self, n: int, function: Callable[[], object]) -> None:
        self.left, self.function = n, function

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left == 0:
            self.function()
        return len(text)

    def flush(self) -> None:
        pass


# Position of a run
#
# Each program counts in `before`, prints, counts in `after`: stopped while it prints for the n-th time it has done the
# first n times and the second n - 1 times, whatever lies around them.


def count(before: popsr.TensorByRef, after: popsr.TensorByRef) -> None:
    with popsr.in_sequence():
        var_updates.accumulate_(before, popsr.constant(1, I64, downcast=False))
        ops.print_tensor(before)
        var_updates.accumulate_(after, popsr.constant(1, I64, downcast=False))


Variables = tuple[popsr.Variable, popsr.Variable]


def repeated(graph: popsr.Graph, times: int) -> Callable[[Any, Any], None]:
    def body(before: popsr.TensorByRef, after: popsr.TensorByRef) -> None:
        ops.repeat(graph, times, before, after)

    return body


def loop(v: Variables) -> None:
    ops.repeat(popsr.gir().create_graph(count, *v), LONG, *v)


def nested_loops(v: Variables) -> None:
    ir = popsr.gir()
    inner = ir.create_graph(repeated(ir.create_graph(count, *v), 3), *v)
    ops.repeat(ir.create_graph(repeated(inner, 10**6), *v), LONG, *v)


def one_outer_pass(v: Variables) -> None:
    ir = popsr.gir()
    ops.repeat(ir.create_graph(repeated(ir.create_graph(count, *v), LONG), *v), 1, *v)


def calls(v: Variables) -> None:
    ir = popsr.gir()
    inner = ir.create_graph(count, *v)

    def twice(before: popsr.TensorByRef, after: popsr.TensorByRef) -> None:
        with popsr.in_sequence():
            ops.call(inner, before, after)
            ops.call(inner, before, after)

    ops.repeat(ir.create_graph(twice, *v), LONG, *v)


def conditional(v: Variables) -> None:
    ir = popsr.gir()
    looped = ir.create_graph(repeated(ir.create_graph(count, *v), LONG), *v)
    other = ir.create_graph(lambda before, after: None, *v)
    ops.conditional(popsr.constant(True), looped, other, [*v], [*v])


def straight(v: Variables) -> None:
    for _ in range(50):
        count(*v)


PLACES = {each.__name__: each for each in (loop, nested_loops, one_outer_pass, calls, conditional, straight)}


def program(place: str, **options: Any) -> tuple[popsr.Ir, Variables]:
    ir = popsr.Ir(**options)
    with ir.main_graph, popsr.in_sequence():
        v = tuple(popsr.variable(0, I64, name, downcast=False) for name in ("before", "after"))
        PLACES[place]((v[0], v[1]))
    return ir, (v[0], v[1])


def counts(session: popsr.Session, v: Variables) -> tuple[int, int]:
    data = session.get_tensors_data(v)
    return int(data[v[0]]), int(data[v[1]])


@pytest.mark.parametrize("check", [False, True, 0.5])
@pytest.mark.parametrize("place", PLACES)
def test_stop_ends_a_run_before_the_next_instruction(
    place: str, check: bool | float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ir, v = program(place)
    with popsr.Session(ir, check=check) as session:
        for n in (1, 17):
            session.write_variables_data(dict.fromkeys(v, 0))
            monkeypatch.setattr(sys, "stderr", Calls(n, session.stop))
            with pytest.raises(
                StoppedError, match=r"^run: stopped (after \d+ of \d+ iterations )?by Session.stop"
            ):
                session.run()
            assert counts(session, v) == (n, n - 1)
        assert session.step == 0


def test_stop_works_on_all_replicas_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    ir, v = program("nested_loops", replication=3)
    with popsr.Session(ir, dedup=False) as session:
        monkeypatch.setattr(sys, "stderr", Calls(3 * 5, session.stop))  # one text for each replica
        with pytest.raises(StoppedError):
            session.run()
        before, after = counts(session, v)
    assert before == after + 1


@pytest.mark.parametrize("printed_first", [True, False])
def test_a_merged_op_is_done_or_not(printed_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        vs = [popsr.variable(np.ones(3, np.float32), F32, f"v{i}") for i in range(4)]
        if printed_first:
            ops.print_tensor(vs[0])
        for v in vs:
            collectives.replicated_all_reduce_(v, "add")
        if not printed_first:
            ops.print_tensor(vs[0])
        for v in vs:
            var_updates.accumulate_(v, popsr.constant(np.ones(3, np.float32)))
    assert transforms.merge_collectives(ir) == 3
    with popsr.Session(ir) as session:
        monkeypatch.setattr(sys, "stderr", Calls(1, session.stop))
        with pytest.raises(StoppedError):
            session.run()
        values = {float(each) for v in vs for each in session.get_tensor_data(v)}
    assert values == {1.0 if printed_first else 2.0}


# The state afterwards


def test_session_goes_on_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights written again the next run has the bits that it has in a new session, rounding included."""
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    ir.num_host_transfers = 8
    with ir.main_graph, popsr.in_sequence():
        stream, out = popsr.h2d_stream((4,), F32), popsr.d2h_stream((4,), popsr.bfloat16)
        w = popsr.variable(np.ones(4), popsr.bfloat16, "w")

        def step(w: popsr.TensorByRef) -> None:
            with popsr.in_sequence():
                x = ops.cast(ops.host_load(stream), popsr.bfloat16)
                ops.print_tensor(w)
                ops.scaled_add_(w, x, b=0.01)
                ops.host_store(out, w)

        ops.repeat(ir.create_graph(step, w), 8, w)
    data = {stream: np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)}
    monkeypatch.setattr(sys, "stderr", Calls(0, lambda: None))
    with popsr.Session(ir) as session:
        expect = session.run(data)[out]
        weights = session.get_tensor_data(w)
    with popsr.Session(ir) as session:
        monkeypatch.setattr(sys, "stderr", Calls(5, session.stop))
        with pytest.raises(StoppedError, match="run: stopped after 4 of 8 iterations by "):
            session.run(data)
        assert session.step == 0
        session.write_variable_data(w, np.ones(4, popsr.bfloat16.as_numpy()))
        assert session.run(data)[out].tobytes() == expect.tobytes()
        assert session.get_tensor_data(w).tobytes() == weights.tobytes()


def test_stop_while_inputs_are_converted_is_not_lost() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(np.zeros(2, np.float32))
        stream = popsr.h2d_stream((2,), popsr.float32)
        ops.add_(v, ops.host_load(stream))

    class Stopping:
        """An array that takes so long to make that somebody stops the run meanwhile."""

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            session.stop()
            return np.ones(2, np.float32)

    with popsr.Session(ir) as session:
        with pytest.raises(StoppedError, match=r"run: stopped by Session.stop\(\) before its first op"):
            session.run({stream: Stopping()})
        assert session.get_tensor_data(v).tolist() == [0, 0]
        session.run({stream: np.ones(2, np.float32)})
        assert session.get_tensor_data(v).tolist() == [1, 1]


MOMENTS = {  # what comes between the call of `run` and its first op, by the attribute of a session that has it
    "empty_outputs": "_runner",
    "keep": "_mirror.copies",
    "_news": "_runner",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stop_from_the_call_of_run_on_is_not_lost(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run has rows that differ, and so another plan than the first."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        v = popsr.variable(np.zeros(2, np.float32))
        ops.add_(v, collectives.replicated_all_reduce(ops.host_load(stream := popsr.h2d_stream((2,), F32))))
    same, other = np.ones((2, 2), np.float32), np.array([[1, 1], [2, 2]], np.float32)
    stopped: list[str] = []
    with popsr.Session(ir) as session:
        session.run({stream: same})
        assert session.get_tensor_data(v).tolist() == [2, 2]  # which the next run keeps for the host
        owner = operator.attrgetter(MOMENTS[moment])(session)
        call = getattr(owner, moment)

        def stop_and_call(*args: Any) -> Any:
            stopped.append(moment)
            session.stop()
            return call(*args)

        with monkeypatch.context() as patch:
            patch.setattr(owner, moment, stop_and_call)
            with pytest.raises(StoppedError, match=r"^run: stopped .*by Session\.stop"):
                session.run({stream: other})
        assert stopped == [moment]
        assert session.get_tensor_data(v).tolist() == [2, 2]
        assert session.step == 1
        session.run({stream: other})
        assert session.get_tensor_data(v).tolist() == [5, 5]


def test_a_stop_while_outputs_are_looked_up_is_not_lost() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.host_store(out := popsr.d2h_stream((2,), F32), popsr.constant(np.ones(2, np.float32)))

    class Stopping(Mapping[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            if not looked_up:
                session.stop()
            looked_up.append(key)
            return data

        def __iter__(self) -> Iterator[Any]:
            return iter([out])

        def __len__(self) -> int:
            return 1

    data = np.zeros(2, np.float32)
    looked_up: list[Any] = []
    with popsr.Session(ir) as session:
        with pytest.raises(StoppedError, match=r"run: stopped by Session.stop\(\) before its first op"):
            session.run_with_outputs({}, Stopping())
        assert data.tolist() == [0, 0]


def test_a_run_that_fails_before_its_first_op_leaves_the_session_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when memory runs out while the host's copies are kept: the session was said to be running for good."""
    ir, v = program("straight")
    monkeypatch.setattr(sys, "stderr", Calls(0, lambda: None))

    def fail() -> None:
        raise MemoryError("no room")

    with popsr.Session(ir) as session:
        with monkeypatch.context() as patch:
            patch.setattr(session._mirror.copies, "keep", fail)
            patch.setattr(session._mirror.copies, "kept", False)
            with pytest.raises(MemoryError, match="no room"):
                session.run()
        session.run()
        assert counts(session, v) == (50, 50)


def test_stop_without_a_run_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ir, v = program("straight")
    monkeypatch.setattr(sys, "stderr", Calls(0, lambda: None))
    session = popsr.Session(ir)
    session.stop()
    with session:
        session.stop()
        session.run()
        session.stop()
        session.run()
        assert counts(session, v) == (100, 100)


def test_stop_is_for_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    ir, v = program("straight")
    with popsr.Session(ir) as session, popsr.Session(ir) as other:
        monkeypatch.setattr(sys, "stderr", Calls(7, other.stop))
        session.run()
        assert counts(session, v) == (50, 50)


def test_stop_at_the_last_instruction_comes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(popsr.constant(0))
    with popsr.Session(ir) as session:
        monkeypatch.setattr(sys, "stderr", Calls(1, session.stop))
        session.run()
        assert session.step == 1


def test_error_is_an_error_of_popsr_and_a_runtime_error() -> None:
    assert issubclass(StoppedError, popsr.Error)
    assert issubclass(StoppedError, RuntimeError)


def test_callbacks_change_nothing_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """``step`` and leaving the session wait for the end of the run, as reads and writes do."""
    ir, v = program("straight")
    refused: list[str] = []

    def meddle() -> None:
        for call in (
            lambda: setattr(session, "step", 7),
            lambda: session.__exit__(None, None, None),
            session.run,
            session.weights_to_host,
            session.weights_from_host,
            lambda: session.get_tensor_data(v[0]),
            lambda: session.write_variable_data(v[0], np.int64(7)),
        ):
            with pytest.raises(
                SessionError, match="the session is running, expected a call after the run"
            ) as error:
                call()
            refused.append(str(error.value).partition(":")[0])
        with session:  # inside: neither uploads nor downloads
            pass

    with popsr.Session(ir) as session:
        monkeypatch.setattr(sys, "stderr", Calls(3, meddle))
        session.run()
        assert counts(session, v) == (50, 50)
        assert session.step == 1
    assert refused == [
        "step",
        "exit",
        "run",
        "weights_to_host",
        "weights_from_host",
        "get_tensor_data",
        "write_variable_data",
    ]


# From outside


def endless(**options: Any) -> tuple[popsr.Ir, popsr.Variable]:
    """A program that prints once and then counts for ever, in a nested loop."""
    ir = popsr.Ir(**options)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(0, I64, "w", downcast=False)
        ops.print_tensor(w)

        def add(x: popsr.TensorByRef) -> None:
            var_updates.accumulate_(x, popsr.constant(1, I64, downcast=False))

        def inner(x: popsr.TensorByRef) -> None:
            ops.repeat(ir.create_graph(add, x), LONG, x)

        ops.repeat(ir.create_graph(inner, w), LONG, w)
    return ir, w


class Outsider:
    """Runs a program, and in another thread, as soon as that prints, ``act``."""

    def __init__(self, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        self.act, self.started = act, threading.Event()
        monkeypatch.setattr(sys, "stderr", Calls(1, self.started.set))

    def _wait_and_act(self) -> None:
        self.started.wait()
        time.sleep(0.005)  # the run is past what prints
        self.act()

    def run(self, session: popsr.Session, error: type[BaseException]) -> BaseException:
        thread = threading.Thread(target=self._wait_and_act)
        thread.start()
        with pytest.raises(error) as stopped:
            session.run()
        thread.join()
        return stopped.value


@pytest.mark.parametrize("options", [{}, {"check": True}, {"check": 0.01}, {"num_threads": 2}], ids=str)
def test_other_threads_stop_a_run_that_would_never_end(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ir, _ = endless(replication=2)
    with popsr.Session(ir, **options) as session:
        Outsider(session.stop, monkeypatch).run(session, StoppedError)


def test_one_long_pass_stops_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without loops: all that is left to do after the first op takes seconds."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros((300, 300), np.float32), F32, "w")
        ops.print_tensor(popsr.constant(0))
        for _ in range(3000):
            var_updates.copy_var_update_(w, w @ w)
    with popsr.Session(ir) as session:
        Outsider(session.stop, monkeypatch).run(session, StoppedError)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("options", [{}, {"check": True}], ids=str)
def test_ctrl_c_stops_a_nested_loop(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ir, _ = endless()
    with popsr.Session(ir, **options) as session:
        Outsider(lambda: os.kill(os.getpid(), signal.SIGINT), monkeypatch).run(session, KeyboardInterrupt)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_between_instructions_leaves_whole_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight counters, each an instruction of its own: the first ones may be one ahead, none is torn."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        vs = [popsr.variable(np.zeros(500, np.int64), I64, f"v{i}", downcast=False) for i in range(8)]
        ops.print_tensor(popsr.constant(0))

        def add(*vs: Any) -> None:
            with popsr.in_sequence():
                for v in vs:
                    var_updates.accumulate_(v, popsr.constant(np.ones(500, np.int64), I64, downcast=False))

        graph = ir.create_empty_graph("add")
        with graph, popsr.in_sequence():
            add(*[popsr.graph_input((500,), I64, f"x{i}", by_ref=True) for i in range(8)])
        ops.repeat(graph, LONG, *vs)
    with popsr.Session(ir) as session:
        outsider = Outsider(lambda: os.kill(os.getpid(), signal.SIGINT), monkeypatch)
        error = outsider.run(session, KeyboardInterrupt)
        (note,) = error.__notes__
        data = [session.get_tensor_data(v) for v in vs]
    done = [int(each[0]) for each in data]
    assert all((each == each[0]).all() for each in data)
    assert done == sorted(done, reverse=True)
    assert done[0] - done[-1] in (0, 1)
    passes = int(note.split()[3])
    assert note == (
        f"run: stopped after {passes} of {LONG} iterations, the variables hold the last update that completed"
    )
    assert done[-1] == passes


def test_handlers_of_signals_may_stop_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ir, _ = endless()
    with popsr.Session(ir) as session:
        before = signal.signal(signal.SIGUSR1, lambda *_: session.stop())
        try:
            outsider = Outsider(lambda: os.kill(os.getpid(), signal.SIGUSR1), monkeypatch)
            outsider.run(session, StoppedError)
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_errors_of_a_signal_handler_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class TooLate(Exception):
        pass

    def give_up(*_: object) -> None:
        raise TooLate

    ir, _ = endless()
    before = signal.signal(signal.SIGUSR1, give_up)
    try:
        with popsr.Session(ir) as session:
            outsider = Outsider(lambda: os.kill(os.getpid(), signal.SIGUSR1), monkeypatch)
            error = outsider.run(session, TooLate)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert error.__notes__ == [
        f"run: stopped after 0 of {LONG} iterations, the variables hold the last update that completed"
    ]


def test_stop_closes_the_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")

    class Bar:
        closed = False

        def __init__(self, **_: object) -> None:
            self.left = 3

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *exc: object) -> None:
            Bar.closed = True

        def update(self, n: int) -> None:
            self.left -= n
            if self.left == 0:
                session.stop()

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    monkeypatch.setattr(sys, "stderr", Calls(0, lambda: None))
    ir, v = program("loop")
    with popsr.Session(ir) as session:
        with pytest.raises(StoppedError, match=f"^run: stopped after 3 of {LONG} iterations by Session.stop"):
            session.run(progress=True)
        assert Bar.closed
        assert counts(session, v) == (3, 3)


def test_run_in_another_thread_is_stopped_and_leaves_signals_to_the_main_thread() -> None:
    """A run that is not on the main thread does not take the GIL for signals, and sees ``stop`` all the same."""
    out = run_python(
        """if True:
        import threading, time
        import numpy as np
        import popsr
        from popsr import ops
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(4, np.float32), name="w")
            def body(x: popsr.TensorByRef):
                ops.var_updates.accumulate_(x, x)
            ops.repeat(ir.create_graph(body, w), 10**12, w)
        def run():
            with popsr.Session(ir) as session:
                sessions.append(session)
                try:
                    session.run()
                except popsr.errors.StoppedError as error:
                    print(type(error).__name__)
        sessions = []
        thread = threading.Thread(target=run)
        thread.start()
        while not sessions or not sessions[0]._state.running:
            time.sleep(0.001)
        time.sleep(0.05)
        sessions[0].stop()
        thread.join()
        """
    )
    assert out == "StoppedError\n"
