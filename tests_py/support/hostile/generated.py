"""Bad calls, generated: a call that works, with one argument spoiled.

``targets()`` are public functions, methods and constructors. ``hostile_calls(target, world, count)`` yields calls of
one of them: its arguments come from a table, from the rows of ``op_cases`` where it is an op, or from its signature;
then one of them is replaced by a value of ``VALUES``, left out, or doubled. The same seed gives the same calls.

A ``World`` is what the values are made of: a program with something of every kind, and another one. What calls make
stays in it, so take a new one now and then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

import popsr
from popsr import addons, ops, transforms
from popsr.addons import (
    array_munging,
    debugging,
    graph_cache,
    layers,
    named_replica_grouping,
    remote,
    route_tensor,
    rts,
    variable_factory,
)
from popsr.addons import ops as addons_ops
from popsr.addons import transforms as addons_transforms
from popsr.addons.transforms import batch_serialisation, pipelining, repeat_graph, serial_io
from popsr.ops import collectives, var_updates
from popsr.ops.program.control import CallSiteInfo
from tests_py.ops.rows.inputs import call_arguments
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import ALL_DTYPES, PUBLIC, dtype, np_dtype, python_op

__all__ = ["EVIL", "VALUES", "Call", "Evil", "Target", "World", "hostile_calls", "targets", "valid_call"]

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


@dataclasses.dataclass(frozen=True)
class Target:
    """Something that can be called: ``get`` finds it in a world."""

    name: str
    get: Callable[[World], Callable[..., Any]]
    op: str | None = None  # its row in op_cases


@dataclasses.dataclass(frozen=True)
class Call:
    """A call, and what is wrong with it."""

    target: Target
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    spoiled: str
    inside: popsr.Graph

    def __call__(self) -> Any:
        with self.inside:
            return self.alone()

    def alone(self) -> Any:
        """The call itself; ``inside`` is to be current."""
        return self.fn(*self.args, **self.kwargs)

    def __str__(self) -> str:
        return f"{self.target.name}({self.spoiled})"


# Called functions

# They change the process or wait for something outside it.
_LEFT_OUT = {
    "popsr.set_num_threads",
    "popsr.build_info",
    "addons.timer",
    "addons.print_FLOPs",
    "addons.DotTree",
    "addons.NameScopeMeta",
    "Module.build",  # of Net: not popsr's
}

_ARITHMETIC = (
    *("add", "radd", "iadd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"),
    *("mod", "rmod", "pow", "rpow"),
)
_OPERATORS = (
    *_ARITHMETIC,
    *("matmul", "rmatmul", "and", "rand", "or", "ror", "invert", "neg", "abs", "getitem"),
)

_METHODS: tuple[tuple[str, type, Callable[[World], Any]], ...] = (
    ("Variable", popsr.Variable, lambda w: w.x),
    ("Tensor", popsr.Tensor, lambda w: w.y),
    ("Constant", popsr.Constant, lambda w: w.constant),
    ("Graph", popsr.Graph, lambda w: w.graph),
    ("main graph", popsr.Graph, lambda w: w.ir.main_graph),
    ("Ir", popsr.Ir, lambda w: w.ir),
    ("RemoteBuffer", popsr.RemoteBuffer, lambda w: w.buffer),
    ("CallSiteInfo", CallSiteInfo, lambda w: w.call),
    ("Module", addons.Module, lambda w: w.module),
    ("GraphWithNamedArgs", addons.GraphWithNamedArgs, lambda w: w.net),
    ("BoundGraph", addons.BoundGraph, lambda w: w.net.bind(w.variables)),
    ("VariableFactory", addons.VariableFactory, lambda w: w.factory),
    ("NamedVariableFactories", addons.NamedVariableFactories, lambda w: w.factories),
    ("NamedTensors", addons.NamedTensors, lambda w: w.variables),
    ("GraphCache", addons.GraphCache, lambda w: addons.GraphCache()),
    ("Pipelining", pipelining.Pipelining, lambda w: pipelining.Pipelining(w.ir.main_graph, 4)),
    (
        "PipelineBoundGraph",
        pipelining.PipelineBoundGraph,
        lambda w: pipelining.PipelineBoundGraph(w.net.graph),
    ),
    ("StageContext", pipelining.StageContext, lambda w: pipelining.StageContext()),
)


def _functions(prefix: str, module: Any) -> Iterator[Target]:
    for name in module.__all__:
        found = getattr(module, name)
        if f"{prefix}.{name}" in _LEFT_OUT or not callable(found):
            continue
        is_enum = inspect.isclass(found) and not hasattr(found, "__init__")
        on_arrays = getattr(found, "__module__", "") == array_munging.__name__
        if (inspect.isfunction(found) or inspect.isclass(found)) and not is_enum and not on_arrays:
            op = name if prefix in ("ops", "collectives", "var_updates") and name in PUBLIC else None
            yield Target(f"{prefix}.{name}", lambda _, fn=found: fn, op)  # type: ignore[misc]


def _methods(name: str, kind: type, instance: Callable[[World], Any]) -> Iterator[Target]:
    names = [each for each in dir(kind) if not each.startswith("_")]
    names += [f"__{each}__" for each in _OPERATORS if f"__{each}__" in vars(kind)]
    for each in names:
        found = inspect.getattr_static(kind, each)
        if f"{name}.{each}" not in _LEFT_OUT and (
            callable(found) or isinstance(found, (classmethod, staticmethod))
        ):
            yield Target(f"{name}.{each}", lambda w, each=each: getattr(instance(w), each))  # type: ignore[misc]
    setters = [
        each for each, found in vars(kind).items() if isinstance(found, property) and found.fset is not None
    ]
    for each in setters:
        yield Target(
            f"{name}.{each} = ",
            lambda w, each=each: lambda value: setattr(instance(w), each, value),  # type: ignore[misc]
        )


def targets() -> list[Target]:
    """Every public function, method and constructor that takes part in writing programs."""
    modules = {
        "popsr": popsr,
        "ops": ops,
        "collectives": collectives,
        "var_updates": var_updates,
        "transforms": transforms,
        "addons": addons,
        "addons.ops": addons_ops,
        "addons.transforms": addons_transforms,
        "addons.layers": layers,
        "batch_serialisation": batch_serialisation,
        "debugging": debugging,
        "graph_cache": graph_cache,
        "named_replica_grouping": named_replica_grouping,
        "pipelining": pipelining,
        "remote": remote,
        "repeat_graph": repeat_graph,
        "route_tensor": route_tensor,
        "rts": rts,
        "serial_io": serial_io,
        "variable_factory": variable_factory,
    }
    found = [target for prefix, module in modules.items() for target in _functions(prefix, module)]
    for name, kind, instance in _METHODS:
        found += _methods(name, kind, instance)
    return found


# Calls that work

_Given = Callable[[World], dict[str, Any]]
_CALL: _Given = lambda w: {"graph": w.graph, "inputs": (w.x, w.y)}  # noqa: E731 - rows of a table
_WHILE_LOOP: _Given = lambda w: {  # noqa: E731
    "cond": popsr.gir().create_graph(lambda x: popsr.ops.less(popsr.ops.max(x), popsr.constant(9.0)), w.x),
    "body": w.graph,
    "inputs": (w.x, w.y),
    "max_iterations": 3,
}
_REPEAT: _Given = lambda w: {"graph": w.graph, "repeat_count": 2, "inputs": (w.x, w.y)}  # noqa: E731
_CONDITIONAL: _Given = lambda w: {  # noqa: E731
    "cond": w.flags[0, 0],
    "then_branch": w.graph,
    "else_branch": w.graph,
    "then_inputs": [w.x, w.y],
    "else_inputs": [w.y, w.x],
}
_SERIAL: _Given = lambda w: {  # noqa: E731
    "graph": w.net,
    "steps": 2,
    "load_handles": {w.net.graph.inputs[0]: w.loads},
    "store_streams": {w.net.graph.outputs[0]: w.stores},
    "store_buffers": {},
}
_INPUT: _Given = lambda w: {"name": "v", "data_iter": lambda: np.ones((4, 3), np.float32)}  # noqa: E731

# Arguments of calls that cannot be guessed.
_GIVEN: dict[str, _Given] = {
    "call": _CALL,
    "call_with_info": _CALL,
    "repeat": _REPEAT,
    "repeat_with_info": _REPEAT,
    "while_loop": _WHILE_LOOP,
    "conditional": _CONDITIONAL,
    "conditional_with_info": _CONDITIONAL,
    "remote_load": lambda w: {"remote_buffer": w.buffer, "offset": 1},
    "remote_load_": lambda w: {"remote_buffer": w.buffer, "offset": 1, "t": w.x},
    "remote_store": lambda w: {"remote_buffer": w.buffer, "offset": 1, "t": w.x},
    "onehot": lambda w: {"t": w.labels, "num_classes": w.number, "values": w.long[:2], "axis": 0},
    "scatter_reduce": lambda w: {"data": w.x, "indices": w.labels, "reduction": "sum", "axis_size": 4},
    "replicated_all_to_all": lambda w: {"t": w.rows},
    "replicated_slice": lambda w: {"t": w.rows},
    "replicated_permute": lambda w: {"t": w.x, "mapping": [1, 2, 3, 0]},
    "remote_replica_sharded_variable": lambda w: {
        "data": np.ones((2, 3), np.float32),
        "remote_buffer": w.shards,
    },
    "batch_serialise": _SERIAL,
    "batch_serialise_non_overlapped": _SERIAL,
    "batch_serialise_overlapped": _SERIAL,
    "batch_serialise_fwd_and_grad": lambda w: {
        "forward_graph": w.net,
        "gradient_graph": w.gradient,
        "named_inputs_for_grad_graph": w.net.args,
        "steps": 2,
        "load_handles": {w.net.graph.inputs[0]: w.loads, w.gradient.graph.inputs[0]: w.loads},
        "store_streams": {},
        "store_buffers": {},
    },
    "autodiff_with_accumulation": lambda w: {
        "graph": w.net,
        "tensors_to_accumulate_grads": w.net.args.tensors,
    },
    "recompute_graph": lambda w: {"grad_graph": w.gradient},
    "create_remote_buffer": lambda w: {"spec": w.spec, "shard_over": 1},
    "named_variable_buffers": lambda w: {"factories": w.factories, "shard_over_dict": False},
    "addons.host_load": lambda w: {"t": np.ones((2, 3), np.float32), "dtype": F32, "name": "loaded"},
    "addons.ops.host_load": lambda w: {"t": np.ones((2, 3), np.float32), "dtype": F32, "name": "loaded"},
    "layer_norm_distributed": lambda w: {"t": w.x, "w": w.x[0], "b": w.x[1]},
    "grad_reduce_square_add": lambda w: {"t": w.x, "loss_scaling": 2.0},
    "cross_entropy_sharded_wr_loss": lambda w: {"logits": [w.x, w.y], "indices": [w.labels, w.labels]},
    "rotary_pos_embed": lambda w: (
        {"t": w.rows, "sin": w.long[:4].reshape((4, 1)), "cos": w.rows[:, :1]} | {"rotary_dim": 2}
    ),
    "group_quantize_decompress": lambda w: {
        "t": popsr.constant(np.ones((2, 3), np.uint16)),
        "group_scale": w.x,
        "group_bias": w.y,
    },
    "dense_const_sparse_matmul": lambda w: {"lhs": w.x, "rhs": Sparse(), "output_cols": 4},
    "connect_call_op": lambda w: {
        "op": w.ir.main_graph.ops[2],
        "tensor": w.x,
        "input_tensors": {},
        "modified": False,
    },
    "connect_loop_op": lambda w: {"op": w.loop, "tensor": w.x, "input_tensors": {}, "modified": False},
    "PipelineBoundGraph": lambda w: {"args": (w.net.graph,)},
    "PipelineBoundGraph.add_variable_input": lambda w: {"tensor": w.x},
    "PipelineBoundGraph.call": lambda w: {"args": (w.x, w.variables.w, w.variables.b)},
    "PipelineBoundGraph.call_with_info": lambda w: {"targs": (w.x, w.variables.w, w.variables.b)},
    "NamedTensors.remap": lambda w: {"mapping": {t: t for t in w.variables.tensors}},
    "connect_tensor_to_ops_on_path": lambda w: {
        "path": ("", w.graph.id),
        "from_tensor": w.x,
        "input_tensors": {},
        "modified": False,
    },
    "route_tensor_into_graph": lambda w: {"tensor": w.x, "graph": w.graph},
    "TaskSession": lambda w: {
        "inputs": w.inputs,
        "outputs": w.outputs,
        "state": w.variables,
        "max_checkpoints": 1,
        "args": (w.ir,),
    },
    "add_variable_input": _INPUT,
    "add_replica_sharded_variable_input": _INPUT,
    "add_variable_inputs": lambda w: {"name": "inner", "variable_f": w.factories},
    "add_variable_factory": lambda w: {"variable_f": w.factory, "name": "v"},
    "from_variable_factories": lambda w: {"inputs": [w.factory, w.factory]},
    "BoundGraph.call": lambda w: {"targs": (w.x,)},
    "BoundGraph.call_with_info": lambda w: {"targs": (w.x,)},
    "GraphWithNamedArgs.call": lambda w: {"targs": (w.x, w.variables.w, w.variables.b)},
    "GraphWithNamedArgs.call_with_info": lambda w: {"targs": (w.x, w.variables.w, w.variables.b)},
    "PipelineBoundGraph.add_output_tensor": lambda w: {
        "tensor": w.net.graph.outputs[0],
        "original_id": "original",
    },
    "Graph.get_tensor": lambda w: {"tensor_id": w.inner.id},
    "main graph.get_tensor": lambda w: {"tensor_id": "x"},
    "RemoteBuffer.entries = ": lambda w: {"value": 5},
    "RemoteBuffer.meta_shape = ": lambda w: {"value": (2, 3)},
    "RemoteBuffer.set_remote_buffer_info": lambda w: {
        "tensor_dtype": F32,
        "tensor_shape": (2, 3),
        "entries": 5,
    },
    "Ir.num_host_transfers = ": lambda w: {"value": 3},
    "Ir.replica_grouping_from_assignments": lambda w: {"assignment": [0, 0, 1, 1]},
    **{f"__{name}__": lambda w: {"other": 2.0} for name in _ARITHMETIC},  # makes a constant as well
    "__matmul__": lambda w: {"other": np.ones((3, 2), np.float32)},
    "__rmatmul__": lambda w: {"other": np.ones((3, 2), np.float32)},
    "__getitem__": lambda w: {"key": 0},
    "unshard": lambda w: {"x": np.ones((2, 4, 3)), "axis": 1},
}

# They make inputs, which the main graph has none of.
_INSIDE = {
    "graph_input",
    "add_variable_input",
    "add_replica_sharded_variable_input",
    "add_variable_factory",
    "add_variable_inputs",
    "from_variable_factories",
    "add_recompute_inputs",
    "create_input",
    "build",
}

# By name of the parameter, before its annotation is looked at.
_BY_NAME: dict[str, Callable[[World], Any]] = {
    "shape": lambda w: (2, 3),
    "tensor_shape": lambda w: (2, 3),
    "spec": lambda w: w.spec,
    "labels": lambda w: w.labels,
    "indices": lambda w: w.labels,
    "seed_tensor": lambda w: w.seed,
    "name": lambda w: "name",
    "data_iter": lambda w: lambda: np.ones((2, 3), np.float32),
    "data": lambda w: np.ones((2, 3), np.float32),
    "fn": lambda w: ops.tanh,
    "graph_input": lambda w: w.graph.inputs[0],
    "variable_f": lambda w: w.factories,
    "inputs": lambda w: w.x,
    "tensor": lambda w: w.x,
    "cond": lambda w: w.flags,
    "original_id": lambda w: "original",
    "axis": lambda w: 0,
    "axis_1": lambda w: 0,
    "axis_2": lambda w: 1,
    "reduction": lambda w: "sum",
}

# By a part of the annotation, in this order.
_BY_ANNOTATION: tuple[tuple[str, Callable[[World], Any]], ...] = (
    ("NamedVariableFactories", lambda w: w.factories),
    ("NamedRemoteBuffers", lambda w: w.buffers),
    ("NamedTensors", lambda w: w.variables),
    ("NamedReplicaGrouping", lambda w: w.factories.replica_groupings),
    ("GraphWithNamedArgs", lambda w: w.net),
    ("GradGraphInfo", lambda w: w.gradient.grad_graph_info),
    ("VariableFactory", lambda w: w.factory),
    ("CallSiteInfo", lambda w: w.call),
    ("Module", lambda w: w.module),
    ("GraphLike", lambda w: w.net),
    ("Graph", lambda w: w.graph),
    ("RemoteBuffer", lambda w: w.buffer),
    ("HostToDeviceStream", lambda w: w.loads),
    ("DeviceToHostStream", lambda w: w.stores),
    ("ReplicaGrouping", lambda w: w.grouping),
    ("Mapping", lambda w: {}),
    ("Iterable[Tensor", lambda w: [w.x, w.y]),
    ("list[Tensor]", lambda w: [w.x, w.y]),
    ("TensorSpec", lambda w: w.spec),
    ("Tensor", lambda w: w.x),
    ("HostToDevice", lambda w: w.loads),
    ("dtype", lambda w: F32),
    ("Op", lambda w: w.op),
    ("Ir", lambda w: w.ir),
    ("Callable", lambda w: lambda *args: None),
    ("Iterable[int]", lambda w: [0, 1]),
    ("tuple[int", lambda w: (0, 1)),
    ("int", lambda w: 2),
    ("float", lambda w: 0.5),
    ("bool", lambda w: True),
    ("str", lambda w: "text"),
    ("Array", lambda w: np.ones((4, 6), np.float32)),
    ("Host", lambda w: np.ones((2, 3), np.float32)),
)


def _value_for(parameter: inspect.Parameter, world: World) -> Any:
    if parameter.name in _BY_NAME:
        return _BY_NAME[parameter.name](world)
    annotation = str(parameter.annotation)
    for part, make in _BY_ANNOTATION:
        if part in annotation:
            return make(world)
    return world.x


def _operands(op: str) -> tuple[list[Any], dict[str, Any]] | None:
    """Tensors and attributes of the first case of an op's row, if it is called the plain way."""
    case = OPS[op].cases[0] if OPS[op].cases else None
    if case is None or case.call is not None or case.group is not None:
        return None
    arrays = case.draw(np.random.default_rng(0), case.dtypes[0])
    names = {np_dtype(name): name for name in ALL_DTYPES}
    tensors = [popsr.variable(array, dtype(names[array.dtype]), "operand") for array in arrays]
    return tensors, call_arguments(case)


