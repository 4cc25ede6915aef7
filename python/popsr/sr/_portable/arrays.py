"""Operations that the portable form takes from a framework; its integers are signed, as every device has them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["Arrays", "NumpyArrays", "is_less", "join", "split"]


class Arrays(Protocol):
    """A framework; operators of its arrays are Python's, and shifts to the right keep the sign.

    No operation may overflow: compilers of C++ take that as impossible.
    """

    def arange(self, n: int) -> Any:
        """Numbers from 0, int32 ``[n]``."""

    def constants(self, values: Sequence[int]) -> Any:
        """An int32 array of these values."""

    def take(self, table: Any, index: Any) -> Any:
        """Values of a table ``[n]`` at the positions ``index``."""

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """``x`` where the condition holds, else ``y``; each an array or a number."""

    def interleave(self, columns: Sequence[Any]) -> Any:
        """An array ``[n * k]`` of ``k`` arrays ``[n]``: their first elements, then their second ones, and so on."""

    def part(self, x: Any, start: Any, n: int) -> Any:
        """``n`` elements of an array, from one that a program may have computed."""

    def scan(self, step: Callable[[Any, Any], Any], state: Any, inputs: Sequence[Sequence[Any]]) -> Any:
        """The state after ``step(state, input)`` for each of the inputs; states are lists of arrays."""

    def states(self, step: Callable[[Any], Any], state: Sequence[Any], n: int) -> list[Any]:
        """The ``n + 1`` states before and after each of ``n`` steps; a state is a list of integers or arrays ``[]``."""

    def largest(self, x: Any, least: int) -> Any:
        """The greater of each element and a number."""

    def smallest(self, x: Any, most: int) -> Any:
        """The smaller of each element and a number."""


class NumpyArrays:
    """NumPy; what devices compute is compared with it."""

    def arange(self, n: int) -> Any:
        """Numbers from 0."""
        return np.arange(n, dtype=np.int32)

    def constants(self, values: Sequence[int]) -> Any:
        """An array of these values."""
        return np.array(values, np.int32)

    def take(self, table: Any, index: Any) -> Any:
        """Values of a table at positions."""
        return table[index]

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """One or the other."""
        return np.where(condition, x, y)

    def interleave(self, columns: Sequence[Any]) -> Any:
        """Columns as rows, one after the other."""
        return np.stack(columns, -1).reshape(-1)

    def part(self, x: Any, start: Any, n: int) -> Any:
        """Elements from one on."""
        return x[start : start + n]

    def scan(self, step: Callable[[Any, Any], Any], state: Any, inputs: Sequence[Sequence[Any]]) -> Any:
        """The state after all steps."""
        return functools.reduce(step, inputs, state)

    def states(self, step: Callable[[Any], Any], state: Sequence[Any], n: int) -> list[Any]:
        """The states before and after each step."""
        found = [state]
        for _ in range(n):
            found.append(step(found[-1]))
        return found

    def largest(self, x: Any, least: int) -> Any:
        """The greater of each element and a number."""
        return np.maximum(x, least)

    def smallest(self, x: Any, most: int) -> Any:
        """The smaller of each element and a number."""
        return np.minimum(x, most)


def join(high: Any, low: Any) -> Any:
    """The 32-bit word of two halves from 0 to 65535, with its sign."""
    return ((high ^ 0x8000) - 0x8000) * 0x10000 + low


def split(word: Any) -> tuple[Any, Any]:
    """The high and the low half of a 32-bit word."""
    return (word >> 16) & 0xFFFF, word & 0xFFFF


def is_less(x: Sequence[Any], y: Sequence[Any]) -> tuple[Any, Any]:
    """Whether the number of digits ``x``, the highest first, is less than that of ``y``, and whether they are equal."""
    less, equal = x[0] < y[0], x[0] == y[0]
    for a, b in zip(x[1:], y[1:], strict=True):
        less = less | (equal & (a < b))
        equal = equal & (a == b)
    return less, equal
