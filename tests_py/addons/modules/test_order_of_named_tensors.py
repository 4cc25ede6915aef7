"""``tensors`` of what stands for the same values sorts alike: inputs of graphs, variables, accumulators.

Programs zip them: ``autodiff(net, grads_required=net.args.tensors)``, then ``zip(variables.tensors, gradients)``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops
from popsr.addons.named_tensors import NamedTensors

F32 = popsr.float32
SIZE = 3


class Layer(addons.Module):
    """``tanh(x @ a + b)``; both variables of the matrix and the bias have one shape."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        a = self.add_variable_input("a", partial_eye(1.0), F32)
        b = self.add_variable_input("b", partial_eye(0.5), F32)
        return ops.tanh(x @ a + b)


def partial_eye(scale: float) -> Callable[[], Any]:
    return lambda: np.full((SIZE, SIZE), scale, np.float32) - np.eye(SIZE, dtype=np.float32)


class Reused(addons.Module):
    """One graph of a layer, called three times with variables of its own each time."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        factories, layer = Layer().create_graph(x)
        for i in range(3):
            variables = self.add_variable_inputs(f"l{i}", factories)
            (x,) = layer.bind(variables).call(x)
        return x


class Inlined(addons.Module):
    """Three layers as parts."""

    def __init__(self) -> None:
        super().__init__()
        self.l0, self.l1, self.l2 = Layer(), Layer(), Layer()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return self.l2(self.l1(self.l0(x)))  # type: ignore[arg-type,return-value]


class Scoped(addons.Module):
    """Three calls, in name scopes that sort the other way round."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        factories, layer = Layer().create_graph(x)
        for i, scope in enumerate("zyx"):
            with popsr.name_scope(scope):
                (x,) = layer.bind(self.add_variable_inputs(i, factories)).call(x)
        return x


def _values(seed: int) -> list[np.ndarray[Any, Any]]:
    """Values of the six variables, sorted by key, all different."""
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 0.5, (SIZE, SIZE)).astype(np.float32) for _ in range(6)]


def _loss(x: np.ndarray[Any, Any], values: list[np.ndarray[Any, Any]]) -> float:
    y = x.astype(np.float64)
    for i in range(3):
        y = np.tanh(y @ values[2 * i].astype(np.float64) + values[2 * i + 1])
    return float(y.sum())


