"""Tensors that are brought into called graphs: through calls, loops and branches, by value and by reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr.addons.route_tensor import (
    called_graph_paths,
    connect_call_op,
    connect_loop_op,
    connect_tensor_to_ops_on_path,
    is_subgraph,
    route_tensor_into_graph,
)
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable
from tests_py.support.unchecked import unchecked

W = np.arange(3, dtype=np.float32)
X = np.array([1.0, 2.0, 4.0], np.float32)


def scale(x: popsr.Tensor) -> popsr.Tensor:
    return x * 2.0


def empty(ir: popsr.Ir) -> popsr.Graph:
    return ir.create_empty_graph()


def run(ir: popsr.Ir, io: Streams, **options: Any) -> list[Array]:
    with popsr.Session(ir, **options) as session:
        return io.run(session)


# Reachability


class Diamond:
    """main -> left, right; left -> bottom; right -> bottom, twice; lonely is called by nobody."""

    def __init__(self, replication: int = 1) -> None:
        self.ir = popsr.Ir(replication=replication)
        self.io = Streams()
        self.bottom = self.ir.create_graph(scale, popsr.TensorSpec((3,), popsr.float32))
        spec = popsr.TensorSpec((3,), popsr.float32)
        self.left = self.ir.create_graph(lambda x: ops.call(self.bottom, x)[0] + 1.0, spec)
        self.right = self.ir.create_graph(lambda x: ops.call(self.bottom, ops.call(self.bottom, x)), spec)
        self.lonely = self.ir.create_graph(scale, spec)
        with self.ir.main_graph, popsr.in_sequence():
            self.w = make_variable(W)
            self.early = ops.add(self.w, self.w)
            x = self.io.feed(X)
            self.io.fetch(ops.call(self.left, x)[0])
            self.io.fetch(ops.call(self.right, x)[0])
            self.late = ops.add(self.w, self.w)

    def add_to_bottom(self, routed: popsr.Tensor) -> None:
        """The bottom graph's result becomes ``x * 2 + routed``: written in place, as outputs are fixed."""
        with self.bottom:
            ops.add_(self.bottom.outputs[0], routed)


def test_subgraphs_are_graphs_that_calls_lead_to() -> None:
    d = Diamond()
    main = d.ir.main_graph
    graphs = {"main": main, "left": d.left, "right": d.right, "bottom": d.bottom, "lonely": d.lonely}
    found = {
        (a, b) for a, parent in graphs.items() for b, graph in graphs.items() if is_subgraph(parent, graph)
    }
    assert found == {
        ("main", "left"),
        ("main", "right"),
        ("main", "bottom"),
        ("left", "bottom"),
        ("right", "bottom"),
    }


def test_paths_are_all_ways_of_calls() -> None:
    d = Diamond()
    main, bottom = d.ir.main_graph, d.bottom
    assert called_graph_paths(main, bottom) == {
        (main.id, d.left.id, bottom.id),
        (main.id, d.right.id, bottom.id),
    }
    assert called_graph_paths(d.left, bottom) == {(d.left.id, bottom.id)}
    assert called_graph_paths(main, d.lonely) == set() == called_graph_paths(bottom, main)
    assert called_graph_paths(main, main) == {(main.id,)}


# Routing


@pytest.mark.parametrize("options", [{}, {"check": True}], ids=str)
@pytest.mark.parametrize("replication", [1, 2])
def test_each_graph_and_call_on_the_ways_gains_one_input(replication: int, options: dict[str, Any]) -> None:
    d = Diamond(replication)
    before = {graph: len(graph.inputs) for graph in (d.left, d.right, d.bottom, d.lonely)}
    routed = route_tensor_into_graph(d.early, d.bottom)
    assert routed in d.bottom
    assert routed.spec == d.early.spec
    gained = {graph: len(graph.inputs) - count for graph, count in before.items()}
    assert gained == {d.left: 1, d.right: 1, d.bottom: 1, d.lonely: 0}
    d.add_to_bottom(routed)
    got = run(d.ir, d.io, **options)
    bottom = [X * 2 + 2 * W]
    bottom.append(bottom[0] * 2 + 2 * W)
    for found, expect in zip(got, [bottom[0] + 1, bottom[1]], strict=True):
        assert_same_bits(found[0] if replication > 1 else found, expect)


def test_a_tensor_is_routed_once() -> None:
    d = Diamond()
    routed = route_tensor_into_graph(d.w, d.bottom)
    assert route_tensor_into_graph(d.w, d.bottom) is routed
    assert route_tensor_into_graph(d.w, d.left) is d.left.inputs[-1]
    by_ref = route_tensor_into_graph(d.w, d.bottom, True)
    assert by_ref is not routed
    assert route_tensor_into_graph(d.w, d.bottom, [object()]) is by_ref
    with d.bottom:
        assert route_tensor_into_graph(d.w) is routed
        assert route_tensor_into_graph(routed) is routed
    assert len(d.bottom.inputs) == 3


