"""repeat_graph: all ops of a graph become the body of a loop, and what the program computes is what a loop computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import ops
from popsr._program.options.options import RoundingMode
from popsr.addons.transforms.repeat_graph import repeat_graph
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable

START = np.arange(6, dtype=np.float32).reshape(2, 3)
"""Value of the variable that programs change."""


def in_place(w: popsr.Tensor) -> None:
    ops.add_(w, popsr.constant(1.5, popsr.float32))


def in_place_twice(w: popsr.Tensor) -> None:
    """Both names of one memory are used."""
    grown = ops.scaled_add_(w, ops.mul(w, w), b=0.25)
    ops.scaled_add_(w, grown, b=0.5)


def through_views(w: popsr.Tensor) -> None:
    rows = ops.slice_(w, 0, 1, axis=0)
    flat = ops.reshape_(rows, (3,))
    ops.scaled_add_(flat, ops.slice(w, 1, 2, axis=0).reshape((3,)), b=0.5)
    ops.scaled_add_(ops.transpose_(w), ops.transpose(ops.mul(w, w)), b=-0.125)


def through_call(w: popsr.Tensor) -> None:
    def grow(t: popsr.TensorByRef) -> None:
        ops.scaled_add_(t, ops.sin(t), b=0.5)

    ops.call(w.ir.create_graph(grow, w), w)


def in_loop(w: popsr.Tensor) -> None:
    def grow(t: popsr.TensorByRef) -> None:
        ops.scaled_add_(t, ops.cos(t), b=0.5)

    ops.repeat(w.ir.create_graph(grow, w), 2, w)


BODIES: dict[str, Callable[[popsr.Tensor], None]] = {
    f.__name__: f for f in (in_place, in_place_twice, through_views, through_call, in_loop)
}


def variable_after(
    write: Callable[[popsr.Ir, popsr.Tensor], None], replication: int = 1, **options: Any
) -> Array:
    """The variable after one run of the program that ``write`` writes."""
    ir = popsr.Ir(replication=replication)
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(START)
        write(ir, w)
    with popsr.Session(ir, **options) as session:
        session.run()
    return session.get_tensor_data(w)


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 5])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "options", [{}, {"check": True, "replication": 2}], ids=["1 replica", "2 replicas checked"]
)
def test_main_graph_is_the_program_written_several_times(
    body: str, count: int, options: dict[str, Any]
) -> None:
    def repeated(ir: popsr.Ir, w: popsr.Tensor) -> None:
        BODIES[body](w)
        made = repeat_graph(ir.main_graph, count)
        assert (made is ir.main_graph) == (count <= 1)
        assert count <= 1 or [op.kind for op in ir.main_graph.ops] == ["repeat"]

    def unrolled(ir: popsr.Ir, w: popsr.Tensor) -> None:
        for _ in range(max(count, 1)):
            BODIES[body](w)

    assert_same_bits(variable_after(repeated, **options), variable_after(unrolled, **options))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(BODIES)), min_size=1, max_size=6), st.integers(2, 4), st.integers(1, 3)
)
def test_any_body_repeated_is_the_body_written_several_times(
    names: list[str], count: int, outer: int
) -> None:
    """Also when a repeated graph is repeated."""

    def repeated(ir: popsr.Ir, w: popsr.Tensor) -> None:
        for name in names:
            BODIES[name](w)
        repeat_graph(ir.main_graph, count)
        repeat_graph(ir.main_graph, outer)

    def unrolled(ir: popsr.Ir, w: popsr.Tensor) -> None:
        for name in names * (count * outer):
            BODIES[name](w)

    with np.errstate(all="ignore"):
        assert_same_bits(variable_after(repeated), variable_after(unrolled))


def test_streams_move_on_in_each_iteration() -> None:
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    ir = popsr.Ir()
    ir.num_host_transfers = 4
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        total = make_variable(np.zeros(3, np.float32))
        ops.add_(total, io.feed(data, transfers=True))
        io.fetch(total)
        body = repeat_graph(ir.main_graph, 4)
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], np.cumsum(data, axis=0, dtype=np.float32))
    assert [op.kind for op in body.ops] == ["host_load", "add_", "host_store"]


def returning(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
    return ops.tanh(x @ w)


def returning_in_place(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
    return ops.scaled_add_(x, x @ w, b=0.25)


def returning_and_writing(x: popsr.Tensor, w: popsr.TensorByRef) -> popsr.Tensor:
    product = x @ w
    with popsr.in_sequence():
        ops.scaled_add_(w, product, b=0.125)
    return ops.tanh(product)


def returning_swapped(x: popsr.Tensor, w: popsr.Tensor) -> tuple[popsr.Tensor, popsr.Tensor]:
    return ops.tanh(w), x


def carried_program(
    fn: Callable[..., Any], count: int, by_hand: bool, replication: int, **options: Any
) -> list[Array]:
    """Results of fn(x, w), carried, and w after it."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 4)).astype(np.float32)
    ir = popsr.Ir(replication=replication)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(rng.standard_normal((4, 4)).astype(np.float32))
        graph = ir.create_graph(fn, w, w)
        loaded = io.feed(x)
        if by_hand:
            results = ops.repeat(graph, count, loaded, w)
        else:
            results = ops.call(graph, loaded, w)
            repeat_graph(graph, count)
        for result in results:
            io.fetch(result)
    with popsr.Session(ir, **options) as session:
        return [*io.run(session), session.get_tensor_data(w)]


