"""Running one module, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._program.building.transaction import transactional
from popsr._program.context import in_sequence
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Variable
from popsr._program.variables.variables import variable
from popsr._session.session import Session
from popsr._support.host.arguments import is_a, read_items, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph_cache import bound_arguments, tensor_arguments
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.ops.streams import host_store
from popsr.compat._objects.identifiers import graph_of
from popsr.compat._objects.members import PopartOp
from popsr.compat._objects.op_classes import OpClass
from popsr.errors import ArgumentTypeError
from popsr.utils import to_numpy

__all__ = ["TensorInput", "contains_op_of_type", "num_op_of_type", "ops_of_type", "run_module"]

Array = np.ndarray[Any, Any]
Weights = Mapping[Variable, Array]


@public
class TensorInput:
    """Data of a tensor argument of a module; see ``run_module``.

    Args:
        data: an array or what becomes one.
        dtype: element type. Default: the data's, 64-bit types narrowed to 32 bits.
    """

    def __init__(self, data: Array, dtype: dtypes.dtype | None = None) -> None:
        """The data as array.

        Raises:
            DTypeError: it is not numeric, or ``dtype`` is none.
        """
        self.data: Array = to_numpy(data, dtype)
        self.dtype: dtypes.dtype = dtypes.dtype.as_dtype(self.data.dtype) if dtype is None else dtype

    def __repr__(self) -> str:
        return f"TensorInput[{self.dtype.name} {self.data.shape}]"


@public
@transactional
def run_module(
    module: Module,
    *args: Any,
    weights: Callable[[NamedTensors], Weights] | Weights | None = None,
    **kwargs: Any,
) -> list[Array]:
    """Call a module once in a program of its own, and return its outputs.

    Args:
        module: the module.
        *args: arguments of ``build``. A TensorInput, also in a list or tuple, becomes a variable of the main graph and
            is passed as tensor; other arguments are passed on.
        weights: data of the module's variables, by variable, or a function that makes it of the tree of them.
            Default: what their factories make.
        **kwargs: further arguments of ``build``, likewise.
    Returns:
        The outputs in order. Of an argument by reference that is written to and returned, the new value.
    Raises:
        ArgumentTypeError: ``module`` is not a Module; otherwise as for ``Module.create_graph``, ``call`` and
            ``Session.write_variables_data``.
    """
    if not is_a(module, Module):
        raise ArgumentTypeError(f"run_module: module is not a Module, got {shown(module)}")
    ir = Ir()
    with ir.main_graph, in_sequence():
        inputs = [_with_variables(arg) for arg in args]
        named = {name: _with_variables(arg) for name, arg in kwargs.items()}
        factories, graph = module.create_graph(*inputs, **named)
        variables = factories.init()
        tensors = tensor_arguments(bound_arguments(module, *inputs, **named))
        outputs = graph.bind(variables).call(*tensors)
        streams = [host_store(output) for output in outputs]
    session = Session(ir, "ipu_hw")
    if weights is not None:
        session.write_variables_data(weights(variables) if callable(weights) else weights)
    with session:
        results = session.run()
    return [results[stream] for stream in streams]


def _with_variables(arg: Any) -> Any:
    """The argument, with a variable for each TensorInput."""
    if isinstance(arg, TensorInput):
        return variable(arg.data, arg.dtype, "input")
    if isinstance(arg, (list, tuple)) and any(isinstance(each, TensorInput) for each in arg):
        return type(arg)(_with_variables(each) for each in arg)
    return arg


OpType = str | type


@public
def ops_of_type(ops: Iterable[Op], op_type: OpType) -> int:
    """Checks the number of ops of a kind.

    Args:
        ops: the ops, as ``graph.ops`` or ``graph._pb_graph.getOps()``.
        op_type: a class, as ``popart._internal.ir.op.MatMulOp``; or a name: of popsr's op, "matmul", or PopART's
            operator type, "MatMul".
    Raises:
        ArgumentTypeError: something else than ops, or than a class of ops or a name.
    """
    return len(_of_type("ops_of_type", ops, op_type))


@public
def num_op_of_type(op_type: OpType, of: OpType | Graph, graph: Graph | None = None) -> int:
    """Checks the number of ops of a kind in a graph.

    Args:
        op_type: as for ``ops_of_type``.
        of: the graph; or, as PopXL's tests have it, another name or the class that ops must be of as well.
        graph: the graph, when ``of`` is not.
    Raises:
        ArgumentTypeError: values of other types.
    """
    return len(_of_graph("num_op_of_type", op_type, of, graph))


@public
def contains_op_of_type(op_type: OpType, of: OpType | Graph, graph: Graph | None = None) -> bool:
    """True if an op of a graph is of a kind.

    Args:
        op_type: as for ``num_op_of_type``.
        of: likewise.
        graph: likewise.
    Raises:
        ArgumentTypeError: values of other types.
    """
    return bool(_of_graph("contains_op_of_type", op_type, of, graph))


def _of_graph(where: str, op_type: OpType, of: OpType | Graph, graph: Graph | None) -> list[Any]:
    kinds: list[Any] = [op_type]
    if graph is not None:
        kinds.append(of)
    found = graph_of(where, of if graph is None else graph).ops
    for kind in kinds:
        found = tuple(_of_type(where, found, kind))
    return list(found)


def _of_type(where: str, ops: Iterable[Any], op_type: Any) -> list[Any]:
    is_class = isinstance(op_type, OpClass)
    if isinstance(op_type, str):
        op_type = read_text(f"{where}: op_type", op_type)
    elif not is_class:
        raise ArgumentTypeError(
            f"{where}: op_type is not a class of ops or a str, got {shown(op_type)}, expected "
            "popart._internal.ir.op.MatMulOp or a name such as 'matmul'"
        )
    found = read_items(where, "ops", ops, kind="ops")
    for op in found:
        if not is_a(op, (Op, PopartOp)):
            raise ArgumentTypeError(f"{where}: not an Op, got {shown(op)}")
    if is_class:
        return [op for op in found if isinstance(op, op_type)]
    return [op for op in found if op_type in (op.kind, op.opType)]
