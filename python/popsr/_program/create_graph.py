"""Arguments of a Python function as inputs of the graph that it builds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, List, Tuple  # noqa: UP035 - annotations that users may have written

from popsr import dtypes
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.handles import Program
from popsr._program.module import Module
from popsr._program.state import _context
from popsr._program.tensor import Tensor, TensorByRef
from popsr._program.tensor_spec import TensorSpec
from popsr._support.host.arguments import read_dtype, read_flag, read_items, read_name, read_shape
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError

__all__ = ["create_graph", "graph_input", "graph_output"]

_BY_REF_SEQUENCES = (
    List[TensorByRef],  # noqa: UP006
    Tuple[TensorByRef],  # noqa: UP006
    Tuple[TensorByRef, ...],  # noqa: UP006
    list[TensorByRef],
    tuple[TensorByRef],
    tuple[TensorByRef, ...],
)


def create_graph(ir: Program, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """See :meth:`popsr.Ir.create_graph`."""
    call: Callable[..., Any]
    if isinstance(fn, Module):
        call, stem = fn.build, type(fn).__qualname__
    elif hasattr(fn, "__qualname__"):
        call, stem = fn, fn.__qualname__
    else:
        raise ArgumentTypeError(f"create_graph: fn is not a function or Module, got {shown(fn)}")
    signature = _signature(call)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise AttributeValueError(f"create_graph: arguments do not fit {stem}{signature}: {error}") from None
    bound.apply_defaults()
    graph: Graph = ir._graph(ir._core.create_graph(stem.replace(".<locals>", "")))
    with graph:
        for name, value in bound.arguments.items():
            bound.arguments[name] = _map_argument(signature.parameters[name], value)
        _add_outputs(stem, call(*bound.args, **bound.kwargs))
    return graph


@public_call
@transactional
def graph_input(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """A new input of the current graph.

    An input of the main graph has a shape and a dtype, and no value: sessions and analyses refuse ops that read it.

    Args:
        shape: shape on one replica.
        dtype: element type.
        name: its name. Default: "t".
        by_ref: in-place writes in the graph also happen to the caller's tensor.
        meta_shape: shape before sharding, if it is a shard.
    """
    graph = _context.graph_of("graph_input")
    id_ = graph._ir._core.add_input(
        graph._id,
        _context.scoped(read_name("graph_input", name)),
        read_dtype("graph_input", dtype).name,
        list(read_shape("graph_input", shape)),
        list(() if meta_shape is None else read_shape("graph_input", meta_shape, "meta_shape")),
        read_flag("graph_input: by_ref", by_ref),
    )
    made: Tensor = graph._ir._tensor(id_)
    return made


@public_call
def graph_output(t: Tensor) -> None:
    """Make ``t`` the next output of the current graph.

    Raises:
        GraphError: it is of another graph.
    """
    graph = _context.graph_of("graph_output")
    if not isinstance(t, Tensor):
        raise ArgumentTypeError(f"graph_output: t is not a Tensor, got {shown(t)}")
    if t._ir is not graph._ir:
        raise GraphError(
            f"graph_output: tensor of another Ir, got '{t.id}' of {shown(t._graph)}, expected a tensor of "
            f"{shown(graph)}"
        )
    graph._ir._core.add_output(graph._id, t._id)


def _signature(call: Callable[..., Any]) -> inspect.Signature:
    try:
        # Resolves annotations that are strings, so that TensorByRef is also seen under future annotations.
        return inspect.signature(call, eval_str=True)
    except Exception:  # a name that exists for type checkers only
        pass
    try:
        return inspect.signature(call)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"create_graph: fn has no signature, got {shown(call)}: {error}") from None


def _is_tensor_like(value: Any) -> bool:
    return isinstance(value, (Tensor, TensorSpec))


def _map_argument(parameter: inspect.Parameter, value: Any) -> Any:
    name, by_ref = parameter.name, parameter.annotation == TensorByRef
    if _is_tensor_like(value):
        return _input(value, name, by_ref)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        if not _all_or_none(name, value.values()):
            return value
        return {key: _input(item, key, by_ref) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and _all_or_none(name, value):
        by_ref = (
            by_ref
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL
            else parameter.annotation in _BY_REF_SEQUENCES
        )
        return [_input(item, f"{name}_{i}", by_ref) for i, item in enumerate(value)]
    return value


def _all_or_none(name: str, values: Iterable[Any]) -> bool:
    kinds = {_is_tensor_like(value) for value in values}
    if len(kinds) == 2:
        raise ArgumentTypeError(
            f"create_graph: argument {name} mixes tensors and other values, expected one kind"
        )
    return kinds == {True}


def _input(value: Tensor | TensorSpec, name: str, by_ref: bool) -> Tensor:
    return graph_input(value.shape, value.dtype, name, by_ref, value.meta_shape)


def _add_outputs(stem: str, result: Any) -> None:
    if result is None:
        return
    if isinstance(result, Tensor):
        result = (result,)
    what = f"what {stem} returns"
    outputs = read_items("create_graph", what, result) if isinstance(result, Iterable) else [result]
    for output in outputs:
        if not isinstance(output, Tensor):
            raise AttributeValueError(
                f"create_graph: {stem} returned {shown(output)}, expected None, a Tensor or an iterable of Tensors"
            )
        graph_output(output)
