"""The one way of an op into the program: its tensors are checked, its attributes are handed to the core."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from popsr._core import transact
from popsr._program.building.location import current_location, describe_location
from popsr._program.building.transaction import run
from popsr._program.handles import GraphHandle, Handle, is_retired
from popsr._program.state import PASS, _context
from popsr._program.tensor_handle import TensorHandle
from popsr._support.text.shown import shown
from popsr.dtypes import dtype
from popsr.errors import ArgumentTypeError, Error, GraphError

__all__ = ["Inputs", "append", "append_op", "foreign_tensor", "number", "optional_tensor", "tensor"]


class _Absent(enum.Enum):
    ABSENT = "absent"

    def __repr__(self) -> str:
        return "None"


_ABSENT = _Absent.ABSENT
_MAX_DESCRIBED = 16

Inputs = Mapping[str, TensorHandle | Iterable[TensorHandle] | _Absent]
"""Tensors of an op by parameter name, in the order of its definition; ``tensor(x)`` where one is optional."""


def tensor(value: Any) -> TensorHandle | _Absent:
    """A factor that may be a number or a tensor, as input: the tensor, else absent."""
    return value if isinstance(value, TensorHandle) else _ABSENT


def optional_tensor(op: str, name: str, value: Any) -> TensorHandle | _Absent:
    """An input that may be None."""
    if value is None or isinstance(value, TensorHandle):
        return tensor(value)
    raise ArgumentTypeError(f"{op}: {name} is not a Tensor, got {shown(value)}, expected a Tensor")


def number(value: Any) -> Any:
    """A factor that may be a number or a tensor, as attribute: the number, else None."""
    return None if isinstance(value, TensorHandle) else value


def append_op(
    graph: GraphHandle,
    op: str,
    inputs: Inputs,
    attrs: dict[str, Any],
    outputs: int,
    name: str | tuple[str, ...] | None,
    place: tuple[int, bool] | None,
) -> tuple[int, list[Any]]:
    """Append an op to a graph; see ``popsr._program.building.emit.emit_op``."""
    ir = graph._ir
    sequence = _context._sequence[-1]
    device, on_io_tiles = place or (_context._ipu_id or 0, _context._io_tile_set)
    names: list[str] = []
    if isinstance(name, tuple):
        names = list(name)
    elif name is not None or _context._name_scopes:
        names = [_context.scoped(name or f"{op}_out")] * outputs
    try:
        emitted = ir._core.emit(
            graph._id,
            op,
            _input_ids(op, graph, inputs),
            attrs,
            names,
            current_location(ir),
            sequence,
            _context._stochastic[-1],
            device,
            on_io_tiles,
            _context._derivative,
        )
    except Error as error:
        path = "/".join([*_context._debug_names, op])
        error.add_note(f"while emitting {path}({_describe(inputs)}) at {describe_location()}")
        raise
    results = []
    cls: Any = TensorHandle._result_type
    for id_, tensor_name, kind, shape, meta_shape in emitted.outputs:
        result = object.__new__(cls)  # without asking Tensor.__new__, which refuses what users give
        result._program, result._id, result._graph_id, result._name = ir, id_, graph._id, tensor_name
        result._dtype, result._shape, result._meta_shape = dtype._all[kind], shape, meta_shape
        ir._tensor_cache[id_] = result
        results.append(result)
    if (ir._op_hooks and graph._op_hooks.hooks) or _context._op_hooks.hooks:
        run(_run_hooks, graph, ir._op(emitted.op))
    if sequence != PASS and graph not in _context._sequenced:
        _context._sequenced |= {graph}
    return emitted.op, results


def append(op: str, inputs: Inputs, /, **attrs: Any) -> Any:
    """Append an op of one output to the current graph, and return that; attributes that are None keep their default."""
    return transact(append_op, _context.graph_of(op), op, inputs, attrs, 1, None, None)[1][0]


def _run_hooks(graph: GraphHandle, op: Handle) -> None:
    graph._op_hooks.run(op)
    _context._op_hooks.run(op)


def _flat(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    for name, value in inputs.items():
        if isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                yield f"{name}[{i}]", item
        else:
            yield name, value


def _input_ids(op: str, graph: GraphHandle, inputs: Inputs) -> list[int | None]:
    ids: list[int | None] = []
    ir, graph_id = graph._ir, graph._id
    for name, value in _flat(inputs):
        if isinstance(value, TensorHandle):
            if value._ir is not ir or value._graph_id != graph_id:
                raise foreign_tensor(f"{op}: {name}", value, graph)
            ids.append(value._id)
        elif value is _ABSENT:
            ids.append(None)
        else:
            made = (
                ", as popsr.constant makes" if isinstance(value, (int, float, np.ndarray, np.generic)) else ""
            )
            raise ArgumentTypeError(
                f"{op}: {name} is not a Tensor, got {type(value).__name__} {shown(value)}, expected a Tensor{made}"
            )
    return ids


def foreign_tensor(what: str, t: TensorHandle, graph: GraphHandle) -> GraphError:
    """The error about a tensor of another graph than the current one.

    Args:
        what: the call and the parameter.
        t: the tensor.
        graph: the current graph.
    """
    if t._ir is not graph._ir:
        fix = ""
    elif t._graph_id == 0 or t._graph in _context._graphs:
        fix = ": pass it to the graph as an input"
    else:
        fix = ": return it from its graph, and use what the call of that gives"
    return GraphError(
        f"{what} is of another graph, got '{t.id}' of {shown(t._graph)}, expected a tensor of {shown(graph)}{fix}"
    )


def _describe(inputs: Inputs) -> str:
    return ", ".join(
        f"{name}=<{_short(value)} '{value.id}'>"
        if isinstance(value, TensorHandle) and not is_retired(value)
        else f"{name}={shown(value)}"
        for name, value in itertools.islice(_flat(inputs), _MAX_DESCRIBED)
    )


def _short(value: TensorHandle) -> str:
    return f"{value.dtype.name}{list(value.shape)}"
