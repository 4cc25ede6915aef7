"""The facts of the analysis: exact where the rules are exact, for ops, collectives, control flow and variables."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops
from popsr.analysis import analyze
from popsr.ops import collectives, var_updates
from popsr.replicas import Partition
from tests_py.analysis.test_soundness import random_grouping
from tests_py.ops.rows.inputs import call_arguments
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import PUBLIC, SCHEMAS, as_list, dtype, groupings, make_variable, python_op

F32 = popsr.float32
TOP, PAIRS, STRIDED, BOTTOM = "{0,1,2,3}", "{0,1}{2,3}", "{0,2}{1,3}", "{0}{1}{2}{3}"


def kernel(keys: list[Hashable]) -> Partition:
    """Replicas of equal key."""
    order: dict[Hashable, int] = {}
    return Partition.from_labels([order.setdefault(key, len(order)) for key in keys])


class Four:
    """Four replicas and a tensor of each shape of partition, of 8 elements."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=4)
        self.pairs, self.strided = self.ir.replica_grouping(1, 2), self.ir.replica_grouping(2, 2)
        with self.ir.main_graph:
            self.top = make_variable(np.zeros(8, np.float32), "top")
            self.by_pairs = self.variable(self.pairs)
            self.by_strided = self.variable(self.strided)
            self.own = ops.host_load(popsr.h2d_stream((8,), F32))
            self.shared = ops.host_load(popsr.h2d_stream((8,), F32, replicated_stream_mode="broadcast"))

    def variable(self, grouping: popsr.ReplicaGrouping) -> popsr.Variable:
        shape = (grouping.num_groups, 8) if grouping.num_groups > 1 else (8,)
        rows = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)  # equal ones would be stored once
        return make_variable(rows, replica_grouping=grouping)

    def fact(self, tensor: popsr.Tensor) -> str:
        return str(analyze(self.ir).partition(tensor))


# Partitions


def test_lattice() -> None:
    a, b = kernel([0, 0, 1, 1, 2, 2]), kernel([0, 1, 1, 1, 2, 3])
    assert a.blocks == ((0, 1), (2, 3), (4, 5))
    assert (a.num_blocks, a.num_replicas, a.labels) == (3, 6, (0, 0, 1, 1, 2, 2))
    assert str(a & b) == "{0}{1}{2,3}{4}{5}"
    assert str(a | b) == "{0,1,2,3}{4,5}"
    assert (a & b).refines(a)
    assert not a.refines(a & b)
    assert a == kernel([5, 5, 3, 3, 9, 9])
    assert hash(a) == hash(kernel([5, 5, 3, 3, 9, 9]))
    assert a != b
    assert repr(a) == f"Partition('{a}')"
    assert a.meet(b) == a & b
    assert a.join(b) == a | b


GROUPINGS = [
    (8, (), "00000000", "01234567"),
    (8, (2,), "01010101", "00112233"),
    (8, (4,), "01230123", "00001111"),
    (8, (8,), "01234567", "00000000"),
    (8, (2, 2), "01012323", "00110011"),
    (12, (2, 3), "010101232323", "001122001122"),
    (12, (3, 2), "012012345345", "000111000111"),
]


@pytest.mark.parametrize(("n", "args", "assignment", "transposed"), GROUPINGS)
def test_groupings(n: int, args: tuple[int, ...], assignment: str, transposed: str) -> None:
    grouping = popsr.Ir(replication=n).replica_grouping(*args)
    assert "".join(map(str, grouping.assignment)) == assignment
    assert "".join(map(str, grouping.transpose().assignment)) == transposed
    assert grouping.is_const
    assert grouping.num_groups * grouping.group_size == n


def test_groupings_from_assignments() -> None:
    ir = popsr.Ir(replication=8)
    assert ir.replica_grouping_from_assignments([0, 1, 0, 1, 2, 3, 2, 3]) == ir.replica_grouping(2, 2)
    assert ir.replica_grouping_from_assignments(range(8)).group_size == 1
    odd = ir.replica_grouping_from_assignments([0, 0, 1, 1, 1, 1, 0, 0])
    assert not odd.is_const
    assert (odd.group_size, odd.num_groups) == (4, 2)
    assert list(odd.transpose().assignment) == [0, 1, 0, 1, 2, 3, 2, 3]
    with pytest.raises(NotImplementedError, match="no constant stride"):
        _ = odd.stride


# Ops


def test_roots() -> None:
    four = Four()
    with four.ir.main_graph:
        undefined, zero = ops.init((8,), F32, init_type="undef"), ops.init((8,), F32)
        constant = popsr.constant([1.0])
    facts = {
        t: four.fact(t) for t in (four.top, four.by_pairs, four.own, four.shared, undefined, zero, constant)
    }
    assert list(facts.values()) == [TOP, PAIRS, BOTTOM, TOP, BOTTOM, TOP, TOP]


# An exchange has a rule of its own; a print only looks like one.
LOCAL = [op for op in PUBLIC if not SCHEMAS[op]["collective"] or op == "print_tensor"]


