"""Loops that ask a condition, while they run: each replica goes on while its own condition holds."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, Streams
from tests_py.support.machines.branches import BF16, F32, MODES, Machine

# Loops that some replicas leave before others are the subject: they write, load and store there.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")

I32 = popsr.int32
TRIPS = np.array([3, 0, 5, 1], np.int32)


def countdown(n: popsr.Tensor) -> popsr.Tensor:
    return ops.greater(n, popsr.constant(0, I32))


def looping(m: Machine, body: Any, *values: popsr.Tensor, trips: Array = TRIPS, **options: Any) -> Any:
    """Runs a body as often as each replica's number says; the number is the first carried value."""
    n = m.feed(trips)

    def whole(n: popsr.Tensor, *rest: popsr.Tensor) -> Any:
        return n - 1, *body(*rest)

    return ops.while_loop(m.graph(countdown, n), m.graph(whole, n, *values), n, *values, **options)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_each_replica_has_a_trip_count_of_its_own(mode: dict[str, Any]) -> None:
    m = Machine()
    with m.ir.main_graph:
        left, x = looping(m, lambda x: (x * 2,), m.x)
        m.io.fetch(left)
        m.io.fetch(x)
    (left, x), _ = m.run(mode)
    np.testing.assert_array_equal(left, 0 * TRIPS)
    np.testing.assert_array_equal(x, np.arange(8).reshape(4, 2) * 2.0 ** TRIPS[:, None])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_writes_by_reference_happen_on_replicas_that_go_on(mode: dict[str, Any]) -> None:
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        n = m.feed(TRIPS)

        def body(n: popsr.Tensor, total: TensorByRef) -> popsr.Tensor:
            ops.add_(total, popsr.constant(np.ones(2), F32))
            return n - 1

        ops.while_loop(m.graph(countdown, n), m.graph(body, n, m.v), n, m.v)
    np.testing.assert_array_equal(m.run(mode)[1], np.repeat(TRIPS[:, None], 2, 1))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_carried_value_by_reference_leaves_the_last_one(mode: dict[str, Any]) -> None:
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        n = m.feed(TRIPS)

        def body(n: popsr.Tensor, total: TensorByRef) -> tuple[popsr.Tensor, popsr.Tensor]:
            return n - 1, total + 2

        ops.while_loop(m.graph(countdown, n), m.graph(body, n, m.v), n, m.v)
    np.testing.assert_array_equal(m.run(mode)[1], 2 * np.repeat(TRIPS[:, None], 2, 1))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_condition_that_reads_and_writes_memory(mode: dict[str, Any]) -> None:
    """The condition's own inputs: it counts how often it is asked, once more than there are iterations."""
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        n = m.feed(TRIPS)

        def cond(n: popsr.Tensor, asked: TensorByRef) -> popsr.Tensor:
            ops.add_(asked, popsr.constant(np.ones(2), F32))
            return countdown(n)

        asking = m.graph(cond, n, m.v)
        body = m.graph(lambda n: n - 1, n)
        m.io.fetch(ops.while_loop(asking, body, n, inputs_dict={asking.inputs[1]: m.v})[0])
    np.testing.assert_array_equal(m.run(mode)[1], 1 + np.repeat(TRIPS[:, None], 2, 1))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_swap_and_an_input_that_stays(mode: dict[str, Any]) -> None:
    m = Machine()
    with m.ir.main_graph:
        y = m.feed(np.full((4, 2), 100, np.float32))
        three = popsr.constant(np.full(2, 3), F32)

        def body(n: popsr.Tensor, a: popsr.Tensor, b: popsr.Tensor, step: popsr.Tensor) -> Any:
            return n - 1, b + step, a

        n = m.feed(TRIPS)
        made = ops.while_loop(m.graph(countdown, n), m.graph(body, n, m.x, y, three), n, m.x, y, three)
        for t in made[1:]:
            m.io.fetch(t)
    (a, b), _ = m.run(mode)
    for r, times in enumerate(TRIPS):
        one, other = np.arange(8, dtype=np.float32).reshape(4, 2)[r], np.full(2, 100, np.float32)
        for _ in range(times):
            one, other = other + 3, one
        np.testing.assert_array_equal(a[r], one)
        np.testing.assert_array_equal(b[r], other)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_loops_and_branches_inside_of_loops(mode: dict[str, Any]) -> None:
    """The Collatz steps of each replica's number, counted, and inside a loop that counts to the replica's index."""
    m = Machine()
    starts = np.array([1, 6, 7, 27], np.int32)
    with m.ir.main_graph:
        n = m.feed(starts)
        even = m.graph(lambda n: ops.div(n, popsr.constant(2, I32)), n)
        odd = m.graph(lambda n: n * 3 + 1, n)

        def body(n: popsr.Tensor, steps: popsr.Tensor) -> Any:
            is_odd = ops.equal(ops.bitwise_and(n, popsr.constant(1, I32)), popsr.constant(1, I32))
            return ops.conditional(is_odd, odd, even, [n], [n])[0], steps + 1

        cond = m.graph(lambda n: ops.greater(n, popsr.constant(1, I32)), n)
        inner = m.graph(body, n, n)

        def outer(left: popsr.Tensor, total: popsr.Tensor, n: popsr.Tensor) -> Any:
            steps = ops.while_loop(cond, inner, n, popsr.constant(0, I32))[1]
            return left - 1, total + steps

        left = m.feed(np.arange(4, dtype=np.int32))
        total = m.feed(np.zeros(4, np.int32))
        made = ops.while_loop(m.graph(countdown, left), m.graph(outer, left, total, n), left, total, n)
        m.io.fetch(made[1])
    (steps,), _ = m.run(mode)
    np.testing.assert_array_equal(steps, np.arange(4) * np.array([0, 8, 16, 111]))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_loop_in_a_branch_runs_where_it_is_taken(mode: dict[str, Any]) -> None:
    m = Machine()
    with m.ir.main_graph:
        n = m.feed(TRIPS)

        def then_branch(n: popsr.Tensor, x: popsr.Tensor) -> popsr.Tensor:
            body = m.graph(lambda n, x: (n - 1, x * 2), n, x)
            return ops.while_loop(m.graph(countdown, n), body, n, x)[1]

        graphs = m.graph(then_branch, n, m.x), m.graph(lambda x: ops.negate(x), m.x)
        m.io.fetch(ops.conditional(m.taken, *graphs, [n, m.x], [m.x])[0])
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    taken = np.array([True, False, False, True])[:, None]
    np.testing.assert_array_equal(m.run(mode)[0][0], np.where(taken, x * 2.0 ** TRIPS[:, None], -x))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_streams_move_on_where_the_loop_goes_on(mode: dict[str, Any]) -> None:
    """A run needs data of one iteration: later ones begin again at its end."""
    m = Machine(transfers=3)
    with m.ir.main_graph, popsr.in_sequence():
        numbers = np.arange(12, dtype=np.int32).reshape(3, 4)
        stream = popsr.h2d_stream((), I32, "numbers")
        m.io.inputs[stream] = numbers

        def body(n: popsr.Tensor, total: popsr.Tensor) -> Any:
            return n - 1, total * 100 + ops.host_load(stream)

        n, total = m.feed(TRIPS), m.feed(np.zeros(4, np.int32))
        made = ops.while_loop(m.graph(countdown, n), m.graph(body, n, total), n, total)
        out = popsr.variable(np.zeros(()), I32, "out", retrieval_mode="all_replicas")
        var_updates.copy_var_update_(out, made[1])
    with popsr.Session(m.ir, **mode) as session:
        m.io.run(session)
        got = session.get_tensor_data(out)
    expected = []
    for r, times in enumerate(TRIPS):
        made_of = 0
        for i in range(times):
            made_of = made_of * 100 + int(numbers[i % 3, r])
        expected.append(np.int64(made_of).astype(np.int32))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_collectives_need_all_members_or_none(mode: dict[str, Any]) -> None:
    def program(trips: list[int]) -> Machine:
        m = Machine()
        with m.ir.main_graph:

            def body(x: popsr.Tensor) -> tuple[popsr.Tensor]:
                return (collectives.replicated_all_reduce(x, "add", m.pairs),)

            m.io.fetch(looping(m, body, m.x, trips=np.array(trips, np.int32))[1])
        return m

    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    (made,), _ = program([2, 2, 1, 1]).run(mode)
    sums = x.sum(1)
    np.testing.assert_array_equal(made, np.stack([sums[0] * 2, sums[0] * 2, sums[1], sums[1]]))
    m = program([1, 1, 2, 1])
    with (
        popsr.Session(m.ir, **mode) as session,
        pytest.raises(
            errors.ReplicaError,
            match=r"^replicated_all_reduce: .* got \{2\} of group \{2,3\} .* condition 'countdown_subgraph\(\d\)/",
        ),
    ):
        m.io.run(session)


