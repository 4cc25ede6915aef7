"""Streams with a row for each group of replicas: facts, data of runs, conditionals, refusals, lint L3 of stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops, transforms
from popsr.ops import collectives
from popsr.replicas import ReplicaGrouping
from popsr.testing import check_gradients
from tests_py.support.helpers import Array, groupings


def data_of(grouping: ReplicaGrouping, shape: tuple[int, ...], transfers: int = 1) -> Array:
    leading = tuple(n for n in (transfers, grouping.num_groups) if n > 1)
    count = int(np.prod((*leading, *shape)))
    return np.arange(1, count + 1, dtype=np.float32).reshape((*leading, *shape))


def by_replica(rows: Array, grouping: ReplicaGrouping) -> Array:
    """The rows that replicas load, of data with one transfer."""
    if grouping.num_groups == 1:
        return np.stack([rows] * grouping.num_replicas)
    return rows[list(grouping.assignment)]


def every_grouping(replicas: int) -> list[ReplicaGrouping]:
    ir = popsr.Ir(replication=replicas)
    odd = {4: [0, 1, 1, 0], 6: [0, 1, 2, 2, 0, 1]}.get(replicas)
    return [*groupings(ir), *([ir.replica_grouping_from_assignments(odd)] if odd else [])]


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("replicas", [1, 2, 4, 6])
def test_replicas_load_the_row_of_their_group(replicas: int, dedup: bool) -> None:
    for grouping in every_grouping(replicas):
        ir = popsr.Ir(replication=replicas)
        with ir.main_graph, popsr.in_sequence():
            x = popsr.h2d_stream((3,), popsr.float32, "x", replicated_stream_mode=grouping)
            out = popsr.d2h_stream((3,), popsr.float32, "out")
            loaded = ops.host_load(x)
            ops.host_store(out, loaded * 2.0)
        assert x.num_rows == grouping.num_groups
        assert popsr.analysis.analyze(ir).partition(loaded) == popsr.replicas.Partition.from_labels(
            grouping.assignment
        )
        data = data_of(grouping, (3,))
        with popsr.Session(ir, dedup=dedup, check=True) as session:
            given = session.run({x: data})[out]
        assert np.array_equal(given if replicas > 1 else given[None], 2 * by_replica(data, grouping))


@pytest.mark.parametrize("replicas", [1, 2, 4, 6])
def test_the_host_gets_a_row_of_each_group(replicas: int) -> None:
    for grouping in every_grouping(replicas):
        ir = popsr.Ir(replication=replicas)
        with ir.main_graph, popsr.in_sequence():
            x = popsr.h2d_stream((2,), popsr.float32, "x", replicated_stream_mode=grouping)
            out = popsr.d2h_stream((2,), popsr.float32, "out", replicated_stream_mode=grouping)
            ops.host_store(out, ops.host_load(x) + 1.0)
        data = data_of(grouping, (2,))
        with popsr.Session(ir) as session:
            assert np.array_equal(session.run({x: data})[out], data + 1)


def test_rows_of_several_transfers() -> None:
    ir = popsr.Ir(replication=4)
    ir.num_host_transfers = 3
    grouping = ir.replica_grouping(stride=2)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((2,), popsr.float32, "x", replicated_stream_mode=grouping)
        out = popsr.d2h_stream((2,), popsr.float32, "out", replicated_stream_mode=grouping)

        def body() -> None:
            ops.host_store(out, ops.host_load(x) * 10.0)

        ops.repeat(ir.create_graph(body), 3)
    data = data_of(grouping, (2,), transfers=3)
    assert data.shape == (3, 2, 2)
    with popsr.Session(ir) as session:
        assert np.array_equal(session.run({x: data})[out], data * 10)


def test_variables_of_a_group_stay_equal() -> None:
    """A tensor-parallel part updated from rows by group does not drift; with a row for each replica it does."""

    def program(grouped: bool) -> popsr.Ir:
        ir = popsr.Ir(replication=4)
        parts = ir.replica_grouping(stride=2)
        with ir.main_graph, popsr.in_sequence():
            mode: Any = parts if grouped else "replicate"
            x = popsr.h2d_stream((100,), popsr.float32, "x", replicated_stream_mode=mode)
            w = popsr.variable(np.zeros((2, 100), np.float32), name="w", replica_grouping=parts)
            ops.add_(w, ops.host_load(x))
        return ir

    assert not popsr.analysis.analyze(program(grouped=True)).drifting()
    assert len(popsr.analysis.analyze(program(grouped=False)).drifting()) == 1


def test_a_step_is_proved_from_the_input_on() -> None:
    """Rows of an embedding, dropout and a loss by class, on two models of two replicas."""
    ir = popsr.Ir(replication=4)
    model = ir.replica_grouping(group_size=2)
    same = model.transpose()
    rng = np.random.default_rng(0)

    def forward(
        tokens: popsr.Tensor, labels: popsr.Tensor, seed: popsr.Tensor, *w: popsr.Tensor
    ) -> popsr.Tensor:
        first = ops.cast(ops.replica_index(model) * 4, popsr.int32)
        rows = ops.gather(w[0], tokens - first, axis=0, zero_OOR=True)
        x = collectives.replicated_all_reduce_identical_grad_inputs(rows, group=model) * w[1]
        x = collectives.replicated_all_reduce_identical_inputs(ops.dropout(x, seed, 0.5), group=model)
        return addons.ops.cross_entropy_sharded_loss(x @ w[2], labels - first, None, model)

    with ir.main_graph, popsr.in_sequence():
        streams = [
            popsr.h2d_stream(shape, dtype, name, replicated_stream_mode=model)
            for name, shape, dtype in (
                ("tokens", (3,), popsr.int32),
                ("labels", (3,), popsr.int32),
                ("seed", (2,), popsr.uint32),
            )
        ]
        inputs = [ops.host_load(stream) for stream in streams]
        rows = popsr.variable(rng.normal(size=(2, 4, 6)), popsr.float64, "rows", replica_grouping=same)
        scale = popsr.variable(rng.normal(size=6), popsr.float64, "scale")
        head = popsr.variable(rng.normal(size=(2, 6, 4)), popsr.float64, "head", replica_grouping=same)
        weights = (rows, scale, head)
        graph = ir.create_graph(forward, *inputs, *weights)
        call = ops.call_with_info(graph, *inputs, *weights)
        backward = transforms.autodiff(graph, grads_required=graph.inputs[3:])
        parts = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
        gradients = {
            w: collectives.replicated_all_reduce(part, "mean", same)
            for w, part in zip(weights, parts, strict=True)
        }
        for w, gradient in gradients.items():
            ops.scaled_add_(w, gradient, b=-0.1)
        out = popsr.d2h_stream((), popsr.float64, "loss", replicated_stream_mode=model)
        ops.host_store(out, call.outputs[0])
    facts = popsr.analysis.analyze(ir)
    assert facts.warnings == ()
    assert [facts.partition(w) for w in weights] == [w.replica_grouping.partition for w in weights]
    assert facts.partition(call.outputs[0]) == model.partition
    data = dict(zip(streams, [rng.integers(8, size=(2, 3), dtype=np.int32) for _ in range(2)], strict=False))
    data[streams[2]] = np.array([[1, 2], [3, 4]], np.uint32)
    assert check_gradients(ir, call.outputs[0], gradients, data, scale=0.5).ok
    with popsr.Session(ir, check=True) as session:
        assert session.run(data)[out].shape == (2,)


def test_seeds_by_group_draw_one_mask_for_a_group() -> None:
    ir = popsr.Ir(replication=4)
    parts = ir.replica_grouping(group_size=2)
    with ir.main_graph, popsr.in_sequence():
        seed = popsr.h2d_stream((2,), popsr.uint32, "seed", replicated_stream_mode=parts)
        dropped = ops.dropout(popsr.variable(np.ones(64, np.float32)) + 0.0, ops.host_load(seed), 0.5)
        out = popsr.d2h_stream((64,), popsr.float32, "out")
        ops.host_store(out, dropped)
    assert str(popsr.analysis.analyze(ir).partition(dropped)) == "{0,1}{2,3}"
    with popsr.Session(ir, check=True) as session:
        masks = session.run({seed: np.array([[1, 2], [3, 4]], np.uint32)})[out]
    assert np.array_equal(masks[0], masks[1])
    assert np.array_equal(masks[2], masks[3])
    assert not np.array_equal(masks[0], masks[2])


def test_replicas_that_skip_a_load_stay_behind() -> None:
    """Each replica has its own place in the stream of its group, as in other modes."""
    ir = popsr.Ir(replication=2)
    ir.num_host_transfers = 2
    with ir.main_graph, popsr.in_sequence():
        both = ir.replica_grouping()
        x = popsr.h2d_stream((), popsr.float32, "x", replicated_stream_mode=both)
        out = popsr.d2h_stream((), popsr.float32, "out")
        first = ops.equal(ops.replica_index(), popsr.constant(np.uint32(0)))

        def load() -> popsr.Tensor:
            return ops.host_load(x)

        def zero() -> popsr.Tensor:
            return popsr.constant(np.float32(0.0)) + 0.0

        ops.conditional(first, ir.create_graph(load), ir.create_graph(zero))
        ops.host_store(out, ops.host_load(x))
    with pytest.warns(popsr.ReplicaWarning, match="moves on in its stream"):
        session = popsr.Session(ir)
    with session:
        given = session.run({x: np.array([1.0, 2.0], np.float32)})[out]
    assert given[0].tolist() == [2.0, 1.0]


def unequal_store(size: int, strict: Any = False) -> tuple[popsr.Session, Any, Any]:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((size,), popsr.float32, "x")
        pairs = ir.replica_grouping(group_size=2)
        out = popsr.d2h_stream((size,), popsr.float32, "out", replicated_stream_mode=pairs)
        ops.host_store(out, ops.host_load(x))
    return popsr.Session(ir, strict=strict), x, out


STORES = "L3.*: stream 'out' takes one value for each group, but replicas 0 and 1 of one group of 'x_load'"


def test_a_store_of_unequal_values_is_a_lint() -> None:
    with pytest.warns(popsr.ReplicaWarning, match=STORES):
        session, x, out = unequal_store(100)
    [lint] = [each for each in session.facts.warnings if each.code == "L3"]
    assert (lint.cost, lint.unit) == (2, "replicas")
    rows = np.arange(400, dtype=np.float32).reshape(4, 100)
    with session:  # the value of the smallest replica
        assert np.array_equal(session.run({x: rows})[out], rows[[0, 2]])


def test_a_feed_that_differs_inside_a_group_is_told_when_it_comes() -> None:
    """Rows of small streams are taken as equal as long as they are."""
    session, x, out = unequal_store(8)
    row = np.arange(8, dtype=np.float32)
    with session:
        assert np.array_equal(session.run({x: np.stack([row] * 4)})[out], [row, row])
        with pytest.warns(popsr.ReplicaWarning, match=STORES):
            session.run({x: np.stack([row, row + 1, row, row])})


def test_a_strict_session_refuses_it() -> None:
    with pytest.raises(popsr.errors.ReplicaError, match=STORES):
        unequal_store(100, strict={"L3"})


def _run(data: Any, mode: Callable[[popsr.Ir], Any] = lambda ir: ir.replica_grouping(group_size=2)) -> Any:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((3,), popsr.float32, "x", replicated_stream_mode=mode(ir))
        ops.host_store(popsr.d2h_stream((3,), popsr.float32, "out"), ops.host_load(x))
    with popsr.Session(ir) as session:
        return session.run({x: data})


def _other(ir: popsr.Ir) -> ReplicaGrouping:
    return popsr.Ir(replication=2).replica_grouping()


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "rows of replicas": (
        lambda: _run(np.zeros((4, 3), np.float32)),
        popsr.errors.ShapeError,
        r"'x', got \(4, 3\), expected \(2, 3\): 2 groups, the stream's \(3,\)",
    ),
    "no rows": (
        lambda: _run(np.zeros(3, np.float32)),
        popsr.errors.ShapeError,
        r"'x', got \(3,\), expected \(2, 3\): 2 groups",
    ),
    "another number of replicas": (
        lambda: _run(np.zeros((2, 3), np.float32), _other),
        popsr.errors.ReplicaError,
        "^h2d_stream: grouping of another replica count, got 2 replicas for 'x', expected 4",
    ),
    "a word": (
        lambda: _run(np.zeros((2, 3), np.float32), lambda ir: "groups"),
        ValueError,
        "^h2d_stream: .*replicated_stream_mode.*'groups', expected .*, or a ReplicaGrouping",
    ),
    "a number": (
        lambda: _run(np.zeros((2, 3), np.float32), lambda ir: 2),
        (TypeError, ValueError),  # type: ignore[dict-item]
        "^h2d_stream: .*replicated_stream_mode",
    ),
    "broadcast to the host": (
        lambda: _d2h("broadcast"),
        ValueError,
        "^d2h_stream: .*replicated_stream_mode.*'broadcast'",
    ),
    "to the host, of another number": (
        lambda: _d2h(popsr.Ir(replication=2).replica_grouping()),
        popsr.errors.ReplicaError,
        "^d2h_stream: grouping of another replica count, got 2 replicas for 't', expected 4",
    ),
}


def _d2h(mode: Any) -> Any:
    with popsr.Ir(replication=4).main_graph:
        return popsr.d2h_stream((3,), popsr.float32, replicated_stream_mode=mode)


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()
