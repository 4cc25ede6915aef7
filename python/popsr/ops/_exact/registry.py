"""The exact meanings of ops: functions of exact numbers, and of arrays of integers and bools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from popsr._fields import Array, Numbers
from popsr._records import TensorInfo

__all__ = ["COLLECTIVES", "MEANINGS", "OF_ALL", "Exact", "Value", "collective", "exact", "numbers", "scalar"]

Value = Numbers | Array
"""Exact numbers for floats, arrays for everything else."""


@dataclass(frozen=True, slots=True)
class Exact:
    """An op as its exact meaning sees it.

    Attributes:
        kind: its name.
        attributes: attributes by name; those that are absent are None.
        inputs: its operands; None where an optional one is absent.
        outputs: its results.
        replicas: number of replicas of the program.
        low: first field of constants.
        draw: number of the draw, which the order of numbers depends on.
        run: its own kernel, on arrays that may be of other dtypes than its operands.
        sides: outcomes of each comparison of drawn numbers that the meaning has made, in its order.
    """

    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    replicas: int
    low: int
    draw: int
    run: Callable[..., list[Array]]
    sides: list[set[bool]] = field(default_factory=list, compare=False)

    def above(self, a: Numbers, b: Numbers) -> Array:
        """True where a number is greater than another, in the order of this draw; the outcomes are noted."""
        found = a.above(b, self.draw)
        drawn = any(np.isnan(each.small()).any() for each in (a, b))
        self.sides.append({bool(side) for side in np.unique(found)} if drawn else {False, True})
        return found

    def __getitem__(self, name: str) -> Any:
        """An attribute; None where it is absent."""
        return self.attributes.get(name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self.outputs[0].shape

    def number(self, value: float) -> Numbers:
        """A number without axes."""
        return Numbers.of(np.asarray(value, np.float64), self.low)

    def full(self, value: float) -> Numbers:
        """The number in the shape of the first result."""
        return self.number(value).broadcast_to(self.shape)


Meaning = Callable[..., Any]
M = TypeVar("M", bound=Meaning)
MEANINGS: dict[str, Meaning] = {}
"""Functions of an op and its operands on one replica, which return its result or a list of results, by its name."""
OF_ALL = {"onehot"}
"""Ops whose meanings are those of integers also, as their kernels take constants."""
COLLECTIVES: dict[str, Meaning] = {}
"""Functions of an op and its operands on all replicas, None where one does not run the op, by its name."""


def exact(*names: str) -> Callable[[M], M]:
    """Register the meaning of ops."""

    def add(meaning: M) -> M:
        MEANINGS.update(dict.fromkeys(names, meaning))
        return meaning

    return add


def collective(*names: str) -> Callable[[M], M]:
    """Register the meaning of ops that exchange values between replicas."""

    def add(meaning: M) -> M:
        COLLECTIVES.update(dict.fromkeys(names, meaning))
        return meaning

    return add


def scalar(op: Exact, name: str, given: Value | None = None, absent: float = 0.0) -> Numbers:
    """A factor that is a tensor of one element, or an attribute."""
    if given is None:
        value = op[name]
        return op.number(absent if value is None else value)
    return numbers(op, given).reshape(())


def numbers(op: Exact, value: Value) -> Numbers:
    """Integers as numbers; numbers as they are."""
    return value if isinstance(value, Numbers) else Numbers.of(value, op.low)
