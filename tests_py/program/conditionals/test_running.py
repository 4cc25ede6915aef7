"""Programs with branches while they run: on which replicas things happen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops
from popsr.analysis import analyze
from popsr.ops import collectives
from tests_py.support.helpers import Array, Streams, make_variable
from tests_py.support.machines.branches import (
    BF16,
    BOOL,
    F32,
    MODES,
    ONE,
    TAKEN,
    Machine,
    add_ref,
    add_value,
    negate,
)
from tests_py.support.unchecked import unchecked

# Branches that some replicas take alone are the subject: they write, load and store there.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")

# Ops and their devices

BY_REF: dict[str, tuple[Any, Any, Any]] = {
    # then branch, else branch, rows of v afterwards for x = 1
    "then": (add_ref, None, TAKEN),
    "else": (None, add_ref, ~TAKEN),
    "both": (add_ref, add_ref, np.ones(4)),
    "by value": (add_value, add_value, np.zeros(4)),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("case", BY_REF)
def test_writes_happen_on_replicas_that_take_the_branch(case: str, mode: dict[str, Any]) -> None:
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        one = popsr.constant(ONE)
        fns = BY_REF[case][:2]
        graphs = [m.graph(fn, m.v, one) if fn else m.nothing() for fn in fns]
        ops.conditional(m.taken, *unchecked(graphs), *([m.v, one] if fn else None for fn in fns))
    np.testing.assert_array_equal(m.run(mode)[1], np.outer(BY_REF[case][2], ONE))


@pytest.mark.parametrize("modified", [False, True])
def test_set_parent_input_modified(modified: bool) -> None:
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        one = popsr.constant(ONE)
        graphs = [m.graph(add_value, m.v, one) for _ in range(2)]
        info = unchecked(ops.conditional_with_info)(m.taken, *unchecked(graphs), [m.v, one], [m.v, one])
        if modified:
            info.set_parent_input_modified(m.v)
        with pytest.raises(errors.GraphError, match="a constant would be modified"):
            info.set_parent_input_modified(one)
    np.testing.assert_array_equal(m.run({})[1], np.full((4, 2), float(modified)))


def test_a_value_that_is_also_passed_by_reference_is_kept() -> None:
    def body(total: TensorByRef, before: popsr.Tensor) -> popsr.Tensor:
        ops.add_(total, popsr.constant(ONE))
        return ops.add(before, before)

    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        (y,) = ops.conditional(m.taken, m.graph(body, m.v, m.v), m.graph(negate, m.v), [m.v, m.v], [m.v])
        m.io.fetch(y)
    for mode in MODES:
        (made,), after = m.run(mode)
        assert not made.any()  # twice zero: the value from before
        np.testing.assert_array_equal(after, np.outer(TAKEN, ONE))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_positions_of_streams_are_each_replicas_own(mode: dict[str, Any]) -> None:
    """Replicas that take the branch in a loop read and store one element an iteration; the others stand still."""
    m = Machine(transfers=4)
    with m.ir.main_graph, popsr.in_sequence():
        own = popsr.h2d_stream((), F32, "own")
        shared = popsr.h2d_stream((), F32, "shared", replicated_stream_mode="broadcast")
        out = popsr.d2h_stream((), F32, "out")

        def branch() -> None:
            ops.host_store(out, ops.add(ops.host_load(own), ops.host_load(shared)))

        def body(taken: popsr.Tensor) -> None:
            ops.conditional(taken, m.graph(branch), m.nothing())

        ops.repeat(m.graph(body, m.taken), 3, m.taken)
        last = [ops.host_load(own), ops.host_load(shared)]
        ops.host_store(out, last[1])
        for tensor in last:
            m.io.fetch(tensor)
    m.io.inputs[own] = 10 * np.arange(16, dtype=np.float32).reshape(4, 4)
    m.io.inputs[shared] = np.arange(4, dtype=np.float32)
    m.io.outputs.append(out)
    at = np.where(TAKEN, 3, 0)
    (own_last, shared_last, stored), _ = m.run(mode)
    np.testing.assert_array_equal(own_last[0], m.io.inputs[own][at, range(4)])
    np.testing.assert_array_equal(shared_last[0], at)
    expect = np.zeros((4, 4))  # what nobody stores stays what it was: zeros
    expect[:3, TAKEN] = (m.io.inputs[own] + np.arange(4)[:, None])[:3, TAKEN]
    expect[at, range(4)] = at
    np.testing.assert_array_equal(stored, expect)
    assert not analyze(m.ir).is_equal(last[1])


def test_a_stream_has_data_for_the_longer_branch() -> None:
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((), F32, "own")

        def load(times: int) -> popsr.Graph:
            def body() -> None:
                for _ in range(times):
                    ops.host_load(stream)

            return m.graph(body)

        ops.conditional(m.taken, load(2), load(3))
        ops.host_load(stream)
    for transfers, match in ((3, "moves on 4 times in a run, got data for 3"), (4, None)):
        m.ir.num_host_transfers = transfers
        io = {s: np.zeros((transfers, 4, *s.shape), s.dtype.as_numpy()) for s in (stream, *m.io.inputs)}
        with popsr.Session(m.ir) as session:
            if match is None:
                session.run(io)
                continue
            with pytest.raises(errors.ShapeError, match=match):
                session.run(io)


def test_arrays_keep_what_is_not_stored() -> None:
    m = Machine()
    with m.ir.main_graph:
        out = popsr.d2h_stream((2,), F32)

        def store(x: popsr.Tensor) -> None:
            ops.host_store(out, x)

        ops.conditional(m.taken, m.graph(store, m.x), m.nothing(), [m.x])
    array = np.full((4, 2), 9, np.float32)
    with popsr.Session(m.ir) as session:
        session.run_with_outputs(m.io.inputs, {out: array})
    np.testing.assert_array_equal(array, np.where(TAKEN[:, None], np.arange(8).reshape(4, 2), 9))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_prints_are_of_replicas_that_take_the_branch(mode: dict[str, Any], capfd: Any) -> None:
    def show(x: popsr.Tensor) -> None:
        ops.print_tensor(x, "shown")

    m = Machine()
    with m.ir.main_graph:
        ops.conditional(m.taken, m.graph(show, m.v), m.nothing(), [m.v])
    m.run(mode)
    zeros = "[0.0000000 0.0000000]"
    assert capfd.readouterr().err == "".join(f"shown_replica_{r}: {zeros}\n\n" for r in (0, 3))


def test_only_blocks_that_take_the_branch_are_computed() -> None:
    """16 replicas in 4 groups: the condition holds for 3 groups, values of a branch have a block a group."""
    ir, io = popsr.Ir(replication=16), Streams()
    groups = ir.replica_grouping(4, 4)
    holds = np.array([True, False, True, True])
    with ir.main_graph, popsr.in_sequence():
        taken = make_variable(holds, replica_grouping=groups)
        x = make_variable(np.zeros((4, 3), np.float32), replica_grouping=groups)
        own = io.feed(np.arange(48, dtype=np.float32).reshape(16, 3), replicated=True)
        out = popsr.d2h_stream((3,), F32)

        def then_branch(x: popsr.Tensor, own: popsr.Tensor) -> popsr.Tensor:
            ops.tanh(own)
            ops.host_store(out, x)
            return ops.exp(collectives.replicated_all_reduce(x, "add", groups))

        def else_branch(x: popsr.Tensor) -> popsr.Tensor:
            return ops.gelu(x)

        (y,) = ops.conditional(
            taken, ir.create_graph(then_branch, x, own), ir.create_graph(else_branch, x), [x, own], [x]
        )
        io.fetch(y)
    for options, blocks in (({}, (3, 1, 3)), ({"dedup": False}, (12, 4, 12))):
        with popsr.Session(ir, **unchecked(options)) as session:
            for runs in (1, 2):
                io.run(session)
                stats = session.stats
                done = [stats["blocks"][op] for op in ("exp", "gelu", "replicated_all_reduce")]
                assert done == [runs * n for n in blocks]
                assert stats["blocks"]["tanh"] == runs * 12
                # Outside of branches a store counts as one block where values are shared.
                assert stats["blocks"]["host_store"] == runs * (12 + 16 if options else 3 + 1)
                assert stats["kernel_calls"]["exp"] == stats["kernel_calls"]["gelu"] == runs
            session.write_variable_data(taken, np.zeros(4, bool))
            io.run(session)
            assert session.stats["kernel_calls"]["exp"] == 2  # nobody: the branch is not run at all
            assert session.stats["kernel_calls"]["gelu"] == 3


def test_folded_products_in_branches() -> None:
    """A product that only an all-reduce reads, within groups that take the branch as a whole."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4, 3, 3)).astype(np.float32)
    m = Machine(np.array([True, True, False, False]))
    with m.ir.main_graph, popsr.in_sequence():
        x, y = m.feed(a), m.feed(b)
        together = collectives.replicated_all_reduce(ops.cast(m.taken, F32), "max", m.pairs)
        taken = ops.cast(together, BOOL)

        def then_branch(x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
            return collectives.replicated_all_reduce(ops.matmul(x, y), "mean", m.pairs)

        def else_branch(x: popsr.Tensor) -> popsr.Tensor:
            return ops.negate(x)

        made = ops.conditional(taken, m.graph(then_branch, x, y), m.graph(else_branch, x), [x, y], [x])
        m.io.fetch(made[0])
    with popsr.Session(m.ir) as session:
        m.io.run(session)  # whose rows differ
        assert "matmul+replicated_all_reduce" in session.plan
    expected = m.run({"check": True})[0][0]  # stores every product
    np.testing.assert_allclose(expected[0], (a[0] @ b[0] + a[1] @ b[1]) / 2, rtol=1e-5)
    np.testing.assert_array_equal(expected[2:], -a[2:])
    for mode in MODES:
        np.testing.assert_array_equal(m.run(mode)[0][0], expected)


def test_both_branches_draw_noise_of_their_own() -> None:
    """Noise depends on the branch, not on who else takes it nor on how values are stored."""

    def half(x: popsr.Tensor) -> popsr.Tensor:
        return ops.cast(x, BF16)

    def run(taken: Array, mode: dict[str, Any]) -> Array:
        m = Machine(taken)
        m.ir.options.enable_stochastic_rounding = True
        with m.ir.main_graph:
            x = m.feed(np.tile(np.linspace(1, 2, 512, dtype=np.float32), (4, 1)))
            graphs = [m.graph(half, x) for _ in range(2)]
            m.io.fetch(unchecked(ops.conditional)(m.taken, *unchecked(graphs), [x], [x])[0])
        return m.run({"seed": 3, **mode})[0][0].view(np.uint16)

    mixed, everyone, nobody = (run(taken, {}) for taken in (TAKEN, TAKEN | True, TAKEN & False))
    np.testing.assert_array_equal(mixed, np.where(TAKEN[:, None], everyone, nobody))
    assert np.all(np.mean(everyone != nobody, axis=1) > 0.2)
    for mode in MODES:
        np.testing.assert_array_equal(run(TAKEN, mode), mixed)
