"""Gradient graphs: their order, running means of gradients, and computing the forward graph again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.module import Module
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.transforms.autodiff import autodiff, autodiff_with_accumulation, remap_grad_info
from popsr.addons.transforms.recomputation import add_recompute_inputs, recompute_graph
from popsr.transforms import ExpectedConnectionType
from tests_py.addons.cases import Inlined, Linear, Outlined, num_graphs
from tests_py.support.helpers import Array, assert_same_bits, dtype, np_dtype
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Tensor = popsr.Tensor
FWD, GRAD = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad


class Net(Module):
    """Sum of ``tanh(x @ w + b)``; ``deep`` adds a part that is inlined and one that is called."""

    def __init__(self, deep: bool = False) -> None:
        super().__init__()
        self.deep = deep
        self.part, self.outlined = Linear(), Outlined()

    def build(self, x: Tensor) -> Tensor:
        w = self.add_variable_input("w", partial(np.full, (3, 3), 0.5), x.dtype)
        b = self.add_variable_input("b", partial(np.full, 3, -0.25), x.dtype)
        h = ops.tanh(x @ w + b)
        if self.deep:
            f, g = self.outlined.create_graph(h)
            h = ops.tanh(self.part(h) + g.bind(self.add_variable_inputs("called", f)).call(h)[0] * 0.125)
        return ops.sum(h)


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """A program, with its main graph entered in sequence."""
    program = popsr.Ir()
    with program.main_graph, popsr.in_sequence():
        yield program


def spec(name: str = "float32") -> popsr.TensorSpec:
    return popsr.TensorSpec((2, 3), dtype(name))


# The order of what gradient graphs take and return

REQUIRED: dict[str, tuple[Callable[[GraphWithNamedArgs], Any], list[int]]] = {
    "all by default": (lambda g: None, [0, 1, 2]),
    "inputs": (lambda g: g.graph.inputs, [0, 1, 2]),
    "one": (lambda g: [g.args.w], [1]),
    "another order": (lambda g: iter([g.args.b, g.graph.inputs[0]]), [2, 0]),
    "sorted by name": (lambda g: g.args.tensors, [2, 1]),
}


@pytest.mark.parametrize("name", REQUIRED)
def test_orders(name: str, ir: popsr.Ir) -> None:
    required, places = REQUIRED[name]
    _, graph = Net().create_graph(spec())
    result = graph.graph.outputs[0]
    gradient = autodiff(graph, grads_required=required(graph))
    info = gradient.grad_graph_info
    assert gradient.args.keys() == []
    assert gradient.graph is info.graph
    assert info.forward_graph is graph.graph
    assert info.outputs == tuple(graph.graph.inputs[i] for i in places)
    assert [t.shape for t in gradient.graph.outputs] == [t.shape for t in info.outputs]
    kinds = [c.connection_type for c in info.expected_inputs]
    assert kinds == [GRAD, *[FWD] * (len(kinds) - 1)]
    assert info.inputs[0] is result
    assert graph.graph.outputs[0] is result
    seen = {*graph.graph.inputs, *graph.graph.outputs}
    assert seen.issuperset(info.inputs)


def test_inputs_that_have_no_gradient_are_not_required_by_default(ir: popsr.Ir) -> None:
    class Chosen(Module):
        def build(self, x: Tensor, rows: Tensor) -> Tensor:
            w = self.add_variable_input("w", partial(np.ones, (2, 3)), F32)
            return ops.sum(ops.gather(x * w, rows))

    _, graph = Chosen().create_graph(spec(), popsr.TensorSpec((2,), popsr.int32))
    x, rows, w = graph.graph.inputs
    for differentiate in (autodiff, lambda g: g.autodiff()):
        assert differentiate(graph).grad_graph_info.outputs == (x, w)
    with pytest.raises(errors.GraphError, match="rows"):
        autodiff(graph, grads_required=[rows])


def test_plain_graphs(ir: popsr.Ir) -> None:
    _, graph = Net().create_graph(spec())
    assert autodiff(graph.graph).grad_graph_info.outputs == graph.graph.inputs


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "accumulate of a plain graph": (
        lambda g: autodiff_with_accumulation(g.graph, []),
        errors.ArgumentTypeError,
        "not a GraphWithNamedArgs",
    ),
    "accumulate nothing": (
        lambda g: autodiff_with_accumulation(g, [unchecked(3)]),
        errors.ArgumentTypeError,
        "an item of tensors_to_accumulate_grads is not a Tensor, got int 3",
    ),
    "foreign": (
        lambda g: autodiff(g, grads_required=[popsr.variable(1.0)]),
        errors.GraphError,
        "grads_required holds a tensor of another graph",
    ),
    "foreign accumulated": (
        lambda g: autodiff_with_accumulation(g, [popsr.variable(1.0)]),
        errors.GraphError,
        "holds a tensor of another graph",
    ),
    "one key": (
        lambda g: autodiff_with_accumulation(
            GraphWithNamedArgs(g.graph, g.args.filter_keys(["w"]).from_dict({"x": g.args.w})), g.graph.inputs
        ),
        errors.AttributeValueError,
        "two tensors have one key, got 'x'",
    ),
    "a key above another": (
        lambda g: autodiff_with_accumulation(
            GraphWithNamedArgs(g.graph, g.args.from_dict({"x.w": g.args.w})), g.graph.inputs
        ),
        errors.AttributeValueError,
        r"two tensors have one key, got 'x\.w'",
    ),
    "no gradient graph": (lambda g: recompute_graph(g), AttributeError, "is not a gradient graph"),
    "recompute a plain graph": (
        lambda g: recompute_graph(g.graph),
        errors.ArgumentTypeError,
        "not a GraphWithNamedArgs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, ir: popsr.Ir) -> None:
    call, error, match = REFUSED[name]
    _, graph = Net().create_graph(spec())
    with pytest.raises(error, match=match) as caught:
        call(graph)
    assert "\n" not in str(caught.value)
    assert num_graphs(ir) == 2


def test_ops_without_a_gradient_are_named_with_their_line(ir: popsr.Ir) -> None:
    def stepped(x: Tensor) -> Tensor:
        return ops.sum(ops.scaled_add(x, x, 2.0, 3.0))

    graph = ir.create_graph(stepped, spec())
    with pytest.raises(errors.GraphError, match="scaled_add") as caught:
        autodiff(graph)
    assert "test_autodiff.py" in str(caught.value)


# Running means


class Program:
    """Calls of a net on batches, with gradients accumulated over them."""

    def __init__(
        self, name: str = "float32", recompute: bool = False, deep: bool = False, **options: Any
    ) -> None:
        self.ir = ir = popsr.Ir(options.pop("replication", 1))
        with ir.main_graph, popsr.in_sequence():
            factories, graph = Net(deep).create_graph(spec(name))
            self.x = graph.graph.inputs[0]
            made, gradient = autodiff_with_accumulation(
                graph, graph.args.tensors, grads_required=[self.x], **options
            )
            if recompute:
                gradient = recompute_graph(gradient)
            self.factories, self.graph, self.gradient = made, graph, gradient
            self.variables, self.state = factories.init(), made.init()
            self.h2d = popsr.h2d_stream((2, 3), dtype(name), "x")
            info = graph.bind(self.variables).call_with_info(ops.host_load(self.h2d))
            values = gradient.grad_graph_info.inputs_dict(info)
            (dx,) = gradient.bind(self.state).call(popsr.constant(1.0, dtype(name)), args=values)
            self.out = popsr.d2h_stream((2, 3), dtype(name))
            ops.host_store(self.out, dx)

    def run(self, batches: Any, stale: float | None = None) -> dict[str, Array]:
        """Accumulators, counter and the last gradient of x after the batches."""
        with popsr.Session(self.ir, check=True) as session:
            if stale is not None:
                accumulators = self.state.accum.values_flat()
                session.write_variables_data(
                    {t: np.full(t.shape, stale, t.dtype.as_numpy()) for t in accumulators}
                )
            for batch in batches:
                dx = session.run({self.h2d: batch})[self.out]
            data = session.get_tensors_data(self.state.values_flat())
        return {**{key: data[t] for key, t in self.state.to_dict().items()}, "dx": dx}


def numpy_gradients(x: Array) -> dict[str, Array]:
    """Of the sum of ``tanh(x @ w + b)``, in float64."""
    x = x.astype(np.float64)
    w, b = np.full((3, 3), 0.5), np.full(3, -0.25)
    d = 1 - np.tanh(x @ w + b) ** 2
    return {"w": x.T @ d, "b": d.sum(axis=0), "dx": d @ w.T}


def batches_of(number: int, name: str = "float32") -> list[Array]:
    return list(np.random.default_rng(0).standard_normal((number, 2, 3)).astype(np_dtype(name)))


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize(("name", "tolerance"), [("float32", 1e-6), ("float16", 4e-3), ("float64", 1e-12)])
def test_running_means(times: int, name: str, tolerance: float) -> None:
    batches = batches_of(times, name)
    program = Program(name)
    found = program.run(batches)
    each = [numpy_gradients(x) for x in batches]
    for key in ("w", "b"):
        assert found[f"accum.{key}"].dtype == np_dtype(name)
        np.testing.assert_allclose(
            found[f"accum.{key}"], np.mean([g[key] for g in each], axis=0), rtol=tolerance, atol=tolerance
        )
    assert found["mean_accum_counter"] == times
    assert found["mean_accum_counter"].dtype == np.float32
    np.testing.assert_allclose(found["dx"], each[-1]["dx"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("stale", [np.nan, np.inf, -1e30])
def test_earlier_values_of_accumulators_do_not_matter(stale: float) -> None:
    batches = batches_of(3)
    fresh, after = Program().run(batches), Program().run(batches, stale)
    for key, value in fresh.items():
        assert_same_bits(after[key], value)


def test_factories_and_arguments() -> None:
    program = Program(deep=True)
    keys = ["mean_accum_counter", *(f"accum.{key}" for key in program.variables.keys_flat())]
    assert sorted(program.factories.keys_flat()) == sorted(program.gradient.args.keys_flat()) == sorted(keys)
    assert program.factories.mean_accum_counter.dtype is F32
    assert program.factories.mean_accum_counter.shape == ()
    for key, factory in program.factories.accum.to_dict().items():
        v = program.variables[key]
        assert (factory.shape, factory.dtype, factory.by_ref) == (v.shape, v.dtype, True)
    # Sorted by name they are in the order of the weights, with the counter last.
    assert [t.name for t in program.state.tensors[:-1]] == [
        f"accum.{t.name}" for t in program.variables.tensors
    ]
    assert program.state.tensors[-1].name == "mean_accum_counter"
    inputs = program.gradient.graph.inputs
    extra = inputs[len(program.gradient.grad_graph_info.expected_inputs) :]
    assert extra[0] is program.gradient.args.mean_accum_counter
    assert set(extra) == set(program.gradient.args.values_flat())
    assert len(extra) == len(keys)


def test_outputs_that_are_left(ir: popsr.Ir) -> None:
    _, graph = Net().create_graph(spec())
    x, w, b = graph.graph.inputs
    # One is required as well, and one is there twice.
    factories, gradient = autodiff_with_accumulation(graph, iter([w, w]), grads_required=[x, w, b])
    assert factories.keys_flat() == ["mean_accum_counter", "accum.w"]
    assert gradient.grad_graph_info.outputs == (x, b)
    assert [t.shape for t in gradient.graph.outputs] == [x.shape, b.shape]
    call = graph.call_with_info(popsr.constant(np.ones((2, 3), np.float32)), np.ones((3, 3)), np.ones(3))
    values = gradient.grad_graph_info.inputs_dict(call)
    back = gradient.bind(factories.init()).call_with_info(1.0, args=values)
    found = gradient.grad_graph_info.fwd_graph_ins_to_grad_parent_outs(back)
    assert found == {x: back.outputs[0], b: back.outputs[1]}


def test_tensors_without_a_key_have_their_names(ir: popsr.Ir) -> None:
    _, graph = Inlined().create_graph(spec())
    bare = GraphWithNamedArgs(graph.graph)
    factories, gradient = autodiff_with_accumulation(bare, graph.graph.inputs)
    keys = ["x", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert factories.accum.keys_flat() == keys
    assert gradient.args.accum.keys_flat() == keys
    assert gradient.graph.outputs == ()


def test_groups_of_accumulators() -> None:
    ir = popsr.Ir(4)
    pairs = ir.replica_grouping(group_size=2)
    with ir.main_graph:
        _, graph = Net().create_graph(spec())
        factories, _ = autodiff_with_accumulation(
            graph, graph.args.tensors, replica_groupings=NamedReplicaGrouping(w=pairs)
        )
        state = factories.init()
    every = ir.replica_grouping()
    assert factories.replica_groupings.to_dict() == {
        "mean_accum_counter": every,
        "accum.b": every,
        "accum.w": pairs,
    }
    assert state.accum.w.shape_on_host == (2, 3, 3)


def test_data_parallel_means() -> None:
    """Of all replicas and micro batches, equal everywhere; the counter starts again after each reduction."""
    replicas, micro, updates = 4, 3, 2
    batches = np.random.default_rng(1).standard_normal((updates, micro, replicas, 2, 3))
    ir = popsr.Ir(replicas)
    with ir.main_graph, popsr.in_sequence():
        factories, graph = Net().create_graph(spec("float64"))
        made, gradient = autodiff_with_accumulation(graph, graph.args.tensors)
        variables, state = factories.init(), made.init()
        inputs = [popsr.h2d_stream((2, 3), popsr.float64, f"x{i}") for i in range(micro)]
        for h2d in inputs:
            info = graph.bind(variables).call_with_info(ops.host_load(h2d))
            values = gradient.grad_graph_info.inputs_dict(info)
            gradient.bind(state).call(1.0, args=values)
        before = [t + t for t in state.accum.values_flat()]
        streams = {}
        for key, t in state.accum.to_dict().items():
            ops.collectives.replicated_all_reduce_(t, op="mean")
            streams[key] = popsr.d2h_stream(t.shape, t.dtype)
            ops.host_store(streams[key], t)
        after = [t + t for t in state.accum.values_flat()]
        ops.var_updates.accumulator_zero_(state.mean_accum_counter)
    facts = popsr.analysis.analyze(ir)
    assert not any(facts.is_equal(t) for t in before)
    assert all(facts.is_equal(t) for t in (*after, state.mean_accum_counter))
    with popsr.Session(ir, check=True) as session:
        for batch in batches:
            found = session.run(dict(zip(inputs, batch, strict=True)), downcast_inputs=False)
            each = [numpy_gradients(x) for x in batch.reshape(-1, 2, 3)]
            for key, stream in streams.items():
                expected = np.mean([g[key] for g in each], axis=0)
                np.testing.assert_allclose(
                    found[stream], np.broadcast_to(expected, (replicas, *expected.shape)), rtol=1e-12
                )


# Computing the forward graph again


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_recomputation_has_the_same_bits(deep: bool, name: str) -> None:
    batches = batches_of(3, name)
    programs = [Program(name, recompute, deep) for recompute in (False, True)]
    plain, again = (program.run(batches) for program in programs)
    assert plain.keys() == again.keys()
    for key, value in plain.items():
        assert_same_bits(again[key], value, key)
    assert num_graphs(programs[1].ir) == num_graphs(programs[0].ir) + 1


def test_inputs_of_recomputation(ir: popsr.Ir) -> None:
    _, graph = Net().create_graph(spec())
    x, w, b = graph.graph.inputs
    _, gradient = autodiff_with_accumulation(graph, [w], grads_required=[x])
    again = recompute_graph(gradient)
    info, before = again.grad_graph_info, gradient.grad_graph_info
    assert info.forward_graph is graph.graph
    assert info.outputs == before.outputs == (x,)
    used = [t for c, t in zip(before.expected_inputs, before.inputs, strict=True) if c.connection_type is FWD]
    assert [c.connection_type for c in info.expected_inputs] == [GRAD, FWD, FWD, FWD]
    kept = [t for t in used if t in graph.graph.inputs]
    assert info.inputs == (graph.graph.outputs[0], *kept, *(t for t in (b, w, x) if t not in kept))
    extra = again.graph.inputs[len(info.expected_inputs) :]
    assert [t.name for t in extra] == ["accum.w", "mean_accum_counter"]
    assert list(again.args.tensors) == list(extra)
    assert again.graph.name.startswith("Net_grad_recomp") or "recomp" in again.graph.name


def test_inputs_of_recomputation_in_a_graph_of_ones_own(ir: popsr.Ir) -> None:
    _, graph = Net().create_graph(spec())
    info = autodiff(graph).grad_graph_info
    with ir.create_empty_graph() as own:
        connections, of_forward, of_gradient = add_recompute_inputs(info)
    assert of_forward.keys() == set(graph.graph.inputs)
    assert set(of_gradient) <= set(info.graph.inputs)
    assert {*of_forward.values(), *of_gradient.values()} == set(own.inputs)
    assert [is_gradient for is_gradient, _ in connections] == [True, False, False, False]


def test_nothing_of_the_forward_graph_is_kept_for_recomputation(ir: popsr.Ir) -> None:
    factories, graph = Net().create_graph(spec())
    gradient = autodiff(graph)
    again = recompute_graph(gradient)
    variables, x = factories.init(), popsr.constant(np.ones((2, 3), np.float32))
    info = graph.bind(variables).call_with_info(x)
    values = again.grad_graph_info.inputs_dict(info)
    assert set(values.values()) == {x, *variables.values_flat()}
    assert len(again.call(1.0, args=values)) == 3


# Equal connections between other graphs


def test_remapped_connections(ir: popsr.Ir) -> None:
    (_, first), (factories, second) = (Net().create_graph(spec()) for _ in range(2))
    info, other = autodiff(first).grad_graph_info, autodiff(second).grad_graph_info
    moved = remap_grad_info(info, second.graph, other.graph)
    assert (moved.forward_graph, moved.graph) == (second.graph, other.graph)
    assert moved.inputs == other.inputs
    assert moved.outputs == other.outputs
    assert [c.connection_type for c in moved.expected_inputs] == [
        c.connection_type for c in info.expected_inputs
    ]
    call = second.bind(factories.init()).call_with_info(popsr.constant(np.ones((2, 3), np.float32)))
    assert moved.inputs_dict(call) == other.inputs_dict(call)
    empty = ir.create_empty_graph()
    for forward, backward, match in (
        (empty, other.graph, "no such input or output"),
        (second.graph, empty, "too few inputs, got 0"),
        (second.graph, recompute_input_only(ir, info), "too few outputs, got 0 .*expected 3"),
    ):
        with pytest.raises(errors.GraphError, match=match):
            remap_grad_info(info, forward, backward)


def recompute_input_only(ir: popsr.Ir, info: Any) -> popsr.Graph:
    """A graph with as many inputs as a gradient graph, without outputs."""
    with ir.create_empty_graph() as graph:
        for _ in info.expected_inputs:
            popsr.graph_input((), F32)
    return graph