@pytest.mark.parametrize("op", LOCAL)
def test_local_ops_keep_exactly_what_their_inputs_share(op: str) -> None:
    schema = SCHEMAS[op]
    rng = np.random.default_rng(5)
    for n in (2, 4, 6, 12):
        ir = popsr.Ir(replication=n)
        case = OPS[op].cases[0]
        with ir.main_graph, popsr.in_sequence():
            tensors, expected = [], kernel([0] * n)
            for i, array in enumerate(case.draw(rng, case.dtypes[0])):
                grouping = random_grouping(ir, rng)
                shape = (grouping.num_groups, *array.shape) if grouping.num_groups > 1 else array.shape
                tensors.append(make_variable(np.zeros(shape, array.dtype), replica_grouping=grouping))
                # An operand that is overwritten unread does not count.
                entry = schema["inputs"][min(i, len(schema["inputs"]) - 1)]
                if entry["influences"]:
                    expected &= kernel(list(grouping.assignment))
            attrs, fn = call_arguments(case), python_op(op)
            results = as_list(case.call(fn, *tensors, **attrs) if case.call else fn(*tensors, **attrs))
        facts = analyze(ir)
        for result in results:
            # In-place ops run again on what they wrote, which never splits a variable here.
            assert facts.partition(result) == expected, (op, n)


def _members(grouping: popsr.ReplicaGrouping) -> list[list[int]]:
    return [[r for r, g in enumerate(grouping.assignment) if g == k] for k in range(grouping.num_groups)]


@pytest.mark.parametrize("n", [1, 2, 4, 6, 8, 12])
def test_collectives_by_an_independent_model(n: int) -> None:
    """The key of a replica: the classes of its group's members in order; a scatter adds its place in the group."""
    rng = np.random.default_rng(n)
    ir = popsr.Ir(replication=n)
    checks: list[tuple[Any, Any]] = []
    with ir.main_graph:
        for _ in range(8):
            source = random_grouping(ir, rng)
            shape = (source.num_groups, 24) if source.num_groups > 1 else (24,)
            x = make_variable(np.zeros(shape, np.float32), replica_grouping=source)
            for group in groupings(ir):
                members = {r: m for m in _members(group) for r in m}
                classes = [tuple(source.assignment[s] for s in members[r]) for r in range(n)]
                index = [members[r].index(r) for r in range(n)]
                scattered = list(zip(classes, index, strict=True))
                scanned = [tuple(c[: i + 1]) for c, i in scattered]
                own = list(zip(source.assignment, index, strict=True))
                root = int(rng.integers(group.group_size))
                permuted = [int(to) if rng.random() < 0.7 else None for to in rng.permutation(n)]
                arrived = [(source.assignment[permuted.index(r)],) if r in permuted else () for r in range(n)]
                checks += [
                    (collectives.replicated_all_reduce(x, "add", group), classes),
                    (collectives.replicated_all_gather(x, 0, group), classes),
                    (collectives.replicated_reduce_scatter(x, "max", group), scattered),
                    (collectives.replicated_all_to_all(x, 0, group), scattered),
                    (collectives.replicated_scan(x, "max", group), scanned),
                    (collectives.replicated_slice(x, 0, group), own),
                    (collectives.replica_sharded_slice(x, group), own),
                    (collectives.replicated_broadcast(x, root, group), [each[root] for each in classes]),
                    (collectives.replicated_permute(x, permuted), arrived),
                    (ops.replica_index(group), index),
                    (ops.replica_index(group, what="group"), list(group.assignment)),
                ]
    facts = analyze(ir)
    for tensor, keys in checks:
        assert facts.partition(tensor) == kernel(keys), tensor


def test_hierarchies_of_collectives() -> None:
    four = Four()
    with four.ir.main_graph:
        reduced = collectives.replicated_all_reduce(four.own, "add", four.pairs)
        all_reduced = collectives.replicated_all_reduce(reduced, "add", four.strided)
        scattered = collectives.replicated_reduce_scatter(four.own, "add", four.pairs)
        across = collectives.replicated_all_reduce(scattered, "add", four.strided)
        gathered = collectives.replicated_all_gather(across, 0, four.pairs)
        transposed = collectives.replicated_all_gather(four.by_pairs, 0, four.pairs.transpose())
        mixed = ops.add(four.by_pairs, four.by_strided)
    facts = [four.fact(t) for t in (reduced, all_reduced, scattered, across, gathered, transposed, mixed)]
    assert facts == [PAIRS, TOP, BOTTOM, STRIDED, TOP, TOP, BOTTOM]


def test_unequal_blocks() -> None:
    ir = popsr.Ir(replication=12)
    with ir.main_graph:
        a = make_variable(np.zeros((3, 2), np.float32), replica_grouping=ir.replica_grouping(1, 4))
        b = make_variable(np.zeros((2, 2), np.float32), replica_grouping=ir.replica_grouping(1, 6))
        total = ops.add(a, b)
    assert str(analyze(ir).partition(total)) == "{0,1,2,3}{4,5}{6,7}{8,9,10,11}"


