"""A program with something of every kind, and the values that spoil arguments of calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import popsr
from popsr import addons, ops
from popsr.addons import (
    remote,
)

__all__ = ["EVIL", "F32", "I32", "VALUES", "Evil", "World"]

F32, I32 = popsr.float32, popsr.int32


class Net(addons.Module):
    """Two variables."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        w = self.add_variable_input("w", lambda: np.ones((3, 3), np.float32), F32)
        b = self.add_variable_input("b", lambda: np.ones(3, np.float32), F32)
        return ops.tanh(x @ w) + b


class Sparse:
    """A sparse matrix, with what popsr asks of one."""

    shape = (3, 4)

    def toarray(self) -> np.ndarray[Any, Any]:
        return np.eye(3, 4, dtype=np.float32)


class World:
    """A program with something of every kind, whose main graph is to be entered, and another program."""

    def __init__(self) -> None:
        self.ir, self.other_ir = popsr.Ir(replication=4), popsr.Ir(replication=2)
        with self.other_ir.main_graph:
            self.foreign = popsr.variable(np.ones((2, 3), np.float32), name="foreign")
            self.foreign_stream = popsr.h2d_stream((2, 3), F32)
            self.foreign_buffer = popsr.remote_buffer((2, 3), F32, 2)
            self.foreign_graph = self.other_ir.create_graph(ops.tanh, self.foreign)
        self.graph = self.ir.create_graph(lambda a, b: ops.tanh(a * b), *[popsr.TensorSpec((2, 3), F32)] * 2)
        with self.ir.main_graph:
            self._tensors()
            self._state()

    def _tensors(self) -> None:
        self.x = popsr.variable(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), name="x")
        self.y = ops.tanh(self.x)
        self.labels = popsr.variable(np.array([1, 2], np.int32), name="labels")
        self.flags = popsr.constant(np.array([[True, False, True]] * 2), name="flags")
        self.narrow = popsr.variable(np.ones((2, 3), ml_dtypes.bfloat16), popsr.bfloat16, "narrow")
        self.float8 = popsr.variable(np.ones((2, 3), np.float32), popsr.float8_143, "float8", log2_scale=0)
        self.scalar = popsr.variable(np.float32(2), name="scalar")
        self.number = popsr.variable(np.int32(1), name="number")
        self.empty = popsr.constant(np.ones((0, 3), np.float32), name="empty")
        self.deep = popsr.constant(np.ones((1, 2, 1, 3, 1), np.float32), name="deep")
        self.long = popsr.constant(np.ones(7, np.float32), name="long")
        self.constant = popsr.constant(np.ones((2, 3), np.float32), name="constant")
        self.seed = popsr.constant(popsr.create_seeds(3), name="seed")
        self.view = self.x.transpose_()
        self.call = ops.call_with_info(self.graph, self.x, self.y)
        self.loop = ops.repeat_with_info(self.graph, 2, self.x, self.y)._view
        self.inner = self.graph.outputs[0]
        made: list[popsr.Tensor] = []

        def fails(t: popsr.Tensor) -> None:
            made.append(ops.relu(t))
            raise ValueError

        with contextlib.suppress(ValueError):
            self.ir.create_graph(fails, self.x)
        self.undone = made[0]

    def _state(self) -> None:
        self.buffer = popsr.remote_buffer((2, 3), F32, 3)
        self.remote = popsr.remote_variable(np.ones((2, 3), np.float32), self.buffer, 1, name="remote")
        self.sharded, self.shard = popsr.replica_sharded_variable(np.ones((4, 2), np.float32), name="sharded")
        self.loads, self.stores = popsr.h2d_stream((2, 3), F32), popsr.d2h_stream((2, 3), F32)
        self.grouping = self.ir.replica_grouping(1, 2)
        self.module = Net()
        self.factories, self.net = self.module.create_graph(self.x.spec)
        self.gradient = addons.autodiff(self.net)
        self.variables = self.factories.init("net")
        self.factory = addons.VariableFactory(lambda: np.ones((2, 3), np.float32), F32, "factory")
        self.buffers = remote.named_buffers(self.variables, 2)
        self.spec = popsr.TensorSpec((2, 3), F32)
        self.op = self.graph.ops[0]
        self.rows = popsr.constant(np.ones((4, 3), np.float32), name="rows")  # a row a replica
        self.shards = popsr.replica_sharded_buffer((2, 3), F32)
        self.inputs, self.outputs = addons.InputStreams(a=((2,), F32)), addons.OutputStreams(b=((2,), F32))
        self.ir.options.enable_stochastic_rounding = True

    @property
    def empty_graph(self) -> popsr.Graph:
        """A new one."""
        return self.ir.create_empty_graph("empty")


