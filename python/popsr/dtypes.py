"""Element types, under PopXL's names.

This module defines ``bool`` and ``float``: import the module, not its names.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np

from popsr import _core
from popsr._support.host.frameworks import not_installed
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.suggestions import unknown_attribute
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError

__all__ = [
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "double",
    "dtype",
    "float",
    "float4_e2m1fn",
    "float8_143",
    "float8_152",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "np_dtype_float8_143",
    "np_dtype_float8_152",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class FloatFormat(NamedTuple):
    """Format of a float. A code is the bits of a value without its sign."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    """Of the greatest finite number."""
    inf_code: int
    """``nan_code`` where the format has no infinity."""
    nan_code: int
    negative_zero: builtins.bool
    greatest: builtins.float


_ROWS = _core.dtypes()


@public
class dtype:  # noqa: N801 - PopXL's spelling
    """An element type. Not constructible: use the instances of this module."""

    __slots__ = ("_format", "_kind", "_name", "_numpy", "_plain")

    _all: ClassVar[dict[str, dtype]] = {}  # that tensors can have
    _named: ClassVar[dict[str, dtype]] = {}  # and the complex ones
    _by_numpy: ClassVar[dict[np.dtype[Any], dtype]] = {}

    _name: str
    _numpy: np.dtype[Any]
    _plain: np.dtype[Any]  # the same, with arithmetic
    _kind: str  # one of "biufc", as in NumPy
    _format: FloatFormat | None  # of floats

    def __init__(self) -> None:
        raise ArgumentTypeError(
            "dtype: cannot be constructed, use the instances of popsr.dtypes or dtype.as_dtype()"
        )

    @classmethod
    def _make(cls, name: str) -> dtype:
        """The type of a row of the core's table, or a complex one."""
        self = cls.__new__(cls)
        row: Any = _ROWS.get(name, {"array": name, "format": None})
        self._plain = np.dtype(getattr(ml_dtypes, row["array"], row["array"]))
        # Under a name of PopXL's own, host data are bits in a structure.
        self._numpy = self._plain if row["array"] == name else np.dtype([(name, f"u{row['size']}")])
        self._name = name
        self._format = None if row["format"] is None else FloatFormat(**row["format"])
        self._kind = "f" if self._format or self._is_carrier else self._plain.kind
        cls._named[name] = self
        cls._by_numpy[self._numpy] = cls._by_numpy[self._plain] = self
        if name in _ROWS:
            cls._all[name] = self
        return self

    @classmethod
    def _of_numpy(cls, numpy_type: np.dtype[Any]) -> dtype | None:
        """The type of arrays of a NumPy type of any byte order."""
        return cls._by_numpy.get(numpy_type) or cls._named.get(numpy_type.name)

    @property
    def name(self) -> str:
        """Name, as PopXL and NumPy spell it."""
        return self._name

    @property
    def is_complex(self) -> builtins.bool:
        """True for complex64 and complex128, which no tensor can have."""
        return self._kind == "c"

    @property
    def is_int(self) -> builtins.bool:
        """True for signed and unsigned integers."""
        return self._kind in "iu"

    @property
    def is_floating_point(self) -> builtins.bool:
        """True for floats of any width."""
        return self._kind == "f"

    @property
    def is_signed(self) -> builtins.bool:
        """True for signed integers, floats and complex numbers."""
        return self._kind in "ifc"

    @classmethod
    def from_name(cls, name: Any) -> dtype:
        """The type of that name.

        Raises:
            ValueError: there is none.
        """
        known = name if isinstance(name, str) else ""
        found = cls._named.get(_ALIASES.get(known, known))
        if found is None:
            raise AttributeValueError(
                f"from_name: unknown dtype, got {shown(name)}, expected one of {', '.join(cls._named)}"
            )
        return found

    @classmethod
    def as_dtype(cls, type_value: Any) -> dtype:
        """The type that a name, a Python, NumPy or torch type, or an object with a ``dtype`` stands for.

        Python's ``float`` is float32, as in PopXL, and its ``int`` NumPy's int64.

        Raises:
            ValueError: it stands for no type of popsr.
        """
        value = type_value
        if not isinstance(value, (dtype, type, str, np.dtype)) and not _is_of_torch(value):
            value = _own_dtype(value)
        if isinstance(value, dtype):
            return value
        if value is builtins.float:
            return cls._named["float32"]
        if isinstance(value, str):
            return cls.from_name(value)
        if _is_of_torch(value):
            return cls.from_name(str(value).removeprefix("torch."))
        try:
            found = None if value is None else cls._of_numpy(np.dtype(value))
        except Exception:  # NumPy's, or of its own attributes
            found = None
        if found is None:
            raise AttributeValueError(
                f"as_dtype: no such dtype, got {shown(type_value)}, expected one of {', '.join(cls._named)}"
            )
        return found

    @property
    def _is_foreign(self) -> builtins.bool:
        """True if NumPy itself has no such type: it is one of ml_dtypes."""
        return self._plain.type.__module__ == "ml_dtypes"

    @property
    def _is_carrier(self) -> builtins.bool:
        """True for floats of ml_dtypes that are stored, moved and cast, and not computed with."""
        return self._is_foreign and self._format is None

    def as_numpy(self) -> np.dtype[Any]:
        """The NumPy type of host data (bfloat16: ml_dtypes'; float8: bits in a structure)."""
        return self._numpy

    def as_ml_dtypes(self) -> np.dtype[Any]:
        """The NumPy type with arithmetic: ml_dtypes' for bfloat16 and float8, else ``as_numpy()``.

        Both have the same bits: ``array.view(popsr.float8_143.as_ml_dtypes()).astype(np.float32)`` are the numbers of
        what ``session.get_tensor_data`` returns.
        """
        return self._plain

    def as_torch(self) -> Any:
        """The torch type; imports torch.

        Raises:
            MissingPackageError: torch is not installed.
            TypeError: the installed torch has none.
        """
        try:
            import torch
        except ImportError as error:
            raise not_installed("as_torch", "torch") from error

        found = getattr(torch, self._plain.name, None)
        if found is None:
            raise DTypeError(
                f"as_torch: torch has no such dtype, got {shown(self)}, expected one that it has"
            )
        return found

    def __repr__(self) -> str:
        return f"popsr.dtypes.{self._name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (dtype.from_name, (self._name,))


