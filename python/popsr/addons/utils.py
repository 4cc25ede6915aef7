"""Small helpers of programs."""

from __future__ import annotations

import collections
import contextlib
import re
import time
from collections.abc import Hashable, Iterable, Iterator, MutableMapping
from typing import Any, TypeVar

import numpy as np

from popsr._program.tensor import Variable
from popsr._support.host.arguments import is_a, read_int, read_items, read_name, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown, shown_items
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    UnknownNameError,
)

__all__ = [
    "OrderedDict",
    "WeightsDict",
    "duplicate_items",
    "null_context",
    "overrides",
    "suffix_graph_name",
    "timer",
]

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=Hashable)
Array = np.ndarray[Any, Any]

_SUBGRAPH = re.compile(r"_subgraph\(\d+\)")


@public
class OrderedDict(collections.OrderedDict[K, V]):
    """An ordered dictionary with values by position, printed with a line for each item."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As ``dict``.

        Raises:
            ArgumentTypeError: not a mapping or pairs.
        """
        try:
            super().__init__(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                f"OrderedDict: not a mapping or pairs, got {shown_items(args)}: {error}"
            ) from None

    def idx(self, idx: int) -> V:
        """The value at a position.

        Args:
            idx: 0 for the first; negative ones count from the end.
        Raises:
            OutOfRangeError: no such position.
        """
        idx = read_int("idx: idx", idx)
        values = list(self.values())
        if not -len(values) <= idx < len(values):
            raise OutOfRangeError(
                f"idx: position out of range, got {shown(idx)}, expected {-len(values)} <= idx < {len(values)}"
            )
        return values[idx]

    def __repr__(self) -> str:
        lines = [f"{key}: {value!r},\n" for key, value in self.items()]
        return f"{{\n{''.join(lines)}}}"


@public
class WeightsDict(MutableMapping[Variable, Array]):
    """Data of variables, for ``Session.write_variables_data``: what does not fit is refused where it is put in.

    Args:
        *args: a mapping or pairs, as of ``dict``.
        **kwargs: none; variables are not keywords.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Insert each item.

        Raises:
            ArgumentTypeError, DTypeError, ShapeError: as for ``weights[variable] = data``.
        """
        self._data: dict[Variable, Array] = {}
        try:
            items = dict(*args, **kwargs)
        except Exception as error:
            raise ArgumentTypeError(
                f"WeightsDict: not a mapping or pairs, got {shown_items(args)}: {error}"
            ) from None
        self.update(items)

    def __getitem__(self, key: Variable) -> Array:
        return self._data[self._known(key)]

    def _known(self, key: Any) -> Variable:
        if not isinstance(key, Variable) or key not in self._data:
            raise UnknownNameError(
                f"WeightsDict: no data for that key, got {shown(key)}, expected a Variable with data"
            )
        return key

    def __setitem__(self, key: Variable, value: Array) -> None:
        """Insert an array of the variable's dtype and ``shape_on_host``.

        Raises:
            ArgumentTypeError: the key is not a Variable, or the value not an array.
            DTypeError: the array is of another dtype.
            ShapeError: the array is of another shape.
        """
        if not is_a(key, Variable):
            raise ArgumentTypeError(
                f"WeightsDict: not a Variable, got {shown(key)}, expected a key that is one"
            )
        if not is_a(value, np.ndarray):
            raise ArgumentTypeError(f"WeightsDict: data of '{key.id}' is not an array, got {shown(value)}")
        if value.dtype != key.dtype.as_numpy():
            raise DTypeError(
                f"WeightsDict: data of '{key.id}' is of another dtype, got {value.dtype}, expected {key.dtype.name}"
            )
        if value.shape != key.shape_on_host:
            raise ShapeError(
                f"WeightsDict: data of '{key.id}' is of another shape, got {value.shape}, expected {key.shape_on_host}"
            )
        self._data[key] = value

    def __delitem__(self, key: Variable) -> None:
        del self._data[self._known(key)]

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._data)

    def __repr__(self) -> str:
        return f"WeightsDict({{{', '.join(f'{key.id!r}: {value!r}' for key, value in self._data.items())}}})"


@public
@contextlib.contextmanager
def null_context() -> Iterator[None]:
    """A context that changes nothing."""
    yield


@public
def suffix_graph_name(name: str, suffix: str) -> str:
    """Name of a graph that is made of another one.

    Args:
        name: name of the other one; numbers of copies as in ``Linear_subgraph(0)`` are dropped.
        suffix: what is appended, after an underscore.
    Returns:
        For ``"Linear_subgraph(0)"`` and ``"grad"``: ``"Linear_grad"``.
    Raises:
        ArgumentTypeError: one of them is not a str.
    """
    for what, value in (("name", name), ("suffix", suffix)):
        if not is_a(value, str):
            raise ArgumentTypeError(f"suffix_graph_name: {what} is not a str, got {shown(value)}")
    return f"{_SUBGRAPH.sub('', name)}_{suffix}"


@public
@contextlib.contextmanager
def timer(title: str | None = None, log_to_wandb: bool = True) -> Iterator[None]:
    """Print how long the body took, also when it raises: ``title: 1.234 s``.

    Args:
        title: text before the time. Default: "duration".
        log_to_wandb: accepted for programs of PopXL; popsr does not write to Weights & Biases.
    """
    title = read_name("timer", title, "duration")
    del log_to_wandb
    start = time.perf_counter()
    try:
        yield
    finally:
        print(f"{title}: {time.perf_counter() - start:.3f} s")


@public
def overrides(cls: type, base_cls: type, method: str) -> bool:
    """True if a class has another method of a name than the class that it is derived from.

    Args:
        cls: the derived class.
        base_cls: the base.
        method: name of the method.
    Returns:
        True when it, or a class in between, defines its own.
    Raises:
        ArgumentTypeError: ``cls`` is not derived from ``base_cls``.
        AttributeValueError: the base has no such method.
    """
    read_text("overrides: method", method)
    for value in (cls, base_cls):
        if not is_a(value, type):
            raise ArgumentTypeError(f"overrides: not a class, got {shown(value)}")
    if not issubclass(cls, base_cls):
        raise ArgumentTypeError(
            f"overrides: not derived from the base, got {cls.__name__}, expected a class derived from "
            f"{base_cls.__name__}"
        )
    if not hasattr(base_cls, method):
        raise AttributeValueError(
            f"overrides: the base has no such method, got {shown(method)} of {base_cls.__name__}, "
            "expected a name of one of its methods"
        )
    return getattr(cls, method) is not getattr(base_cls, method)


@public
def duplicate_items(iterable: Iterable[E]) -> list[E]:
    """The items that occur more than once, each once, in the order in which they are first met.

    Args:
        iterable: hashable items.
    """
    items = read_items("duplicate_items", "iterable", iterable, kind="hashable items")
    try:
        counts = collections.Counter(items)
    except Exception as error:  # of an item's __hash__ or __eq__
        raise ArgumentTypeError(
            f"duplicate_items: an item is not hashable, got {shown(items)}: {error}"
        ) from None
    return [item for item, times in counts.items() if times > 1]