class Evil:
    """Whatever is asked of it, it raises."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("evil")

    __index__ = __int__ = __float__ = __bool__ = __len__ = __iter__ = __getitem__ = __array__ = _raise
    __eq__ = __hash__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __fspath__ = _raise  # type: ignore[assignment]


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _fails_late(*_: Any) -> popsr.Tensor:
    """A function for graphs: it makes an op, a constant and a graph, and raises."""
    x = popsr.graph_input((2, 3), F32, "late")
    popsr.gir().create_empty_graph("late")
    (ops.tanh(x) * 2.0).reshape((7,))
    raise AssertionError("not reached")


VALUES: dict[str, Callable[[World], Any]] = {
    # Python
    "None": lambda w: None,
    "True": lambda w: True,
    "0": lambda w: 0,
    "-1": lambda w: -1,
    "3": lambda w: 3,
    "2**31": lambda w: 2**31,
    "2**63": lambda w: 2**63,
    "-2**63 - 1": lambda w: -(2**63) - 1,
    "10**400": lambda w: 10**400,
    "1.5": lambda w: 1.5,
    "nan": lambda w: float("nan"),
    "inf": lambda w: float("inf"),
    "1j": lambda w: 1j,
    "empty text": lambda w: "",
    "text": lambda w: "nonsense",
    "long text": lambda w: "x" * 10_000,
    "lone surrogate": lambda w: "\ud800",
    "lines": lambda w: "a\nb/c\0d",
    "bytes": lambda w: b"bytes",
    "object": lambda w: object(),
    "type": lambda w: int,
    "function": lambda w: lambda *args, **kwargs: None,
    "failing function": lambda w: _fails_late,
    "empty list": lambda w: [],
    "empty tuple": lambda w: (),
    "Nones": lambda w: [None, None],
    "ints": lambda w: [1, 2, 3],
    "negative ints": lambda w: (-1, -2),
    "huge ints": lambda w: (2**40, 2**40),
    "texts": lambda w: ["a", "b"],
    "nested": lambda w: _nested(200),
    "dict": lambda w: {"a": 1},
    "set": lambda w: {1, 2},
    "generator": lambda w: (i for i in range(3)),
    "Ellipsis": lambda w: ...,
    "slice": lambda w: slice(5, -7, 0),
    # NumPy
    "np.int64": lambda w: np.int64(7),
    "np.float32": lambda w: np.float32(0.5),
    "array of no dimensions": lambda w: np.array(3),
    "int array": lambda w: np.arange(6),
    "float array": lambda w: np.ones((2, 3), np.float32),
    "wrong array": lambda w: np.ones((5, 1, 2)),
    "empty array": lambda w: np.ones((0, 3), np.float32),
    "object array": lambda w: np.array([object(), None], object),
    "text array": lambda w: np.array(["a", "b"]),
    "structured array": lambda w: np.zeros(2, [("a", np.int32)]),
    "dates": lambda w: np.array(["2020-01-01"], "datetime64[D]"),
    "nan array": lambda w: np.full((2, 3), np.nan),
    "dtype of NumPy": lambda w: np.dtype("complex64"),
    # dtypes
    "int32": lambda w: I32,
    "bool": lambda w: popsr.bool,
    "float8": lambda w: popsr.float8_143,
    "name of a dtype": lambda w: "float31",
    # the program
    "tensor": lambda w: w.x,
    "activation": lambda w: w.y,
    "labels": lambda w: w.labels,
    "bools": lambda w: w.flags,
    "bfloat16": lambda w: w.narrow,
    "tensor of float8": lambda w: w.float8,
    "scalar": lambda w: w.scalar,
    "int scalar": lambda w: w.number,
    "empty tensor": lambda w: w.empty,
    "tensor of rank 5": lambda w: w.deep,
    "long tensor": lambda w: w.long,
    "constant": lambda w: w.constant,
    "seed": lambda w: w.seed,
    "view": lambda w: w.view,
    "tensors": lambda w: [w.x, w.long],
    "tensor twice": lambda w: [w.x, w.x],
    "tensor of another graph": lambda w: w.inner,
    "tensor of another Ir": lambda w: w.foreign,
    "tensor of a failed call": lambda w: w.undone,
    "remote variable": lambda w: w.remote,
    "sharded variable": lambda w: w.sharded,
    "shard": lambda w: w.shard,
    "spec": lambda w: w.spec,
    "graph": lambda w: w.graph,
    "main graph": lambda w: w.ir.main_graph,
    "graph of another Ir": lambda w: w.foreign_graph,
    "Ir": lambda w: w.ir,
    "other Ir": lambda w: w.other_ir,
    "op": lambda w: w.op,
    "call": lambda w: w.call,
    "input stream": lambda w: w.loads,
    "output stream": lambda w: w.stores,
    "stream of another Ir": lambda w: w.foreign_stream,
    "buffer": lambda w: w.buffer,
    "buffer of another Ir": lambda w: w.foreign_buffer,
    "grouping": lambda w: w.grouping,
    "grouping of 2 replicas": lambda w: w.other_ir.replica_grouping(),
    "settings": lambda w: popsr.replicas.VariableSettings(),
    # addons
    "net": lambda w: w.net,
    "gradient": lambda w: w.gradient,
    "module": lambda w: w.module,
    "factory": lambda w: w.factory,
    "factories": lambda w: w.factories,
    "variables": lambda w: w.variables,
    "buffers": lambda w: w.buffers,
    "tensors by tensor": lambda w: {w.x: w.y, w.foreign: w.x},
    "streams by tensor": lambda w: {w.graph.inputs[0]: w.foreign_stream, w.x: w.stores},
}
"""Values that most parameters do not take."""

EVIL: dict[str, Callable[[World], Any]] = {"evil": lambda w: Evil()}
"""Values that raise something else than popsr's errors."""
