"""Objects that only have ``__array_interface__`` or ``__dlpack__``."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

__all__ = ["interface_bits", "is_plain_dlpack"]

_TYPE = re.compile(r"([<|=>]?)[A-Za-z]([12])")
_OTHER_WAYS = ("__array__", "__array_interface__", "__array_struct__", "__len__", "__buffer__")


def is_plain_dlpack(x: Any) -> bool:
    """True for an object that NumPy can read by DLPack alone, and a capsule of DLPack."""
    kind = type(x)
    if kind.__name__ == "PyCapsule":
        return True
    return hasattr(kind, "__dlpack__") and not any(hasattr(kind, name) for name in _OTHER_WAYS)


class _Integers:
    """The memory of another object as integers."""

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def interface_bits(x: Any) -> Array | None:
    """The memory of an object with ``__array_interface__`` alone, whose type NumPy does not have, as integers.

    Returns:
        None for other objects, and where elements have neither one nor two bytes in the machine's order.
    """
    if hasattr(type(x), "__array__"):
        return None
    interface = getattr(x, "__array_interface__", None)
    if not isinstance(interface, dict):
        return None
    text = interface.get("typestr")
    named = _TYPE.fullmatch(text) if isinstance(text, str) else None
    if named is None or named[1] == ">":
        return None
    try:
        known = np.dtype(text).kind != "V"
    except TypeError:
        known = False
    if known:
        return None
    patched = {key: value for key, value in interface.items() if key != "descr"}
    return np.asarray(_Integers(x, {**patched, "typestr": f"<u{named[2]}"}))
