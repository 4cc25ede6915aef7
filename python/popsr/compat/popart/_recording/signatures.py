"""Signatures of the methods that add nodes: inputs, number of outputs, attributes by ONNX's names."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from popsr._support.host.arguments import integer_of, is_a, read_int, read_items, read_number, read_text
from popsr._support.text.shown import shown
from popsr._support.text.suggestions import unknown_name
from popsr.compat._objects.types import read_data_type
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.io._onnx.format import require_onnx
from popsr.replicas import CommGroup

__all__ = ["MANY", "REQUIRED", "Attribute", "Ops", "Recorder", "Signature", "debug_name"]

REQUIRED = object()
"""The default of an attribute that must be given."""
MANY = 1 << 16
"""The greatest number of inputs or outputs of ops that take any number."""
_LAST = ("debugContext", "name", "debugPrefix", "debug_context")


class Recorder(Protocol):
    """A builder, as far as the methods of a domain need one."""

    def _add(
        self, signature: Signature, args: Sequence[Any], named: Mapping[str, Any], domain: str, version: int
    ) -> Any: ...


class Ops:
    """The ops of a domain as methods of a builder."""

    def __init__(
        self, builder: Recorder, where: str, domain: str, version: int, known: Mapping[str, Signature]
    ) -> None:
        """The methods of these signatures."""
        self._builder, self._where, self._known = builder, where, known
        self._of = domain, version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._known:
            raise unknown_name(self._where, "op", name, self._known)

        def add(*args: Any, **named: Any) -> Any:
            return self._add(name, args, named)

        add.__name__ = name
        return add

    def _add(self, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return self._builder._add(self._known[name], args, named, *self._of)

    def __dir__(self) -> list[str]:
        return sorted(self._known)


class Attribute(NamedTuple):
    """An attribute: its kind is a name of ``AttributeProto.AttributeType``, or "DTYPE", "WORD" and "GROUP"."""

    name: str
    kind: str
    default: Any


@dataclass(frozen=True)
class Signature:
    """A method.

    Attributes:
        where: its name, for messages.
        op_type: op type of the node.
        attributes: its attributes, in the order of the parameters.
        inputs: least and greatest number of inputs.
        outputs: least and greatest number of outputs; where they differ the number is the second parameter.
    """

    where: str
    op_type: str
    attributes: tuple[Attribute, ...]
    inputs: tuple[int, int] = (0, MANY)
    outputs: tuple[int, int] = (1, 1)

    @functools.cached_property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        many = ["num_outputs"] if self.outputs[0] != self.outputs[1] else []
        inputs = ["args"] if self.inputs[1] else []
        return [*inputs, *many, *(each.name for each in self.attributes), _LAST[0]]

    def bind(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], int, list[Any], str]:
        """One call: ids of inputs, number of outputs, attributes as ONNX's messages, and the node's name.

        Raises:
            ArgumentTypeError: too many arguments, one twice, one of another type, or one that is missing.
            AttributeValueError: a number of inputs or outputs that the op does not have.
        """
        given = self._arguments(args, named)
        inputs = self._inputs(given.pop("args", ()))
        outputs = self.outputs[0]
        if self.outputs[0] != self.outputs[1]:
            self._require(given, "num_outputs")
            outputs = read_int(f"{self.where}: num_outputs", given.pop("num_outputs"), *self.outputs)
        name = debug_name(self.where, given.pop(_LAST[0], ""))
        made = []
        for each in self.attributes:
            if each.default is REQUIRED:
                self._require(given, each.name)
            value = given.get(each.name, each.default)
            if value is not None and not self._left_out(each, value):
                made.append(encode(f"{self.where}: {each.name}", each, value))
        return inputs, outputs, made, name

    def _left_out(self, attribute: Attribute, value: Any) -> bool:
        """True for an empty list of what need not be given, except axes of reductions, which are then none."""
        is_list = attribute.kind in ("INTS", "FLOATS", "STRINGS", "LISTS")
        reduces = attribute.name == "axes" and self.op_type.startswith("Reduce")
        if not is_list or reduces or attribute.default is REQUIRED:
            return False
        return is_a(value, (list, tuple, np.ndarray)) and not len(value)

    def _arguments(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self.parameters
        if len(args) > len(names):
            raise ArgumentTypeError(
                f"{self.where}: too many arguments, got {len(args)}, expected at most {len(names)}: {', '.join(names)}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            key = _LAST[0] if name in _LAST and name not in names else name
            if key not in names:
                raise ArgumentTypeError(
                    f"{self.where}: unknown argument, got {shown(name)}, expected one of {', '.join(names)}"
                )
            if key in given:
                raise ArgumentTypeError(f"{self.where}: argument twice, got {shown(name)}, expected it once")
            given[key] = value
        return given

    def _require(self, given: Mapping[str, Any], name: str) -> None:
        if name not in given:
            raise ArgumentTypeError(
                f"{self.where}: {name} is missing, got {shown(sorted(given))}, expected a value for it"
            )

    def _inputs(self, value: Any) -> tuple[str, ...]:
        ids = read_items(self.where, "args", value, kind="ids")
        least, most = self.inputs
        if not least <= len(ids) <= most:
            wanted = (
                f"{least}" if least == most else f"{least} to {most}" if most < MANY else f"{least} or more"
            )
            raise AttributeValueError(
                f"{self.where}: wrong number of inputs, got {len(ids)}, expected {wanted}"
            )
        return tuple(read_text(f"{self.where}: args", id_) for id_ in ids)


def debug_name(where: str, value: Any) -> str:
    """The name of a debugContext, which may be a text or an object with a ``name``."""
    name = getattr(value, "name", value)
    return "" if name is None else read_text(f"{where}: debugContext", name)


def encode(what: str, attribute: Attribute, value: Any) -> Any:
    """An attribute as ONNX's message.

    Raises:
        ArgumentTypeError: the value is of another type.
    """
    onnx = require_onnx("Builder")
    kind, read = _READERS[attribute.kind]
    encoded, code = read(what, value), getattr(onnx.AttributeProto, kind)
    try:
        return onnx.helper.make_attribute(attribute.name, encoded, attr_type=code)
    except (ValueError, OverflowError):
        raise AttributeValueError(f"{what} is out of range, got {shown(value)}, expected 64 bits") from None


def _int(what: str, value: Any) -> int:
    return int(value) if isinstance(value, (bool, np.bool_)) else read_int(what, value)


def _many(read: Any) -> Any:
    def items(what: str, value: Any) -> list[Any]:
        where, _, name = what.partition(": ")
        return [read(what, each) for each in read_items(where, name, value)]

    return items


def _word(what: str, value: Any) -> str:
    """The name of a member of an enumeration, or a text."""
    return value.name if isinstance(value, enum.Enum) else read_text(what, value)


def _group(what: str, value: Any) -> list[int]:
    """Type and size of a CommGroup."""
    if isinstance(value, CommGroup):
        return [int(value.type.value), value.size]
    pair = _many(_int)(what, value)
    if len(pair) != 2:
        raise AttributeValueError(
            f"{what} is not a group, got {shown(value)}, expected a CommGroup or [type, size]"
        )
    return list(pair)


def _dtype(what: str, value: Any) -> int:
    """ONNX's number of an element type; an integer is one."""
    number = integer_of(value)
    if number is not None:
        return number
    name = read_data_type(what, value).name
    return int(require_onnx("Builder").TensorProto.DataType.Value(name))


def _tensor(what: str, value: Any) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise ArgumentTypeError(f"{what} is not an array, got {shown(value)}, expected a NumPy array")
    read_data_type(what, value.dtype)
    return require_onnx("Builder").numpy_helper.from_array(np.asarray(value))


def _graph(what: str, value: Any) -> Any:
    if not hasattr(value, "_subgraph"):
        raise ArgumentTypeError(
            f"{what} is not a builder, got {shown(value)}, expected createSubgraphBuilder()"
        )
    return value._subgraph()


_READERS: dict[str, tuple[str, Any]] = {
    "INT": ("INT", _int),
    "FLOAT": ("FLOAT", read_number),
    "STRING": ("STRING", read_text),
    "INTS": ("INTS", _many(_int)),
    "FLOATS": ("FLOATS", _many(read_number)),
    "STRINGS": ("STRINGS", _many(read_text)),
    "TENSOR": ("TENSOR", _tensor),
    "GRAPH": ("GRAPH", _graph),
    "DTYPE": ("INT", _dtype),
    "WORD": ("STRING", _word),
    "LISTS": ("STRINGS", _many(lambda what, value: ",".join(map(str, _many(_int)(what, value))))),
    "GROUP": ("INTS", _group),
}
