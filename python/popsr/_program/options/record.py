"""Objects whose attributes are rows of the table of session options."""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from popsr._support.lazy import LazyModule
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_name

if TYPE_CHECKING:
    from popsr._program.options import kinds
    from popsr._program.options.table import Row
else:
    kinds = LazyModule("popsr._program.options.kinds")

__all__ = ["Record", "Table"]


class Table(NamedTuple):
    """Rows, in order; rows by every name that they have; defaults that cannot change, by key."""

    rows: tuple[Row, ...]
    by_name: Mapping[str, Row]
    constants: Mapping[str, Any]


@public
class Record:
    """Attributes by a table: checked when set, recorded, and read back; the table's default when not set."""

    __slots__ = ("_values",)

    _where: ClassVar[str]
    """Name of the object, for messages."""
    _values: dict[str, Any]

    def __init__(self) -> None:
        """All defaults."""
        object.__setattr__(self, "_values", {})

    @classmethod
    def _table(cls) -> Table:
        """The table; read when an attribute is first used, so that importing popsr does not read it."""
        raise NotImplementedError

    def _row(self, name: str) -> Row:
        row = self._table().by_name.get(name)
        if row is None:
            raise self._unknown(name)
        return row

    def _unknown(self, name: str) -> Exception:
        return unknown_name(self._where, "attribute", name, self._table().by_name)

    def _get_attribute(self, name: str) -> Any:
        values = self._values
        if name in values:
            return values[name]
        constants = self._table().constants
        if name in constants:
            return constants[name]
        row = self._row(name)
        if row.key not in values:
            default = self._default(row)
            if not isinstance(default, (Record, dict, list, set)):
                return default
            values[row.key] = default  # what the program changes in it is recorded
        return values[row.key]

    def _set_attribute(self, name: str, value: Any) -> None:
        row = self._row(name)
        self._values[row.key] = self._read(row, value)

    if not TYPE_CHECKING:  # type checkers know the attributes of Options by name
        __getattr__ = _get_attribute
        __setattr__ = _set_attribute

    def _default(self, row: Row) -> Any:
        """Value of an attribute that was not set."""
        return kinds.default_of(f"{self._where}: {row.key}", row.kind, row.default)

    def _read(self, row: Row, value: Any) -> Any:
        """A value for an attribute, checked."""
        return kinds.read_value(f"{self._where}: {row.key}", row.kind, value)

    def _set_rows(self) -> Iterator[Row]:
        """The rows that the program set, in the table's order: settings and containers when they hold anything."""
        for row in self._table().rows:
            if row.key in self._values and self._is_set(row, self._values[row.key]):
                yield row

    def _is_set(self, row: Row, value: Any) -> bool:
        if isinstance(value, Record):
            return any(True for _ in value._set_rows())
        return not isinstance(value, (dict, list, set)) or value != self._default(row)

    def _check(self) -> None:
        """Check lists and sets again, which the program may have changed in place."""
        for row in self._table().rows:
            value = self._values.get(row.key)
            if isinstance(value, Record):
                value._check()
            elif isinstance(value, (list, set)):
                self._read(row, value)

    def _shown_rows(self) -> Iterable[Row]:
        """The rows that texts show."""
        return self._set_rows()

    def __repr__(self) -> str:
        rows = ((row.key, getattr(self, row.key)) for row in self._shown_rows())
        return f"{type(self).__name__}({', '.join(f'{name}={_text(value)}' for name, value in rows)})"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._table().by_name]

    def __reduce__(self) -> Any:
        """Copies have settings of their own."""
        return _restored, (type(self), copy.deepcopy(self._values))


def _text(value: Any) -> str:
    return str(value) if isinstance(value, enum.Enum) else repr(value)


def _restored(cls: type[Record], values: dict[str, Any]) -> Record:
    record = cls()
    for key, value in values.items():
        setattr(record, key, value)
    return record
