"""Modules: what their graphs consist of, names, parts, and making graphs as often as wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Union

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons.module import Module
from popsr.addons.transforms.autodiff import autodiff
from popsr.addons.transforms.recomputation import recompute_graph
from tests_py.addons.cases import (
    F32,
    ONES,
    Deep,
    Dotted,
    Inlined,
    Linear,
    Listed,
    Outlined,
    Scale,
    Sharing,
    X,
    num_graphs,
    run,
)
from tests_py.support.helpers import Array
from tests_py.support.unchecked import unchecked


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """A program, with its main graph entered in sequence."""
    program = popsr.Ir()
    with program.main_graph, popsr.in_sequence():
        yield program


# Graphs, keys and names

KEYS: dict[str, tuple[Callable[[], Module], int, list[str], list[str]]] = {
    "single": (Linear, 2, ["weight", "bias"], ["weight", "bias"]),
    "inlined": (
        Inlined,
        2,
        ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
        ["fc1/weight", "fc1/bias", "fc2/weight", "fc2/bias"],
    ),
    "outlined": (
        Outlined,
        3,
        ["first.weight", "first.bias", "1.weight", "1.bias"],
        ["first.weight", "first.bias", "1.weight", "1.bias"],
    ),
    "deep": (
        Deep,
        2,
        ["offset", "inner.fc1.weight", "inner.fc1.bias", "inner.fc2.weight", "inner.fc2.bias", "last.weight"],
        ["offset", "inner/fc1/weight", "inner/fc1/bias", "inner/fc2/weight", "inner/fc2/bias", "last/weight"],
    ),
    "listed": (
        Listed,
        2,
        ["layers.0.weight", "layers.1.weight", "layers.2.weight"],
        ["0/weight", "1/weight", "2/weight"],
    ),
    "dotted": (
        Dotted,
        2,
        ["fwd.a", "fwd.b", "bare.0", "bare.1", "made.weight"],
        ["fwd.a", "fwd.b", "v0", "v1", "made/weight"],
    ),
    "sharing": (Sharing, 3, ["part.weight"], ["part.weight"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_graphs_keys_and_names(name: str, ir: popsr.Ir) -> None:
    make, graphs, keys, names = KEYS[name]
    module = make()
    for times in (1, 2, 3):  # as often as wanted, on one instance
        factories, graph = module.create_graph(X)
        assert num_graphs(ir) == 1 + times * (graphs - 1)
        assert factories.keys_flat() == graph.args.keys_flat() == keys
        assert [t.name.split("__")[0] for t in graph.args.values_flat()] == names
        assert len(graph.graph.inputs) == 1 + len(keys)
        assert set(graph.graph.inputs[1:]) == set(graph.args.values_flat())
        assert graph.graph.inputs[0].name == "x"
        variables = factories.init(f"of{times}")
        assert variables.keys_flat() == keys
        assert graph.bind(variables).args == dict(
            zip(graph.args.values_flat(), variables.values_flat(), strict=True)
        )
        assert graph.bind(variables).call(popsr.constant(np.ones((2, 3), np.float32)))[0].shape == (2, 3)


def test_names_of_variables_are_their_keys(ir: popsr.Ir) -> None:
    factories, graph = Inlined().create_graph(X)
    variables = factories.init()
    assert [t.name for t in variables.tensors] == ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]
    assert [t.name for t in graph.args.tensors] == ["fc1/bias", "fc1/weight", "fc2/bias", "fc2/weight"]


def test_names_of_graphs(ir: popsr.Ir) -> None:
    names = [Linear().create_graph(X)[1].graph.name for _ in range(2)]
    assert names == ["Linear_subgraph(0)", "Linear_subgraph(1)"]


COUNTS: dict[str, tuple[Callable[[popsr.Ir], Any], int]] = {
    "reused": (lambda ir: _calls(Scale().create_graph(X), 3), 2),
    "autodiff": (lambda ir: autodiff(Scale().create_graph(X)[1]), 3),
    "recomputation": (lambda ir: recompute_graph(autodiff(Scale().create_graph(X)[1])), 4),
    "autodiff of an outlined pair": (lambda ir: autodiff(Outlined().create_graph(X)[1]), 5),
}


def _calls(made: Any, times: int) -> None:
    factories, graph = made
    for i in range(times):
        graph.bind(factories.init(f"of{i}")).call(np.ones((2, 3), np.float32))


@pytest.mark.parametrize("name", COUNTS)
def test_numbers_of_graphs(name: str, ir: popsr.Ir) -> None:
    build, expected = COUNTS[name]
    build(ir)
    assert num_graphs(ir) == expected


# Values

VALUES: dict[str, tuple[Callable[[], Module], Array]] = {
    "inlined": (Inlined, 9 * ONES),
    "outlined": (Outlined, 9 * ONES),
    "deep": (Deep, (2 * 9 + 1) * ONES),
    "listed": (Listed, 6 * ONES),
    "dotted": (Dotted, (3 + 1 + 0 * 1 + 1) * ONES),
    "sharing": (Sharing, 4 * ONES),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, ir: popsr.Ir) -> None:
    make, expected = VALUES[name]
    module = make()
    module.create_graph(X)
    factories, graph = module.create_graph(X)
    assert np.array_equal(run(ir, graph, factories.init(), ONES), expected)


def test_several_variables_for_one_graph(ir: popsr.Ir) -> None:
    factories, graph = Scale().create_graph(X)
    variables = [factories.init(f"of{i}") for i in range(2)]
    popsr.ops.var_updates.accumulator_scale_(variables[1].weight, 5.0)
    x = popsr.constant(ONES)
    (y,) = graph.bind(variables[0]).call(x)
    assert np.array_equal(run(ir, graph, variables[1], y), 20 * ONES)  # type: ignore[arg-type]


def test_trees_that_are_returned_are_not_the_modules(ir: popsr.Ir) -> None:
    module = Inlined()
    factories, graph = module.create_graph(X)
    kept = factories.to_dict(), graph.args.to_dict()
    module.create_graph(X)
    assert (factories.to_dict(), graph.args.to_dict()) == kept
    factories.pop("fc1")
    assert module.create_graph(X)[0].len_flat() == 4


# Arguments


class Arguments(Module):
    """All kinds of parameters; ``scale`` is an input or is baked in."""

    @popsr.in_sequence()
    def build(
        self,
        target: popsr.TensorByRef,
        xs: list[popsr.Tensor],
        scale: Union[float, popsr.Tensor],  # noqa: UP007 - as programs write it
        *rest: popsr.Tensor,
        flag: bool = True,
        **more: popsr.Tensor,
    ) -> tuple[popsr.Tensor, ...]:
        w = self.add_variable_input("w", partial(np.ones, ()), F32)
        total = xs[0] * scale + xs[1] * w
        for each in (*rest, *more.values()):
            total = total + each
        ops.add_(target, total)
        return (total,) if flag else (total, target)


@pytest.mark.parametrize("as_input", [False, True])
def test_arguments(as_input: bool, ir: popsr.Ir) -> None:
    s = popsr.TensorSpec((), F32)
    factories, graph = Arguments().create_graph(s, [s, s], s if as_input else 7.0, s, flag=False, k=s)
    names = ["target", "xs_0", "xs_1", *(["scale"] if as_input else []), "rest_0", "k", "w"]
    assert [t.name for t in graph.graph.inputs] == names
    target = popsr.variable(100.0, name="target")
    given = [2.0, 3.0, *([7.0] if as_input else []), 10.0, 20.0]
    outs = graph.bind(factories.init()).call(target, *given)
    assert len(outs) == 2
    streams = [popsr.d2h_stream((), F32) for _ in outs]
    for stream, out in zip(streams, outs, strict=True):
        ops.host_store(stream, out)
    with popsr.Session(ir) as session:
        result = session.run()
        assert [float(result[stream]) for stream in streams] == [47, 147]
        assert session.get_tensor_data(target) == 147


def test_lists_of_arguments_are_flattened_in_calls(ir: popsr.Ir) -> None:
    s = popsr.TensorSpec((), F32)
    _, graph = Arguments().create_graph(s, (s, s), 1.0)
    assert len(graph.graph.inputs) == 4
    with pytest.raises(errors.GraphError, match="Not enough inputs"):
        graph.call(1.0, [2.0, 3.0])


def test_meta_shapes_are_kept(ir: popsr.Ir) -> None:
    _, graph = Scale().create_graph(popsr.TensorSpec((4,), F32, (2, 4)))
    assert graph.graph.inputs[0].meta_shape == (2, 4)


# Parts


def test_lists_of_modules() -> None:
    parts = [Scale(), Scale(), Scale()]
    listed = Module.from_list(unchecked(parts))
    assert list(listed) == parts
    assert [listed[0], listed["1"], listed.get(2), listed[-1]] == [*parts, parts[2]]
    for key in (3, -4, "x"):
        with pytest.raises(KeyError, match=f"got {key!r}"):
            listed[key]
    with pytest.raises(AttributeError, match="not iterable"):
        iter(Scale())
    with pytest.raises(errors.ArgumentTypeError, match="from_list: not a Module, got 3"):
        Module.from_list([Scale(), 3])  # type: ignore[list-item]


class Base(Scale):
    """Calls the ``build`` that it replaces."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return super().build(x) + 1.0


def test_scopes_are_entered_once(ir: popsr.Ir) -> None:
    class Outer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Base()

        def build(self, x: popsr.Tensor) -> popsr.Tensor:
            return self.part(x)

    factories, graph = Outer().create_graph(X)
    assert [t.name for t in graph.args.values_flat()] == ["part/weight"]
    assert np.array_equal(run(ir, graph, factories.init(), ONES), 3 * ONES)


def test_modules_without_variables_leave_no_keys(ir: popsr.Ir) -> None:
    class Plain(Module):
        def build(self, x: popsr.Tensor) -> popsr.Tensor:
            return ops.relu(x)

    class Outer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Plain()

        def build(self, x: popsr.Tensor) -> None:
            self.part(x)

    factories, graph = Outer().create_graph(X)
    assert factories.keys() == graph.args.keys() == []
    assert graph.graph.outputs == ()
