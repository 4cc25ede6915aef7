"""Errors of modules, their state after an error, and cached graphs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.module import Module
from popsr.addons.transforms.autodiff import autodiff
from popsr.addons.variable_factory import VariableFactory
from tests_py.addons.cases import F32, ONES, Inlined, Linear, Scale, X


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """A program, with its main graph entered in sequence."""
    program = popsr.Ir()
    with program.main_graph, popsr.in_sequence():
        yield program


# Errors


class Failing(Module):
    """Fails on demand, half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.fails, self.part = True, Scale()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        y = self.part(x) + self.add_variable_input("a.b", partial(np.ones, ()), F32)
        if self.fails:
            raise RuntimeError("on purpose")
        return y


def test_modules_are_as_before_when_build_raises(ir: popsr.Ir) -> None:
    module = Failing()
    with pytest.raises(RuntimeError, match="on purpose"):
        module.create_graph(X)
    assert popsr.gcg() is ir.main_graph
    module.fails = False
    factories, graph = module.create_graph(X)
    assert factories.keys_flat() == ["a.b", "part.weight"]
    assert [t.name for t in graph.args.values_flat()] == ["a.b", "part/weight"]


def adds(*names: Any, **options: Any) -> Callable[[Module], Any]:
    """Add a variable of each name."""
    return lambda module: [module.add_variable_input(n, partial(np.ones, ()), F32, **options) for n in names]


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "twice": (adds("a", "a"), ValueError, "variable 'a' already exists.*overwrite=True"),
    "below one parent": (adds("a.b", "a.c"), ValueError, r"'a\.c' already exists"),
    "no key": (adds("a b"), ValueError, "'a b' is not a key"),
    "factory without a name": (
        lambda m: m.add_variable_factory(VariableFactory([np.ones(1)])),
        ValueError,
        "without a name",
    ),
    "factories twice": (
        lambda m: [m.add_variable_inputs("a", Scale().create_graph(X)[0]) for _ in range(2)],
        ValueError,
        "'a' already exists",
    ),
    "negative number": (
        lambda m: m.add_variable_inputs(-1, Scale().create_graph(X)[0]),
        ValueError,
        "negative number is not a key, got -1",
    ),
    "sharded": (
        lambda m: [m.add_replica_sharded_variable_input("a", [np.ones(1)]) for _ in range(2)],
        ValueError,
        "'a' already exists",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_variables(name: str, ir: popsr.Ir) -> None:
    add, error, match = REFUSED[name]

    class Adding(Module):
        def build(self) -> None:
            add(self)

    with pytest.raises(error, match=match) as caught:
        Adding().create_graph()
    assert isinstance(caught.value, popsr.Error)


def test_variables_are_overwritten_on_demand(ir: popsr.Ir) -> None:
    class Adding(Module):
        def build(self) -> None:
            adds("a.b", "a.c", "a.b", overwrite=True)(self)

    assert Adding().create_graph()[0].keys_flat() == ["a.b", "a.c"]


def test_parts_need_a_constructed_module() -> None:
    class Early(Module):
        def __init__(self) -> None:
            self.number = 3
            self.part = Scale()

    with pytest.raises(AttributeError, match=r"'part' before super\(\).__init__"):
        Early()


def test_a_module_does_not_contain_itself(ir: popsr.Ir) -> None:
    outer, inner = Inlined(), Inlined()
    inner.fc1 = outer  # type: ignore[assignment]
    for module, part in ((outer, outer), (outer, inner)):
        with pytest.raises(errors.AttributeValueError, match="a module is a part of itself, got 'fc2'"):
            module.fc2 = part  # type: ignore[assignment]
    assert outer.create_graph(X)[0].len_flat() == 4


def test_missing_variables_are_missed_by_the_call(ir: popsr.Ir) -> None:
    factories, graph = Inlined().create_graph(X)
    variables = factories.init()
    variables.pop("fc1.weight")
    with pytest.raises(errors.GraphError, match=r"Not enough inputs.*'fc1.weight'"):
        graph.bind(variables).call(ONES)


# Cache


def test_cached_graphs(ir: popsr.Ir) -> None:
    module = Linear(cache=True)
    (f, a), (g, b) = module.create_graph(X), module.create_graph(X)
    assert a.graph is b.graph
    assert a.args is not b.args
    assert f is not g
    assert f.weight is g.weight
    assert a.args.to_dict() == b.args.to_dict()
    others: list[GraphWithNamedArgs] = [
        module.create_graph(X, 3)[1],
        module.create_graph(X, features=4)[1],
        module.create_graph(X, bias=False)[1],
        module.create_graph(popsr.TensorSpec((2, 3), popsr.float16))[1],
        Linear(cache=True).create_graph(X)[1],
        Linear(cache=None).create_graph(X)[1],  # type: ignore[arg-type]
    ]
    with popsr.ipu(1):
        others.append(module.create_graph(X)[1])
        assert module.create_graph(X)[1].graph is others[-1].graph
    assert len({g.graph for g in (a, *others)}) == 1 + len(others)


def test_cached_graphs_keep_what_they_know_of_called_graphs(ir: popsr.Ir) -> None:
    calls = []

    class Counting(Scale):
        def build(self, x: popsr.Tensor) -> popsr.Tensor:
            calls.append(x)
            return super().build(x)

    module = Counting(cache=True)
    for _ in range(3):
        _, graph = module.create_graph(X)
        autodiff(graph)
    assert len(calls) == 1
    assert graph.from_module is module


def test_a_cache_does_not_keep_programs() -> None:
    module = Linear(cache=True)

    def use() -> weakref.ref[popsr.Ir]:
        ir = popsr.Ir()
        with ir.main_graph:
            module.create_graph(X)
            module.create_graph(popsr.variable(ONES))
        return weakref.ref(ir)

    programs = [use() for _ in range(2)]
    gc.collect()
    assert all(program() is None for program in programs)
