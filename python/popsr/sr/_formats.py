"""The float formats of ``popsr.sr``, and what users call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from popsr import _core, dtypes
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, DTypeError

__all__ = ["CARRIERS", "FORMATS", "Format", "format_of", "read_format"]


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """A float format.

    Attributes:
        name: as NumPy, ml_dtypes, torch and the core spell it.
        numpy: dtype of arrays that users see.
        carrier: dtype of arrays that the core sees: unsigned integers where NumPy has no type of its own.
        raw: unsigned integers of the same size, which users may pass with ``dtype=``.
        index: what the core calls it; -1 of carriers, which ``cast`` alone takes.
    """

    name: str
    numpy: np.dtype[Any]
    carrier: np.dtype[Any]
    raw: np.dtype[Any]
    index: int

    @property
    def is_carrier(self) -> bool:
        """True if there is no arithmetic."""
        return self.index < 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.numpy.itemsize


def _make(name: str, index: int) -> Format:
    foreign = getattr(ml_dtypes, name, None)
    numpy_type = np.dtype(foreign or name)
    raw = np.dtype(f"u{numpy_type.itemsize}")
    _core.sr.register_dtype(numpy_type, index)
    return Format(name, numpy_type, raw if foreign else numpy_type, raw, index)


FORMATS = {name: _make(name, index) for index, name in enumerate(_core.sr.FORMATS)}
CARRIERS = {
    kind.name: Format(kind.name, kind.as_numpy(), np.dtype(np.uint8), np.dtype(np.uint8), -1)
    for kind in dtypes.dtype._all.values()
    if kind._is_carrier
}
_BY_NUMPY = {form.numpy: form for form in (*FORMATS.values(), *CARRIERS.values())}
_ALIASES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
} | {name.removeprefix("float8_"): name for name in FORMATS if name.startswith("float8_")}

format_of = _BY_NUMPY.get
"""The format of arrays of a dtype, in the machine's byte order; None: it is not a format."""


def read_format(op: str, dtype: Any, *, carriers: bool = False) -> Format:
    """The format that a name, or a dtype of NumPy, ml_dtypes, torch, jax or popsr stands for.

    Raises:
        DTypeError: it stands for none.
        ArgumentTypeError: it is not a dtype at all.
    """
    name = _name_of(dtype)
    if name is None:
        raise ArgumentTypeError(f"{op}: dtype is not a dtype, got {shown(dtype)}, expected {_names()}")
    form = FORMATS.get(_ALIASES.get(name, name)) or (CARRIERS.get(name) if carriers else None)
    if form is None or (isinstance(dtype, np.dtype) and dtype != form.numpy):
        raise DTypeError(f"{op}: unknown dtype, got {shown(dtype)}, expected {_names()}")
    return form


def _name_of(dtype: Any) -> str | None:
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, np.dtype):
        return dtype.name
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.") if type(dtype).__name__ == "dtype" else None
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        return np.dtype(dtype).name
    # Python's float is a double, as everywhere in NumPy; jax.numpy.bfloat16 and popsr's dtypes know their own.
    if dtype is float:
        return "float64"
    if type(dtype).__module__ == "popsr.dtypes":
        return str(dtype.as_ml_dtypes().name)
    inner = getattr(dtype, "dtype", None)
    return inner.name if isinstance(inner, np.dtype) and not hasattr(dtype, "shape") else None


def _names() -> str:
    return f"one of {', '.join(FORMATS)}"
