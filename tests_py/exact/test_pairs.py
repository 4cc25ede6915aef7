"""Programs of one function are equal in exact arithmetic, and others are not: softmax, cross entropy, loops, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._support.fields import Numbers, same
from popsr.bridge._exact import run_exact
from popsr.ops._exact import DRAWN, TAKEN_FALSE, TAKEN_TRUE

T = popsr.Tensor
Make = Callable[..., T | tuple[T, ...]]


def run(make: Make, *operands: Any, replicas: int = 1) -> list[list[Any]]:
    """Run a function of tensors; an operand is numbers, or a list with one for each replica."""
    ir = popsr.Ir(replication=replicas)
    given = {}
    with ir.main_graph, popsr.in_sequence():
        tensors = []
        for operand in operands:
            rows = operand if isinstance(operand, list) else [operand] * replicas
            dtype = popsr.float32 if isinstance(rows[0], Numbers) else popsr.int32
            tensors.append(popsr.variable(np.zeros(rows[0].shape), dtype))
            given[tensors[-1]._id] = rows
        found = make(*tensors)
    out = run_exact(ir, given)
    return [out.value(t._id) for t in (found if isinstance(found, tuple) else (found,))]


def equal(one: list[list[Any]], other: list[list[Any]]) -> bool:
    """True if all results are equal on all replicas."""
    return all(
        bool(same(a, b).all()) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


S = Numbers.draw((2, 6), "s", 0)


def top(t: T) -> T:
    return ops.max(t, [1], keepdims=True)


def total(t: T) -> T:
    return ops.sum(t, [1], keepdims=True)


def softmax(t: T) -> T:
    return ops.exp(t - top(t)) / total(ops.exp(t - top(t)))


def online(t: T, rescaled: bool = True) -> T:
    a, b = ops.slice(t, [0], [3], [1], [1]), ops.slice(t, [3], [6], [1], [1])
    m = ops.maximum(top(a), top(b))
    first = total(ops.exp(a - top(a)))
    first = first * ops.exp(top(a) - m) if rescaled else first
    return ops.exp(t - m) / (first + total(ops.exp(b - m)))


def masked(t: T, fill: float) -> T:
    mask = popsr.constant(np.array([[True, True, False, True, False, True]]), popsr.bool)
    return ops.where(mask, t, popsr.constant(fill))


def only_seen(t: T) -> T:
    seen = popsr.constant(np.array([[1.0, 1, 0, 1, 0, 1]], np.float32))
    weights = ops.exp(t) * seen
    return weights / total(weights)


def norm(t: T) -> T:
    return ops.sqrt(ops.sumsquare(t))


def rank_1(t: T) -> T:
    return ops.reshape(norm(t), (1,))


def halves(t: T) -> list[T]:
    return [ops.slice(t, [start], [start + 3], [1], [1]) for start in (0, 3)]


PAIRS: dict[str, tuple[Make, Make, bool]] = {
    "softmax, fused": (softmax, lambda t: ops.softmax(t, 1), True),
    "softmax without a maximum": (softmax, lambda t: ops.exp(t) / total(ops.exp(t)), True),
    "online softmax": (softmax, online, True),
    "online softmax, not rescaled": (softmax, lambda t: online(t, False), False),
    "softmax of a masked row": (lambda t: softmax(masked(t, -1e30)), only_seen, True),
    "softmax of a row that is masked by infinity": (lambda t: softmax(masked(t, -np.inf)), only_seen, True),
    "softmax without the mask": (softmax, only_seen, False),
    "log of softmax": (
        lambda t: ops.log_softmax(t, 1),
        lambda t: t - top(t) - ops.log(total(ops.exp(t - top(t)))),
        True,
    ),
    "relu": (
        ops.relu,
        lambda t: ops.where(ops.greater(t, popsr.constant(0.0)), t, popsr.constant(0.0)),
        True,
    ),
    "relu of minus": (lambda t: ops.relu(t) - ops.relu(ops.negate(t)), lambda t: t, True),
    "magnitude": (ops.abs, lambda t: ops.maximum(t, ops.negate(t)), True),
    "magnitude and sign": (ops.abs, lambda t: t * ops.sign(t), True),
    "no relu": (ops.relu, lambda t: t, False),
    "inverse roots": (ops.rsqrt, lambda t: ops.pow(t, popsr.constant(-0.5)), True),
    "roots": (lambda t: popsr.constant(1.0) / ops.sqrt(t), ops.rsqrt, True),
    "product of two norms": (lambda t: norm(t) * norm(t), lambda t: ops.sum(ops.square(t)), True),
    "square of one norm": (lambda t: ops.square(norm(t)), lambda t: ops.sum(ops.square(t)), True),
    "norm of norms": (lambda t: norm(ops.concat([*map(rank_1, halves(t))])), norm, True),
    "norm of moved norms": (
        lambda t: ops.sqrt(
            ops.sum(ops.transpose(ops.reshape(ops.sqrt(ops.sumsquare(t, [1], True)), (1, 2))) ** 2)
        ),
        norm,
        True,
    ),
    "roots of squares of two numbers": (lambda t: norm(t) * ops.abs(ops.sum(t)), norm, False),
    "square of the root of a magnitude": (lambda t: ops.square(ops.sqrt(ops.abs(t))), ops.abs, True),
    "fourth power of a root": (
        lambda t: ops.integer_pow(norm(t), 4),
        lambda t: ops.square(ops.sumsquare(t)),
        True,
    ),
    "square of the root of what may be negative": (lambda t: ops.square(ops.sqrt(t)), lambda t: t, False),
    "square of the root of a difference": (
        lambda t: ops.square(ops.sqrt(ops.square(t) - ops.square(total(t)))),
        lambda t: ops.square(t) - ops.square(total(t)),
        False,
    ),
    "tanh and sigmoid": (
        ops.tanh,
        lambda t: popsr.constant(2.0) * ops.sigmoid(popsr.constant(2.0) * t) - popsr.constant(1.0),
        True,
    ),
    "sum in two steps": (
        lambda t: ops.sum(t),
        lambda t: ops.sum(ops.slice(t, [0], [3], [1], [1])) + ops.sum(ops.slice(t, [3], [6], [1], [1])),
        True,
    ),
    "mean for a sum": (lambda t: ops.sum(t), lambda t: ops.mean(t), False),
    "greatest of parts": (
        lambda t: ops.max(t),
        lambda t: ops.maximum(
            ops.max(ops.slice(t, [0], [1], [1], [0])), ops.max(ops.slice(t, [1], [2], [1], [0]))
        ),
        True,
    ),
    "sum of sorted numbers": (lambda t: ops.sum(t, [1]), lambda t: ops.sum(ops.sort(t)[0], [1]), True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_functions(name: str) -> None:
    one, other, expected = PAIRS[name]
    assert equal(run(one, S), run(other, S)) is expected


# A vocabulary-parallel cross entropy beside the whole one

H, W = Numbers.draw((4, 3), "h", 0), Numbers.draw((3, 8), "w", 0)
Y = np.array([0, 3, 5, 7], np.int32)


def whole(h: T, w: T, y: T) -> T:
    logs = ops.log_softmax(h @ w, 1)
    return ops.negate(ops.mean(ops.gather_elements(logs, ops.reshape(y, (4, 1)), 1)))


def parallel(h: T, w: T, y: T, *, most: bool = True, summed: bool = True) -> T:
    reduce = ops.collectives.replicated_all_reduce
    scores = h @ w
    m = top(scores)
    m = reduce(m, "max") if most else m
    s = total(ops.exp(scores - m))
    s = reduce(s) if summed else s
    place = y - ops.cast(ops.replica_index(), popsr.int32) * popsr.constant(4, popsr.int32)
    here = ops.logical_and(
        ops.greater_equal(place, popsr.constant(0, popsr.int32)),
        ops.less(place, popsr.constant(4, popsr.int32)),
    )
    at = ops.where(here, place, popsr.constant(0, popsr.int32))
    found = ops.gather_elements(scores - m, ops.reshape(at, (4, 1)), 1)
    mine = ops.where(ops.reshape(here, (4, 1)), found, popsr.constant(0.0))
    return ops.negate(ops.mean(reduce(mine) - ops.log(s)))


@pytest.mark.parametrize(
    ("options", "expected"), [({}, True), ({"most": False}, False), ({"summed": False}, False)]
)
def test_cross_entropy_of_a_vocabulary_in_parts(options: dict[str, bool], expected: bool) -> None:
    (one,) = run(whole, H, W, Y)
    (many,) = run(lambda h, w, y: parallel(h, w, y, **options), H, [W[:, :4], W[:, 4:]], Y, replicas=2)
    assert all(bool(same(each, one[0]).all()) for each in many) is expected


# Programs: loops, branches, memory


def doubled(t: T, times: int) -> T:
    graph = popsr.gir().create_graph(lambda x: x + x, t)
    return ops.repeat(graph, times, t)[0]


def until(t: T, end: int) -> T:
    ir, one = popsr.gir(), popsr.constant(1, popsr.int32)
    count = popsr.constant(0, popsr.int32)
    cond = ir.create_graph(lambda i, x: ops.less(i, popsr.constant(end, popsr.int32)), count, t)
    body = ir.create_graph(lambda i, x: (i + popsr.constant(1, popsr.int32), x + x), count, t)
    del one
    return ops.while_loop(cond, body, count, t)[1]


def chosen(t: T) -> T:
    ir = popsr.gir()
    first = ops.equal(ops.replica_index(), popsr.constant(0, popsr.uint32))
    double, same_value = (
        ir.create_graph(lambda x: x + x, t),
        ir.create_graph(lambda x: x * popsr.constant(1.0), t),
    )
    return ops.conditional(first, double, same_value, then_inputs=[t], else_inputs=[t])[0]


def test_loops_and_branches() -> None:
    eight = run(lambda t: t * popsr.constant(8.0), S)
    assert equal(run(lambda t: doubled(t, 3), S), eight)
    assert equal(run(lambda t: until(t, 3), S), eight)
    assert not equal(run(lambda t: until(t, 4), S), eight)
    (found,) = run(chosen, S, replicas=2)
    assert same(found[0], S + S).all()
    assert same(found[1], S).all()


def test_writes_in_place_are_seen_through_views() -> None:
    def program(t: T) -> tuple[T, T]:
        view = ops.slice_(t, [2], [4], [1], [1])
        ops.var_updates.accumulate_(view, view, 1.0)
        return ops.identity(t), view

    (whole_value, part) = run(program, S)
    assert same(part[0], S[:, 2:4] * S.constant(2)).all()
    assert same(whole_value[0][:, 2:4], part[0]).all()
    assert same(whole_value[0][:, 4:], S[:, 4:]).all()


def test_writes_of_called_graphs_happen_to_what_was_passed() -> None:
    def program(t: T) -> T:
        def body(x: popsr.TensorByRef) -> None:
            ops.var_updates.accumulator_scale_(x, 3.0)

        ops.call(popsr.gir().create_graph(body, t), t)
        return ops.identity(t)

    assert equal(run(program, S), run(lambda t: t * popsr.constant(3.0), S))


COLLECTIVES: dict[str, tuple[Callable[[T], T], Callable[[list[Numbers], int], Numbers]]] = {
    "all_reduce": (ops.collectives.replicated_all_reduce, lambda rows, _: rows[0] + rows[1]),
    "mean": (
        lambda t: ops.collectives.replicated_all_reduce(t, "mean"),
        lambda rows, _: (rows[0] + rows[1]) * rows[0].constant(0.5),
    ),
    "all_gather": (
        lambda t: ops.collectives.replicated_all_gather(t, axis=1, output_shape="concat"),
        lambda rows, _: Numbers.concat([row.transpose([1, 0]) for row in rows]).transpose([1, 0]),
    ),
    "reduce_scatter": (
        ops.collectives.replicated_reduce_scatter,
        lambda rows, r: (rows[0] + rows[1]).reshape((12,))[6 * r : 6 * r + 6],
    ),
    "all_to_all": (
        lambda t: ops.collectives.replicated_all_to_all(t, 0),
        lambda rows, r: Numbers.concat([row[r : r + 1] for row in rows]),
    ),
    "permute": (lambda t: ops.collectives.replicated_permute(t, [1, 0]), lambda rows, r: rows[1 - r]),
    "broadcast": (lambda t: ops.collectives.replicated_broadcast(t, 1), lambda rows, _: rows[1]),
    "slice": (
        lambda t: ops.collectives.replicated_slice(t, 1),
        lambda rows, r: rows[r][:, 3 * r : 3 * r + 3],
    ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str) -> None:
    make, expected = COLLECTIVES[name]
    rows = [S, Numbers.draw((2, 6), "other", 0)]
    (found,) = run(make, rows, replicas=2)
    for r, value in enumerate(found):
        assert same(value, expected(rows, r)).all()


def test_shared_values_are_computed_once() -> None:
    (found,) = run(ops.exp, S, replicas=4)
    assert len({id(value) for value in found}) == 1


def test_data_that_is_missing_is_named() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.host_load(popsr.h2d_stream((), popsr.float32, "x"))
    with pytest.raises(errors.SessionError, match="no value for stream 'x'"):
        run_exact(ir, {})


def test_outcomes_of_comparisons_are_known() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t, u = popsr.variable(np.zeros(40, np.float32)), popsr.variable(np.zeros((), np.float32))
        some = ops.greater(t, popsr.constant(0.0))
        all_ = ops.less(popsr.constant(1.0), popsr.constant(2.0))
        least = ops.minimum(u, popsr.constant(2.0))
        clipped = ops.clip(u, -1.0, 1e9)
    run_ = run_exact(ir, {t._id: [Numbers.draw((40,), "t", 0)], u._id: [Numbers.draw((), "u", 0)]})
    by_tensor = {op.outputs[0]._id: list(map(drawn_outcomes, run_.sides[op.id])) for op in ir.main_graph.ops}
    assert by_tensor == {
        some._id: [{True, False}],
        all_._id: [set()],
        least._id: [{True}],
        clipped._id: [{False}, {True}],
    }


def drawn_outcomes(sides: Any) -> set[bool]:
    """Outcomes of the elements of a comparison that a draw decided."""
    assert not np.any((sides & TAKEN_TRUE != 0) & (sides & TAKEN_FALSE != 0))
    return set((sides[(sides & DRAWN) != 0] & TAKEN_TRUE != 0).tolist())
