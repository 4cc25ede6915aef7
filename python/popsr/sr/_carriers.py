"""``cast`` from and to carriers: formats that are stored and not computed with."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.arguments import require_memory
from popsr._support.host.carriers import decode_carrier, encode_carrier
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, DTypeError
from popsr.sr._call import Source, check_format, read_source, writable
from popsr.sr._formats import CARRIERS, FORMATS, Format
from popsr.sr._kinds import Array

__all__ = ["cast_carrier", "may_be_carrier"]

_FLOAT32 = FORMATS["float32"]


def may_be_carrier(x: Any) -> bool:
    """True for arrays of carriers, and objects that have to be read before their dtype is known."""
    own = getattr(x, "dtype", None)
    if own is None:
        return hasattr(type(x), "__dlpack__") or hasattr(type(x), "__array__")
    name = own.name if isinstance(own, np.dtype) else str(own).removeprefix("torch.")
    return name.removesuffix("_x2") in CARRIERS


def cast_carrier(source: Source, to: Format, mode: str, out: Any) -> Any:
    """The cast of an array, when one of the two formats is a carrier.

    Raises:
        DTypeError: the other one is not float32.
        AttributeValueError: a carrier is not rounded to nearest.
    """
    if _FLOAT32 not in (source.form, to):
        carrier = to if to.is_carrier else source.form
        raise DTypeError(
            f"cast: {carrier.name} is cast to and from float32 alone, got {source.form.name} to {to.name}, expected "
            "a cast to float32 first"
        )
    if to.is_carrier and mode != "rn":
        raise AttributeValueError(
            f"cast: {to.name} is rounded to nearest alone, got mode {shown(mode)}, expected mode='rn'"
        )
    require_memory("cast", source.array.size * to.itemsize)
    result = _converted(source, to)
    if out is None:
        return source.wrap(result, to)
    target = read_source("cast", "out", out, to if to.is_carrier else None, carriers=True)
    check_format("cast", target, to)
    writable("cast", target, result.shape)
    target.array[...] = result
    target.mark_written()
    return target.value


def _converted(source: Source, to: Format) -> Array:
    """The result in the carrier dtype of its format, in C order."""
    if to.is_carrier:
        kind = dtypes.dtype.from_name(to.name)
        return np.ascontiguousarray(encode_carrier(source.array, kind).view(to.carrier)).reshape(
            source.array.shape
        )
    return np.ascontiguousarray(decode_carrier(source.array.view(source.form.numpy))).reshape(
        source.array.shape
    )
