"""How arguments of a Python function become inputs of the graph that it builds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, List, Tuple  # noqa: UP035 - annotations that users may have written

from popsr._host.arguments import read_items
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.module import Module
from popsr.tensor import Tensor, TensorByRef, TensorSpec, graph_input, graph_output

if TYPE_CHECKING:
    from popsr.graph import Graph
    from popsr.ir import Ir

_BY_REF_SEQUENCES = (
    List[TensorByRef],  # noqa: UP006
    Tuple[TensorByRef],  # noqa: UP006
    Tuple[TensorByRef, ...],  # noqa: UP006
    list[TensorByRef],
    tuple[TensorByRef],
    tuple[TensorByRef, ...],
)


def create_graph(ir: Ir, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
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
    graph = ir._graph(ir._core.create_graph(stem.replace(".<locals>", "")))
    with graph:
        for name, value in bound.arguments.items():
            bound.arguments[name] = _map_argument(signature.parameters[name], value)
        _add_outputs(stem, call(*bound.args, **bound.kwargs))
    return graph


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
