"""A node as rules see it, and the values that it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._rules import NotSupportedError, axis_in
from popsr.bridge.onnx._types import Array, array_of, code_named

__all__ = ["Missing", "Node", "Reader", "Sequenced", "Value", "Weight", "cast", "is_float"]


class Weight:
    """An initializer that is a variable of the program, once an op reads it.

    Attributes:
        name: its name in the model.
        array: its initial value.
        tensor: the input of the model's graph that stands for it.
    """

    __slots__ = ("array", "name", "tensor")

    def __init__(self, name: str, array: Array) -> None:
        """Without a variable."""
        self.name = name
        self.array = array
        self.tensor: Tensor | None = None


class Missing:
    """The result of a node that cannot be read."""


class Sequenced(tuple[Any, ...]):
    """A sequence of values whose length is known."""

    __slots__ = ()


Value = Any
"""A tensor, a known array, a ``Weight``, a ``Sequenced``, or None for what is left out."""


class Reader(Protocol):
    """The importer as rules see it; ``unroll``: passes of a loop up to which each is read in place, None: all."""

    unroll: int | None

    def constant(self, value: Array, dtype: dtypes.dtype) -> Tensor:
        """A constant of the current graph."""

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor of the current graph."""

    def known(self, value: Value, what: str) -> Array:
        """The elements of a value when the model is read."""

    def count_random(self) -> int:
        """The number of nodes with random numbers so far."""

    def subgraph(
        self, graph: Any, scope: Mapping[str, Value], inputs: Sequence[Value], *, varies: bool = False
    ) -> list[Value]:
        """The results of a graph of a node, read in place; with ``varies`` of other shapes than it declares."""

    def make_graph(
        self,
        name: str,
        values: Sequence[Value],
        body: Callable[[list[Value]], Sequence[Value]],
        *,
        once: bool = False,
    ) -> tuple[Any, list[Tensor]]:
        """A graph of a function of values, and the tensors to call it with."""


class Node:
    """One node.

    Attributes:
        proto: its message.
        position: its number among the nodes of its graph, from 1.
        opset: version of its domain.
        reader: what reads the model.
        scope: values by name, for graphs of the node.
        attributes: attributes by name, with those of the calling node where a function refers to them.
    """

    __slots__ = ("attributes", "opset", "position", "proto", "reader", "scope")

    def __init__(
        self,
        proto: Any,
        position: int,
        opset: int,
        reader: Reader,
        scope: Mapping[str, Value],
        attributes: dict[str, Any],
    ) -> None:
        """A node of a graph."""
        self.proto, self.position, self.opset = proto, position, opset
        self.reader, self.scope, self.attributes = reader, scope, attributes

    # Attributes

    def has(self, name: str) -> bool:
        """True if the attribute is given."""
        return name in self.attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer."""
        return int(self._attribute(name, "i", default))

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """An axis of so many dimensions, counted from the first."""
        return axis_in(self.integer(name, default), rank)

    def type_code(self, name: str, default: int | None = None) -> int:
        """A number of ``TensorProto.DataType``; opset 1 writes its name."""
        found = self.attributes.get(name)
        if found is not None and found.type == _TYPES["s"]:
            return code_named(self.text(name))
        return self.integer(name, default)

    def number(self, name: str, default: float | None = None) -> float:
        """A number, with the value of its 32 bits."""
        return float(self._attribute(name, "f", default))

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self._attribute(name, "s", default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def word(self, name: str, words: Collection[str], default: str | None = None) -> str:
        """A text that is one of these.

        Raises:
            ValueError: it is another one.
        """
        found = self.text(name, default)
        if found not in words:
            raise ValueError(f"{name} {found}, expected one of {', '.join(words)}")
        return found

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Integers."""
        return tuple(self._attribute(name, "ints", default))

    def floats(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """Numbers."""
        return tuple(self._attribute(name, "floats", default))

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """Texts."""
        values = self._attribute(name, "strings", default)
        return tuple(each.decode() if isinstance(each, bytes) else str(each) for each in values)

    def array(self, name: str, default: Any = None) -> Array:
        """The elements of a tensor."""
        value = self._attribute(name, "t", default)
        return array_of(value) if hasattr(value, "data_type") else np.asarray(value)

    def graph(self, name: str) -> Any:
        """A graph."""
        return self._attribute(name, "g", None)

    def _attribute(self, name: str, field: str, default: Any) -> Any:
        found = self.attributes.get(name)
        if found is None:
            if default is None:
                raise NotSupportedError(f"without attribute {name}")
            return default
        if found.type != _TYPES[field]:
            raise TypeError(f"attribute {name} of type {found.type}, expected {_TYPES[field]}")
        return getattr(found, field)

    # Values

    def constant(self, value: Any, dtype: dtypes.dtype) -> Tensor:
        """A constant of the current graph."""
        return self.reader.constant(np.asarray(value), dtype)

    def like(self, value: Any, t: Tensor) -> Tensor:
        """A constant of a tensor's type."""
        return self.reader.constant(np.asarray(value), t.dtype)

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor of the current graph."""
        return self.reader.tensor(value)

    def known(self, value: Value, what: str) -> Array:
        """The elements of an operand, which must be known when the model is read."""
        return self.reader.known(value, what)

    def known_ints(self, value: Value, what: str) -> tuple[int, ...]:
        """The numbers of an operand as ``known`` finds them."""
        return tuple(int(each) for each in self.reader.known(value, what).reshape(-1))

    def known_int(self, value: Value, what: str) -> int:
        """The single number of an operand."""
        found = self.reader.known(value, what)
        if found.size != 1:
            raise ValueError(f"{what} of shape {list(found.shape)}, expected one number")
        return int(found.reshape(-1)[0])

    def known_float(self, value: Value, what: str) -> float:
        """The single number of an operand."""
        found = self.reader.known(value, what)
        if found.size != 1:
            raise ValueError(f"{what} of shape {list(found.shape)}, expected one number")
        return float(found.reshape(-1)[0])

    def results(self) -> int:
        """Number of results that have a name, counted to the last of them."""
        names = list(self.proto.output)
        while names and not names[-1]:
            names.pop()
        return len(names)

    def wants(self, number: int) -> bool:
        """True if a result has a name."""
        return number < len(self.proto.output) and bool(self.proto.output[number])


_TYPES = {"f": 1, "i": 2, "s": 3, "t": 4, "g": 5, "floats": 6, "ints": 7, "strings": 8}
"""Numbers of ``AttributeProto.AttributeType``."""


def is_float(dtype: dtypes.dtype) -> bool:
    """True for floating-point types."""
    return bool(dtype.is_floating_point)


def cast(t: Tensor, dtype: dtypes.dtype) -> Tensor:
    """A tensor of another element type; numbers become bool by comparing with zero."""
    if t.dtype == dtype:
        return t
    if dtype == dtypes.float8_e8m0fnu:
        raise NotSupportedError("casts to float8e8m0, which round up")
    # Carriers are cast from and to float32, which holds them and the shorter floats exactly.
    is_short = t.dtype in (dtypes.float16, dtypes.bfloat16)
    if (t.dtype._is_carrier and dtype != dtypes.float32) or (dtype._is_carrier and is_short):
        t = ops.cast(t, dtypes.float32)
    return ops.cast(t, dtype)
