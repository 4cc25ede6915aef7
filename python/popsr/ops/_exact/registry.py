"""The exact meanings of ops: functions of exact numbers, and of arrays of integers and bools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from popsr._support.fields import Array, Numbers, constant, same
from popsr._support.records import TensorInfo

__all__ = [
    *("COLLECTIVES", "DRAWN", "MEANINGS", "OF_ALL", "TAKEN_FALSE", "TAKEN_TRUE"),
    *("Exact", "Value", "collective", "exact", "numbers", "scalar"),
]

TAKEN_FALSE, TAKEN_TRUE, DRAWN = np.array([1, 2, 4], np.uint8)
_FEW = 4
"""Numbers in a row up to which both orders of each pair are waited for: of more, few draws show all."""
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
        sides: for each comparison that the meaning has made, in its order, what each of its elements came to: the bits
            TAKEN_FALSE and TAKEN_TRUE, and DRAWN where a draw could have changed it.
    """

    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    replicas: int
    low: int
    draw: int
    run: Callable[..., list[Array]]
    sides: list[Array] = field(default_factory=list, compare=False)

    def above(self, a: Numbers, b: Numbers) -> Array:
        """True where a number is greater than another, in the order of this draw; the outcomes are noted."""
        found = a.above(b, self.draw)
        self._note(found, is_fixed(a) & is_fixed(b) | _is_infinite(a) | _is_infinite(b) | same(a, b))
        return found

    def ranks(self, rows: Numbers) -> Array:
        """Ranks of all numbers in the order of this draw; outcomes of pairs in rows of few are noted."""
        ranks = rows.ranks(self.draw)
        if _is_few(rows):
            self._note_pairs(rows, ranks)
        return ranks

    def extreme(self, rows: Numbers, sign: int) -> Array:
        """Places of the greatest numbers of rows, or the least for a sign of -1; pairs in rows of few are noted."""
        if _is_few(rows):
            self._note_pairs(rows, rows.ranks(self.draw))
        return rows.extreme(self.draw, sign)

    def _note_pairs(self, rows: Numbers, ranks: Array) -> None:
        fixed, endless = is_fixed(rows), _is_infinite(rows)
        for i, j in itertools.combinations(range(rows.shape[-1]), 2):
            decided = fixed[..., i] & fixed[..., j] | endless[..., i] | endless[..., j]
            left, right = ranks[..., i], ranks[..., j]
            self._note(left > right, decided | (left == right))

    def _note(self, outcomes: Array, decided: Array) -> None:
        """Keep the outcome of each element of a comparison, and whether another draw can change it."""
        self.sides.append(np.where(outcomes, TAKEN_TRUE, TAKEN_FALSE) | np.where(decided, 0, DRAWN))

    def __getitem__(self, name: str) -> Any:
        """An attribute; None where it is absent."""
        return self.attributes.get(name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self.outputs[0].shape

    def number(self, value: float) -> Numbers:
        """A number without axes."""
        return constant(float(value), self.low)

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


def _is_few(rows: Numbers) -> bool:
    return bool(rows.ndim) and 1 < rows.shape[-1] <= _FEW


def is_fixed(t: Numbers) -> Array:
    """True for small fractions, which are the same in all draws."""
    return ~np.isnan(t.small())


def _is_infinite(t: Numbers) -> Array:
    return np.zeros(t.shape, bool) if t.huge is None else t.huge != 0