@pytest.mark.parametrize("replication", [1, 3])
@pytest.mark.parametrize("count", [2, 7])
@pytest.mark.parametrize("fn", [returning, returning_in_place, returning_and_writing, returning_swapped])
def test_outputs_of_a_called_graph_are_carried_as_by_repeat(
    fn: Callable[..., Any], count: int, replication: int
) -> None:
    got = carried_program(fn, count, False, replication, check=True)
    for each, expect in zip(got, carried_program(fn, count, True, replication), strict=True):
        assert_same_bits(each, expect)


@pytest.mark.parametrize("mode", ["partition", "popart"])
def test_stochastic_rounding_draws_as_in_a_loop_written_by_hand(mode: RoundingMode) -> None:
    """Ops and loops have the numbers that they have in that program."""

    def program(by_hand: bool) -> Array:
        ir = popsr.Ir(replication=2)
        ir.options.enable_stochastic_rounding = True
        ir.options.stochastic_rounding_mode = mode

        def body(t: popsr.TensorByRef) -> None:
            ops.scaled_add_(t, ops.mul(t, t), b=0.01)

        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.linspace(1, 2, 64, dtype=np.float32), popsr.bfloat16)
            if by_hand:
                ops.repeat(ir.create_graph(body, w), 5, w)
            else:
                body(w)
                repeat_graph(ir.main_graph, 5)
        with popsr.Session(ir) as session:
            session.run()
        return session.get_tensor_data(w)

    assert_same_bits(program(False), program(True))


def test_remote_values_are_loaded_and_stored_in_each_iteration() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((3,), popsr.float32, 2)
        w = popsr.remote_variable(np.ones(3, np.float32), buffer, 1)
        loaded = ops.remote_load(buffer, 1)
        ops.remote_store(buffer, 1, ops.add(loaded, loaded))
        repeat_graph(ir.main_graph, 4)
    with popsr.Session(ir, check=True) as session:
        session.run()
    assert_same_bits(session.get_tensor_data(w), np.full(3, 16, np.float32))


def test_places_are_what_they_were() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w, v = make_variable(START, "w"), make_variable(START, "v")
        with popsr.ipu(1):
            grown = ops.add(w, w)
        ops.add_(v, ops.ipu_copy(grown, 0))
        before = [t.ipu for t in (w, v, grown)]
        repeat_graph(ir.main_graph, 2)
    assert [t.ipu for t in (w, v, grown)] == before == [1, 0, 1]


