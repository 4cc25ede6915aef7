"""Graphs with named arguments: bound, called and printed; and graphs that are made once for equal arguments."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons.graph import BoundGraph, GraphWithNamedArgs
from popsr.addons.graph_cache import (
    GraphCache,
    argument_hash,
    bound_arguments,
    function,
    get_function_hash,
    tensor_hash,
)
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.transforms.autodiff import autodiff
from popsr.addons.variable_factory import NamedVariableFactories, VariableFactory
from tests_py.addons.cases import F32, Outlined, Scale
from tests_py.support.unchecked import unchecked

S = popsr.TensorSpec((), F32)
Tensor = popsr.Tensor


class Affine(Module):
    """``x * a.w + y``, and adds ``y`` to ``total``."""

    def build(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        w = self.add_variable_input("a.w", partial(np.full, (), 3.0), F32)
        total = self.add_variable_input("total", partial(np.zeros, ()), F32, by_ref=True)
        ops.add_(total, y)
        return x * w + y, x


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """A program, with its main graph entered in sequence."""
    program = popsr.Ir()
    with program.main_graph, popsr.in_sequence():
        yield program


def made() -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
    return Affine().create_graph(S, S)


def fetch(ir: popsr.Ir, tensors: Any, *state: Any) -> list[float]:
    """Values of tensors of the main graph, and of variables after one run."""
    streams = [popsr.d2h_stream(t.shape, t.dtype) for t in tensors]
    for stream, t in zip(streams, tensors, strict=True):
        ops.host_store(stream, t)
    with popsr.Session(ir, check=True) as session:
        results = session.run()
        return [*(float(results[s]) for s in streams), *(float(session.get_tensor_data(v)) for v in state)]


# Bound and called

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "bound": lambda g, v: g.bind(v).call(2.0, 5.0),
    "a list": lambda g, v: g.bind(v).call([2.0, 5.0]),
    "arrays": lambda g, v: g.bind(v).call(np.float32(2), np.float64(5)),
    "tensors": lambda g, v: g.bind(v).call(popsr.constant(2.0), popsr.constant(5.0)),
    "ints": lambda g, v: g.bind(v).call(2, 5),
    "unbound": lambda g, v: g.call(2.0, 5.0, v.a.w, v.total),
    "args": lambda g, v: g.call(2.0, 5.0, args=g.args.to_mapping(v)),
    "by tensor": lambda g, v: g.bind(v).call(args=dict(zip(g.graph.inputs, (2.0, 5.0), strict=False))),
    "some positions": lambda g, v: g.bind(v).call(2.0, args={g.graph.inputs[1]: popsr.constant(5.0)}),
    "overridden": lambda g, v: BoundGraph(
        g.graph, unchecked({g.args.a.w: 100.0, g.args.total: v.total})
    ).call(2.0, 5.0, args={g.args.a.w: v.a.w}),
    "bound in steps": lambda g, v: g.bind(v.filter_keys(["a"])).bind({g.args.total: v.total}).call(2.0, 5.0),
    "bound again": lambda g, v: (
        BoundGraph(g.graph, unchecked({g.args.a.w: 9.0})).bind(g.args.to_mapping(v)).call(2.0, 5.0)
    ),
    "with info": lambda g, v: g.bind(v).call_with_info(2.0, 5.0).outputs,
    "unbound with info": lambda g, v: g.call_with_info(2.0, 5.0, v.a.w, v.total).outputs,
    "other keys": lambda g, v: g.bind(NamedTensors(total=v.total, a=v.a, more=v.total)).call(2.0, 5.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str, ir: popsr.Ir) -> None:
    factories, graph = made()
    variables = factories.init()
    outputs = CALLS[name](graph, variables)
    assert isinstance(outputs, tuple)
    # Writes of the graph to an input by reference are seen in the argument.
    assert fetch(ir, outputs, variables.total, variables.a.w) == [11, 2, 5, 3]


def test_bound_graphs_are_not_changed(ir: popsr.Ir) -> None:
    factories, graph = made()
    variables = factories.init()
    bound = graph.bind()
    assert bound.args == {}
    more = bound.bind({graph.args.total: variables.total})
    assert bound.args == {}
    assert more.args == {graph.args.total: variables.total}
    assert repr(more) == f"BoundGraph[{graph.graph!r} with 1 of 4 inputs]"
    more.call(1.0, 2.0, args={graph.args.a.w: variables.a.w})
    assert more.args == {graph.args.total: variables.total}


BAD_CALLS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "missing": (lambda g, v: g.call(1.0, 2.0), errors.GraphError, "Not enough inputs.*got 2 of 4"),
    "missing key": (
        lambda g, v: g.bind(NamedTensors(a=v.a)).call(1.0, 2.0),
        errors.GraphError,
        "Not enough.*total",
    ),
    "too many": (
        lambda g, v: g.bind(v).call(1.0, 2.0, 3.0, 4.0, 5.0),
        errors.GraphError,
        "Too many inputs.*got 5",
    ),
    "twice": (lambda g, v: g.bind(v).call(1.0, 2.0, 3.0), errors.GraphError, "specified twice"),
    "foreign": (
        lambda g, v: g.bind(v).call(1.0, 2.0, args={v.total: 3.0}),
        errors.GraphError,
        "not in the called graph",
    ),
    "of the graph": (lambda g, v: g.bind(v).call(g.graph.inputs[0], 2.0), errors.GraphError, "graph"),
    "no number": (lambda g, v: g.bind(v).call("a", 2.0), TypeError, "no tensor for"),
    "args": (lambda g, v: g.call(args=[1]), TypeError, "args is not a mapping"),
    "bind": (lambda g, v: g.bind().bind([1]), TypeError, "args is not a mapping"),
    "graph": (lambda g, v: BoundGraph(g), TypeError, "BoundGraph: graph is not a Graph"),
    "named graph": (
        lambda g, v: GraphWithNamedArgs(g),
        TypeError,
        "GraphWithNamedArgs: graph is not a Graph",
    ),
    "infos": (
        lambda g, v: GraphWithNamedArgs(g.graph, called_graphs_grad_info=unchecked({1: 2})),
        TypeError,
        "GradGraphInfo, got 1: 2",
    ),
    "infos of a list": (
        lambda g, v: autodiff(g, called_graphs_grad_info=unchecked([1])),
        TypeError,
        "is not a mapping",
    ),
    "io map": (lambda g, v: g.bind(v).subgraph_io_map(1), errors.GraphError, "inputs are missing"),
    "io map of too many": (
        lambda g, v: g.bind(v).subgraph_io_map(outs=[1, 2, 3]),
        errors.GraphError,
        "too many outputs, got 3, expected at most 2",
    ),
    "io map of too many inputs": (
        lambda g, v: g.bind(v).subgraph_io_map(*range(5)),
        errors.GraphError,
        "Too many",
    ),
    "io map twice": (lambda g, v: g.bind(v).subgraph_io_map(1, 2, 3), errors.GraphError, "specified twice"),
    "io map of foreign": (
        lambda g, v: g.bind(v).subgraph_io_map(1, 2, args={v.total: 1}),
        errors.GraphError,
        "not in the called graph",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_refused_calls(name: str, ir: popsr.Ir) -> None:
    call, error, match = BAD_CALLS[name]
    factories, graph = made()
    variables = factories.init()
    with pytest.raises(error, match=match) as caught:
        call(graph, variables)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert not ir.main_graph.ops


def test_maps_of_inputs_and_outputs(ir: popsr.Ir) -> None:
    factories, graph = made()
    variables = factories.init()
    x, y = popsr.constant(1.0), popsr.constant(2.0)
    outs = graph.bind(variables).call(x, y)
    inputs = dict(zip(graph.graph.inputs, (x, y, variables.a.w, variables.total), strict=True))
    assert graph.bind(variables).subgraph_io_map(x, args={graph.graph.inputs[1]: y}) == inputs
    assert graph.bind(variables).subgraph_io_map(x, y, outs=outs) == {
        **inputs,
        graph.graph.outputs[0]: outs[0],
        graph.graph.outputs[1]: outs[1],
    }


def test_copies_and_gradient_info(ir: popsr.Ir) -> None:
    _, graph = Scale().create_graph(S)
    with pytest.raises(AttributeError, match="is not a gradient graph"):
        _ = graph.grad_graph_info
    gradient = autodiff(graph)
    graph.grad_graph_info = gradient.grad_graph_info
    copy = graph.copy()
    assert copy.graph is graph.graph
    assert copy.grad_graph_info is gradient.grad_graph_info
    assert copy.from_module is None
    copy.args.pop("weight")
    assert graph.args.keys() == ["weight"]
    again = GraphWithNamedArgs.from_grad_graph(gradient.grad_graph_info, graph.args)
    assert again.graph is gradient.graph
    assert again.args is graph.args
    assert repr(gradient) == f"GraphWithNamedArgs[{gradient.graph!r} args=[]]"


# Schedule


def test_schedules(ir: popsr.Ir) -> None:
    _, graph = made()
    ids = [op.id for op in graph.graph.ops]
    assert graph.print_schedule() == (
        "Graph : Affine_subgraph(0)\n"
        "  (%1, %2, a.w=%3, total=%4) -> (%5, %1) {\n"
        f"    AddLhsInplace.{ids[0]} (%4 [() float32], %2 [() float32]) -> (%6 [() float32])\n"
        f"    Mul.{ids[1]} (%1 [() float32], %3 [() float32]) -> (%7 [() float32])\n"
        f"    Add.{ids[2]} (%7 [() float32], %2 [() float32]) -> (%5 [() float32])\n"
        "  }"
    )
    assert graph.print_schedule() == graph.print_schedule()
    _, outer = Outlined().create_graph(popsr.TensorSpec((2, 3), popsr.float16))
    lines = outer.print_schedule().splitlines()
    assert lines[1].startswith("  (%1, first.weight=%2, first.bias=%3, 1.weight=%4, 1.bias=%5) -> (%6)")
    assert len(lines) == 5
    (called,) = set(outer.graph.called_graphs)
    assert all(line.endswith(f" ({called.id})") for line in lines[2:4])
    assert "%2 [(3, 3) float16]" in lines[2]
    product = ir.create_graph(lambda x: x @ x, popsr.TensorSpec((2, 2), popsr.float32))
    assert f"    MatMul.{product.ops[0].id} (" in GraphWithNamedArgs(product).print_schedule()
    assert GraphWithNamedArgs(ir.create_empty_graph("e")).print_schedule().splitlines()[1:] == [
        "  () -> () {",
        "  }",
    ]


# Graphs of equal arguments


def twice(x: Tensor, k: Any = None, **more: Any) -> Tensor:
    return x + x


class Hashed(popsr.Module):
    """Its hash is given; it does without the constructor of its base, and sets attributes."""

    def __init__(self, value: int) -> None:
        self.value = value

    def build(self, x: Tensor, k: Any = None) -> Tensor:
        return x + x

    def __hash__(self) -> int:
        return self.value


class HashedAddons(Module):
    """The same of the other base class."""

    def __init__(self, value: int) -> None:
        self.value = value

    def build(self, x: Tensor, k: Any = None) -> Tensor:
        return x + x

    def __hash__(self) -> int:
        return self.value


NEGATIVE_ZERO = -0.0
SAME: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    "specs": ((S,), {}, (popsr.TensorSpec((), F32),), {}),
    "by keyword": ((S, 1), {}, (), {"k": 1, "x": S}),
    "default": ((S,), {}, (S, None), {}),
    "lists": ((S, [1, [2]]), {}, (S, [1, [2]]), {}),
    "mappings": ((S, {"a": [1], "b": 2}), {}, (S, {"a": [1], "b": 2}), {}),
    "not a number": ((S, float("nan")), {}, (S, float("nan")), {}),
    "texts": ((S, "a"), {}, (S, "a"), {}),
    "scalars": ((S, np.float32(1)), {}, (S, np.float32(1)), {}),
}
DIFFERENT: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    "shape": ((S,), {}, (popsr.TensorSpec((1,), F32),), {}),
    "dtype": ((S,), {}, (popsr.TensorSpec((), popsr.float16),), {}),
    "meta shape": ((popsr.TensorSpec((2,), F32),), {}, (popsr.TensorSpec((2,), F32, (2, 2)),), {}),
    "-1 and -2": ((S, -1), {}, (S, -2), {}),
    "1 and 1.0": ((S, 1), {}, (S, 1.0), {}),
    "1 and True": ((S, 1), {}, (S, True), {}),
    "zeros of both signs": ((S, 0.0), {}, (S, NEGATIVE_ZERO), {}),
    "NumPy zeros": ((S, np.float32(0)), {}, (S, np.float32(-0.0)), {}),
    "NumPy's one": ((S, 1.0), {}, (S, np.float64(1)), {}),
    "-1 and -2 below": ((S, [(-1,)]), {}, (S, [(-2,)]), {}),
    "nesting": ((S, [1, [2]]), {}, (S, [[1], 2]), {}),
    "list and tuple": ((S, [1]), {}, (S, (1,)), {}),
    "values": ((S, {"a": 1}), {}, (S, {"a": 2}), {}),
    "order of keys": ((S, {"a": 1, "b": 2}), {}, (S, {"b": 2, "a": 1}), {}),
    "order of keywords": ((S,), {"a": 1, "b": 2}, (S,), {"b": 2, "a": 1}),
    "nothing": ((S,), {}, (S, 0), {}),
}


@pytest.mark.parametrize("name", [*SAME, *DIFFERENT])
def test_equal_arguments(name: str, ir: popsr.Ir) -> None:
    args, kwargs, other_args, other_kwargs = {**SAME, **DIFFERENT}[name]
    cache = GraphCache()
    first, again = (cache.create_graph(twice, *args, **kwargs) for _ in range(2))
    other = cache.create_graph(twice, *other_args, **other_kwargs)
    assert first is again
    assert (other is first) is (name in SAME)
    if name in SAME:
        assert get_function_hash(twice, *args, **kwargs) == get_function_hash(
            twice, *other_args, **other_kwargs
        )
        assert argument_hash(args) == argument_hash(args)


def test_tensors_are_like_their_specs(ir: popsr.Ir) -> None:
    cache, t = GraphCache(), popsr.variable(1.0)
    assert cache.create_graph(twice, t) is cache.create_graph(twice, S)
    assert tensor_hash(t) == tensor_hash(popsr.variable(2.0)) == argument_hash(S)


def test_other_functions_places_and_programs(ir: popsr.Ir) -> None:
    cache = GraphCache()
    graphs = [
        cache.create_graph(twice, S),
        cache.create_graph(lambda x: x, S),
        GraphCache().create_graph(twice, S),
    ]
    with popsr.ipu(1):
        graphs.append(cache.create_graph(twice, S))
        assert cache.create_graph(twice, S) is graphs[-1]
    with popsr.ipu(0):
        assert cache.create_graph(twice, S) is graphs[0]
    with popsr.io_tiles():
        graphs.append(cache.create_graph(twice, S))
    assert len(set(graphs)) == 5


@pytest.mark.parametrize("make", [Hashed, HashedAddons])
def test_modules_are_the_same_when_their_hashes_are(make: Any, ir: popsr.Ir) -> None:
    cache = GraphCache()
    first = cache.create_graph(make(5), S)
    assert cache.create_graph(make(5), S) is first
    assert cache.create_graph(make(6), S) is not first
    assert cache.create_graph(make(5), popsr.TensorSpec((), popsr.float16)) is not first
    assert cache.create_graph(make(5), S, None) is not first  # defaults are not filled in


def test_graphs_as_arguments(ir: popsr.Ir) -> None:
    a, b = (made()[1] for _ in range(2))
    v = popsr.variable(1.0)
    others = [b, a.bind(), a.bind(NamedTensors(total=v)), b.bind()]
    assert len({argument_hash(x) for x in (a, *others)}) == 5
    assert argument_hash(a) == argument_hash(a.graph) == argument_hash(a.copy())
    assert argument_hash(a.bind(NamedTensors(total=v))) == argument_hash(
        a.bind(NamedTensors(total=popsr.variable(2.0)))
    )


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda c: c.create_graph(twice, S, np.ones(2)), "cannot be hashed, got array"),
        (lambda c: c.create_graph(twice, S, [{1}]), "cannot be hashed, got {1}"),
        (lambda c: c.create_graph(twice), "they do not fit twice.*missing a required argument: 'x'"),
        (lambda c: c.create_graph(3, S), "not a function or Module, got 3"),
        (lambda c: bound_arguments(twice, S, 1, 2), "they do not fit twice.*too many"),
        (lambda c: function(twice)(), "missing a required argument: 'x'"),
    ],
)
def test_refused_arguments(call: Any, match: str, ir: popsr.Ir) -> None:
    with pytest.raises(errors.ArgumentTypeError, match=match) as caught:
        call(GraphCache())
    assert "\n" not in str(caught.value)
    assert ir._core.num_graphs == 1


def test_caches_do_not_keep_programs() -> None:
    cache = GraphCache()

    def use() -> weakref.ref[popsr.Ir]:
        ir = popsr.Ir()
        with ir.main_graph:
            held = popsr.variable(1.0)
            cache.create_graph(lambda x: (held, x)[1], held)  # a function that holds a tensor
            cache.create_graph(twice, held, ir)
            cache.create_graph(twice, held, popsr.remote_buffer((), F32))
            add_one(held)
            calls.clear()
        return weakref.ref(ir)

    programs = [use() for _ in range(2)]
    gc.collect()
    assert all(program() is None for program in programs)


calls: list[Any] = []


@function
def add_one(x: Tensor, *rest: Tensor, by: float = 1.0) -> Any:
    """Counts how often it is built."""
    calls.append(x)
    return x + by, *rest


def test_functions(ir: popsr.Ir) -> None:
    calls.clear()
    x = popsr.constant(1.0)
    outputs = [
        add_one(x),
        add_one(add_one(x)[0], x),
        add_one(x, by=5.0),
        add_one(x=x, by=5.0),
        add_one(x, by=5),
    ]
    assert [len(out) for out in outputs] == [1, 2, 1, 1, 1]
    assert len(calls) == 4
    assert add_one.__name__ == "add_one"
    assert fetch(ir, [out[0] for out in outputs]) == [2, 3, 6, 6, 6]


def test_infos_may_be_of_graphs_with_names(ir: popsr.Ir) -> None:
    _, graph = Scale().create_graph(S)
    info = autodiff(graph)
    known = GraphWithNamedArgs(
        graph.graph, called_graphs_grad_info=unchecked({graph: info})
    ).called_graphs_grad_info
    assert known == {graph.graph: info.grad_graph_info}


def test_placeholders_of_factories_have_their_keys_as_names(ir: popsr.Ir) -> None:
    class Net(Module):
        def build(self) -> None:
            tree = NamedVariableFactories.from_dict({"b.c": VariableFactory([np.ones(1)], F32, "leaf")})
            assert self.add_variable_inputs(3, tree)["b.c"].name == "3.b.c"

    factories, graph = Net().create_graph()
    assert factories.keys_flat() == graph.args.keys_flat() == ["3.b.c"]
