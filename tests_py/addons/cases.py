"""Modules that tests of addons share, and running their graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import popsr
from popsr import ops
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.variable_factory import VariableFactory
from tests_py.support.helpers import Array

F32 = popsr.float32
ONES = np.ones((2, 3), np.float32)
X = popsr.TensorSpec((2, 3), F32)


class Scale(Module):
    """``x * weight``, with the weight ``start`` in the first graph."""

    def __init__(self, start: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.start = start

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        self.weight = self.add_variable_input("weight", partial(np.full, x.shape, self.start), F32)
        return ops.mul(x, self.weight)


class Linear(Module):
    """``x @ weight + bias``."""

    def build(self, x: popsr.Tensor, features: int = 3, bias: bool = True) -> popsr.Tensor:
        w = self.add_variable_input("weight", partial(np.ones, (x.shape[-1], features)), x.dtype)
        y = x @ w
        return y + self.add_variable_input("bias", partial(np.zeros, features), x.dtype) if bias else y


class Inlined(Module):
    """Two parts in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = Linear(), Linear()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        hidden: Any = self.fc1(x)
        result: Any = self.fc2(ops.relu(hidden))
        return result


class Outlined(Module):
    """One graph called with two sets of variables."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = Linear()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        f, g = self.fc.create_graph(x)
        (x,) = g.bind(self.add_variable_inputs("first", f)).call(x)
        (x,) = g.bind(self.add_variable_inputs(1, f)).call(x)
        return x


class Deep(Module):
    """A part with parts, beside a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = Inlined(), Scale()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        offset = self.add_variable_input("offset", partial(np.ones, ()), F32)
        return self.last(self.inner(x)) + offset


class Listed(Module):
    """Parts in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Module.from_list([Scale(1.0 + i) for i in range(3)])

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        result: Any = x
        for layer in self.layers:
            result = layer(result)
        return result


class Dotted(Module):
    """Dotted names, factories and parts that are made in ``build``."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        a = self.add_variable_input("fwd.a", partial(np.ones, ()), F32)
        b = self.add_variable_input("fwd.b", partial(np.ones, ()), F32, overwrite=True)
        self.bare = Module.from_variable_factories(
            [VariableFactory(partial(np.full, (), i), F32, f"v{i}") for i in range(2)]
        )
        self.made = Scale(3.0)
        return self.made(x) * a + b + self.bare[0] * self.bare[1] + self.bare.get(1)


class Sharing(Module):
    """One part, assigned once, outlined twice with the same variables."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Scale()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        f, g = self.part.create_graph(x)
        bound = g.bind(self.add_variable_inputs("part", f))
        return bound.call(*bound.call(x))[0]


def num_graphs(ir: popsr.Ir) -> int:
    return ir._core.num_graphs


def run(ir: popsr.Ir, graph: Any, variables: NamedTensors, x: Array) -> Array:
    """The first output of one call."""
    out = graph.bind(variables).call(x)[0]
    stream = popsr.d2h_stream(out.shape, out.dtype)
    ops.host_store(stream, out)
    with popsr.Session(ir, check=True) as session:
        result = session.run()[stream]
    assert isinstance(result, np.ndarray)
    return result