def test_facts_of_what_is_routed_are_those_of_the_tensor() -> None:
    ir = popsr.Ir(replication=4)
    io = Streams()
    graph = empty(ir)
    with ir.main_graph:
        x = io.feed(np.zeros((4, 3), np.float32), replicated=True)
        equal = ops.collectives.replicated_all_reduce(x)
        ops.call(graph)
    with graph:
        differing, same = route_tensor_into_graph(x), route_tensor_into_graph(equal)
        both = ops.add(differing, same)
    facts = popsr.analysis.analyze(ir)
    assert facts.is_equal(same)
    assert not facts.is_equal(differing)
    assert not facts.is_equal(both)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_by_reference_into_a_loop(count: int) -> None:
    """Writes of iterations stay; the carried value keeps its bits."""
    ir = popsr.Ir()
    io = Streams()
    body = ir.create_graph(scale, popsr.TensorSpec((3,), popsr.float32))
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(W)
        (carried,) = ops.repeat(body, count, io.feed(X))
        io.fetch(carried)
    with body:
        ops.add_(route_tensor_into_graph(w, modified=True), body.inputs[0])
    with popsr.Session(ir, check=True) as session:
        (got,) = io.run(session)
    assert_same_bits(got, X * np.float32(2**count))
    assert_same_bits(session.get_tensor_data(w), W + X * np.float32(2**count - 1))


@pytest.mark.parametrize("same_branch", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_by_reference_into_branches(taken: bool, same_branch: bool) -> None:
    """Inputs of both branches keep their places among the conditional's."""
    ir = popsr.Ir()
    io = Streams()
    spec = popsr.TensorSpec((3,), popsr.float32)

    def write(t: popsr.TensorByRef, x: popsr.Tensor) -> popsr.Tensor:
        ops.add_(t, x)
        return x

    graphs = [ir.create_graph(write, spec, spec) for _ in range(2)]
    chosen = [graphs[0], graphs[0 if same_branch else 1]]
    with ir.main_graph, popsr.in_sequence():
        w, v = make_variable(W, "w"), make_variable(W, "v")
        x = io.feed(X)
        info = unchecked(ops.conditional_with_info)(
            io.feed(np.array(taken)), *unchecked(chosen), (w, x), (w, x)
        )
    with graphs[0], popsr.in_sequence():
        inner = route_tensor_into_graph(v, modified=True)
        ops.add_(inner, graphs[0].inputs[1])
    assert [graph.inputs[0] for graph in info.called_graph] == [graph.inputs[0] for graph in chosen]
    assert info.graph_to_parent(inner) is v
    with popsr.Session(ir) as session:
        io.run(session)
    assert_same_bits(session.get_tensor_data(w), W + X)
    assert_same_bits(session.get_tensor_data(v), W + X if taken or same_branch else W)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_routing_through_any_calls_is_passing_by_hand(data: st.DataObject) -> None:
    """Random graphs of calls: the sum that reaches the last graph is what inputs written by hand give."""
    depth = data.draw(st.integers(1, 5))
    calls = [data.draw(st.lists(st.integers(0, i - 1), min_size=1, max_size=3)) for i in range(1, depth + 1)]

    def program(routed: bool) -> Array:
        ir = popsr.Ir()
        spec = popsr.TensorSpec((3,), popsr.float32)
        last = ir.create_empty_graph("last")
        with last:
            x = popsr.graph_input((3,), popsr.float32)
            result = x * 2.0
            if not routed:
                result = result + popsr.graph_input((3,), popsr.float32)
            else:
                result = ops.add(result, popsr.constant(np.zeros(3, np.float32)))
            popsr.graph_output(result)
        made = [last]
        for called in calls:

            def build(x: popsr.Tensor, *more: popsr.Tensor, called: list[int] = called) -> popsr.Tensor:
                for number in called:
                    (x,) = ops.call(made[number], x, *more)
                return x

            made.append(ir.create_graph(build, spec, *([] if routed else [spec])))
        io = Streams()
        with ir.main_graph:
            w = make_variable(W)
            (out,) = ops.call(made[-1], io.feed(X), *([] if routed else [w]))
            io.fetch(out)
        reachable = is_subgraph(ir.main_graph, last)
        assert reachable
        if routed:
            uncalled = [graph for graph in made[1:-1] if not is_subgraph(ir.main_graph, graph)]
            if any(is_subgraph(graph, last) for graph in uncalled):
                with pytest.raises(errors.GraphError, match="is also called from"):
                    route_tensor_into_graph(w, last)
                return np.zeros(0, np.float32)
            inner = route_tensor_into_graph(w, last)
            with last:
                ops.add_(last.outputs[0], inner)
        return run(ir, io)[0]

    got = program(True)
    if got.size:
        assert_same_bits(got, program(False))


# Single connections


def test_connecting_ops_one_by_one_is_routing() -> None:
    ir = popsr.Ir()
    io = Streams()
    inner = ir.create_graph(scale, popsr.TensorSpec((3,), popsr.float32))
    outer = ir.create_graph(lambda x: ops.repeat(inner, 2, x), popsr.TensorSpec((3,), popsr.float32))
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(W)
        (out,) = ops.call(outer, io.feed(X))
        io.fetch(out)
    call = next(op for op in ir.main_graph.ops if op.kind == "call")
    known: dict[str, popsr.Tensor] = {}
    connect_call_op(call, w, known, [])
    connect_call_op(call, w, known, [])
    connect_loop_op(outer.ops[0], known[outer.id], known, True)
    assert set(known) == {outer.id, inner.id}
    assert [len(g.inputs) for g in (outer, inner)] == [2, 2]
    with inner:
        ops.add_(known[inner.id], inner.inputs[0])
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], X * 4)
    assert_same_bits(session.get_tensor_data(w), W)  # by value from main to outer