def _is_of_torch(value: Any) -> builtins.bool:
    return type(value).__module__ == "torch" and type(value).__name__ == "dtype"


def _own_dtype(value: Any) -> Any:
    """The ``dtype`` of an array; what is not an array itself."""
    try:
        found = getattr(value, "dtype", None)
    except Exception:  # of a property
        return None
    return value if found is None else found


_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bool_": "bool",
    "float4_e2m1fn_x2": "float4_e2m1fn",  # torch's pairs
} | {row["array"]: name for name, row in _ROWS.items() if row["array"] != name}

bool = dtype._make("bool")
int8 = dtype._make("int8")
int16 = dtype._make("int16")
int32 = dtype._make("int32")
int64 = dtype._make("int64")
uint8 = dtype._make("uint8")
uint16 = dtype._make("uint16")
uint32 = dtype._make("uint32")
uint64 = dtype._make("uint64")
float16 = dtype._make("float16")
bfloat16 = dtype._make("bfloat16")
float32 = dtype._make("float32")
float64 = dtype._make("float64")
float8_143 = dtype._make("float8_143")
float8_152 = dtype._make("float8_152")
float8_e4m3fn = dtype._make("float8_e4m3fn")
float8_e5m2 = dtype._make("float8_e5m2")
float8_e8m0fnu = dtype._make("float8_e8m0fnu")
float4_e2m1fn = dtype._make("float4_e2m1fn")
np_dtype_float8_143 = float8_143.as_numpy()
"""Host data of ``float8_143``, as in PopXL: ``data["float8_143"]`` are the bits, and
``data.view(ml_dtypes.float8_e4m3fnuz)`` are numbers."""
np_dtype_float8_152 = float8_152.as_numpy()
"""Host data of ``float8_152``; its numbers are ``ml_dtypes.float8_e5m2fnuz``'s."""
complex64 = dtype._make("complex64")
complex128 = dtype._make("complex128")
half = float16
float = float32
double = float64

# PopXL's tables, which programs read: by NumPy's type, and by the text of torch's.
_NP_TO_POPXL: dict[np.dtype[Any], dtype] = {each.as_numpy(): each for each in dtype._named.values()}
_PT_TO_POPXL: dict[str, dtype] = {
    f"torch.{name}": dtype._named[name]
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64"),
        *("complex64", "complex128"),
    )
}

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
