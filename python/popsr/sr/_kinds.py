"""Arrays of users as NumPy arrays on the same memory, and results as the kind of array that came in.

A kind of array is three functions; ``kind_of`` finds the kind of an object. torch and jax are never imported here
before the user has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._support.host.carriers import FLOAT4, pack, unpack
from popsr._support.host.dlpack import read_dlpack
from popsr._support.host.interface import interface_bits
from popsr._support.text.shown import shown, type_name
from popsr.errors import ArgumentTypeError, DTypeError, Error, ShapeError, UnsupportedError
from popsr.sr._formats import CARRIERS, FORMATS, Format, format_of

__all__ = ["NUMPY", "SCALAR", "Array", "Kind", "kind_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A library's arrays.

    Attributes:
        name: of the library, for messages.
        view: (op, name of the argument, object) -> NumPy array on its memory, in its own dtype, and the format; the
            format of unsigned integers is None.
        wrap: array in a carrier dtype, and its format (None: unsigned integers as they are) -> object.
        mutable: may such an object be ``out``?
        written: tells an object that its memory was written, where it has to know.
    """

    name: str
    view: Callable[[str, str, Any], tuple[Array, Format | None]]
    wrap: Callable[[Array, Format | None], Any]
    mutable: bool = True
    written: Callable[[Any], None] | None = None


# NumPy, and everything that it can read


def _view_numpy(op: str, name: str, value: Any) -> tuple[Array, Format | None]:
    array: Array = value if type(value) is np.ndarray else _as_numpy(op, name, value)
    form = format_of(array.dtype)
    if form is not None:
        return (array if form.carrier is form.numpy else array.view(form.carrier)), form
    if array.dtype.kind == "u" and array.dtype.itemsize <= 2 and array.dtype.isnative:
        return array, None
    raise DTypeError(
        f"{op}: {name} has no supported dtype, got {array.dtype}, expected one of {', '.join(FORMATS)}"
        " in the machine's byte order, or uint16 or uint8 with dtype="
    )


def _as_numpy(op: str, name: str, value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{op}: {name} is a masked array, expected a plain one")
    try:
        bits = interface_bits(value)
        if bits is not None:
            return bits
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return read_dlpack(op, name, value)
        return np.asarray(memoryview(value))
    except Error:
        raise
    except Exception as error:  # also of its own __array__
        reason = str(error).partition("\n")[0][:120]
        raise ArgumentTypeError(f"{op}: {name} is not an array, got {type_name(value)}: {reason}") from None


def _wrap_numpy(array: Array, form: Format | None) -> Array:
    return array if form is None or form.carrier is form.numpy else array.view(form.numpy)


NUMPY = Kind("numpy", _view_numpy, _wrap_numpy)

# Numbers


def _view_scalar(op: str, name: str, value: Any) -> tuple[Array, Format | None]:
    if isinstance(value, int):
        number = float(value) if abs(value) < 2**1023 else float("inf")
        if number != value:
            raise DTypeError(
                f"{op}: {name} is not a float64, got {shown(value)}, expected an exactly representable one"
            )
        value = number
    return _view_numpy(op, name, np.asarray(value))


def _wrap_scalar(array: Array, form: Format | None) -> Any:
    return _wrap_numpy(array, form)[()]


SCALAR = Kind("scalar", _view_scalar, _wrap_scalar, mutable=False)

# Torch

_PAIRS = f"{FLOAT4.name}_x2"


def _view_torch(op: str, name: str, value: Any) -> tuple[Array, Format | None]:
    torch = sys.modules["torch"]
    if value.device.type != "cpu" or value.layout != torch.strided:
        raise UnsupportedError(
            f"{op}: {name} is not a dense tensor on the CPU, got device {value.device} and {value.layout}"
        )
    if value.is_neg() or value.is_conj():
        raise UnsupportedError(f"{op}: {name} is a lazily negated view, expected resolve_neg() of it")
    library_name = str(value.dtype).removeprefix("torch.")
    if library_name == _PAIRS:
        return _unpaired(value.detach()), CARRIERS[FLOAT4.name]
    form = FORMATS.get(library_name) or CARRIERS.get(library_name)
    if form is None:
        if value.dtype in (torch.uint8, getattr(torch, "uint16", None)):
            return value.detach().numpy(), None
        raise DTypeError(
            f"{op}: {name} has no supported dtype, got {value.dtype}, expected one of {', '.join(FORMATS)},"
            " or uint16 or uint8 with dtype="
        )
    plain = value.detach()
    if form.carrier is form.numpy:
        return plain.numpy(), form
    # torch hands no bfloat16 or float8 to NumPy: the same memory as integers.
    integers = plain.view(torch.int16 if form.itemsize == 2 else torch.uint8)
    return integers.numpy().view(form.carrier), form


def _unpaired(value: Any) -> Array:
    """A read-only copy of pairs of 4-bit floats, one a byte."""
    pairs: Array = value.contiguous().view(sys.modules["torch"].uint8).numpy()
    codes = unpack(pairs, (*pairs.shape[:-1], 2 * pairs.shape[-1]) if pairs.ndim else (2,)).view(np.uint8)
    codes.flags.writeable = False
    return codes


def _paired(array: Array) -> Array:
    if not array.ndim or array.shape[-1] % 2:
        raise ShapeError(
            f"cast: torch has pairs of {FLOAT4}, got shape {array.shape}, expected an even last extent"
        )
    return pack(array).reshape(*array.shape[:-1], array.shape[-1] // 2)


def _wrap_torch(array: Array, form: Format | None) -> Any:
    torch = sys.modules["torch"]
    if form is None or form.carrier is form.numpy:
        return torch.from_numpy(array)
    if form.numpy == FLOAT4:
        return torch.from_numpy(_paired(array)).view(getattr(torch, _PAIRS))
    integers = torch.from_numpy(array.view(np.int16) if form.itemsize == 2 else array)
    return integers.view(getattr(torch, form.name))


def _written_torch(value: Any) -> None:
    """Autograd must see that a tensor which it saved has changed."""
    graph = sys.modules["torch"].autograd.graph
    if hasattr(graph, "increment_version") and not value.is_inference():
        graph.increment_version(value)


TORCH = Kind("torch", _view_torch, _wrap_torch, written=_written_torch)

# Jax


def _wrap_jax(array: Array, form: Format | None) -> Any:
    import jax

    return jax.device_put(_wrap_numpy(array, form))


JAX = Kind("jax", _view_numpy, _wrap_jax, mutable=False)


def kind_of(op: str, name: str, value: Any) -> Kind:
    """The kind of an object.

    Raises:
        ArgumentTypeError: it is none.
    """
    if type(value) is np.ndarray:
        return NUMPY
    library = type(value).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return TORCH
    if library in ("jax", "jaxlib"):
        return JAX
    if isinstance(value, (np.generic, float, int)) and not isinstance(value, bool):
        return SCALAR
    if isinstance(value, (list, tuple, str, dict, bool)) or value is None:
        raise ArgumentTypeError(f"{op}: {name} is not an array, got {type(value).__name__}")
    if library == "popsr" and hasattr(value, "shape"):
        raise ArgumentTypeError(
            f"{op}: {name} is a tensor of a program and has no data, got {shown(value)}, expected an array"
        )
    return NUMPY
