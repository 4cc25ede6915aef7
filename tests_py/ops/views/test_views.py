"""Views: what shares memory, what is copied when, gradients through them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
X = np.arange(24, dtype=np.float32).reshape(4, 6) - 11


def run(
    build: Callable[[popsr.Variable], Any], *, replicas: int = 2, **options: Any
) -> tuple[Array, list[Array]]:
    """The variable ``X`` after ``build`` of it ran, and what it gave."""
    ir, io = popsr.Ir(replication=replicas), Streams()
    with ir.main_graph, popsr.in_sequence():
        variable = make_variable(X)
        for tensor in build(variable) or ():
            io.fetch(tensor)
    with popsr.Session(ir, **options) as session:
        outputs = io.run(session)
        return session.get_tensor_data(variable), [o if replicas == 1 else o[0] for o in outputs]


# One memory

# A view with popsr, and with NumPy.
VIEWS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "slice": (lambda t: ops.slice_(t, [1, 0], [3, 4]), lambda a: a[1:3, :4]),
    "reversed": (lambda t: ops.slice_(t, None, None, -1, 1), lambda a: a[:, ::-1]),
    "transpose": (lambda t: ops.transpose_(t), lambda a: a.T),
    "T_": (lambda t: t.T_, lambda a: a.T),
    "method": (lambda t: t.transpose_((1, 0)), lambda a: a.T),
    "reshape": (lambda t: ops.reshape_(t, (2, -1)), lambda a: a.reshape(2, 12)),
    "reshape-method": (lambda t: t.reshape_((8, 3)), lambda a: a.reshape(8, 3)),
    "flatten": (lambda t: t.flatten_(), lambda a: a.reshape(-1)),
    "detach": (lambda t: t.detach_(), lambda a: a),
    "slice-of-transpose": (lambda t: ops.slice_(t.T_, 2, 5), lambda a: a.T[2:5]),
    "slice-of-flat": (lambda t: ops.slice_(t.flatten_(), 5, 17), lambda a: a.reshape(-1)[5:17]),
    "rows-of-reshape": (lambda t: ops.slice_(t.reshape_((3, 8)), 1, 2), lambda a: a.reshape(3, 8)[1:2]),
    "all-of-it": (lambda t: ops.slice_(t), lambda a: a),
}


@pytest.mark.parametrize("name", VIEWS)
def test_writing_a_view_changes_what_it_views(name: str) -> None:
    view, model = VIEWS[name]

    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        return [x + 0, ops.relu_(view(x)), x + 0, view(x)]

    expect = X.copy()
    model(expect)[...] = np.maximum(model(expect), 0)
    assert not np.array_equal(expect, X)
    after, (before, alias, base, again) = run(build)
    for got, want in (
        (after, expect),
        (before, X),
        (base, expect),
        (alias, model(expect)),
        (again, model(expect)),
    ):
        assert_same_bits(got, want)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_reads_what_its_base_holds_by_then(name: str) -> None:
    view, model = VIEWS[name]

    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        v = view(x)
        before = v + 0
        ops.add_(x, x)
        return [before, v]

    after, (before, now) = run(build)
    assert_same_bits(after, 2 * X)
    assert_same_bits(before, model(X))
    assert_same_bits(now, 2 * model(X))


def test_writing_what_stands_side_by_side_changes_each() -> None:
    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        left, right = ops.slice_(x, 0, 2, axis=1), ops.slice_(x, 4, 6, axis=1)
        other = ops.init((4, 1), F32)
        both = ops.concat_([right, other, left], 1)
        var_updates.copy_var_update_(both, ops.slice(x, 1, 6, axis=1))
        return [left, right, other]

    expect = X.copy()
    expect[:, 4:], expect[:, :2] = X[:, 1:3], X[:, 4:]
    after, (left, right, other) = run(build)
    assert_same_bits(after, expect)
    assert_same_bits(left, expect[:, :2])
    assert_same_bits(right, expect[:, 4:])
    assert_same_bits(other, X[:, 3:4])


def test_an_operand_that_overlaps_is_read_before_it_is_written() -> None:
    def build(x: popsr.Variable) -> None:
        ops.add_(ops.slice_(x, 1, 4), ops.slice_(x, 0, 3))

    expect = X.copy()
    expect[1:] += X[:-1]
    assert_same_bits(run(build)[0], expect)


def test_writing_a_part_leaves_what_its_base_got_meanwhile() -> None:
    """The part is a view of a view in another order; the base is written elsewhere in between."""

    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        part = ops.slice_(ops.flatten_(x.T_), 0, 3)
        before = part + 0
        ops.add_(ops.slice_(x, 3, 4), ops.slice_(x, 3, 4))
        ops.relu_(part)
        return [before, part]

    expect = X.copy()
    expect[3] *= 2
    expect[:3, 0] = np.maximum(expect[:3, 0], 0)
    after, (before, part) = run(build)
    assert_same_bits(after, expect)
    assert_same_bits(before, X[:3, 0])
    assert_same_bits(part, expect[:3, 0])


def test_a_split_is_not_a_view() -> None:
    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        parts = [*ops.split(x, 3, 1), *ops.split(x, [1, 0, 3]), *ops.split(x, [2, 4], -1)]
        ops.relu_(parts[0])
        return parts[1:]

    after, parts = run(build)
    assert_same_bits(after, X)
    expect = [*np.split(X, 3, 1)[1:], X[:1], X[1:1], X[1:], X[:, :2], X[:, 2:]]
    for got, want in zip(parts, expect, strict=True):
        assert_same_bits(got, want)


# Graphs


def negate_(t: TensorByRef) -> None:
    var_updates.accumulator_scale_(ops.slice_(t, 0, 1), -1.0)


def negated(t: popsr.Tensor) -> popsr.Tensor:
    return ops.relu_(ops.slice_(t, 0, 1))


def test_a_view_is_passed_by_reference_or_copied() -> None:
    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        rows = ops.slice_(x, 2, 4)
        ir = x.ir
        ops.call(ir.create_graph(negate_, rows), rows)
        by_value = ops.call(ir.create_graph(negated, rows), rows)[0]
        ops.repeat(ir.create_graph(negate_, x), 3, x)
        return [by_value, rows]

    expect = X.copy()
    expect[2] *= -1
    expect[0] *= -1
    after, (by_value, rows) = run(build)
    assert_same_bits(after, expect)
    assert_same_bits(by_value, np.maximum(expect[2:3], 0))
    assert_same_bits(rows, expect[2:])


def test_branches_write_views_of_their_arguments_only() -> None:
    """Each replica takes its own branch; what a branch gets is a copy."""
    ir, io = popsr.Ir(replication=3), Streams()
    with ir.main_graph, popsr.in_sequence():
        x = make_variable(X)
        taken = io.feed(np.array([True, False, True]), replicated=True)
        row = ops.slice_(x, 1, 2)

        def taken_branch(t: popsr.Tensor) -> popsr.Tensor:
            part = ops.slice_(t, 0, 3, axis=1)
            ops.relu_(part)
            return t.T_

        graphs = [ir.create_graph(fn, row) for fn in (taken_branch, lambda t: ops.transpose_(t))]
        io.fetch(unchecked(ops.conditional)(taken, *unchecked(graphs), [row], [row])[0])
        io.fetch(x)
    part = X[1:2].copy()
    part[:, :3] = np.maximum(part[:, :3], 0)
    for options in ({}, {"dedup": False}, {"check": True}):
        with popsr.Session(ir, **unchecked(options)) as session:
            chosen, whole = io.run(session)
        assert_same_bits(chosen, np.stack([part.T, X[1:2].T, part.T]))
        assert_same_bits(whole, np.stack([X] * 3))


# Copies


def counts(build: Callable[[popsr.Variable], Any]) -> dict[str, int]:
    """Number of copies by ops that make views."""
    ir, io = popsr.Ir(replication=4), Streams()
    with ir.main_graph, popsr.in_sequence():
        for tensor in build(make_variable(X)):
            io.fetch(tensor)
    with popsr.Session(ir) as session:
        io.run(session)
        return {op: n for op, n in session.stats["kernel_calls"].items() if op.endswith("_")}


def test_a_view_is_copied_when_it_is_read_and_once() -> None:
    assert counts(lambda x: [ops.slice_(x, 0, 2), x]) == {"slice_": 1}
    assert counts(lambda x: [x]) == {}

    def unread(x: popsr.Variable) -> list[popsr.Tensor]:
        ops.slice_(x, 0, 2)
        return [x]

    assert counts(unread) == {}

    def twice(x: popsr.Variable) -> list[popsr.Tensor]:
        v = ops.slice_(x, 0, 2)
        return [v + 0, v + 1, v]

    assert counts(twice) == {"slice_": 1}


def test_a_view_is_copied_again_when_its_elements_were_written() -> None:
    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        first, second = ops.slice_(x, 0, 2), ops.slice_(x, 2, 4)
        a = first + 0
        ops.relu_(second)
        b = first + 0
        ops.relu_(x)
        return [a, b, first + 0]

    # first: twice; second: from and to its base.
    assert counts(build) == {"slice_": 4, "relu_": 2}


def test_other_shapes_of_the_same_bytes_are_not_copied() -> None:
    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        rows = x.reshape_((2, 12)).flatten_().detach_().reshape_((24, 1))
        ops.relu_(rows)
        return [rows, x]

    assert counts(build) == {"relu_": 1}


def test_views_of_views_are_copied_from_where_they_are() -> None:
    def build(x: popsr.Variable) -> list[popsr.Tensor]:
        part = ops.slice_(ops.slice_(x.T_, 1, 5), 1, 3, axis=1)
        ops.relu_(part)
        return [part]

    assert counts(build) == {"slice_": 2, "relu_": 1}


def test_replicas_that_agree_share_views() -> None:
    ir, io = popsr.Ir(replication=64), Streams()
    with ir.main_graph, popsr.in_sequence():
        x = make_variable(X)
        io.fetch(ops.relu_(ops.slice_(x, 0, 2)))
    with popsr.Session(ir) as session:
        io.run(session)
        assert session.stats["blocks"]["slice_"] == 2
        assert "slice_ (write back)  blocks=1" in session.plan
        assert session.memory()["variables"] == X.nbytes


# Facts


def test_halves_reduced_in_place_make_the_whole_equal() -> None:
    ir, io = popsr.Ir(replication=4), Streams()
    with ir.main_graph, popsr.in_sequence():
        x = io.feed(np.stack([X * r for r in range(4)]), replicated=True)
        halves = [ops.slice_(x, 0, 2), ops.slice_(x, 2, 4)]
        collectives.replicated_all_reduce_(halves[0])
        middle = ops.slice_(x, 1, 3)
        io.fetch(middle)
        collectives.replicated_all_reduce_(halves[1])
        io.fetch(x)
    facts = popsr.analysis.analyze(ir)
    assert facts.is_equal(x)
    assert [(time, str(fact)) for time, _, fact in facts.values(middle)] == [
        (4, "{0}{1}{2}{3}"),
        (6, "{0,1,2,3}"),
    ]
    with popsr.Session(ir, check=True) as session:
        before, after = io.run(session)
    assert not np.array_equal(before[0], before[1])
    assert_same_bits(after, np.stack([X * 6] * 4))


def test_one_merged_load_into_two_halves_keeps_them_apart() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        x = make_variable(X)
        halves = [ops.slice_(x, 0, 2), ops.slice_(x, 2, 4)]
        io = Streams()
        data = [io.feed(X[:2]), io.feed(np.stack([X[:2], X[2:]]), replicated=True)]
        buffers = [popsr.remote_buffer((2, 6), F32, 1) for _ in data]
        for buffer, each in zip(buffers, data, strict=True):
            ops.remote_store(buffer, 0, each)
        with transforms.merge_exchange():
            for buffer, half in zip(buffers, halves, strict=True):
                ops.remote_load_(buffer, 0, half)
        kinds = [op.kind for op in ir.main_graph.ops]
        io.fetch(x)
    assert kinds[-1] == "multi_exchange"
    facts = popsr.analysis.analyze(ir)
    assert [facts.is_equal(t) for t in (x, *halves)] == [False, True, False]
    with popsr.Session(ir, check=True) as session:
        (got,) = io.run(session)
    assert_same_bits(got, np.stack([np.concatenate([X[:2], X[:2]]), X[[0, 1, 2, 3]]]))


def test_views_draw_no_random_numbers() -> None:
    def weights(views: bool) -> Array:
        ir, io = popsr.Ir(replication=2), Streams()
        ir.options.enable_stochastic_rounding = True
        with ir.main_graph, popsr.in_sequence():
            w = make_variable(X.astype(popsr.bfloat16.as_numpy()))
            step = io.feed((X / 700).astype(popsr.bfloat16.as_numpy()))
            target = w.reshape_((6, 4)).flatten_().reshape_((4, 6)) if views else w
            var_updates.accumulate_(target, step)
            var_updates.accumulate_(w, step)
        with popsr.Session(ir, seed=3) as session:
            io.run(session)
            return session.get_tensor_data(w)

    assert_same_bits(weights(True), weights(False))


# Gradients


def test_a_graph_with_views_is_differentiated() -> None:
    ir, io = popsr.Ir(), Streams()
    a, b = X[:, :2].copy(), X[:, 2:].copy()
    seed = np.ones_like(X)
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(a), io.feed(b)]

        def forward(x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
            both = ops.concat_([x, y], 1)
            return ops.mul(both, both) * y.detach_().flatten_().reshape_((4, 4)).detach()[0, 0]

        graph = ir.create_graph(forward, *tensors)
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, *tensors)
        for gradient in ops.call(info.graph, io.feed(seed), inputs_dict=info.inputs_dict(call)):
            io.fetch(gradient)
    with popsr.Session(ir) as session:
        grads = io.run(session)
    for got, value in zip(grads, (a, b), strict=True):
        assert_same_bits(got, (b[0, 0] * value + b[0, 0] * value).astype(np.float32))


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: ops.reshape_(x, (24,)) * 2, r"unable to provide required gradient of '.*/x'"),
        (lambda x: ops.flatten_(x) * 2, "unable to provide required gradient"),
        (lambda x: x.T_ * 2, "unable to provide required gradient"),
        (lambda x: x.detach_() * 2, "unable to provide required gradient"),
        (lambda x: x.detach() * 2, "unable to provide required gradient"),
        (lambda x: ops.slice_(x, 0, 1) * 2, "autodiff: slice_ has no gradient"),
        (lambda x: ops.relu_(x.flatten_()), "contains a modifying op, got relu_"),
    ],
)
def test_gradients_that_views_do_not_have(fn: Any, match: str) -> None:
    ir = popsr.Ir()
    with ir.main_graph:

        def forward(x: popsr.Tensor) -> popsr.Tensor:
            result: popsr.Tensor = fn(x)
            return result

        graph = ir.create_graph(forward, popsr.TensorSpec((4, 6), F32))
        with pytest.raises(errors.GraphError, match=match):
            transforms.autodiff(graph)


def test_memory_passed_twice_is_modified_once() -> None:
    ir = popsr.Ir()

    def both(a: TensorByRef, b: TensorByRef) -> None:
        ops.relu_(a)
        ops.relu_(b)

    with ir.main_graph, popsr.in_sequence():
        x = make_variable(X)
        rows = ops.slice_(x, 1, 3)
        graph = ir.create_graph(both, x, rows)
        ops.call(graph, x, rows)
    with pytest.raises(
        errors.GraphError, match=r"Inplacing ambiguity detected\. call: '.*slice__out' is passed twice"
    ):
        popsr.Session(ir)


def test_views_that_share_elements_need_an_order() -> None:
    for start, ambiguous in ((2, False), (1, True)):
        ir = popsr.Ir()
        ir.options.enable_inplace_ambiguity_checking = True
        with ir.main_graph:
            x = make_variable(X)
            first, second = ops.slice_(x, 0, 2), ops.slice_(x, start, 4)
            ops.relu_(first)
            ops.relu_(second)
        if ambiguous:
            with pytest.raises(errors.GraphError, match=r"Inplacing ambiguity detected\. relu_: "):
                popsr.Session(ir)
        else:
            popsr.Session(ir)
