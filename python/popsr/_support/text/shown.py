"""Text of values in messages: one line, bounded, and made without trusting the value.

Users' values may be huge, nested, recursive, or of classes whose ``__repr__`` raises; an error that speaks of them
must not take longer, be longer, or be another error for it.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from popsr._support.text.one_line import one_line

__all__ = ["shown", "shown_items", "shown_text", "type_name"]

_MAX_SHOWN = 200  # of one value
_MAX_WORD = 80  # of a text inside a value
_MAX_ITEMS = 8
_MAX_DEPTH = 3
_MAX_BITS = 8192
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_BRACKETS: dict[Any, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}


def shown(value: object) -> str:
    """A value of the user for a message: as ``repr`` where that is short, else what it is and how large."""
    return one_line(_bounded(value, _MAX_DEPTH), _MAX_SHOWN)


def shown_items(values: Iterable[object]) -> str:
    """Some values, as ``a, b, c``: the first of many."""
    return _items(values, _MAX_DEPTH)


def shown_text(text: str, limit: int) -> str:
    """A text, quoted; the beginning of one that is longer than ``limit``."""
    return one_line(_quoted(text, str, limit), 2 * limit + 40)


def type_name(value: object) -> str:
    """Name of the value's class."""
    return one_line(type.__getattribute__(type(value), "__name__"), _MAX_WORD)


def _bounded(value: object, depth: int) -> str:
    try:
        return _text(value, depth)
    except Exception:  # of its own __repr__, or there is no memory for a text
        return f"<{type_name(value)} object>"


def _text(value: Any, depth: int) -> str:
    if isinstance(value, (enum.Enum, bool)):
        return repr(value)
    if isinstance(value, (str, bytes)):
        limit = _MAX_SHOWN - 40 if depth == _MAX_DEPTH else _MAX_WORD
        return _quoted(value, str if isinstance(value, str) else bytes, limit)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    for base, brackets in _BRACKETS.items():
        if isinstance(value, base):
            return _sequence(value, base, brackets, depth)
    if isinstance(value, dict):
        return _mapping(value, depth)
    if _is_foreign_array(value):
        return f"{value.dtype}{list(value.shape)} {type_name(value)}"
    words = getattr(type(value), "_in_words", None)
    if words is not None:
        return str(words(value))
    if type.__getattribute__(type(value), "__repr__") is object.__repr__:
        return f"<{type_name(value)} object>"
    return _ADDRESS.sub("", repr(value))


def _quoted(text: Any, base: Any, limit: int) -> str:
    size = base.__len__(text)
    quote: str = base.__repr__(base.__getitem__(text, slice(limit)))
    return quote if size <= limit else f"{quote[:-1]}…{quote[-1]} of length {size}"


def _integer(value: int) -> str:
    bits = int.bit_length(value)
    return int.__repr__(value) if bits <= _MAX_BITS else f"<int of {bits} bits>"


def _array(value: np.ndarray[Any, Any]) -> str:
    if value.size <= _MAX_ITEMS and value.ndim <= 1 and value.dtype.kind in "biufc":
        return re.sub(r"\s+", " ", np.ndarray.__repr__(value))
    return f"{value.dtype}{list(value.shape)} array"


def _sequence(value: Any, base: Any, brackets: str, depth: int) -> str:
    count = base.__len__(value)
    if not count and base in (set, frozenset):
        return f"{base.__name__}()"
    if count and not depth:
        return f"{brackets[0]}…{brackets[1]}"
    comma = "," if count == 1 and base is tuple else ""
    return f"{brackets[0]}{_items(base.__iter__(value), depth, count)}{comma}{brackets[1]}"


def _items(values: Iterable[object], depth: int, count: int | None = None) -> str:
    first = list(itertools.islice(values, _MAX_ITEMS + 1))
    texts = [_bounded(item, depth - 1) for item in first[:_MAX_ITEMS]]
    if len(first) > _MAX_ITEMS:
        texts.append("…" if count is None else f"… {count} in all")
    return ", ".join(texts)


def _mapping(value: dict[Any, Any], depth: int) -> str:
    if value and not depth:
        return "{…}"
    items = itertools.islice(dict.items(value), _MAX_ITEMS)
    texts = [f"{_bounded(key, depth - 1)}: {_bounded(item, depth - 1)}" for key, item in items]
    if len(value) > _MAX_ITEMS:
        texts.append(f"… {dict.__len__(value)} in all")
    return f"{{{', '.join(texts)}}}"


def _is_foreign_array(value: Any) -> bool:
    """True for arrays of other packages than NumPy, which print all they hold."""
    ours = type(value).__module__.partition(".")[0] in ("popsr", "numpy", "ml_dtypes")
    if ours or isinstance(value, type) or not hasattr(value, "dtype"):
        return False
    return isinstance(getattr(value, "shape", None), tuple)
