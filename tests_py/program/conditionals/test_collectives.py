"""Collectives in branches: all members of a group take part or none, and a replica that is alone needs nobody."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array
from tests_py.support.machines.branches import BOOL, F32, MODES, TAKEN, Machine, negate

# Collectives in branches that replicas take each for itself, as L1 says, are the subject.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")


def _reduce(grouping: str) -> Callable[[Machine], Callable[..., Any]]:
    def make(m: Machine) -> Callable[..., Any]:
        def body(x: popsr.Tensor) -> popsr.Tensor:
            return collectives.replicated_all_reduce(x, "add", getattr(m, grouping, None))

        return body

    return make


def _gather(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: ops.slice(collectives.replicated_all_gather(x, 0, m.pairs), 0, 2))


def _scatter(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: ops.add(x, ops.sum(collectives.replicated_reduce_scatter(x, "add", m.pairs))))


def _broadcast(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: collectives.replicated_broadcast(x, 1, m.pairs))


def _exchange(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: collectives.replicated_all_to_all(x, 0, m.pairs))


def _scan(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: collectives.replicated_scan(x, "add", m.pairs))


def _permute(m: Machine) -> Callable[..., Any]:
    """Replicas 1 and 2 swap, the others keep out of it: still everybody is needed."""
    return graph_of(lambda x: collectives.replicated_permute(x, [(1, 2), (2, 1)]))


def _paired(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: collectives.replicated_all_reduce_identical_grad_inputs(x, "add", m.pairs))


def _inner(m: Machine) -> Callable[..., Any]:
    """The outer condition is the same for all: the inner one is to blame."""

    def body(x: popsr.Tensor) -> popsr.Tensor:
        always = popsr.constant(True, BOOL)
        reduce = m.graph(_reduce("all")(m), x)
        inner = m.graph(
            graph_of(lambda x, c: ops.conditional(c, reduce, m.graph(negate, x), [x], [x])[0]), x, always
        )
        return ops.call(inner, x, always)[0]

    return body


def graph_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    def body(*xs: popsr.Tensor) -> Any:
        return fn(*xs)

    return body


PARTED: dict[str, tuple[Any, str]] = {
    "all": (_reduce("all"), r"replicated_all_reduce: .* got \{0,3\} of group \{0,1,2,3\}"),
    "pairs": (_reduce("pairs"), r"replicated_all_reduce: .* got \{0\} of group \{0,1\}"),
    "gather": (_gather, r"replicated_all_gather: .* got \{0\} of group \{0,1\}"),
    "scatter": (_scatter, r"replicated_reduce_scatter: .* got \{0\} of group \{0,1\}"),
    "broadcast": (_broadcast, r"replicated_broadcast: .* got \{0\} of group \{0,1\}"),
    "all-to-all": (_exchange, r"replicated_all_to_all: .* got \{0\} of group \{0,1\}"),
    "scan": (_scan, r"replicated_scan: .* got \{0\} of group \{0,1\}"),
    "permute": (_permute, r"replicated_permute: .* got \{0,3\} of group \{0,1,2,3\}"),
    "paired": (_paired, r"replicated_all_reduce_identical_grad_inputs: .* got \{0\} of group \{0,1\}"),
    "nested": (_inner, r"replicated_all_reduce: .* got \{0,3\} of group \{0,1,2,3\}"),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("case", PARTED)
def test_members_of_a_group_must_agree(case: str, mode: dict[str, Any]) -> None:
    make, match = PARTED[case]
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        var_updates.accumulate_(m.v, m.x)
        graphs = m.graph(make(m), m.x), m.graph(negate, m.x)
        (y,) = ops.conditional(m.taken, *graphs, [m.x], [m.x])
        line = m.ir.main_graph.ops[-1].location
        m.io.fetch(y)
    where = rf"at .*{__file__.rsplit('/', 1)[-1]}:\d+"
    text = rf"^{match} {where} because of condition '.*_load' {where}, expected all or none$"
    session = popsr.Session(m.ir, weights_to_host_on_exit=False, **mode)
    with session:
        with pytest.raises(errors.ReplicaError) as caught:
            m.io.run(session)
        assert re.search(text, str(caught.value))
        (note,) = caught.value.__notes__
        assert note.startswith(f"while running {match.partition(':')[0]}(")
        assert f"at {line}, expected all or none" in str(caught.value)
        # The next run is not harmed when nobody, or everybody, takes the branch.
        (stream, *_) = m.io.inputs
        for everybody in (True, False):
            m.io.inputs[stream] = np.full(4, everybody)
            assert m.io.run(session)[0].shape == (4, 2)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(
    ("taken", "grouping"),
    [([1, 1, 0, 0], "pairs"), ([0, 1, 0, 1], "strided"), ([1, 0, 1, 0], "strided"), ([0, 0, 0, 0], "all")],
)
def test_whole_groups_exchange(taken: list[int], grouping: str, mode: dict[str, Any]) -> None:
    """Streams of a replica each are not proved equal: what counts is what the condition is when it is evaluated."""
    m = Machine(np.array(taken, bool))
    members = {"pairs": [[0, 1], [2, 3]], "strided": [[0, 2], [1, 3]], "all": [[0, 1, 2, 3]]}[grouping]
    with m.ir.main_graph, popsr.in_sequence():

        def body(total: TensorByRef, x: popsr.Tensor) -> popsr.Tensor:
            ops.add_(total, x)
            collectives.replicated_all_reduce_(total, "add", getattr(m, grouping, None))
            return collectives.replicated_all_reduce(x, "max", getattr(m, grouping, None))

        graphs = m.graph(body, m.v, m.x), m.graph(negate, m.x)
        m.io.fetch(ops.conditional(m.taken, *graphs, [m.v, m.x], [m.x])[0])
    (made,), after = m.run(mode)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    for group in members:
        for r in group:
            np.testing.assert_array_equal(made[r], x[group].max(0) if taken[r] else -x[r])
            np.testing.assert_array_equal(after[r], x[group].sum(0) if taken[r] else 0 * x[r])


def _slice(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: ops.add(x, collectives.replicated_slice(x, 0, m.pairs)))


def _shard(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: ops.add(x, ops.sum(collectives.replica_sharded_slice(x, m.pairs))))


def _index(m: Machine) -> Callable[..., Any]:
    return graph_of(lambda x: ops.add(x, ops.cast(ops.replica_index(m.pairs), F32)))


OWN = {
    "slice": (_slice, np.array([0, 3, 4, 7])),  # element r of its own two
    "shard": (_shard, np.array([0, 3, 4, 7])),
    "index": (_index, np.array([0, 1, 0, 1])),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("case", OWN)
def test_a_replica_takes_its_own_part_alone(case: str, mode: dict[str, Any]) -> None:
    make, part = OWN[case]
    m = Machine()
    with m.ir.main_graph:
        graphs = m.graph(make(m), m.x), m.graph(negate, m.x)
        m.io.fetch(ops.conditional(m.taken, *graphs, [m.x], [m.x])[0])
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(m.run(mode)[0][0], np.where(TAKEN[:, None], x + part[:, None], -x))


# Merged ones


def _program(taken: Array) -> tuple[Machine, popsr.Graph]:
    """Two reductions and two stores to remote memory in a branch."""
    m = Machine(taken)
    with m.ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((2,), F32, 2)

        def body(total: TensorByRef, x: popsr.Tensor) -> popsr.Tensor:
            collectives.replicated_all_reduce_(total, "add", m.pairs)
            y = collectives.replicated_all_reduce(x, "add", m.pairs)
            ops.remote_store(buffer, 0, x)
            ops.remote_store(buffer, 1, y)
            return y

        var_updates.accumulate_(m.v, m.x)
        branch = m.graph(body, m.v, m.x)
        m.io.fetch(ops.conditional(m.taken, branch, m.graph(negate, m.x), [m.v, m.x], [m.x])[0])
        for entry in range(2):
            m.io.fetch(ops.remote_load(buffer, entry))
    return m, branch


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("taken", [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], ids=str)
def test_merged_ops_run_on_replicas_that_take_the_branch(taken: list[int], mode: dict[str, Any]) -> None:
    plain, _ = _program(np.array(taken, bool))
    merged, branch = _program(np.array(taken, bool))
    assert transforms.merge_collectives(merged.ir) == 1
    transforms.merge_exchange(ir=merged.ir)
    assert [op.kind for op in branch.ops] == ["multi_replicated_all_reduce", "multi_exchange"]
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    sums = np.repeat(x.reshape(2, 2, 2).sum(1), 2, axis=0)
    holds = np.array(taken, bool)[:, None]
    for m in (plain, merged):
        (made, *entries), after = m.run(mode)
        np.testing.assert_array_equal(made, np.where(holds, sums, -x))
        np.testing.assert_array_equal(after, np.where(holds, sums, x))
        for got, expect in zip(entries, (x, sums), strict=True):
            np.testing.assert_array_equal(got, np.where(holds, expect, 0))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_each_part_of_a_merged_op_needs_its_group(mode: dict[str, Any]) -> None:
    """Nothing of it is done when the members of one part's group disagree."""
    m, _ = _program(TAKEN)
    assert transforms.merge_collectives(m.ir) == 1
    with popsr.Session(m.ir, weights_to_host_on_exit=False, **mode) as session:
        with pytest.raises(
            errors.ReplicaError, match=r"^replicated_all_reduce_: .* got \{0\} of group \{0,1\}"
        ):
            m.io.run(session)
        np.testing.assert_array_equal(
            session.get_tensor_data(m.v),
            np.arange(8).reshape(4, 2),  # added before, not reduced
        )
