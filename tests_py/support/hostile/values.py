"""Arguments that no function expects: wrong types, huge and endless values, objects that raise when they are asked."""

from __future__ import annotations

import datetime
import decimal
import fractions
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import popsr
from popsr._program.context import _context

__all__ = ["HOSTILE", "Foreign", "Liar", "Raises", "hostile"]


class Raises:
    """An object on which every question raises."""

    def _raise(self, *args: object) -> Any:
        raise ZeroDivisionError("asked\nin vain")

    __repr__ = __str__ = __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _raise
    __index__ = __int__ = __float__ = __complex__ = __len__ = __iter__ = __getitem__ = __contains__ = _raise
    __fspath__ = __format__ = __add__ = __radd__ = __mul__ = __rmul__ = __neg__ = _raise
    __hash__ = object.__hash__


class Liar:
    """An object that has what arrays and dtypes have, and none of it is what it should be."""

    shape = "shape"
    dtype = "dtype"
    name = 3
    size = None
    __array_interface__ = 7

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise RuntimeError("no\narray")

    def __index__(self) -> Any:
        return "one"

    def __float__(self) -> Any:
        return None

    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Any:
        return 3

    def __fspath__(self) -> Any:
        return 3


class Word(str):
    """A str that does not compare."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise ZeroDivisionError


def _nested(depth: int, kind: Callable[[list[Any]], Any] = list) -> Any:
    value: Any = kind([])
    for _ in range(depth):
        value = kind([value])
    return value


def _recursive() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


class Foreign:
    """Objects of another program."""

    def __init__(self) -> None:
        current, _context._graphs = _context._graphs, ()
        self.ir = popsr.Ir(replication=3)
        with self.ir.main_graph:
            self.tensor = popsr.variable(np.ones((2, 3), np.float32), name="foreign")
            self.stream = popsr.h2d_stream((2,), popsr.float32)
            self.buffer = popsr.remote_buffer((2,), popsr.float32)
        self.graph = self.ir.create_graph(lambda t: popsr.ops.relu(t), self.tensor)
        self.grouping = self.ir.replica_grouping()
        _context._graphs = current


# Functions that make a value: some are used up by one call.
HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "zero": lambda: 0,
    "negative": lambda: -1,
    "five": lambda: 5,
    "2**31": lambda: 2**31,
    "2**40": lambda: 2**40,
    "2**63": lambda: 2**63,
    "-2**63-1": lambda: -(2**63) - 1,
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "half": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "complex": lambda: 1j,
    "fraction": lambda: fractions.Fraction(1, 3),
    "decimal": lambda: decimal.Decimal("NaN"),
    "empty text": lambda: "",
    "word": lambda: "sum",
    "long text": lambda: "long " * 20_000,
    "surrogate": lambda: "\ud800",
    "lines": lambda: "two\nlines\x00",
    "dots": lambda: "a..b",
    "uncomparable text": lambda: Word("mean"),
    "bytes": lambda: b"\xff\xfe",
    "long bytes": lambda: bytes(100_000),
    "bytearray": lambda: bytearray(3),
    "object": object,
    "class": lambda: int,
    "function": lambda: lambda *args, **kwargs: None,
    "ellipsis": lambda: ...,
    "slice": lambda: slice(None, "x", Raises()),
    "date": lambda: datetime.date(2020, 2, 29),
    "path": lambda: Path("no/such/file"),
    "raises": Raises,
    "raising list": lambda: [Raises(), Raises()],
    "raising key": lambda: {Raises(): Raises()},
    "liar": Liar,
    "liars": lambda: [Liar()],
    "empty list": list,
    "ints": lambda: [1, 2],
    "tuple": lambda: (0, -1),
    "mixed": lambda: [1, "two", None],
    "huge ints": lambda: [2**70, -(2**70)],
    "empty dict": dict,
    "dict": lambda: {"a": 1, 2: None},
    "dict of lists": lambda: {(): [[]]},
    "set": lambda: {3, "x"},
    "nested": lambda: _nested(3000),
    "nested tuple": lambda: _nested(3000, tuple),
    "recursive": _recursive,
    "long list": lambda: [0] * 100_000,
    "ragged": lambda: [[1, 2], [3]],
    "range": lambda: range(3),
    "huge range": lambda: range(10**12),
    "endless": itertools.count,
    "generator": lambda: (x for x in (1, "y")),
    "raising generator": lambda: (1 // x for x in (1, 0)),
    "float32": lambda: np.float32(1.5),
    "int64": lambda: np.int64(-7),
    "np.bool": lambda: np.bool_(True),
    "0-d int": lambda: np.array(3),
    "0-d float": lambda: np.array(0.5),
    "array": lambda: np.ones((2, 3), np.float32),
    "int array": lambda: np.arange(4),
    "bool array": lambda: np.array([True, False]),
    "empty array": lambda: np.zeros((0, 3)),
    "rank 40": lambda: np.zeros((1,) * 40, np.float32),
    "text array": lambda: np.array(["x", "y"]),
    "object array": lambda: np.array([Raises(), None], object),
    "date array": lambda: np.array(["2020"], "M8[D]"),
    "complex array": lambda: np.ones(2, np.complex64),
    "structured array": lambda: np.zeros(2, [("a", "u1"), ("b", "f4")]),
    "big-endian array": lambda: np.ones(2, ">f4"),
    "read-only array": lambda: np.broadcast_to(np.float32(1), (2, 3)),
    "strided array": lambda: np.ones((4, 6), np.float32)[::-2, ::3],
    "huge array": lambda: np.broadcast_to(np.float32(1), (2**44,)),
    "huge int array": lambda: np.broadcast_to(np.int64(1), (2**33,)),
    "masked array": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "np.dtype": lambda: np.dtype("f4"),
    "popsr.float32": lambda: popsr.float32,
    "popsr.complex64": lambda: popsr.complex64,
    "memoryview": lambda: memoryview(b"abcd"),
    "ir": popsr.Ir,
    "foreign ir": lambda: Foreign().ir,
    "foreign tensor": lambda: Foreign().tensor,
    "foreign tensors": lambda: [Foreign().tensor],
    "foreign graph": lambda: Foreign().graph,
    "foreign stream": lambda: Foreign().stream,
    "foreign buffer": lambda: Foreign().buffer,
    "foreign grouping": lambda: Foreign().grouping,
    "foreign mapping": lambda: {Foreign().tensor: Foreign().graph},
    "module": lambda: np,
    "spec": lambda: popsr.TensorSpec((2, 3), popsr.float32),
    "exception": lambda: ValueError("x\ny"),
}

_NAMES = tuple(HOSTILE)


def hostile(rng: random.Random) -> tuple[str, Any]:
    """One of the values, and its name."""
    name = rng.choice(_NAMES)
    return name, HOSTILE[name]()
