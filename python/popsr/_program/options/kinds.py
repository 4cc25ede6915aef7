"""Kinds of option values: reading one, and its default.

A kind is a word of the table in :mod:`popsr._program.options.table`: "bool", "int from 0", "set of str",
"VirtualGraphMode" and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from popsr._program.options import enums
from popsr._program.options.table import SETTINGS, Row
from popsr._support.host.arguments import (
    is_a,
    read_a,
    read_bool,
    read_int,
    read_items,
    read_number,
    read_text,
)
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.replicas import CommGroup
from popsr.tensorlocation import ReplicatedTensorSharding, TensorStorage, TileSet

__all__ = ["CLASSES", "constants", "default_of", "read_value"]

_OR_NONE = " or None"
_MAX_COUNT = 2**31 - 1

CLASSES: dict[str, Any] = {
    "CommGroup": CommGroup,
    **{cls.__name__: cls for cls in (ReplicatedTensorSharding, TensorStorage, TileSet)},
    **{name: getattr(enums, name) for name in enums.__all__},
}
"""Classes of values by the kind that names them: enumerations, and the settings of ``settings``."""


def read_value(where: str, kind: str, value: Any) -> Any:
    """The value of an option, checked.

    Args:
        where: name of the option, for messages: ``"options: numIOTiles"``.
        kind: the values that it takes.
        value: the value.
    Raises:
        ArgumentTypeError: it is of another type.
        AttributeValueError: it is out of range, or not one of the accepted words.
    """
    if kind.endswith(_OR_NONE):
        return None if value is None else read_value(where, kind.removesuffix(_OR_NONE), value)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple(where, value)
    container, of, item = kind.partition(" of ")
    if of:
        return _CONTAINERS[container](where, item, value)
    return _read_object(where, kind, value)


def default_of(where: str, kind: str, default: Any) -> Any:
    """The default of an option: a new object where it can be changed.

    Args:
        where: name of the option, for messages about what is put into it.
        kind: the values that the option takes.
        default: as the table has it: members of enumerations by name, containers as tuple, settings as None.
    """
    if kind.endswith(_OR_NONE):
        return default
    container, of, item = kind.partition(" of ")
    if of:
        items = [default_of(where, item, each) for each in default]
        return CheckedDict(where, item) if container == "dict" else _BUILTIN[container](items)
    if kind in _SIMPLE:
        return default
    cls = class_of(kind)
    return cls() if default is None else cls[default]


def constants(rows: Iterable[Row]) -> dict[str, Any]:
    """Defaults that cannot change, by the keys of their rows."""
    return {row.key: row.default for row in rows if row.kind in _SIMPLE}


def class_of(kind: str) -> Any:
    """The class that a kind names; settings register theirs when they are defined."""
    return CLASSES[kind]


class CheckedDict(dict[str, Any]):
    """A dictionary with str keys whose values are of one kind, which assignments check."""

    def __init__(self, where: str, kind: str, items: Mapping[Any, Any] | None = None) -> None:
        """A dictionary of the items.

        Args:
            where: name of the option, for messages.
            kind: the values.
            items: the first of them.
        """
        super().__init__()
        self._where, self._kind = where, kind
        self.update({} if items is None else items)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = read_text(f"{self._where}: key", key)
        super().__setitem__(key, read_value(f"{self._where}[{shown(key)}]", self._kind, value))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """As of dict; the default is checked."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As of dict; nothing is changed if an item is of another kind."""
        try:
            given = dict(*args, **kwargs)
        except Exception:  # of its own keys() or __iter__
            raise ArgumentTypeError(
                f"{self._where}: not a dict, got {shown(args[0] if args else kwargs)}, expected str keys"
            ) from None
        checked = {}
        for key, value in given.items():
            name = read_text(f"{self._where}: key", key)
            checked[name] = read_value(f"{self._where}[{shown(name)}]", self._kind, value)
        super().update(checked)

    def __ior__(self, other: Any) -> CheckedDict:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return CheckedDict, (self._where, self._kind, dict(self))


def _read_dict(where: str, item: str, value: Any) -> CheckedDict:
    if not is_a(value, Mapping):
        raise ArgumentTypeError(f"{where} is not a dict, got {shown(value)}, expected a dict with str keys")
    return CheckedDict(where, item, value)


def _read_list(where: str, item: str, value: Any) -> list[Any]:
    if isinstance(value, (str, bytes)) or not is_a(value, Iterable):
        raise ArgumentTypeError(f"{where} is not a list, got {shown(value)}, expected a list of {item}")
    option, _, name = where.partition(": ")
    return [read_value(f"{where}[{i}]", item, each) for i, each in enumerate(read_items(option, name, value))]


def _read_set(where: str, item: str, value: Any) -> set[Any]:
    if isinstance(value, (str, bytes)) or not is_a(value, Iterable):
        raise ArgumentTypeError(f"{where} is not a set, got {shown(value)}, expected a set of {item}")
    return set(_read_list(where, item, value))


def _read_partials(where: str, value: Any) -> str:
    """Type of partial results of matrix products."""
    text = read_text(where, value)
    if text.lower() not in ("", "float", "half"):
        raise AttributeValueError(
            f"{where}: unknown type of partials, got {shown(text)}, expected 'float', 'half' or ''"
        )
    return text


def _read_object(where: str, kind: str, value: Any) -> Any:
    cls = class_of(kind)
    if kind in SETTINGS:
        return cls.read(where, value)
    if not is_a(value, cls) and hasattr(cls, "__members__"):
        *members, last = cls.__members__
        raise ArgumentTypeError(
            f"{where} is not a member of popart.{kind}, got {shown(value)}, expected {', '.join(members)} or {last}"
        )
    return read_a(where, value, cls)


_SIMPLE: dict[str, Callable[[str, Any], Any]] = {
    "bool": read_bool,
    "float": read_number,
    "int": read_int,
    "int from 0": lambda where, value: read_int(where, value, 0, _MAX_COUNT),
    "int from 1": lambda where, value: read_int(where, value, 1, _MAX_COUNT),
    "str": read_text,
    "partials": _read_partials,
}
_BUILTIN: dict[str, Callable[[Any], Any]] = {"list": list, "set": set}
_CONTAINERS: dict[str, Callable[[str, str, Any], Any]] = {
    "dict": _read_dict,
    "list": _read_list,
    "set": _read_set,
}
