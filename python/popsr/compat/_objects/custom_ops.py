"""Operators that programs wrote in C++ for the device: here functions of popsr ops stand for them.

An operator is made as a call of a graph that the function builds, one a call, so that it is one op with the location of
the program's line, gradients go through the function's ops, and explanations lead into them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from popsr._program.building.location import describe_location
from popsr._program.building.transaction import run
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_call, read_int, read_mapping, read_text
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.compat._objects.graph import PopartGraph, creators
from popsr.compat._objects.identifiers import OperatorIdentifier, OpSettings
from popsr.compat._objects.op import CustomOp
from popsr.compat._objects.op_classes import Op, bases
from popsr.compat._objects.tensor import PopartTensor
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    GraphError,
    StateError,
    UnknownNameError,
    UnsupportedError,
)
from popsr.ops.program.control import _emit_call

__all__ = [
    "PendingOp",
    "any_entry",
    "bound",
    "create",
    "create_connected",
    "create_pending",
    "custom_op",
    "entry_of",
    "lines_of",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_MAX_TENSORS = 4096
_entries: dict[OperatorIdentifier, Callable[..., Any]] = {}

PUBLISHED = "popsr.compat._published_ops"
"""Module of operators that models publish: ``HINTS``, what to add by their names."""


# The registry


def custom_op(domain: str, name: str, version: int = 1) -> Callable[[Function], Function]:
    """Decorate a function of popsr ops that stands for an operator written in C++.

    A program that makes the operator gets a graph of the function's ops, and their gradients. The function is called
    with the operator's inputs, as tensors of that graph, and then its attributes, by position or name as the program
    gives them; it returns the outputs.

    Args:
        domain: domain of the operator.
        name: its name.
        version: its version.
    Returns:
        A decorator, which returns the function.
    Raises:
        ArgumentTypeError: a domain or name that is not a str, a version that is not an int, or no function.
        AttributeValueError: a negative version, or an empty domain or name.
        StateError: another function is registered for the operator.
    """
    identifier = OperatorIdentifier(domain, name, version)
    if not domain or not name:
        raise AttributeValueError(
            f"custom_op: domain and name must not be empty, got {shown(domain)} and {shown(name)}, "
            "expected texts such as 'custom.ops' and 'Cube'"
        )

    def register(function: Function) -> Function:
        read_call("custom_op: function", function)
        before = _entries.get(identifier)
        if before is not None and not _is_same(before, function):
            raise StateError(
                f"custom_op: '{identifier}' has another function, got {shown(function)} beside {shown(before)}, "
                "expected one function an operator"
            )
        _entries[identifier] = function
        return function

    return register


def _is_same(before: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """True if one replaces the other: a notebook's cell or a module that is run again."""
    names = [
        (getattr(f, "__module__", ""), getattr(f, "__qualname__", "<lambda>")) for f in (before, function)
    ]
    return before is function or (names[0] == names[1] and not names[0][1].endswith("<lambda>"))


def entry_of(identifier: OperatorIdentifier) -> Callable[..., Any] | None:
    """The function that is registered for an operator; None when there is none."""
    return _entries.get(identifier)


def any_entry() -> bool:
    """True if a function is registered for some operator."""
    return bool(_entries)


def lines_of(identifier: OperatorIdentifier, num_inputs: int) -> str:
    """The lines that register a function for an operator."""
    parameters = ", ".join(f"x{i}" for i in range(min(num_inputs, 4))) + (", ..." if num_inputs > 4 else "")
    name = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"\W", "_", identifier.type)).lower()
    known = importlib.import_module(PUBLISHED).HINTS.get(identifier.type)
    hint = "" if known is None else known.format(domain=shown(identifier.domain)) + "; or "
    return (
        f"{hint}add before it is made: @popsr.compat.custom_op({shown(identifier.domain)}, {shown(identifier.type)}, "
        f"{identifier.version}); def {name}({parameters}): # and its attributes; return # tensors, by popsr.ops"
    )


def _no_entry(identifier: OperatorIdentifier, num_inputs: int) -> UnknownNameError:
    """The error about an operator that nobody registered, with the lines to add."""
    close = nearest(str(identifier), map(str, _entries))
    error = UnknownNameError(
        f"custom_op: operator {shown(str(identifier))} has no function{f', but {close} has' if close else ''}; "
        f"{lines_of(identifier, num_inputs)}"
    )
    error.add_note(f"at {describe_location()}")
    return error


