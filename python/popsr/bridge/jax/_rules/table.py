"""The table of rules: how each primitive of a jaxpr becomes ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from popsr import dtypes
from popsr._program.tensor import Tensor, constant
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge._step.reading import floats_are_wide
from popsr.bridge.jax._known.per_replica import PerReplica
from popsr.bridge.jax._mesh import Spread

__all__ = [
    "ANALYSED",
    "RULES",
    "Aval",
    "Equation",
    "NotSupportedError",
    "Reader",
    "Rule",
    "dtype_of",
    "make_constant",
    "rule",
    "stand_in_dtype",
    "stored_dtype",
    "width",
]


class NotSupportedError(Exception):
    """A primitive has a rule, but not for these parameters or dtypes; the text says which. Never seen by users."""


class Aval(NamedTuple):
    """Shape and element type of a value as it is stored: a key of random bits is two words."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


Value = Any
"""A tensor, an array that is known while the step is read, or a ``Sharded`` value."""


class Reader(Protocol):
    """The importer as rules see it."""

    builder: StepBuilder
    spread: Spread

    def constant(self, value: NDArray[Any], dtype: dtypes.dtype) -> Tensor:
        """A constant of the current graph."""

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor of the current graph."""

    def stand_in(self, value: Value) -> Tensor:
        """A value as a tensor that replicas agree on where they agree on the value."""

    def closed(self, jaxpr: Any, values: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr, read as part of the equation."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation of a jaxpr as rules see it.

    Attributes:
        primitive: name of the primitive.
        params: its parameters.
        values: its operands: tensors and known arrays.
        operands: shapes and dtypes of the operands.
        results: shapes and dtypes of the results.
        importer: what reads the jaxpr.
        key_operands: which operands are keys of random bits, stored as words.
    """

    primitive: str
    params: Mapping[str, Any]
    values: tuple[Value, ...]
    operands: tuple[Aval, ...]
    results: tuple[Aval, ...]
    importer: Reader
    key_operands: tuple[bool, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self.results[0].shape

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type of the first result."""
        return dtype_of(self.results[0].dtype)

    def constant(self, value: Any, dtype: dtypes.dtype | np.dtype[Any] | None = None) -> Tensor:
        """A constant of the current graph. Default dtype: the first result's."""
        kind = self.dtype if dtype is None else dtype if isinstance(dtype, dtypes.dtype) else dtype_of(dtype)
        return self.importer.constant(np.asarray(value), kind)


Result = Tensor | NDArray[Any] | Sequence[Tensor | NDArray[Any] | PerReplica]
RuleFunction = Callable[..., Result]


@dataclass(frozen=True, slots=True)
class Rule:
    """The function that makes ops of a primitive.

    Attributes:
        function: takes the equation, then its operands as tensors; returns the results.
        raw: the function takes the equation alone, for operands that may be known or sharded.
        plain: the function takes the operands alone, as an op does.
        module: the file of this package that has the rule.
    """

    function: RuleFunction
    raw: bool
    module: str
    plain: bool = False


RULES: dict[str, Rule] = {}
"""By name of the primitive. A primitive that is not here is a gap."""


def rule(*primitives: str, raw: bool = False, plain: bool = False) -> Callable[[RuleFunction], RuleFunction]:
    """Decorator: the function is the rule of these primitives."""

    def register(function: RuleFunction) -> RuleFunction:
        for name in primitives:
            assert name not in RULES, f"two rules of {name}"
            RULES[name] = Rule(function, raw, function.__module__.rpartition(".")[2].removeprefix("_"), plain)
        return function

    return register


ANALYSED: dict[str, Callable[[Equation], Sequence[Tensor]]] = {}
"""Functions of an equation to all that its results follow from, by name of a primitive without a rule."""


_TYPES: dict[np.dtype[Any], dtypes.dtype] = {}


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The element type that a value is kept in: its own, or float64 of floats that are read so."""
    return np.dtype(np.float64) if floats_are_wide() and _is_float(dtype) else dtype


def _is_float(dtype: np.dtype[Any]) -> bool:
    try:
        return bool(dtypes.dtype.as_dtype(dtype).is_floating_point)
    except (TypeError, ValueError):
        return False


def dtype_of(dtype: np.dtype[Any]) -> dtypes.dtype:
    """The element type of tensors.

    Raises:
        NotSupportedError: tensors cannot have it, such as complex numbers and integers of 4 bits.
    """
    dtype = stored_dtype(dtype)
    known = _TYPES.get(dtype)
    if known is None:
        try:
            known = dtypes.dtype.as_dtype(dtype)
        except (TypeError, ValueError):
            raise NotSupportedError(f"dtype {dtype}") from None
        if known.name.startswith("complex"):
            raise NotSupportedError(f"dtype {dtype}")
        _TYPES[dtype] = known
    return known


def stand_in_dtype(dtype: np.dtype[Any]) -> dtypes.dtype:
    """The element type of tensors, or that of stand-ins where tensors cannot have it: of those a gap is noted."""
    try:
        return dtype_of(dtype)
    except NotSupportedError:
        return dtypes.float32


def width(dtype: dtypes.dtype) -> int:
    """Bytes of an element."""
    return dtype.as_numpy().itemsize


def make_constant(value: NDArray[Any], dtype: dtypes.dtype) -> Tensor:
    """A constant of the current graph."""
    return constant(value, dtype)
