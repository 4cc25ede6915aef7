"""Reading of arguments: the one place that says what an int, a word, a list, a shape or a dtype is.

One class of error for each kind of mistake: an object of another type is an ``ArgumentTypeError``, a value that is not
accepted an ``AttributeValueError``, a shape that cannot be a ``ShapeError``, what stands for no dtype a ``DTypeError``.
Nothing is believed of an argument: it may be huge, endless, an array, or raise whatever is asked of it. A reader
answers in bounded time and converts, so that callers go on with plain Python values.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from popsr import dtypes
from popsr._support.text.shown import shown, type_name
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    OutOfMemoryError,
    OutOfRangeError,
    ShapeError,
    UnknownNameError,
)

__all__ = [
    "MAX_INT",
    "integer_of",
    "is_a",
    "read_a",
    "read_any_int",
    "read_bool",
    "read_call",
    "read_choice",
    "read_dtype",
    "read_flag",
    "read_index",
    "read_int",
    "read_int64s",
    "read_ints",
    "read_ipu",
    "read_items",
    "read_mapping",
    "read_name",
    "read_number",
    "read_path",
    "read_scale",
    "read_shape",
    "read_text",
    "require_known",
    "require_memory",
]

T = TypeVar("T")

MAX_INT = 2**63 - 1
_MAX_RANK = 64
_LITTLE = 1 << 30  # of memory: this much is asked of the system as it is
_MAX_ITEMS = 2**22
"""Longest list: longer than a grouping of a million replicas, and read in a moment."""


def is_a(value: object, cls: type | tuple[type, ...]) -> bool:
    """``isinstance`` for arguments that may contradict their annotations; narrows nothing."""
    return isinstance(value, cls)


@overload
def read_a(what: str, value: Any, cls: type[T]) -> T: ...
@overload
def read_a(what: str, value: Any, cls: Any) -> Any: ...
def read_a(what: str, value: Any, cls: Any) -> Any:
    """``value`` if it is an object of a class.

    Args:
        what: the call and the parameter, for messages: ``"call: graph"``.
        value: the argument.
        cls: the class, or several.
    Raises:
        ArgumentTypeError: it is not.
    """
    if isinstance(value, cls):
        return value
    names = [each.__name__ for each in (cls if isinstance(cls, tuple) else (cls,))]
    wanted = f"{'an' if names[0][0] in 'AEIO' else 'a'} {' or '.join(names)}"
    raise ArgumentTypeError(f"{what} is not {wanted}, got {_described(value)}, expected {wanted}")


def read_call(what: str, value: Any) -> Callable[..., Any]:
    """``value`` if it can be called.

    Raises:
        ArgumentTypeError: it cannot.
    """
    if not callable(value):
        raise ArgumentTypeError(f"{what} cannot be called, got {shown(value)}, expected a function")
    function: Callable[..., Any] = value
    return function


# Numbers


def integer_of(value: Any) -> int | None:
    """``value``, an int or an integer of NumPy, as int; None if it is not an integer. A bool is not."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except Exception:  # of its own __index__
        return None


