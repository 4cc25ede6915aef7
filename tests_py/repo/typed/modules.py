"""Types of modules, factories and trees."""

from functools import partial
from typing import Any, assert_type

import numpy as np

import popsr
from popsr import addons, ops


class Linear(addons.Module):
    """One layer."""

    def build(self, x: popsr.Tensor, size: int = 2) -> popsr.Tensor:
        rng = np.random.default_rng(0)
        w = self.add_variable_input("weight", lambda: rng.normal(size=(2, size)), x.dtype)
        v = self.add_variable_input("scale", lambda n=size: np.ones(n), x.dtype)
        b = self.add_variable_input("bias", partial(np.zeros, size), x.dtype)
        u = self.add_variable_input("shift", [np.zeros(size)], x.dtype)
        return (x @ w) * v + b + u


class Net(addons.Module):
    """Two layers, and what the first one makes."""

    def __init__(self) -> None:
        super().__init__(grad_inlining_error="none")
        self.first, self.second = Linear(), Linear()

    def build(self, x: popsr.Tensor) -> tuple[popsr.Tensor, popsr.Tensor]:
        hidden = ops.gelu(self.first(x, size=2))
        assert_type(hidden, popsr.Tensor)
        self.first("x")  # E: arg-type: expected "Tensor"
        self.first(x, units=3)  # E: call-arg: Unexpected keyword argument "units"
        return self.second(hidden), hidden


class Stack(addons.Module):
    """Layers in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = addons.Module.from_list([Linear(), Linear()])

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Bare(popsr.Module):
    """A module of PopXL's own."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return x


ir = popsr.Ir()
with ir.main_graph:
    x = popsr.constant(np.zeros((2, 2)), popsr.float32)
    assert_type(Net()(x), tuple[popsr.Tensor, popsr.Tensor])
    assert_type(Bare()(x), popsr.Tensor)
    factories, graph = Net().create_graph(x)
    variables = factories.init()
    assert_type(variables.tensors, tuple[popsr.Variable, ...])
    assert_type(variables.named_tensors, dict[str, popsr.Variable])
    assert_type(variables.values_flat(), list[popsr.Variable])
    assert_type(graph.args.tensors, tuple[popsr.Tensor, ...])
    assert_type(graph.bind(variables).call(x), tuple[popsr.Tensor, ...])
    named: addons.NamedTensors = variables
    for variable in variables.tensors:
        assert_type(variable.replica_grouping, popsr.ReplicaGrouping)

    with popsr.Session(ir) as session:
        data = [session.get_tensor_data(each) for each in variables.tensors]
        assert_type(data, list[np.ndarray[Any, Any]])
        session.get_tensor_data(graph.args.tensors[0])  # E: arg-type: expected "Variable | Constant"

    Linear()("x")  # E: arg-type: expected "Tensor"
    Linear(cached=True)  # E: call-arg: Unexpected keyword argument "cached"
    Linear(grad_inlining_error="raise")  # E: arg-type: expected "Literal['error', 'warning', 'none']"
    graph.bind(3)  # E: arg-type: expected "NamedTensors
    one: popsr.Tensor = Net()(x)  # E: assignment: "tuple[Tensor, Tensor]"
