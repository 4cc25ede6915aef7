"""Reductions and ops that order elements: the order of their folds, edge values, gradients where it is subtle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.support.helpers import (
    FLOATS,
    Array,
    Streams,
    assert_same_bits,
    evaluate,
    np_dtype,
)
from tests_py.support.oracles import ops as oracles

F32, I32 = popsr.float32, popsr.int32
INF, NAN = np.inf, np.nan
Step = Callable[[Array, Array], Array]


# The order of folds


def _add(a: Array, b: Array) -> Array:
    return a + b


def _multiply(a: Array, b: Array) -> Array:
    return a * b


def lane_fold(rows: Array, step: Step, last: Step, identity: float) -> Array:
    """Rows [k, n] through 16 lanes and a tree; ``last`` is the last step."""
    n = rows.shape[1]
    padded = np.full((len(rows), -(-max(n, 1) // 16) * 16), identity, rows.dtype)
    padded[:, :n] = rows
    lanes = np.full((len(rows), 16), identity, rows.dtype)
    for first in range(0, padded.shape[1], 16):
        lanes = step(lanes, padded[:, first : first + 16])
    for width in (8, 4, 2):
        lanes = step(lanes[:, :width], lanes[:, width : 2 * width])
    return last(lanes[:, 0], lanes[:, 1])


def fold_of_matrix(t: Array, axes: tuple[int, ...], product: bool) -> Array:
    """Of [a, b, n] over axes: the innermost by lanes, the others in ascending order."""
    step, identity = (_multiply, 1.0) if product else (_add, -0.0)
    last = step if product else oracles.add
    if axes in ((2,), (1, 2), (0, 1, 2)):
        rows = t.reshape(*t.shape[: 3 - len(axes)], -1)
        return np.asarray(lane_fold(rows.reshape(-1, rows.shape[-1]), step, last, identity)).reshape(
            rows.shape[:-1]
        )
    if axes == (0, 2):
        items = [lane_fold(t[i], step, step, identity) for i in range(len(t))]
    else:
        items = list(np.moveaxis(t, axes, range(len(axes))).reshape(-1, *np.delete(t.shape, axes)))
    total = items[0]
    for i, item in enumerate(items[1:], 2):
        total = (last if i == len(items) else step)(total, item)
    return total


MAPS: dict[str, tuple[Callable[[Array], Array], bool]] = {
    "sum": (lambda t: t, False),
    "sumsquare": (lambda t: t * t, False),
    "l1": (np.abs, False),
    "prod": (lambda t: t, True),
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(MAPS)),
    st.sampled_from(FLOATS),
    st.sampled_from([(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]),
    st.tuples(st.integers(2, 5), st.integers(2, 5), st.integers(2, 90)),
    st.integers(0, 99),
)
def test_folds_have_one_order(
    op: str, name: str, axes: tuple[int, ...], shape: tuple[int, int, int], seed: int
) -> None:
    t = np.random.default_rng(seed).standard_normal(shape).astype(np_dtype(name))
    wide = t.astype(oracles.compute_type(name))
    change, product = MAPS[op]
    expected = fold_of_matrix(change(wide), axes, product)
    (got,) = evaluate(lambda x: getattr(ops, op)(x, list(axes)), [t])
    assert_same_bits(got, np.asarray(oracles.round_once(expected, name)))


def test_threads_do_not_change_bits() -> None:
    t = np.random.default_rng(3).standard_normal((40, 50, 60)).astype(np.float16)

    def program(x: popsr.Tensor) -> list[popsr.Tensor]:
        rows = [ops.logsumexp(x, 1), ops.l2(x, [0, 2]), ops.prod(x, -1), ops.median(x, 0)]
        return [*rows, ops.cumsum(x, 1), ops.log_softmax(x, 0), *ops.topk(x, 7, 1, True, True)]

    results = [evaluate(program, [t], num_threads=threads) for threads in (1, 3)]
    for one, three in zip(*results, strict=True):
        assert_same_bits(one, three)


# Edge values

EDGES: list[tuple[str, list[float], float]] = [
    ("min", [1, NAN, -INF], NAN),
    ("min", [0.0, -0.0, 0.0], -0.0),
    ("min", [INF, INF], INF),
    ("prod", [], 1),
    ("prod", [-0.0, 2], -0.0),
    ("prod", [INF, 0], NAN),
    ("prod", [1e30, 1e30, -1], -INF),
    ("sumsquare", [], 0),
    ("sumsquare", [-0.0], 0.0),
    ("sumsquare", [-INF, 1], INF),
    ("sumsquare", [1, NAN], NAN),
    ("l1", [], 0),
    ("l1", [-0.0, -0.0], 0.0),
    ("l1", [-INF, INF], INF),
    ("l1", [NAN], NAN),
    ("l2", [], 0),
    ("l2", [3, -4], 5),
    ("l2", [-INF], INF),
    ("l2", [NAN, 1], NAN),
    ("l2", [1e30], INF),
    ("logsum", [], -INF),
    ("logsum", [1, -1], -INF),
    ("logsum", [-1], NAN),
    ("logsum", [INF], INF),
    ("logsum", [0.5, 0.5], 0),
    ("logsumexp", [], -INF),
    ("logsumexp", [-INF, -INF], -INF),
    ("logsumexp", [INF, 1], INF),
    ("logsumexp", [-INF, 3], 3),
    ("logsumexp", [1000], 1000),
    ("logsumexp", [-1000], -1000),
    ("logsumexp", [NAN, INF], NAN),
    ("median", [NAN, 1, 2], NAN),
    ("median", [INF, -INF], -INF),
    ("median", [2, 1, 4, 3], 2),
    ("median", [0.0, -0.0, 1], -0.0),
]


@pytest.mark.parametrize(("op", "values", "expected"), EDGES)
@pytest.mark.parametrize("outer", [False, True], ids=["row", "outer"])
def test_edges(op: str, values: list[float], expected: float, outer: bool) -> None:
    row = np.array([values, values], np.float32)
    (got,) = evaluate(lambda t: getattr(ops, op)(t, 0 if outer else 1), [row.T.copy() if outer else row])
    assert_same_bits(got, np.array([expected] * 2, np.float32))


ORDERS: list[tuple[str, list[float], int]] = [
    ("argmax", [1, 3, 3, 2], 1),
    ("argmax", [0.0, -0.0, 0.0], 0),
    ("argmax", [1, NAN, INF, NAN], 1),
    ("argmin", [2, 1, 1], 1),
    ("argmin", [1, -INF, NAN, NAN], 2),
    ("argmin", [0.0, -0.0], 0),
]


@pytest.mark.parametrize(("op", "values", "index"), ORDERS)
def test_first_of_equals(op: str, values: list[float], index: int) -> None:
    (got,) = evaluate(getattr(ops, op), [np.array(values, np.float32)])
    assert_same_bits(got, np.array(index, np.int32))


@pytest.mark.parametrize(
    ("largest", "values", "indices"),
    [(True, [NAN, INF, 2, 2], [1, 4, 0, 2]), (False, [1, 2, 2, INF], [3, 0, 2, 4])],
)
def test_topk_order(largest: bool, values: list[float], indices: list[int]) -> None:
    t = np.array([2, NAN, 2, 1, INF], np.float32)
    got = evaluate(lambda x: list(ops.topk(x, 4, 0, largest, True)), [t])
    assert_same_bits(got[0], np.array(values, np.float32))
    assert_same_bits(got[1], np.array(indices, np.int32))


def test_unsorted_topk_warns_and_sorts() -> None:
    def program(x: popsr.Tensor) -> list[popsr.Tensor]:
        with pytest.warns(UserWarning, match="topk: sorted=False is not supported, results are sorted"):
            return list(ops.topk(x, 2, 0, True, False))

    values, _ = evaluate(program, [np.array([1, 3, 2], np.float32)])
    assert_same_bits(values, np.array([3, 2], np.float32))


def test_log_softmax_of_infinities() -> None:
    rows = np.array([[-INF, 0, 0], [INF, 0, 0], [NAN, 0, 0], [-INF] * 3, [1e30, 0, -1e30]], np.float32)
    (got,) = evaluate(lambda t: ops.log_softmax(t, -1), [rows])
    assert_same_bits(got[4], np.array([0, -1e30, -2e30], np.float32))
    assert got[0, 0] == -INF
    assert np.all(np.abs(got[0, 1:] + np.log(2)) < 1e-6)
    assert np.all(np.isnan(got[1:4]))


# Gradients


def gradient(fn: Callable[..., Any], values: Any, seed: Any) -> Array:
    """Gradient of ``fn`` for a gradient of its output."""
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph:
        x = io.feed(np.asarray(values, np.float32))
        graph = ir.create_graph(lambda t: fn(t), x)
        info = transforms.autodiff(graph, grads_provided=graph.outputs[:1])
        call = ops.call_with_info(graph, x)
        seed = io.feed(np.asarray(seed, np.float32))
        (result,) = ops.call_with_info(info.graph, seed, inputs_dict=info.inputs_dict(call)).outputs
        io.fetch(result)
    with popsr.Session(ir) as session:
        return io.run(session)[0]


GRADIENTS: list[tuple[str, Callable[..., Any], Any, Any, Any]] = [
    ("min-ties", ops.min, [1, 3, 1], 2, [2, 0, 2]),
    ("prod-one-zero", ops.prod, [2, 0, 5], 3, [0, 30, 0]),
    ("prod-zeros", ops.prod, [0, 0, 5], 3, [0, 0, 0]),
    ("prod-axes", lambda t: ops.prod(t, 0), [[2, 3], [0, 5]], [1, 10], [[0, 50], [2, 30]]),
    ("l1-zero", ops.l1, [-2, 0, 3], 4, [-4, 0, 4]),
    ("l2-zeros", lambda t: ops.l2(t, 1), [[0, 0], [3, 4]], [7, 10], [[0, 0], [6, 8]]),
    ("median-ties", ops.median, [2, 1, 2, 2], 3, [3, 0, 0, 0]),
    ("median-nan", ops.median, [2, NAN, NAN], 3, [0, 3, 0]),
    ("topk-ties", lambda t: ops.topk(t, 2, 0, True, True), [5, 7, 5], [1, 2], [2, 1, 0]),
    ("topk-nothing", lambda t: ops.topk(t, 0, 0, True, True), [5, 7], [], [0, 0]),
    ("cumsum", ops.cumsum, [9, 9, 9], [1, 2, 4], [7, 6, 4]),
    ("logsumexp-inf", ops.logsumexp, [-INF, 2], 3, [0, 3]),
]


@pytest.mark.parametrize(
    ("fn", "values", "seed", "expected"), [row[1:] for row in GRADIENTS], ids=[row[0] for row in GRADIENTS]
)
def test_gradients_at_edges(fn: Callable[..., Any], values: Any, seed: Any, expected: Any) -> None:
    assert_same_bits(gradient(fn, values, seed) + 0.0, np.array(expected, np.float32))


# Errors

Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError


def _t(*shape: int, kind: Any = F32) -> popsr.Tensor:
    return popsr.graph_input(shape, kind)