def _arguments(
    target: Target, fn: Callable[..., Any], world: World
) -> tuple[dict[str, Any], dict[str, inspect.Parameter]]:
    """Arguments by parameter, of a call that works where they can be guessed; and all parameters."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return {}, {}
    parameters = dict(signature.parameters)
    own = _GIVEN.get(target.name) or _GIVEN.get(target.name.rpartition(".")[2])
    if own is not None:
        return own(world), parameters
    if target.op is not None:
        operands = _operands(target.op)
        if operands is not None:
            bound = inspect.signature(python_op(target.op)).bind(*operands[0], **operands[1])
            return dict(bound.arguments), parameters
    given: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            given[name] = (_value_for(parameter, world),)
        elif parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty:
            given[name] = _value_for(parameter, world)
    return given, parameters


def _bound(
    given: dict[str, Any], parameters: dict[str, inspect.Parameter]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_keyword = False
    for name, parameter in parameters.items():
        if name not in given:
            by_keyword = by_keyword or parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        elif parameter.kind is parameter.VAR_POSITIONAL:
            value = given[name]
            args += value if isinstance(value, tuple) and not by_keyword else [value] * (not by_keyword)
        elif parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update(given[name] if isinstance(given[name], dict) else {name: given[name]})
        elif parameter.kind is parameter.KEYWORD_ONLY or (
            by_keyword and parameter.kind is not parameter.POSITIONAL_ONLY
        ):
            kwargs[name] = given[name]
        else:
            args.append(given[name])
    return tuple(args), kwargs


def hostile_calls(
    target: Target,
    world: World,
    count: int = 10,
    seed: int = 0,
    *,
    values: dict[str, Callable[[World], Any]] | None = None,
) -> Iterator[Call]:
    """So many calls of the target, each with one thing wrong. The main graph of the world is to be current.

    Args:
        target: what is called.
        world: what arguments are made of.
        count: how many calls.
        seed: other calls.
        values: what spoils arguments. Default: ``VALUES``.
    """
    rng = random.Random(f"{target.name} {seed}")
    table = VALUES if values is None else values
    is_inside = target.name.rpartition(".")[2] in _INSIDE
    for _ in range(count):
        inside = world.empty_graph if is_inside else world.ir.main_graph
        fn = target.get(world)
        given, parameters = _arguments(target, fn, world)
        name, value = rng.choice([*parameters] or [""]), rng.choice(list(table))
        kind = rng.random()
        args, kwargs = _bound(given, parameters)
        if not name or kind < 0.06:
            yield Call(target, fn, (*args, table[value](world)), kwargs, f"{value} as one more", inside)
        elif kind < 0.1:
            yield Call(target, fn, args, {**kwargs, "no_such_name": 1}, "no_such_name=1", inside)
        elif kind < 0.14 and name in given:
            args, kwargs = _bound({key: item for key, item in given.items() if key != name}, parameters)
            yield Call(target, fn, args, kwargs, f"no {name}", inside)
        else:
            spoiled = _spoiled(given.get(name), parameters[name], table[value](world), rng)
            args, kwargs = _bound({**given, name: spoiled}, parameters)
            yield Call(target, fn, args, kwargs, f"{name}={value}", inside)


def valid_call(target: Target, world: World) -> Call:
    """The call that ``hostile_calls`` spoils; not of all targets it is one that works."""
    fn = target.get(world)
    args, kwargs = _bound(*_arguments(target, fn, world))
    is_inside = target.name.rpartition(".")[2] in _INSIDE
    return Call(target, fn, args, kwargs, "", world.empty_graph if is_inside else world.ir.main_graph)


def _spoiled(given: Any, parameter: inspect.Parameter, value: Any, rng: random.Random) -> Any:
    """Value passed in place of an argument."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return (*(given or ()), value) if rng.random() < 0.5 else (value,)
    if parameter.kind is parameter.VAR_KEYWORD:
        return {"unknown": value}
    if isinstance(given, (list, tuple)) and given and rng.random() < 0.4:  # one of several
        items = list(given)
        items[rng.randrange(len(items))] = value
        return type(given)(items)
    if isinstance(given, dict) and given and rng.random() < 0.6:
        key = rng.choice(list(given))
        return {**given, key: value}
    return value