# Memory and control flow


def test_values_over_time() -> None:
    four = Four()
    with four.ir.main_graph, popsr.in_sequence():
        v = four.variable(four.ir.replica_grouping())
        ops.add_(v, four.by_pairs)
        ops.add_(v, four.own)
        var_updates.copy_var_update_(v, four.shared)
        after = ops.relu(v)
        var_updates.accumulator_zero_(v)
    facts = analyze(four.ir)
    assert [str(p) for _, _, p in facts.values(v)] == [TOP, PAIRS, BOTTOM, TOP, TOP]
    assert [op and op.kind for _, op, _ in facts.values(v)[1:]] == [
        "add_",
        "add_",
        "copy_var_update_",
        "accumulator_zero_",
    ]
    assert facts.values(v)[0][:2] == (-1, None)
    assert str(facts.partition(after)) == TOP


def test_variables_across_runs() -> None:
    """The next run starts from the variables that a run leaves."""
    four = Four()
    with four.ir.main_graph, popsr.in_sequence():
        before = ops.relu(four.top)
        ops.add_(four.top, four.by_pairs)
    assert four.fact(before) == PAIRS
    assert str(analyze(four.ir).values(four.top)[0][2]) == PAIRS


def test_repeat_reaches_a_fixpoint() -> None:
    """A value of one block is mixed with a worse one only in the second iteration."""
    four = Four()

    def body(a: popsr.Tensor, b: popsr.Tensor, c: popsr.Tensor) -> Any:
        return b, c, c

    with four.ir.main_graph:
        graph = four.ir.create_graph(body, four.top, four.top, four.top)
        first = {count: ops.repeat(graph, count, four.top, four.by_pairs, four.own)[0] for count in (0, 1, 3)}
    # One iteration is a call; the second mixes.
    assert [four.fact(t) for t in first.values()] == [TOP, PAIRS, BOTTOM]


def test_repeat_with_state_by_reference() -> None:
    four = Four()

    def body(total: TensorByRef, x: popsr.Tensor) -> None:
        ops.add_(total, x)

    with four.ir.main_graph, popsr.in_sequence():
        v = four.variable(four.ir.replica_grouping())
        ops.repeat(four.ir.create_graph(body, v, four.by_pairs), 2, v, four.by_pairs)
        after = ops.relu(v)
    assert four.fact(after) == PAIRS
    assert four.fact(four.by_pairs) == PAIRS


def test_contexts_of_one_graph() -> None:
    four = Four()

    def body(x: popsr.Tensor) -> popsr.Tensor:
        return ops.relu(x)

    with four.ir.main_graph:
        graph = four.ir.create_graph(body, four.top)
        (a,), (b,) = ops.call(graph, four.top), ops.call(graph, four.by_pairs)
    assert (four.fact(a), four.fact(b)) == (TOP, PAIRS)
    assert four.fact(graph.outputs[0]) == PAIRS  # meet over the calls


def test_is_equal() -> None:
    four = Four()
    with four.ir.main_graph:
        ops.relu(four.top)
    facts = analyze(four.ir)
    assert facts.is_equal(four.top)
    assert not facts.is_equal(four.by_pairs)
    assert facts.is_equal(four.by_pairs, four.pairs)
    assert not facts.is_equal(four.by_pairs, four.strided)
    with pytest.raises(errors.ReplicaError, match="another replica count"):
        facts.is_equal(four.top, popsr.Ir(replication=2).replica_grouping())


def test_facts_are_of_one_version() -> None:
    four = Four()
    facts = analyze(four.ir)
    assert facts.partition(four.top).num_blocks == 1
    with four.ir.main_graph:
        ops.add(four.top, four.own)
    with pytest.raises(errors.GraphError, match="the program changed"):
        facts.partition(four.top)
    with popsr.Ir().main_graph:
        stranger = popsr.constant(1.0, dtype("float32"))
    with pytest.raises(errors.GraphError, match="tensor of another Ir"):
        analyze(four.ir).partition(stranger)
    with pytest.raises(ValueError, match="unknown mode"):
        analyze(four.ir, mode="other")  # type: ignore[call-overload]


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # storage splits as the variable drifts
def test_storage_follows_the_fixpoint() -> None:
    four = Four()
    with four.ir.main_graph, popsr.in_sequence():
        ops.add_(four.top, four.own)
        ops.relu(four.by_pairs)
        ops.relu(four.by_strided)
    session = popsr.Session(four.ir, weights_to_host_on_exit=False)
    rows = np.arange(32, dtype=np.float32).reshape(4, 8)
    modes = {stream: stream.replicated_stream_mode for stream in session.expected_inputs()}
    feed = {stream: rows if mode == "replicate" else rows[0] for stream, mode in modes.items()}
    with session, pytest.warns(popsr.ReplicaWarning):
        session.run(feed)
    assert str(session.storage(four.top)) == BOTTOM
    assert str(session.storage(four.by_pairs)) == PAIRS