def test_connecting_along_a_path() -> None:
    d = Diamond()
    known: dict[str, popsr.Tensor] = {}
    for path in sorted(
        called_graph_paths(d.ir.main_graph, d.left) | called_graph_paths(d.ir.main_graph, d.right)
    ):
        connect_tensor_to_ops_on_path(path, d.w, known, [])
    connect_tensor_to_ops_on_path((d.ir.main_graph.id, d.left.id, d.bottom.id), d.w, known, [])
    d.add_to_bottom(known[d.bottom.id])
    assert_same_bits(run(d.ir, d.io)[0], X * 2 + W + 1)


# Refusals


def constant_by_ref(d: Diamond) -> None:
    with d.ir.main_graph:
        route_tensor_into_graph(popsr.constant(W), d.left, True)


def called_from_elsewhere(d: Diamond) -> None:
    with d.lonely:
        ops.call(d.bottom, d.lonely.inputs[0])
    route_tensor_into_graph(d.w, d.bottom)


def remote(d: Diamond) -> None:
    with d.ir.main_graph:
        buffer = popsr.remote_buffer((3,), popsr.float32, 1)
        route_tensor_into_graph(popsr.remote_variable(W, buffer, 0), d.bottom)


def other_ir(d: Diamond) -> None:
    with popsr.Ir().main_graph:
        route_tensor_into_graph(make_variable(W), d.bottom)


def connect_half(d: Diamond) -> None:
    """The other caller of the graph has nothing to pass."""
    known: dict[str, popsr.Tensor] = {}
    call = next(op for op in d.ir.main_graph.ops if op.kind == "call")
    connect_call_op(call, d.w, known, False)
    connect_tensor_to_ops_on_path((d.left.id, d.bottom.id), known[d.left.id], known, False)


REFUSED: list[tuple[Callable[[Diamond], Any], type[Exception], str]] = [
    (lambda d: route_tensor_into_graph(unchecked("w"), d.left), TypeError, "tensor is not a Tensor, got 'w'"),
    (
        lambda d: route_tensor_into_graph(d.w, unchecked("left")),
        TypeError,
        "graph is not a Graph, got 'left'",
    ),
    (
        lambda d: route_tensor_into_graph(d.w, d.lonely),
        ValueError,
        "is not in graph .*lonely|known parent",
    ),
    (
        lambda d: route_tensor_into_graph(d.bottom.inputs[0], d.left),
        ValueError,
        "is not in a known parent graph",
    ),
    (other_ir, ValueError, "is not in a known parent graph"),
    (
        lambda d: route_tensor_into_graph(d.late, d.left),
        ValueError,
        r"is made after call at .*\.py:\d+, got .*\.py:\d+",
    ),
    (lambda d: route_tensor_into_graph(d.late, d.bottom), ValueError, "is made after call"),
    (constant_by_ref, ValueError, "a constant would be modified"),
    (called_from_elsewhere, ValueError, "is also called from .* at .*, where 'v' is not known"),
    (remote, ValueError, "is for the host only"),
    (lambda d: connect_call_op(unchecked(d.w), d.w, {}, False), TypeError, "connect_call_op: not a call op"),
    (lambda d: connect_loop_op(d.left.ops[0], d.w, {}, False), TypeError, "connect_loop_op: not a repeat op"),
    (lambda d: connect_call_op(d.left.ops[0], d.w, {}, False), ValueError, "'v' is not in the graph of"),
    (
        lambda d: connect_call_op(d.right.ops[0], d.right.inputs[0], {}, False),
        ValueError,
        "call at .* has no tensor",
    ),
    (connect_half, ValueError, "call at .* has no tensor for input"),
    (
        lambda d: connect_tensor_to_ops_on_path((d.left.id,), d.w, {}, False),
        ValueError,
        "is not in the graph that the path begins with",
    ),
    (
        lambda d: connect_tensor_to_ops_on_path(("", "x"), d.w, {}, False),
        ValueError,
        r"unknown graphs \['x'\]",
    ),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_tensors_that_cannot_be_routed_are_refused(
    build: Callable[[Diamond], Any], error: type[Exception], match: str
) -> None:
    d = Diamond()
    with pytest.raises(error, match=match) as caught:
        build(d)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert len(d.bottom.inputs) == 1, "nothing was added"
    assert_same_bits(run(d.ir, d.io)[0], X * 2 + 1)