def test_tensors_that_programs_hold_are_of_the_new_graph() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.name_scope("layer"):
        w = make_variable(START)
        grown = ops.mul(w, w)
        twice = ops.add(grown, grown)
    call = grown._graph.ops[0]
    body = repeat_graph(ir.main_graph, 3)
    assert grown in body
    assert twice in body
    assert w in ir.main_graph
    assert grown.id == f"{body.id}/layer/mul_out"
    assert grown.name == "layer/mul_out"
    assert body.get_tensor(grown.id) is grown
    assert call.outputs == (grown,)
    assert body.ops[0] == call
    assert ir.main_graph.tensors == (w,)
    assert len(body.inputs) == 1
    assert not ir._core.tensor(body.inputs[0]._id).by_ref, "what is only read is passed by value"


def test_order_of_in_sequence_is_kept() -> None:
    """An order that only in_sequence says is still there, inside and around the loop."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(START)
        io = Streams()
        ops.add_(w, w)
        ops.scaled_add_(w, w)
        repeat_graph(ir.main_graph, 2)
        io.fetch(w)  # follows the loop
    loop, store = ir.main_graph.ops
    assert ir._core.op_after(store.id) == [loop.id]
    ir._core.verify()


def test_facts_in_the_loop_are_those_of_a_loop() -> None:
    """A value that differs between replicas stays known as different, an all-reduced one as equal."""
    ir = popsr.Ir(replication=4)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(np.zeros(3, np.float32))
        x = io.feed(np.ones((4, 3), np.float32), replicated=True)
        equal = ops.collectives.replicated_all_reduce(x)
        ops.add_(w, equal)
        repeat_graph(ir.main_graph, 3)
    facts = popsr.analysis.analyze(ir)
    assert not facts.is_equal(x)
    assert facts.is_equal(equal)
    assert facts.is_equal(w)


def two_outputs(ir: popsr.Ir, shapes: list[tuple[int, ...]], dtype: popsr.dtype) -> popsr.Graph:
    specs = [popsr.TensorSpec(shape, dtype) for shape in shapes]
    return ir.create_graph(lambda *t: [ops.cast(ops.flatten(each), popsr.float32) for each in t], *specs)


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda ir: repeat_graph("main", 2), TypeError, "graph is not a Graph, got 'main'"),  # type: ignore[arg-type]
        (lambda ir: repeat_graph(ir.main_graph, 2.5), TypeError, "repeat_count is not an int, got 2.5"),  # type: ignore[arg-type]
        (lambda ir: repeat_graph(ir.main_graph, True), TypeError, "repeat_count is not an int, got True"),
        (
            lambda ir: repeat_graph(two_outputs(ir, [(2, 2)], popsr.float32), 2),
            popsr.errors.ShapeError,
            r"loop-carried shapes differ, got f32\[4\] from output '.*', expected f32\[2, 2\] of input",
        ),
        (
            lambda ir: repeat_graph(two_outputs(ir, [(2,)], popsr.float16), 2),
            popsr.errors.DTypeError,
            r"loop-carried dtypes differ, got f32\[2\] from output '.*', expected f16\[2\] of input",
        ),
        (
            lambda ir: repeat_graph(ir.create_graph(lambda: popsr.constant(1.0) + 1.0), 2),
            popsr.errors.GraphError,
            "fewer inputs than outputs, got 0 and 1, expected an input per output",
        ),
    ],
)
def test_graphs_that_cannot_be_repeated_are_refused_and_nothing_changes(
    build: Callable[[popsr.Ir], Any], error: type[Exception], match: str
) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.init((1,), popsr.float32)
        with pytest.raises(error, match=match) as caught:
            build(ir)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert all("repeat" not in (op.kind for op in ir._graph(g).ops) for g in range(ir._core.num_graphs))
