"""Rules of ATen ops: a function for each overload, registered under its name, such as ``"add.Tensor"``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._dtypes import Scalar, common_dtype, dtype_of, is_float8

__all__ = [
    "COLLECTIVES",
    "OWN",
    "PYTHON_RULES",
    "RULES",
    "Gap",
    "Site",
    "axes_of",
    "collective",
    "own_rule",
    "python_rule",
    "rule",
]

Rule = Callable[..., Any]
_F = TypeVar("_F", bound=Rule)

RULES: dict[str, Rule] = {}
"""By the name of an overload without its namespace ``aten``."""

COLLECTIVES: dict[str, Rule] = {}
"""By the name of an overload without its namespace ``_c10d_functional``."""

OWN: dict[str, Rule] = {}
"""Rules of operators of popsr's own, by the name of an overload without their namespace ``popsr_sr``."""

PYTHON_RULES: dict[str, Rule] = {}
"""By the name of a function of Python, such as ``"truediv"``, for numbers that are known only when the step runs."""


class Gap(Exception):
    """A case of an op that no rule covers.

    Args:
        text: which case.
        everywhere: True if the results depend on anything else than the operands.
        name: of the op for the user. Default: torch's.
        exact: True if the results depend on the operands alone, so that a proof needs nothing more of the op.
    """

    def __init__(self, text: str, *, everywhere: bool = False, name: str = "", exact: bool = False) -> None:
        """A gap with its text."""
        super().__init__(text)
        self.everywhere, self.name, self.exact = everywhere, name, exact


class Site:
    """One op of the graph that is read: what torch says of its results, and what the rules share.

    Attributes:
        value: torch's fake result, or a list of them.
        grouping: the replica grouping of a process group, by its name.
        random_seed: makes a fresh seed tensor.
        memory: name of what is read before it is written, for explanations.
        note: adds a line about what a proof rests on.
    """

    def __init__(
        self,
        value: Any,
        grouping: Callable[[str], Any],
        random_seed: Callable[[], Tensor],
        memory: str = "uninitialised memory",
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        """A site with torch's result."""
        self.value = value
        self.grouping = grouping
        self.random_seed = random_seed
        self.memory = memory
        self.note = note

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result, of the first if there are several."""
        return tuple(int(n) for n in self._first().shape)

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type of the result, of the first if there are several."""
        return dtype_of(self._first().dtype)

    def outputs(self) -> list[tuple[tuple[int, ...], dtypes.dtype]]:
        """Shape and dtype of all results."""
        values = self.value if isinstance(self.value, list | tuple) else [self.value]
        return [
            (tuple(int(n) for n in each.shape), dtype_of(each.dtype)) for each in values if each is not None
        ]

    def _first(self) -> Any:
        return self.value[0] if isinstance(self.value, list | tuple) else self.value

    # Operands

    def tensor(self, value: Any, kind: dtypes.dtype | None = None) -> Tensor:
        """A tensor of a type, of a tensor or a number. Default: the type of the result."""
        kind = self.dtype if kind is None else kind
        if isinstance(value, Scalar):
            value = value.tensor
        if isinstance(value, Tensor):
            return value if value.dtype == kind else cast(value, kind)
        return constant(np.asarray(value), kind)

    def common(self, *values: Any) -> list[Tensor]:
        """The operands in the type that torch computes in."""
        kind = common_dtype(values)
        return [self.tensor(value, kind) for value in values]

    def full(self, shape: Sequence[int], value: Any, kind: dtypes.dtype) -> Tensor:
        """A tensor of one value."""
        if isinstance(value, Scalar | Tensor):
            return self.expand(self.tensor(value, kind), shape)
        return constant(np.full(tuple(shape), value), kind)

    def expand(self, t: Tensor, shape: Iterable[int]) -> Tensor:
        """A tensor repeated along new dimensions and those of size 1."""
        shape = tuple(shape)
        return t if t.shape == shape else ops.expand(t, shape)


def cast(t: Tensor, kind: dtypes.dtype) -> Tensor:
    """Conversion as torch's: numbers become bool by comparing with zero; to and from 8 bits by way of float32."""
    if t.dtype != kind and is_float8(t.dtype):
        return cast(ops.pow2scale_cast_from_fp8(t, _no_scale(), dtypes.float32), kind)
    if t.dtype != kind and is_float8(kind):
        wide = cast(t, dtypes.float32)
        if kind == dtypes.float8_e4m3fn and _saturates():
            most = constant(np.asarray(448.0), dtypes.float32)
            is_large = ops.greater(ops.abs(wide), most)
            wide = ops.where(is_large, ops.where(ops.greater(wide, most), most, ops.negate(most)), wide)
        return ops.pow2scale_cast_to_fp8(wide, _no_scale(), kind)
    if kind == dtypes.bool and t.dtype != dtypes.bool:
        return ops.logical_not(ops.equal(t, constant(np.zeros(()), t.dtype)))
    return t if t.dtype == kind else ops.cast(t, kind)


@functools.cache
def _saturates() -> bool:
    """True if this torch makes the largest number of what is too large, where others make NaN."""
    import torch

    return not bool(torch.tensor(float("inf")).to(torch.float8_e4m3fn).float().isnan())


def _no_scale() -> Tensor:
    return constant(np.asarray(0), dtypes.int32)


def axes_of(t: Tensor, dim: Any) -> list[int]:
    """Axes counted from the front; all of them for None and for an empty list."""
    if dim is None or dim == []:
        return list(range(t.rank))
    dims = [dim] if isinstance(dim, int) else dim
    return [d % t.rank if t.rank else 0 for d in dims]


def _registering(table: dict[str, Rule]) -> Callable[..., Callable[[_F], _F]]:
    def names(*overloads: str) -> Callable[[_F], _F]:
        def register(function: _F) -> _F:
            for name in overloads:
                assert name not in table, name
                table[name] = function
            return function

        return register

    return names


rule = _registering(RULES)
collective = _registering(COLLECTIVES)
own_rule = _registering(OWN)
python_rule = _registering(PYTHON_RULES)
