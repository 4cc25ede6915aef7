"""Graphs that are made once for equal functions and arguments."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.context import get_current_context, gir
from popsr._program.graph import Graph
from popsr._program.handles import is_retired
from popsr._program.ir import Ir
from popsr._program.module import Module
from popsr._program.tensor import Tensor
from popsr._program.tensor_spec import TensorSpec
from popsr._support.host.arguments import read_a
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph import BoundGraph, GraphWithNamedArgs
from popsr.errors import ArgumentTypeError

__all__ = [
    "GraphCache",
    "IrTable",
    "argument_hash",
    "argument_key",
    "bound_arguments",
    "call_key",
    "function",
    "get_function_hash",
    "tensor_arguments",
    "tensor_hash",
]

V = TypeVar("V")


@public
class IrTable(Generic[V]):
    """Values by key, of each Ir as long as that lives: it owns them, so keys and values may hold what is its."""

    def of(self, ir: Ir) -> dict[Hashable, V]:
        """The table of an Ir.

        Args:
            ir: the Ir.
        """
        read_a("IrTable: ir", ir, Ir)
        tables = ir.__dict__.setdefault("_addons_tables", weakref.WeakKeyDictionary())
        found: dict[Hashable, V] = tables.setdefault(self, {})
        return found


@public
def bound_arguments(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> inspect.BoundArguments:
    """Arguments by parameter, with defaults.

    Args:
        fn: a function, or a module: its ``build``.
        *args: its arguments.
        **kwargs: its arguments.
    Raises:
        TypeError: they do not fit, or it is not a function.
    """
    call = fn.build if isinstance(fn, Module) else fn
    if not callable(call):
        raise ArgumentTypeError(f"bound_arguments: not a function or Module, got {shown(fn)}")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"bound_arguments: no signature, got {shown(fn)}: {error}") from None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        raise ArgumentTypeError(f"bound_arguments: they do not fit {name}{signature}: {error}") from None
    bound.apply_defaults()
    return bound


@public
def argument_key(arg: Any) -> Hashable:
    """Key by which two arguments of a graph are the same.

    Of tensors and specs shape, dtype and meta shape; of graphs which graph, and what is bound to it; lists, tuples and
    mappings item by item; of floats type and bits; other values their type and value.

    Args:
        arg: the argument.
    Raises:
        TypeError: it cannot be hashed.
    """
    try:
        return _key_of(arg)
    except RecursionError:
        raise ArgumentTypeError(
            f"graph_cache: an argument is nested too deeply, got {shown(arg)}, expected fewer levels"
        ) from None


def _key_of(arg: Any) -> Hashable:
    if isinstance(arg, (Tensor, TensorSpec)):
        return (TensorSpec, arg.shape, arg.dtype.name, arg.meta_shape)
    if isinstance(arg, Graph):
        return (Graph, arg.ir.id, arg.id)
    if isinstance(arg, GraphWithNamedArgs):
        return _key_of(arg.graph)
    if isinstance(arg, BoundGraph):
        bound = ((t.id, _key_of(value)) for t, value in arg.args.items())
        return (BoundGraph, _key_of(arg.graph), *bound)
    if isinstance(arg, (list, tuple)):
        return (type(arg), *map(_key_of, arg))
    if isinstance(arg, Mapping):
        return (Mapping, *((_key_of(key), _key_of(value)) for key, value in arg.items()))
    if isinstance(arg, (float, np.generic)):  # zeros of both signs are equal
        return (type(arg), np.asarray(arg).tobytes())
    try:
        hash(arg)
    except Exception:  # of its own __hash__
        raise ArgumentTypeError(
            f"graph_cache: an argument cannot be hashed, got {shown(arg)}, expected tensors and hashable values"
        ) from None
    return (type(arg), arg)


@public
def tensor_hash(t: Tensor) -> int:
    """Hash of a tensor's shape, dtype and meta shape.

    Args:
        t: the tensor.
    """
    return hash(argument_key(t))


@public
def argument_hash(arg: Any) -> int:
    """Hash of an argument of a graph; see ``argument_key``.

    Args:
        arg: the argument.
    Raises:
        TypeError: it cannot be hashed.
    """
    return hash(argument_key(arg))


@public
def get_function_hash(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Hash of a function, the current place, and arguments.

    Args:
        fn: the function, or a module.
        *args: its arguments.
        **kwargs: its arguments.
    """
    return hash(_key(fn, args, kwargs))


def _key(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    # Modules are the same when their hashes are: programs override __hash__ to say so.
    if isinstance(fn, Module):
        return ((Module, hash(fn)), call_key(args, kwargs))
    bound = bound_arguments(fn, *args, **kwargs)
    return (fn, call_key((), dict(bound.arguments)))


@public
def call_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable:
    """Key by which two calls of one function are the same: the current place, and arguments; see ``argument_key``.

    Args:
        args: positional arguments.
        kwargs: keyword arguments; their order counts.
    Raises:
        TypeError: an argument cannot be hashed.
    """
    context = get_current_context()
    return (context.ipu_id or 0, context.io_tile_set, argument_key(args), argument_key(kwargs))


@public
class GraphCache:
    """Graphs by function and arguments, of each Ir as long as that lives."""

    def __init__(self) -> None:
        """An empty cache."""
        self._graphs: IrTable[Graph] = IrTable()

    @transactional
    def create_graph(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """As ``Ir.create_graph`` of the current Ir, or what it returned before for the same function and arguments.

        Functions are the same when they are equal, modules when their hashes are; see ``argument_key`` for arguments.

        Args:
            fn: the function, or a module.
            *args: its arguments.
            **kwargs: its arguments.
        Raises:
            TypeError: an argument cannot be hashed, or arguments do not fit.
        """
        ir, key = gir(), _key(fn, args, kwargs)
        graphs = self._graphs.of(ir)
        if key not in graphs or is_retired(graphs[key]):
            graphs[key] = ir.create_graph(fn, *args, **kwargs)
        return graphs[key]


@public
def function(fn: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
    """Decorate a function so that each call of it is a call of a graph, made once for equal arguments.

    Args:
        fn: the function; tensors among its arguments become inputs.
    Returns:
        A function that returns the outputs of the call.
    """
    cache = GraphCache()

    @functools.wraps(fn)
    @transactional
    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        bound = bound_arguments(fn, *args, **kwargs)
        return ops.call(cache.create_graph(fn, *args, **kwargs), *tensor_arguments(bound))

    return call


@public
def tensor_arguments(bound: inspect.BoundArguments) -> Iterator[Tensor]:
    """Tensors among arguments, in the order in which ``Ir.create_graph`` makes inputs of them.

    Args:
        bound: the arguments by parameter.
    """
    for name, value in bound.arguments.items():
        items: Any = (value,)
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            items = value.values()
        elif isinstance(value, (list, tuple)):
            items = value
        yield from (item for item in items if isinstance(item, Tensor))