def _differences(x: np.ndarray[Any, Any], values: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Derivatives of the loss by each value, as quotients of differences."""
    found = []
    for k in range(len(values)):
        gradient = np.zeros((SIZE, SIZE))
        for at in np.ndindex(SIZE, SIZE):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [value.astype(np.float64) for value in values]
                moved[k][at] += step
                ends.append(_loss(x, moved))
            gradient[at] = (ends[0] - ends[1]) / 2e-5
        found.append(gradient)
    return found


@pytest.mark.parametrize("net_class", [Reused, Inlined, Scoped])
@pytest.mark.parametrize("copies", [1, 2])
def test_zipped_gradients_are_those_of_the_variables(net_class: type[addons.Module], copies: int) -> None:
    """As published programs update weights; the second copy of the variables has names with suffixes."""
    ir = popsr.Ir()
    x_value, values = np.linspace(-1, 1, SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE), _values(7)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(x_value, name="x")
        factories, net = net_class().create_graph(x)
        variables = [factories.init() for _ in range(copies)][-1]
        backward = addons.autodiff(net, grads_required=net.args.tensors)
        call = net.bind(variables).call_with_info(x)
        seed = popsr.constant(np.ones((SIZE, SIZE), np.float32))
        gradients = backward.call(seed, args=backward.grad_graph_info.inputs_dict(call))
        for variable, gradient in dict(zip(variables.tensors, gradients, strict=True)).items():
            ops.var_updates.copy_var_update_(variable, gradient)
    with popsr.Session(ir) as session:
        tensors = [variables[key] for key in sorted(variables.keys_flat())]
        session.write_variables_data(dict(zip(tensors, values, strict=True)))
        session.run()
        for tensor, expected in zip(tensors, _differences(x_value, values), strict=True):
            np.testing.assert_allclose(
                session.get_tensor_data(tensor), expected, atol=1e-4, err_msg=tensor.name
            )


def test_inputs_of_reused_graphs_are_named_by_their_keys() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(np.ones((SIZE, SIZE), np.float32))
        _, net = Reused().create_graph(x)
    assert [t.name for t in net.args.tensors] == ["l0.a", "l0.b", "l1.a", "l1.b", "l2.a", "l2.b"]
    assert list(net.graph.inputs_by_name) == ["x", "l0.a", "l0.b", "l1.a", "l1.b", "l2.a", "l2.b"]


def test_accumulators_sort_as_their_tensors() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(np.ones((SIZE, SIZE), np.float32))
        factories, net = Reused().create_graph(x)
        variables = factories.init("net")
        facts, _ = addons.autodiff_with_accumulation(net, net.args.tensors)
        accumulators = facts.init()
    keys = {t: key for key, t in accumulators.to_dict().items()}
    assert [keys[t] for t in accumulators.tensors] == [
        *(f"accum.{key}" for key in sorted(variables.keys_flat())),
        "mean_accum_counter",
    ]


def test_results_of_ops_sort_by_their_keys() -> None:
    """Names of results say nothing: gradients packed by key sort as the variables of these keys."""
    ir = popsr.Ir()
    with ir.main_graph:
        t = popsr.variable(np.ones(2, np.float32))
        tree = NamedTensors(b=ops.abs(t), a=ops.tanh(t), c=ops.abs(t))
    assert tree.tensors == (tree.a, tree.b, tree.c)


# Modules by chance


class Random(addons.Module):
    """Variables, parts, reused graphs and called modules with names by chance."""

    NAMES = ("a", "aB", "a_1", "a10", "a9", "b", "weight", "w")

    def __init__(self, rng: random.Random, depth: int) -> None:
        super().__init__()
        self._rng, self._depth = rng, depth
        self._plan = [self._choice() for _ in range(rng.randint(1, 4))]
        for kind, name in self._plan:
            if kind == "part":
                setattr(self, name, Random(rng, depth - 1))

    def _choice(self) -> tuple[str, str]:
        kinds = (
            ["variable", "scoped"] if self._depth == 0 else ["variable", "scoped", "part", "reused", "call"]
        )
        self._taken = getattr(self, "_taken", 0) + 1
        return self._rng.choice(kinds), f"{self._rng.choice(self.NAMES)}{self._taken}"

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        for kind, name in self._plan:
            if kind == "variable":
                x = x + self._variable(name)
            elif kind == "scoped":
                with popsr.name_scope(self._rng.choice("zyx")):
                    x = x + self._variable(name)
            elif kind == "part":
                x = getattr(self, name)(x)
            elif kind == "call":
                (x,) = self.call_module(Random(self._rng, self._depth - 1), name)(x)
            else:
                factories, graph = Random(self._rng, self._depth - 1).create_graph(x)
                for i in range(self._rng.randint(1, 3)):
                    (x,) = graph.bind(self.add_variable_inputs(f"{name}x{i}", factories)).call(x)
        return x

    def _variable(self, name: str) -> popsr.Tensor:
        return self.add_variable_input(name, lambda: np.zeros((), np.float32), F32)


def _keys_in_order(tree: NamedTensors) -> list[str]:
    keys = {tensor: key for key, tensor in tree.to_dict().items()}
    return [keys[tensor] for tensor in tree.tensors]


@pytest.mark.parametrize("seed", range(40))
def test_inputs_and_variables_of_any_modules_sort_alike(seed: int) -> None:
    rng = random.Random(seed)
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(np.float32(1))
        factories, net = Random(rng, 2).create_graph(x)
        made = [factories.init(prefix) for prefix in (None, "p", None, "p.q")]
        bound = net.bind(made[0]).call_with_info(x)
        facts, grad = addons.autodiff_with_accumulation(net, net.args.tensors)
        accumulators = facts.init("again")
    assert bound.inputs
    expected = _keys_in_order(net.args)
    assert expected == sorted(expected)
    for tree in made:
        assert _keys_in_order(tree) == expected
    of_accumulators = [f"accum.{key}" for key in expected]
    assert _keys_in_order(accumulators)[:-1] == of_accumulators
    assert _keys_in_order(grad.args)[:-1] == of_accumulators
    assert _keys_in_order(accumulators.accum) == expected
