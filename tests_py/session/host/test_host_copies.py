"""Host copies of random variables, compared with a model in NumPy after random calls."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import ops
from popsr.io import PyWeightsIO
from tests_py.support.helpers import Array, assert_same_bits, make_variable
from tests_py.support.machines.host_copies import Model, ModelVariable

F32, I32 = popsr.float32, popsr.int32


MIB = 2**20


def allocated(call: Any) -> int:
    """The most memory that a call needs for arrays beside those that there were."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_copies_are_made_only_where_two_values_are_needed() -> None:
    ir = popsr.Ir(replication=64)
    data = np.zeros((8, MIB // 4), np.float32)  # 8 MiB
    with ir.main_graph:
        v = popsr.variable(data, replica_grouping=ir.replica_grouping(group_size=8))
        ops.add_(v, popsr.constant(1.0))
        fixed = popsr.variable(data[0])
        ops.relu(fixed)
    session = popsr.Session(ir)
    io = PyWeightsIO({v: data, fixed: np.zeros_like(data[0])})
    with session:
        nothing = MIB // 2
        assert allocated(session.run) < nothing  # the initial data is the program's
        assert allocated(lambda: session.read_weights(io)) < nothing
        assert allocated(session.weights_to_host) < nothing
        assert allocated(session.weights_from_host) < nothing
        assert allocated(lambda: session._access.rows(fixed)) < nothing
        assert allocated(lambda: session.write_weights(io)) < nothing
        assert allocated(lambda: session.get_tensor_data(v)) < 8 * MIB + nothing
        assert (
            8 * MIB <= allocated(session.run) < 8 * MIB + nothing
        )  # kept: weights_from_host would bring it back
        assert allocated(session.weights_to_host) < nothing
        assert allocated(session.run) < nothing  # in the room that was there
    assert data[0, 0] == 1
    assert session.get_tensor_data(v)[0, 0] == 3


def test_grouped_variables() -> None:
    ir = popsr.Ir(replication=6)
    out: dict[Any, Any] = {}
    with ir.main_graph, popsr.in_sequence():
        for name, grouping in {
            "pairs": ir.replica_grouping(1, 2),
            "strided": ir.replica_grouping(3, 2),
            "any": ir.replica_grouping_from_assignments([0, 1, 1, 0, 2, 2]),
            "own": ir.replica_grouping(1, 1),
        }.items():
            data = np.arange(2 * grouping.num_groups, dtype=np.float32).reshape(-1, 2)
            v = make_variable(data, name, replica_grouping=grouping)
            assert (v.shape, v.shape_on_host, v.shape_on_replica) == ((2,), data.shape, (2,))
            assert v.replica_grouping == grouping
            stream = popsr.d2h_stream((2,), F32)
            ops.host_store(stream, v)
            out[stream] = (v, data, grouping.assignment)
    with popsr.Session(ir) as session:
        results = session.run()
        for stream, (v, data, assignment) in out.items():
            assert_same_bits(results[stream], data[list(assignment)])
            assert_same_bits(session.get_tensor_data(v), data)
            session.write_variable_data(v, data + 1)
        results = session.run()
        for stream, (_, data, assignment) in out.items():
            assert_same_bits(results[stream], data[list(assignment)] + 1)


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the same
def test_retrieval_modes() -> None:
    """Replicas of a group drift apart: one per group shows the first, all replicas shows each."""
    ir = popsr.Ir(replication=4)
    grouping = ir.replica_grouping(1, 2)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((), F32, "x"))
        one = make_variable(np.array([1, 2], np.float32), "one", replica_grouping=grouping)
        each = make_variable(
            np.array([1, 2], np.float32), "all", replica_grouping=grouping, retrieval_mode="all_replicas"
        )
        assert (one.retrieval_mode, each.retrieval_mode) == ("one_per_group", "all_replicas")
        ops.add_(one, x)
        ops.add_(each, x)
    (stream,) = ir.get_all_h2d_streams()
    with popsr.Session(ir) as session:
        assert session.get_tensor_data(each).tolist() == [1, 1, 2, 2]
        session.run({stream: np.array([10, 20, 30, 40], np.float32)})
        assert session.get_tensor_data(one).tolist() == [11, 32]
        assert session.get_tensor_data(each).tolist() == [11, 21, 32, 42]
        with pytest.raises(NotImplementedError, match="keeps all replicas"):
            session.write_variable_data(each, np.array([1, 2, 3, 4], np.float32))


@st.composite
def groupings(draw: Any) -> list[int]:
    """Equal groups in any arrangement, numbered by first appearance."""
    groups, size = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    labels = draw(st.permutations([g for g in range(groups) for _ in range(size)]))
    order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return [order[label] for label in labels]


ACTIONS = ("run", "to_host", "from_host", "get", "write", "read_weights", "write_weights", "rows", "leave")
PROGRAM = {
    "first": groupings(),
    "modes": st.tuples(*[st.sampled_from(["one_per_group", "all_replicas"])] * 3),
    "drifts": st.tuples(*[st.booleans()] * 3),
    "shape": st.sampled_from([(), (2,), (2, 0), (1, 3)]),
    "dedup": st.booleans(),
    "actions": st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=14),
    "seed": st.integers(0, 9),
}


