"""The element types, for parametrised tests."""

from __future__ import annotations

from popsr import dtypes
from popsr._support.text.entry_points import public

__all__ = ["get_all_dtypes", "get_all_int_dtypes"]


@public
def get_all_dtypes() -> list[dtypes.dtype]:
    """All types that can be named, the complex ones included."""
    return list(dtypes.dtype._named.values())


@public
def get_all_int_dtypes(include_signed: bool = True, include_unsigned: bool = True) -> list[dtypes.dtype]:
    """The integer types.

    Args:
        include_signed: with int8 to int64.
        include_unsigned: with uint8 to uint64.
    """
    wanted = {True: include_signed, False: include_unsigned}
    return [kind for kind in get_all_dtypes() if kind.is_int and wanted[kind.is_signed]]
