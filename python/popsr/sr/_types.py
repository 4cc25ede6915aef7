"""Types of ``popsr.sr`` for type checkers: what its functions take, and which result follows from it.

Libraries are told apart by methods that only their arrays have, so that these types are as good where torch and jax
are not installed. ``Mode`` and ``Overflow`` are also the tables that calls are checked against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypeAlias, TypedDict, TypeVar

import numpy as np

from popsr import _core
from popsr._support.host.types import SupportsArray

if TYPE_CHECKING:
    import array

__all__ = [
    "AnyArray",
    "D",
    "FormatLike",
    "G",
    "Key",
    "LibraryArray",
    "M",
    "Memory",
    "Mode",
    "NewArrayOptions",
    "Operand",
    "OtherArray",
    "Out",
    "Overflow",
    "R",
    "Rounding",
    "RoundingOptions",
    "TracedOptions",
    "W",
]

Key = _core.sr.Key

D = TypeVar("D", bound=np.dtype[Any])
G = TypeVar("G", bound=np.generic)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Overflow = Literal["ieee", "saturate"]
"""Overflow rules."""

# fmt: off
Mode = Literal[
    "sr", "sr_equal", "rn", "ru", "rd", "rz",
    "sr_bits=1", "sr_bits=2", "sr_bits=3", "sr_bits=4", "sr_bits=5", "sr_bits=6", "sr_bits=7", "sr_bits=8",
    "sr_bits=9", "sr_bits=10", "sr_bits=11", "sr_bits=12", "sr_bits=13", "sr_bits=14", "sr_bits=15", "sr_bits=16",
    "sr_bits=17", "sr_bits=18", "sr_bits=19", "sr_bits=20", "sr_bits=21", "sr_bits=22", "sr_bits=23", "sr_bits=24",
    "sr_bits=25", "sr_bits=26", "sr_bits=27", "sr_bits=28", "sr_bits=29", "sr_bits=30", "sr_bits=31", "sr_bits=32",
]
# fmt: on
"""Ways to round."""


class TorchArray(Protocol[R_co]):
    """``torch.Tensor``; of its subclasses, like parameters, results are plain tensors."""

    def cpu(self) -> R_co: ...


class CopiedArray(SupportsArray, Protocol[R_co]):
    """``jax.Array``, and the scalars of NumPy."""

    def copy(self) -> R_co: ...


class SupportsInterface(Protocol):
    """Objects that NumPy reads by their ``__array_interface__``."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class SupportsDLPack(Protocol):
    """Objects that NumPy reads by their ``__dlpack__``."""

    def __dlpack__(self) -> Any: ...


class SupportsBuffer(Protocol):
    """Objects with Python's buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class TorchDtype(Protocol):
    """``torch.dtype``."""

    @property
    def is_floating_point(self) -> bool: ...


class PopsrDtype(Protocol):
    """``popsr.dtype``."""

    def as_ml_dtypes(self) -> np.dtype[Any]: ...


class HasDtype(Protocol):
    """The dtypes of ``jax.numpy``."""

    @property
    def dtype(self) -> np.dtype[Any]: ...


AnyArray = np.ndarray[tuple[Any, ...], D]
"""An array of NumPy of some dtype, and of any shape."""

LibraryArray = TorchArray[R] | CopiedArray[R]
"""An array of a library whose results are of the type R."""

OtherArray = SupportsArray | SupportsInterface | SupportsDLPack | SupportsBuffer
"""An array whose library popsr does not know; results are arrays of NumPy."""

Operand = float | OtherArray
"""Whatever can be read."""

FormatLike = str | np.dtype[Any] | type[np.generic] | type[float] | TorchDtype | PopsrDtype | HasDtype
"""Names and dtypes of formats."""

Memory: TypeAlias = "np.ndarray[Any, Any] | TorchArray[Any] | memoryview | bytearray | array.array[Any]"
"""Types that can be written, unless read-only."""

Out = TypeVar("Out", bound=Memory)
W = TypeVar("W", bound=np.ndarray[Any, Any])
M = TypeVar("M", bound="TorchArray[Any] | memoryview | bytearray | array.array[Any]")


class Rounding(TypedDict, total=False):
    """The options of every function; see ``popsr.sr.add``."""

    key: Required[Key]
    mode: Mode
    overflow: Overflow
    offset: int
    num_threads: int | None


class RoundingOptions(Rounding, total=False):
    """The options of functions that take buffers of integers."""

    dtype: FormatLike | None


class NewArrayOptions(RoundingOptions, total=False):
    """The options of functions that make an array of the kind of the first operand."""

    out: None


class TracedOptions(TypedDict, total=False):
    """The options of functions that are traced."""

    key: Any
    mode: Mode
    overflow: Overflow
    offset: Any
