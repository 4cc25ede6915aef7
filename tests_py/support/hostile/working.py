"""Arguments of calls that work: from a table, from the rows of ops, or from the signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from popsr import ops
from tests_py.ops.rows.inputs import call_arguments
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import ALL_DTYPES, dtype, np_dtype, python_op
from tests_py.support.hostile.called import ARITHMETIC, Target
from tests_py.support.hostile.world import F32, Sparse, World

__all__ = ["INSIDE", "arguments_of", "bound_arguments"]

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
    **{f"__{name}__": lambda w: {"other": 2.0} for name in ARITHMETIC},  # makes a constant as well
    "__matmul__": lambda w: {"other": np.ones((3, 2), np.float32)},
    "__rmatmul__": lambda w: {"other": np.ones((3, 2), np.float32)},
    "__getitem__": lambda w: {"key": 0},
    "unshard": lambda w: {"x": np.ones((2, 4, 3)), "axis": 1},
}

# They make inputs, which the main graph has none of.
INSIDE = {
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


def arguments_of(
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


def bound_arguments(
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