class Pair:
    """A session beside its model: three variables, one of each kind of grouping, that drift with a stream or stay."""

    def __init__(self, first: list[int], modes: Any, drifts: Any, shape: Any, dedup: bool, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.replicas, self.shape = len(first), shape
        ir = popsr.Ir(replication=self.replicas)
        self.variables, models = [], []
        with ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream(shape, I32)
            x = ops.host_load(self.x)
            for assignment, mode, drift in zip(
                (first, [0] * self.replicas, list(range(self.replicas))), modes, drifts, strict=True
            ):
                rows = self.data(max(assignment) + 1)
                v = popsr.variable(
                    rows if len(rows) > 1 else rows[0],
                    replica_grouping=ir.replica_grouping_from_assignments(assignment),
                    retrieval_mode=mode,
                )
                if drift:
                    ops.add_(v, x)
                self.variables.append(v)
                models.append(ModelVariable(assignment, mode == "all_replicas", rows, drift))
        self.model, self.session = Model(models), popsr.Session(ir, dedup=dedup)

    def data(self, rows: int) -> Array:
        return self.rng.integers(-1000, 1000, (rows, *self.shape), np.int32)

    def buffer(self, rows: int) -> Array:
        """Contiguous or not."""
        return (
            np.full((rows, 2, *self.shape), 7, np.int32)[:, 1] if self.rng.random() < 0.5 else self.data(rows)
        )

    def do(self, action: str, i: int) -> None:
        session, model, v, m = self.session, self.model, self.variables[i], self.model.variables[i]
        groups = max(m.assignment) + 1
        if action == "get":
            model.refresh()
            assert_same_bits(session.get_tensor_data(v), m.on_host)
        elif action == "write" and not m.keeps_all:
            rows = self.data(groups)
            session.write_variable_data(v, rows.reshape(v.shape_on_host))
            model.write(i, rows)
        elif action == "read_weights":
            model.refresh()
            buffers = {
                u: self.buffer(len(n.host)) for u, n in zip(self.variables, model.variables, strict=True)
            }
            session.read_weights(PyWeightsIO(buffers))
            for buffer, n in zip(buffers.values(), model.variables, strict=True):
                assert_same_bits(np.ascontiguousarray(buffer), n.host)
        elif action == "write_weights":
            rows = self.data(groups)
            whole = rows[m.assignment] if self.rng.random() < 0.5 else rows
            buffer = self.buffer(len(whole))
            buffer[...] = whole
            session.write_weights(PyWeightsIO({v: buffer}))
            model.write(i, rows)
        elif action == "rows":
            model.refresh()
            expected = m.host[m.first] if m.keeps_all else m.host
            assert_same_bits(session._access.rows(v), expected.reshape(v.shape_on_host))
        elif model.attached:
            self.do_attached(action)

    def do_attached(self, action: str) -> None:
        if action == "run":
            x = self.data(self.replicas)
            self.session.run({self.x: x if self.replicas > 1 else x[0]})
            self.model.run(x)
        elif action == "to_host":
            self.session.weights_to_host()
            self.model.download()
        elif action == "from_host":
            self.session.weights_from_host()
            self.model.upload()

    def enter(self, actions: list[tuple[str, int]]) -> None:
        """Up to the next "leave"; every second of those is an exception."""
        try:
            with self.session:
                self.model.enter()
                while actions:
                    action, i = actions.pop(0)
                    if action == "leave":
                        if i % 2:
                            raise InterruptedError
                        break
                    self.do(action, i)
        except InterruptedError:
            self.model.leave(download=False)
        else:
            self.model.leave(download=True)


@given(**PROGRAM)
@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # they drift as it happens
def test_sessions_do_what_the_model_does(actions: list[tuple[str, int]], **program: Any) -> None:
    pair = Pair(**program)
    for i in range(3):
        pair.do("get", i)
        pair.do("write_weights", i)
    actions = list(actions)
    while actions:
        pair.enter(actions)
        for i in range(3):
            pair.do("get", i)
        pair.do("read_weights", 0)
