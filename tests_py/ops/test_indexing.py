"""Ops that address elements by index tensors: indices out of range, duplicates, rounding, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.support.helpers import Streams, assert_same_bits, evaluate, np_dtype
from tests_py.support.unchecked import unchecked

F32, I32, U32 = popsr.float32, popsr.int32, popsr.uint32
Attr, Shape, DType = errors.AttributeValueError, errors.ShapeError, errors.DTypeError
Graph, Argument = errors.GraphError, errors.ArgumentTypeError

# Indices that only the run knows

Build = Callable[[Any, Any, Any], Any]  # of a variable f32[4, 2], indices i32[2] and values f32[2, 2]

BY_INDEX: list[tuple[str, Build]] = [
    ("gather", lambda t, i, v: ops.gather(t, i)),
    ("tied_gather", lambda t, i, v: ops.tied_gather(t, i)),
    (
        "groupedgather",
        lambda t, i, v: ops.groupedgather(ops.reshape(t, (2, 4)), ops.reshape(i, (2, 1)), 1, 2),
    ),
    ("scatter", lambda t, i, v: ops.scatter(t, ops.concat([ops.reshape(i, (2, 1))] * 2, 1), v)),
    ("scatter_reduce", lambda t, i, v: ops.scatter_reduce(v, i, "sum", t)),
    ("scatter_reduce", lambda t, i, v: ops.scatter_reduce(v, i, "max", axis_size=4)),
    ("scatter_reduce", lambda t, i, v: ops.scatter_reduce(v, i, "none", axis_size=4)),
    (
        "grouped_scatter_reduce",
        lambda t, i, v: ops.grouped_scatter_reduce(
            v, ops.reshape(i, (2, 1)), "max", axis=1, axis_size=4, group_size=2
        )[0:1, 0:2],
    ),
]


@pytest.mark.parametrize("index", [4, -1, 2**31 - 1])
@pytest.mark.parametrize(("op", "build"), BY_INDEX)
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # each replica has indices of its own
def test_index_out_of_range(op: str, build: Build, index: int) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        t = popsr.variable(np.ones((4, 2), np.float32))
        at = popsr.h2d_stream((2,), I32)
        ops.add_(t, build(t, ops.host_load(at), popsr.constant(np.ones((2, 2), np.float32)))[0])
    with popsr.Session(ir) as session:
        with pytest.raises(errors.OutOfRangeError) as caught:
            session.run({at: np.array([[0, 1], [1, index]], np.int32)})
        assert str(caught.value) == f"{op}: index is out of range, got {index}, expected 0 <= index < 4"
        (note,) = caught.value.__notes__
        assert note.startswith(f"while running {op}(")
        assert np.array_equal(session.get_tensor_data(t), np.ones((4, 2)))
        session.run({at: np.array([[0, 1], [1, 3]], np.int32)})


@pytest.mark.parametrize("offset", [2, -1])
@pytest.mark.parametrize("op", ["dynamic_slice", "dynamic_update", "dynamic_update_"])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the same
def test_offset_out_of_range(op: str, offset: int) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        t = popsr.variable(np.ones((4, 2), np.float32))
        at = popsr.h2d_stream((2,), I32)
        part = [] if op == "dynamic_slice" else [popsr.constant(np.zeros((3, 1), np.float32))]
        getattr(ops, op)(t, ops.host_load(at), *part, [0, 1], [3, 1], True)
    with popsr.Session(ir) as session:
        with pytest.raises(errors.OutOfRangeError) as caught:
            session.run({at: np.array([[1, 0], [offset, 0]], np.int32)})
        text = f"{op}: range is outside the operand, got offset {offset} on axis 0, expected 0 to 1"
        assert str(caught.value) == text
        (note,) = caught.value.__notes__
        assert note.startswith(f"while running {op}(")
        assert np.array_equal(session.get_tensor_data(t), np.ones((4, 2))), "nothing was written"


def test_gradient_of_indices_out_of_range_is_dropped() -> None:
    def body(t: popsr.Tensor, indices: popsr.Tensor) -> popsr.Tensor:
        return ops.gather(t, indices, zero_OOR=True)

    got = _gradients(
        body,
        [np.zeros((3, 2), np.float32), np.array([1, -1, 3, 1], np.int32)],
        np.ones((4, 2), np.float32),
        1,
    )
    assert got[0].tolist() == [[0, 0], [2, 2], [0, 0]]


def _gradients(fn: Callable[..., Any], arrays: list[Any], seed: Any, wanted: int) -> list[Any]:
    """Gradients of the first ``wanted`` operands."""
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(array) for array in arrays]
        graph = ir.create_graph(fn, *tensors)
        info = transforms.autodiff(graph, grads_required=graph.inputs[:wanted])
        call = ops.call_with_info(graph, *tensors)
        for gradient in ops.call(info.graph, io.feed(seed), inputs_dict=info.inputs_dict(call)):
            io.fetch(gradient)
    with popsr.Session(ir) as session:
        return io.run(session)


# Elements that meet


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_sum_folds_in_ascending_order_and_rounds_once(name: str) -> None:
    rng = np.random.default_rng(3)
    data = (rng.standard_normal((500, 600)) * 10.0 ** rng.integers(-3, 3, (500, 1))).astype(np_dtype(name))
    indices = rng.integers(0, 3, 500).astype(np.int32)
    wide = np.zeros((3, 600), np.float32)  # several threads share it
    for row, index in zip(data.astype(np.float32), indices, strict=True):
        wide[index] += row
    for threads in (1, 2):
        got = evaluate(
            lambda d, i: ops.scatter_reduce(d, i, "sum", axis_size=3), [data, indices], num_threads=threads
        )[0]
        assert_same_bits(got, wide.astype(np_dtype(name)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(0, 2**16))
def test_gradient_of_gather_is_the_sum_of_its_rows(indices: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    dy = rng.integers(-9, 9, (2, len(indices), 3)).astype(np.float32)
    expect = np.zeros((2, 5, 3), np.float32)
    np.add.at(expect, unchecked((slice(None), indices)), dy)

    def body(t: popsr.Tensor, at: popsr.Tensor) -> popsr.Tensor:
        return ops.gather(t, at, axis=1)

    got = _gradients(body, [np.zeros((2, 5, 3), np.float32), np.int32(unchecked(indices))], dy, 1)
    assert_same_bits(got[0], expect)


def test_sum_is_rounded_stochastically() -> None:
    """A value between two neighbours goes to both, with the mean of the exact sum."""
    data = np.full((2, 4096), 1.0, np_dtype("bfloat16"))
    data[1] = 2.0**-9  # a quarter of the distance to the next number above 1

    def total(d: Any, i: Any) -> Any:
        return ops.scatter_reduce(d, i, "sum", axis_size=1)

    def run(enabled: bool) -> Any:
        ir, io = popsr.Ir(), Streams()
        ir.options.enable_stochastic_rounding = enabled
        with ir.main_graph, popsr.in_sequence():
            io.fetch(total(io.feed(data), io.feed(np.zeros(2, np.int32))))
        with popsr.Session(ir, seed=7) as session:
            return io.run(session)[0].astype(np.float64)

    assert np.all(run(False) == 1.0)
    assert set(np.unique(run(True))) == {1.0, 1.0 + 2.0**-7}
    assert abs(np.mean(run(True)) - (1.0 + 2.0**-9)) < 5 * 2.0**-7 * np.sqrt(3 / 16 / 4096)


# Onehot, indexing


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient_of_onehot_values(axis: int, name: str) -> None:
    rng = np.random.default_rng(5)
    t = rng.integers(-1, 6, (3, 4)).astype(np.int32)
    classes = np.arange(5).reshape(np.roll([5, 1, 1], axis % 3))
    on = np.expand_dims(t, axis) == classes
    dy = rng.integers(-8, 8, on.shape).astype(np_dtype(name))

    def body(values: popsr.Tensor, indices: popsr.Tensor) -> popsr.Tensor:
        return ops.onehot(indices, popsr.constant(5), values, axis)

    got = _gradients(body, [np.zeros(2, np_dtype(name)), t], dy, 1)[0]
    wide = dy.astype(np.float64)
    assert_same_bits(got, np.array([wide[~on].sum(), wide[on].sum()]).astype(np_dtype(name)))


@pytest.mark.parametrize(
    "indices", [np.array([2, 0, 2], np.int32), np.array([[1], [0]], np.uint8), np.int64(1)]
)
def test_indexing_by_a_tensor(indices: Any) -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    indices = np.asarray(indices)
    assert_same_bits(evaluate(lambda t, i: t[i], [x, indices])[0], x[indices])


def test_subsample_keeps_the_list_of_its_caller() -> None:
    strides = [2]
    with popsr.Ir().main_graph:
        assert ops.subsample(popsr.constant(np.zeros((5, 3), np.float32)), strides).shape == (3, 3)
    assert strides == [2]


def test_whole_update_does_not_depend_on_what_was_there() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        own = popsr.variable(np.zeros((2, 3), np.float32), replica_grouping=ir.replica_grouping(1, 1))
        same, at = popsr.constant([1.0, 2.0, 3.0]), popsr.constant([0])
        whole = ops.dynamic_update(own, at, same, [0], [3], True)
        part = ops.dynamic_update(own, at, popsr.constant([1.0]), [0], [1], True)
        io = Streams()
        io.fetch(whole)
        io.fetch(part)
    facts = popsr.analysis.analyze(ir)
    assert len(facts.partition(whole).blocks) == 1
    assert len(facts.partition(part).blocks) == 2