def read_int(what: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """An integer between bounds.

    Args:
        what: the call and the parameter, for messages: ``"Session: num_threads"``.
        value: the argument: an int, of NumPy too; not a bool.
        least: the least that is accepted. Default: any of 64 bits.
        most: the greatest. Default: likewise.
    Raises:
        ArgumentTypeError: it is not an integer.
        AttributeValueError: it is out of bounds.
    """
    number = integer_of(value)
    low, high = -MAX_INT - 1 if least is None else least, MAX_INT if most is None else most
    if number is not None and low <= number <= high:
        return number
    number = read_any_int(what, value)
    bounds = f"from {least}" if most is None and number < low else f"from {low} to {high}"
    raise AttributeValueError(f"{what}: got {shown(number)}, expected an int {bounds}")


def read_any_int(what: str, value: Any) -> int:
    """An integer of any size, for callers that have an error of their own for bounds.

    Raises:
        ArgumentTypeError: it is not an integer.
    """
    number = integer_of(value)
    if number is None:
        raise ArgumentTypeError(f"{what} is not an int, got {shown(value)}, expected an int")
    return number


def read_index(what: str, value: Any, end: int, begin: int = 0) -> int:
    """An index.

    Args:
        what: the call and the parameter, for messages.
        value: the argument.
        end: what it must be below.
        begin: what it must not be below.
    Raises:
        ArgumentTypeError: it is not an integer.
        OutOfRangeError: there is no such item.
    """
    number = integer_of(value)
    if number is None:
        raise ArgumentTypeError(f"{what} is not an int, got {shown(value)}, expected an int")
    if not begin <= number < end:
        raise OutOfRangeError(f"{what} out of range, got {shown(number)}, expected {begin} <= index < {end}")
    return number


def read_number(what: str, value: Any) -> float:
    """A number as float: an int or float, of NumPy or another package too; not a bool, not a text.

    Raises:
        ArgumentTypeError: it is not a number, or one that no float is near.
    """
    if type(value) is float:
        return value
    try:
        if not isinstance(value, (str, bytes, bytearray, bool, np.bool_)) and not getattr(value, "shape", ()):
            return float(value)
    except Exception:  # of its own __float__, or too large
        pass
    raise ArgumentTypeError(f"{what} is not a number, got {_described(value)}, expected a float")


def read_bool(what: str, value: Any) -> bool:
    """True or False, of NumPy too.

    Raises:
        ArgumentTypeError: it is something else.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ArgumentTypeError(f"{what} is not a bool, got {shown(value)}, expected True or False")


def read_flag(what: str, value: Any) -> bool:
    """The truth of a value: programs give 0, 1 and None for bools.

    Raises:
        ArgumentTypeError: it has none, as an array of several elements.
    """
    try:
        return bool(value)
    except Exception:  # of its own __bool__
        raise ArgumentTypeError(f"{what} is not a bool, got {shown(value)}, expected True or False") from None


def read_ipu(where: str, name: str, value: Any) -> int:
    """The number of a device.

    Raises:
        ArgumentTypeError: it is not an integer.
        AttributeValueError: it is negative, or beyond what a number of a device can be.
    """
    number = integer_of(value)
    if number is None:
        raise ArgumentTypeError(
            f"{where}: {name} is not an int, got {shown(value)}, expected a number of an IPU"
        )
    if not 0 <= number < 2**31:
        raise AttributeValueError(
            f"{where}: {name} is not an IPU, got {shown(value)}, expected 0 to {2**31 - 1}"
        )
    return number


def read_scale(where: str, value: Any) -> int:
    """The exponent of a scale of float8 data.

    Raises:
        ArgumentTypeError: it is not an integer.
        AttributeValueError: it has more than 32 bits.
    """
    return read_int(f"{where}: log2_scale", value, -(2**31), 2**31 - 1)


def require_memory(what: str, nbytes: int) -> None:
    """Refuse data that is larger than the memory of the machine, before any of it is allocated.

    Args:
        what: the data, for messages.
        nbytes: its size.
    Raises:
        OutOfMemoryError: it is larger.
    """
    if nbytes > _LITTLE:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if nbytes > most:
            raise OutOfMemoryError(
                f"{what}: data does not fit into memory, got {nbytes:.3g} bytes, expected at most {most:.3g}"
            )


# Words


def read_text(what: str, value: Any) -> str:
    """A text.

    Raises:
        ArgumentTypeError: it is not a str.
        AttributeValueError: it has no UTF-8 form: half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{what} is not a str, got {shown(value)}, expected a str")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeError:
            raise AttributeValueError(f"{what} is not a text, got {shown(value)}, expected Unicode") from None
    return value if type(value) is str else str.__str__(value)


def read_name(where: str, name: Any, default: str = "t") -> str:
    """``name``, or ``default`` for None.

    Raises:
        ArgumentTypeError: it is not a str.
        AttributeValueError: it is not a text of Unicode.
    """
    return default if name is None else read_text(f"{where}: name", name)


def read_choice(where: str, name: str, value: Any, choices: Sequence[Any], more: str = "") -> Any:
    """The one of ``choices`` (words, ints, None) that ``value`` is.

    Args:
        where: prefix of errors.
        name: the argument's.
        value: what was given.
        choices: what it may be.
        more: what else the caller accepts, for the error.
    Raises:
        AttributeValueError: it is none of them.
    """
    for choice in choices:
        if value is choice or _equals(value, choice):
            return choice
    expected = ", ".join(repr(choice) for choice in choices)
    raise AttributeValueError(
        f"{where}: unknown {name}, got {shown(value)}, expected one of {expected}{more}"
    )


def _equals(value: Any, choice: Any) -> bool:
    if isinstance(choice, str):
        return isinstance(value, str) and str.__eq__(value, choice)
    if isinstance(choice, bool) or not isinstance(choice, int):
        return False
    return choice == (int(value) if isinstance(value, bool) else integer_of(value))


def read_path(where: str, path: Any) -> Path:
    """``path`` as Path.

    Raises:
        ArgumentTypeError: it is neither a str nor an ``os.PathLike`` of one, or empty, or with a null character.
        AttributeValueError: it is not a text of Unicode.
    """
    try:
        name = os.fspath(path)
    except Exception:  # also of its own __fspath__
        name = None
    if not isinstance(name, str) or not name or "\0" in name:
        raise ArgumentTypeError(
            f"{where}: not the path of a file, got {shown(path)}, expected a str or os.PathLike"
        )
    read_text(f"{where}: path", name)
    return Path(name)


# Lists and mappings


def read_items(
    where: str, name: str, values: Any, *, kind: str = "values", most: int = _MAX_ITEMS
) -> tuple[Any, ...]:
    """The items of an iterable, whatever they are; of a long one none is looked at.

    Args:
        where: the call, for messages.
        name: the parameter, for messages.
        values: the argument; a str is not a sequence here.
        kind: what the items should be, for messages.
        most: how many are accepted.
    Raises:
        ArgumentTypeError: it is not an iterable.
        AttributeValueError: there are too many.
    """
    if type(values) is tuple and len(values) <= most:
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ArgumentTypeError(f"{where}: {name} is not a sequence of {kind}, got {shown(values)}")
    try:
        size = len(values) if isinstance(values, Sized) else 0
        items = () if size > most else tuple(itertools.islice(values, most + 1))
    except Exception as error:  # of its own __iter__ or __len__
        raise ArgumentTypeError(
            f"{where}: {name} is not a sequence of {kind}, got {_described(values)} that raises "
            f"{type_name(error)}: {error}"
        ) from error
    if max(size, len(items)) > most:
        raise AttributeValueError(
            f"{where}: {name} has too many items, got {size or 'no end of them'}, expected at most {most}"
        )
    return items


def read_ints(where: str, name: str, values: Any, *, kind: str = "ints") -> tuple[Any, ...]:
    """A sequence as tuple, for the core, which checks the items.

    Raises:
        ArgumentTypeError: not an iterable.
        AttributeValueError: too long.
    """
    return read_items(where, name, values, kind=kind)


def read_int64s(where: str, name: str, values: Any) -> tuple[int, ...]:
    """A sequence of integers as tuple of int.

    Raises:
        ArgumentTypeError: not an iterable, or an item is not an integer.
        AttributeValueError: too long, or an item has more than 64 bits.
    """
    what = f"{where}: {name}"
    return tuple(read_int(what, each) for each in read_items(where, name, values, kind="ints"))


def read_shape(where: str, shape: Any, name: str = "shape") -> tuple[int, ...]:
    """A shape as tuple of ints.

    Raises:
        ArgumentTypeError: not an iterable of integers.
        ShapeError: a negative extent, one of more than 64 bits, or more than 64 dimensions.
    """
    try:
        items = read_items(where, name, shape, kind="ints", most=_MAX_RANK)
    except AttributeValueError as error:
        raise ShapeError(f"{str(error).replace('items', 'dimensions', 1)}") from None
    extents = tuple(integer_of(item) for item in items)
    if None in extents:
        raise ArgumentTypeError(f"{where}: {name} is not a sequence of ints, got {shown(shape)}")
    known = tuple(extent for extent in extents if extent is not None)
    if known and min(known) < 0:
        raise ShapeError(f"{where}: negative extent, got {shown(known)}, expected 0 or more")
    if known and max(known) > MAX_INT:
        raise ShapeError(f"{where}: extent is too large, got {shown(known)}, expected at most {MAX_INT}")
    return known


def read_mapping(where: str, name: str, value: Any) -> Mapping[Any, Any]:
    """``value``, or an empty mapping for None.

    Raises:
        ArgumentTypeError: it is not a mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{where}: {name} is not a mapping, got {shown(value)}")
    return value


def require_known(what: str, names: Iterable[Any], known: Collection[Any]) -> None:
    """Refuse names that nothing has.

    Args:
        what: the call and what is wrong with a name, for messages: ``"getInfo: no such tensor"``.
        names: the names.
        known: those that something has.
    Raises:
        UnknownNameError: one is none of these.
    """
    for name in names:
        if name not in known:
            raise UnknownNameError(f"{what}, got {shown(name)}, expected one of {shown(list(known))}")


# Dtypes


def read_dtype(where: str, value: Any) -> dtypes.dtype:
    """A dtype that tensors can have, or what stands for one.

    Raises:
        DTypeError: it stands for none.
    """
    try:
        found = dtypes.dtype.as_dtype(value)
    except ValueError as error:
        raise DTypeError(f"{where}: {str(error).partition(': ')[2]}") from None  # without "from_name"
    if found.is_complex:
        raise DTypeError(
            f"{where}: tensors are not complex, got {found.name}, expected one of {', '.join(dtypes.dtype._all)}"
        )
    return found


def _described(value: object) -> str:
    """Class and value; the class alone where the value says it."""
    text = shown(value)
    return text if value is None or type_name(value) in text else f"{type_name(value)} {text}"