# Making one


def create(
    graph: Graph,
    identifier: OperatorIdentifier,
    inputs: Any,
    outputs: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> CustomOp:
    """Make an operator in a graph.

    Args:
        graph: the graph.
        identifier: which operator.
        inputs: ids of tensors by number.
        outputs: ids that the outputs get, by number.
        args: attributes by position; settings among them are read and left out.
        kwargs: attributes by name, likewise.
    Raises:
        UnknownNameError: the operator has no function, or the graph no such tensor.
        AttributeValueError: the arguments do not fit the function, or the numbers have gaps.
        GraphError: an id of an output is taken, or the function returns another number of tensors.
    """
    where = str(identifier)
    given = _ids(where, "inputs", inputs)
    names = _ids(where, "outputs", outputs)
    function = entry_of(identifier)
    if function is None:
        raise _no_entry(identifier, len(given))
    tensors = [graph.get_tensor(id_) for id_ in given]
    ids = {t.id for t in graph.tensors}
    taken = [name for name in names if name in ids]
    if taken or len(set(names)) < len(names):
        raise GraphError(
            f"{where}: ids of outputs must be new, got {shown(taken or names)}, expected graph._create_tensor_id(name)"
        )
    settings = (OpSettings, OperatorIdentifier)
    attributes = [each for each in args if not isinstance(each, settings)]
    named = {name: each for name, each in kwargs.items() if not isinstance(each, settings)}
    build = bound(where, function, tensors, attributes, named)
    return run(_create, graph, identifier, build, (*tensors, *attributes), named, names)


def _create(
    graph: Graph,
    identifier: OperatorIdentifier,
    build: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: list[str],
) -> CustomOp:
    with graph:
        called = graph.ir.create_graph(build, *args, **kwargs)
        if len(called.outputs) != len(names):
            raise GraphError(
                f"{identifier}: its function must return a tensor an output, got {len(called.outputs)} of "
                f"{shown(build)}, expected {len(names)}"
            )
        tensors = [each for each in args if isinstance(each, Tensor)]
        below_graph = tuple(PopartGraph(graph).remove_scope(name) for name in names)
        info = _emit_call("call", called, tuple(tensors), None, True, {}, names=below_graph)
    graph.ir._custom_ops[info._op] = identifier
    return CustomOp(info._view)


def _ids(where: str, what: str, given: Any) -> list[str]:
    """Ids of tensors in the order of their numbers."""
    numbers = {
        read_int(f"{where}: number of {what}", number, 0, _MAX_TENSORS): id_
        for number, id_ in read_mapping(where, what, given).items()
    }
    if set(numbers) != set(range(len(numbers))):
        raise AttributeValueError(
            f"{where}: {what} are numbered with gaps, got {shown(sorted(numbers))}, expected 0 to {len(numbers) - 1}"
        )
    return [_id(where, what, numbers[i]) for i in range(len(numbers))]


def _id(where: str, what: str, value: Any) -> str:
    if isinstance(value, (PopartTensor, Tensor)):
        return str(getattr(value, "id", ""))
    return read_text(f"{where}: id of {what}", value)


def bound(
    where: str,
    function: Callable[..., Any],
    tensors: list[Tensor],
    attributes: list[Any],
    named: dict[str, Any],
) -> Callable[..., Any]:
    """The function under the operator's name, after its signature took the arguments.

    Raises:
        AttributeValueError: it does not take them.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin
        raise ArgumentTypeError(
            f"{where}: its function has no signature, got {shown(function)}, expected a Python function"
        ) from None
    try:
        arguments = signature.bind(*tensors, *attributes, **named).arguments
    except TypeError as error:
        problem = str(error)
    else:
        extra = [
            name
            for name, value in arguments.items()
            if isinstance(value, Tensor) and _wants_attribute(signature.parameters[name])
        ]
        problem = f"an input for the attribute {extra[0]!r}" if extra else ""
    if problem:
        got = [f"{len(tensors)} inputs", *(shown(each) for each in attributes)]
        got += [f"{name}={shown(each)}" for name, each in named.items()]
        close = [nearest(name, signature.parameters) for name in named if name not in signature.parameters]
        hint = f", did you mean {close[0]}" if close and close[0] else ""
        raise AttributeValueError(
            f"{where}: its function does not take these inputs and attributes: {problem}, got {', '.join(got)}, "
            f"expected {getattr(function, '__name__', 'function')}{signature}{hint}"
        )

    @functools.wraps(function)
    def build(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    build.__qualname__ = where.rpartition(":")[0].replace("/", "_")
    return build


def _wants_attribute(parameter: inspect.Parameter) -> bool:
    """True if the annotation is a plain Python type."""
    annotation = parameter.annotation
    plain = (int, float, bool, str)
    return annotation in plain or annotation in [each.__name__ for each in plain]


# PopART's ways to make one


def create_connected(name: str, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CustomOp:
    """``createConnectedOp_…(inputs, outputs, identifier, …, settings)``.

    Raises:
        UnsupportedError: there is no identifier: the op is one of PopART's own.
    """
    identifier = _identifier(name, args, kwargs)
    if len(args) < 2:
        raise ArgumentTypeError(
            f"{name}: inputs and outputs must be given, got {len(args)} arguments, "
            "expected inputs=[...] and a number of outputs"
        )
    return create(graph, identifier, args[0], args[1], args[2:], kwargs)


def create_pending(name: str, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PendingOp:
    """``createOp_…(identifier, …, settings)``.

    Raises:
        UnsupportedError: there is no identifier: the op is one of PopART's own.
    """
    identifier = _identifier(name, args, kwargs)
    pending = PendingOp(identifier, OpSettings(graph))
    settings = (OpSettings, OperatorIdentifier)
    pending._args = tuple(each for each in args if not isinstance(each, settings))
    pending._kwargs = {key: each for key, each in kwargs.items() if not isinstance(each, settings)}
    return pending


def _identifier(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorIdentifier:
    for each in (*args, *kwargs.values()):
        if isinstance(each, OperatorIdentifier):
            return each
    raise UnsupportedError(
        f"{name}: only operators of popsr.compat.custom_op are made this way, got no OperatorIdentifier, expected one, "
        "or the function of popxl.ops that makes the op"
    )


class PendingOp(Op):
    """An operator before its tensors are connected; ``setup()`` makes it.

    Args:
        opid: which operator.
        settings: its graph and name.
    Raises:
        ArgumentTypeError: arguments of other types.
    """

    __slots__ = ("_args", "_inputs", "_kwargs", "_made", "_outputs", "_settings", "_which")
    _where = "op"
    kinds = frozenset()

    def __init__(self, opid: OperatorIdentifier, settings: OpSettings) -> None:
        """An operator without tensors."""
        self._which = read_a("Op: opid", opid, OperatorIdentifier)
        self._settings = read_a("Op: settings", settings, OpSettings)
        self._inputs: dict[Any, Any] = {}
        self._outputs: dict[Any, Any] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._made: CustomOp | None = None

    @property
    def opid(self) -> OperatorIdentifier:
        """The operator's identifier."""
        return self._which

    def connect_in_tensor(self, index: int, tensor_id: str) -> None:
        """Use a tensor as an input."""
        self._refuse_made("connectInTensor")
        number = read_int("connectInTensor: index", index, 0, _MAX_TENSORS)
        self._inputs[number] = _id("connectInTensor", "inputs", tensor_id)

    def create_and_connect_out_tensor(self, index: int, tensor_id: str) -> None:
        """Give an output its id."""
        self._refuse_made("createAndConnectOutTensor")
        number = read_int("createAndConnectOutTensor: index", index, 0, _MAX_TENSORS)
        self._outputs[number] = _id("createAndConnectOutTensor", "outputs", tensor_id)

    def setup(self) -> None:
        """Make the operator in its graph; errors as of ``createConnectedOp_…``."""
        self._refuse_made("setup")
        graph = self._settings._graph
        self._made = create(graph, self._which, self._inputs, self._outputs, self._args, self._kwargs)

    def _refuse_made(self, where: str) -> None:
        if self._made is not None:
            raise StateError(f"{where}: the operator is made, got {self._made}, expected a new one")

    def __getattr__(self, name: str) -> Any:
        """Finishes the operator once it is made.

        Raises:
            StateError: it is not made yet.
            AttributeAccessError: an unknown name.
        """
        if name.startswith("_") or not hasattr(CustomOp, name):
            raise self._unknown(name)
        if self._made is None:
            raise StateError(f"{name}: the operator is not made, got {self._which}, expected setup() before")
        return getattr(self._made, name)

    def __str__(self) -> str:
        return str(self._which if self._made is None else self._made)


bases["pending"] = PendingOp
creators.update(createConnectedOp_=create_connected, createOp_=create_pending)