def test_a_loop_that_does_not_end_is_an_error_after_max_iterations() -> None:
    for most, ends in ((5, True), (4, False)):
        m = Machine()
        with m.ir.main_graph:
            m.io.fetch(looping(m, lambda: (), max_iterations=most)[0])
        with popsr.Session(m.ir) as session:
            if ends:
                m.io.run(session)
                continue
            with pytest.raises(
                errors.OutOfRangeError,
                match=r"^while_loop: the condition still holds on replica 2 at .*test_running\.py:\d+, got 4 "
                r"iterations, expected an end within max_iterations=4",
            ):
                m.io.run(session)


def test_a_loop_that_does_not_end_is_stopped() -> None:
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph:
        x = popsr.constant(np.ones(2), F32)
        always = ir.create_graph(lambda x: popsr.constant(True), x)
        io.fetch(ops.while_loop(always, ir.create_graph(lambda x: ops.negate(x), x), x)[0])
    with popsr.Session(ir) as session:
        timer = threading.Timer(0.2, session.stop)
        timer.start()
        with pytest.raises(errors.StoppedError):
            io.run(session)
        timer.join()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_each_iteration_draws_noise_of_its_own(mode: dict[str, Any]) -> None:
    """Of the same value again and again, whatever other replicas do."""

    def run(trips: list[int]) -> Array:
        m = Machine()
        m.ir.options.enable_stochastic_rounding = True
        with m.ir.main_graph:
            x = m.feed(np.tile(np.linspace(1, 2, 512, dtype=np.float32), (4, 1)))
            n = m.feed(np.array(trips, np.int32))
            body = m.graph(lambda n, _, x: (n - 1, ops.cast(x, BF16)), n, ops.init((512,), BF16), x)
            made = ops.while_loop(m.graph(countdown, n), body, n, ops.init((512,), BF16), x)
            m.io.fetch(made[1])
        return m.run({"seed": 3, **mode})[0][0].view(np.uint16)

    after = [run([trips] * 4) for trips in (1, 2, 3)]
    for one, other in ((0, 1), (1, 2)):
        assert np.all(np.mean(after[one] != after[other], axis=1) > 0.2)
    mixed = run([3, 1, 3, 2])
    for r, trips in enumerate([3, 1, 3, 2]):
        np.testing.assert_array_equal(mixed[r], after[trips - 1][r])
