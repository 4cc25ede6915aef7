"""Arrays in and out by DLPack, of every dtype: NumPy itself exports and imports none of the narrow floats."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from popsr import _core, dtypes
from popsr._support.host.arguments import read_int
from popsr._support.host.carriers import FLOAT4, pack, packed_bytes, unpack
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown, type_name
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ShapeError, UnsupportedError

__all__ = ["DLPackArray", "from_dlpack", "read_dlpack", "to_dlpack"]

Array = np.ndarray[Any, Any]

_VERSION = (1, 1)
_CPU = (1, 0)
_CPU_DEVICES = {1: "cpu"}
_DEVICES = {2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda_managed"}
_READ_ONLY, _COPIED, _PADDED = 1, 2, 4  # flags
_FLOAT4_CODE = 17
_LANES = (1, 2)  # of float4 elements
_MAX_BYTES = 2**63 - 1

_CODES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, bits): np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    (6, 8): np.dtype(bool),
    (4, 16): dtypes.bfloat16.as_ml_dtypes(),
    (10, 8): dtypes.float8_e4m3fn.as_ml_dtypes(),
    (11, 8): dtypes.float8_143.as_ml_dtypes(),
    (12, 8): dtypes.float8_e5m2.as_ml_dtypes(),
    (13, 8): dtypes.float8_152.as_ml_dtypes(),
    (14, 8): dtypes.float8_e8m0fnu.as_ml_dtypes(),
    (_FLOAT4_CODE, 4): FLOAT4,
}
"""NumPy's or ml_dtypes' type by DLPack's code and bits."""
_CODE_OF = {numpy_type: code for code, numpy_type in _CODES.items()}


class _Facts(NamedTuple):
    """The contents of a capsule."""

    version: tuple[int, int] | None
    flags: int
    device: tuple[int, int]
    code: int
    bits: int
    lanes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    byte_offset: int
    address: int


# In


@public
def from_dlpack(x: Any) -> Array:
    """An array of NumPy on the memory of an object with ``__dlpack__``, of every dtype of popsr.

    Args:
        x: an array of any library on the CPU, or a capsule that nobody has read.
    Returns:
        Array on the same memory, with the types of ml_dtypes where NumPy has none. It is read-only where the object
        says so, or cannot say. Packed 4-bit floats become a read-only copy, one element per byte.
    Raises:
        ArgumentTypeError: not such an object, its ``__dlpack__`` fails, or the capsule was read before.
        DTypeError: elements that no dtype of popsr has.
        ShapeError: extents, strides or an address that cannot be.
        UnsupportedError: the memory is not the CPU's.
    Example:
        >>> popsr.from_dlpack(popsr.to_dlpack(np.array([1, 2], popsr.float8_e5m2.as_numpy())))
        array([1, 2], dtype='float8_e5m2')
    """
    return read_dlpack("from_dlpack", "x", x)


def read_dlpack(where: str, name: str, x: Any) -> Array:
    """``from_dlpack`` of the argument ``name`` of the caller ``where``, for messages."""
    capsule = x if type(x).__name__ == "PyCapsule" else _capsule_of(where, name, x)
    if type(capsule).__name__ != "PyCapsule":
        raise ArgumentTypeError(
            f"{where}: {name} is not an array, got {type_name(x)}, whose __dlpack__ gives {type_name(capsule)}, not a "
            "DLPack capsule"
        )
    try:
        core = _core.DLPackCapsule(capsule)
        facts = _Facts(**core.facts())
    except DTypeError as error:
        raise ArgumentTypeError(f"{where}: {name} is not an array, got {type_name(x)}: {error}") from None
    except ShapeError as error:
        raise ShapeError(f"{where}: {name} has no shape, got {type_name(x)}: {error}") from None
    return _Import(where, name, core, facts).array()


def _capsule_of(where: str, name: str, x: Any) -> Any:
    try:
        device = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else _CPU
        kind, number = int(device[0]), int(device[1])
    except Exception as error:  # of its own
        raise _failed(where, name, x, error) from None
    _check_device(where, name, (kind, number))
    try:
        try:
            return x.__dlpack__(max_version=_VERSION)
        except TypeError:  # of a library that knows no versions
            return x.__dlpack__()
    except Exception as error:
        raise _failed(where, name, x, error) from None


def _failed(where: str, name: str, x: Any, error: Exception) -> ArgumentTypeError:
    reason = str(error).partition("\n")[0][:120]
    return ArgumentTypeError(f"{where}: {name} is not an array, got {type_name(x)}: {reason}")


def _check_device(where: str, name: str, device: tuple[int, int]) -> None:
    if device[0] not in _CPU_DEVICES:
        found = _DEVICES.get(device[0], f"kind {device[0]}")
        raise UnsupportedError(
            f"{where}: {name} is not on the CPU, got DLPack device {found}:{device[1]}, expected cpu"
        )


class _Import:
    """A capsule that is checked before it is consumed: one that is refused is still its producer's."""

    def __init__(self, where: str, name: str, core: Any, facts: _Facts) -> None:
        self._where, self._name, self._core, self._facts = where, name, core, facts

    def array(self) -> Array:
        """The array."""
        facts = self._facts
        if facts.version is not None and facts.version[0] != _VERSION[0]:
            raise UnsupportedError(
                f"{self._where}: {self._name} has another version of DLPack, got "
                f"{facts.version[0]}.{facts.version[1]}, expected {_VERSION[0]}.x"
            )
        _check_device(self._where, self._name, facts.device)
        numpy_type = self._dtype()
        if any(extent < 0 for extent in facts.shape):
            raise self._bad(f"negative extents, got shape {facts.shape}")
        if numpy_type == FLOAT4 and not (facts.lanes == 1 and facts.flags & _PADDED):
            return self._packed()
        return self._take(numpy_type, facts.shape, self._strides())

    def _dtype(self) -> np.dtype[Any]:
        facts = self._facts
        found = _CODES.get((facts.code, facts.bits))
        if found is None or (facts.lanes not in _LANES if found == FLOAT4 else facts.lanes != 1):
            expected = ", ".join(dict.fromkeys(each.name for each in _CODES.values()))
            raise DTypeError(
                f"{self._where}: {self._name} has no supported dtype, got DLPack code {facts.code} of {facts.bits} "
                f"bits and {facts.lanes} lanes, expected one of {expected}"
            )
        return found

    def _strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        facts = self._facts
        if facts.strides is not None:
            return facts.strides
        strides, step = [], 1
        for extent in reversed(facts.shape):
            strides.append(step)
            step *= max(extent, 1)
        return tuple(reversed(strides))

    def _take(self, numpy_type: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        facts, size = self._facts, numpy_type.itemsize
        count = math.prod(shape)
        if count == 0:
            # No element is read, whatever the strides.
            strides = (0,) * len(shape)
        reach = sum(abs(stride) * (extent - 1) for stride, extent in zip(strides, shape, strict=True))
        if max(reach + 1, count) * size + facts.byte_offset + facts.address > _MAX_BYTES:
            raise self._bad(f"more bytes than there are addresses, got shape {shape} and strides {strides}")
        if facts.address == 0 and count:
            raise self._bad(f"no memory, got a null pointer for shape {shape}")
        writable = facts.version is not None and not facts.flags & _READ_ONLY
        carrier = numpy_type if numpy_type.isbuiltin == 1 else np.dtype(f"u{size}")
        steps = [stride * size for stride in strides]
        # An axis of one element has no step; NumPy computes with it all the same.
        steps = [0 if extent == 1 else step for extent, step in zip(shape, steps, strict=True)]
        try:
            array: Array = self._core.take(carrier, list(shape), steps, writable)
        except DTypeError as error:
            raise ArgumentTypeError(f"{self._where}: {self._name} is not an array: {error}") from None
        return array if carrier is numpy_type else array.view(numpy_type)

    def _packed(self) -> Array:
        """4-bit floats, two a byte: the last axis is packed if an element has two of them, else all of C order."""
        facts = self._facts
        if facts.lanes == 2:
            packed = self._take(np.dtype(np.uint8), facts.shape, self._strides())
            shape = (*facts.shape[:-1], 2 * facts.shape[-1]) if facts.shape else (2,)
        else:
            shape = facts.shape
            if facts.strides is not None and not _is_c_order(shape, facts.strides):
                raise UnsupportedError(
                    f"{self._where}: {self._name} is packed and strided, got strides {facts.strides} of 4-bit "
                    f"elements for shape {shape}, expected C order"
                )
            packed = self._take(np.dtype(np.uint8), (packed_bytes(math.prod(shape)),), (1,))
        array = unpack(packed, shape)
        array.flags.writeable = False
        return array

    def _bad(self, text: str) -> ShapeError:
        return ShapeError(f"{self._where}: {self._name} has {text}, expected memory of an array")


def _is_c_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 0:
            return True
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


# Out


@public
def to_dlpack(array: Array, *, lanes: int = 1) -> DLPackArray:
    """An object with ``__dlpack__`` on the memory of an array of NumPy, of every dtype of popsr.

    ``torch.from_dlpack(popsr.to_dlpack(x))`` and ``jax.dlpack.from_dlpack(popsr.to_dlpack(x))`` take bfloat16 and all
    float8 so, which NumPy's own ``x.__dlpack__()`` refuses.

    Args:
        array: of a dtype of popsr in the machine's byte order; float8 in a structure or of ml_dtypes. 4-bit floats are
            exported as a packed copy, two a byte.
        lanes: of 4-bit floats: 1, or 2 for an element that is a pair, which halves the last extent and is what torch's
            ``float4_e2m1fn_x2`` is.
    Returns:
        The object, which may be exported any number of times and keeps the array.
    Raises:
        ArgumentTypeError: not an array of NumPy.
        DTypeError: another dtype.
        AttributeValueError: ``lanes`` is not 1 or 2, or 2 of a dtype that is not of 4 bits.
        ShapeError: two lanes of an odd last extent.
    Example:
        >>> popsr.to_dlpack(np.ones(3, popsr.bfloat16.as_numpy()))
        DLPackArray[bfloat16[3]]
    """
    if not issubclass(type(array), np.ndarray):
        raise ArgumentTypeError(f"to_dlpack: not an array, got {shown(array)}, expected an array of NumPy")
    kind = dtypes.dtype._of_numpy(array.dtype)
    numpy_type = None if kind is None else kind.as_ml_dtypes()
    if numpy_type is None or numpy_type not in _CODE_OF or not array.dtype.isnative:
        expected = ", ".join(each.name for each in _CODE_OF)
        raise DTypeError(f"to_dlpack: no supported dtype, got {array.dtype}, expected one of {expected}")
    lanes = read_int("to_dlpack: lanes", lanes, 1, 2)
    if lanes != 1 and numpy_type != FLOAT4:
        raise AttributeValueError(
            f"to_dlpack: wrong lanes, got {shown(lanes)} for {numpy_type}, expected 1, or 2 for {FLOAT4}"
        )
    if lanes == 2 and (not array.ndim or array.shape[-1] % 2):
        raise ShapeError(
            f"to_dlpack: pairs of an odd last extent, got shape {array.shape}, expected an even one or lanes=1"
        )
    return DLPackArray(array, numpy_type, lanes)


class DLPackArray:
    """An array of NumPy for other libraries' ``from_dlpack``; see :func:`popsr.to_dlpack`."""

    __slots__ = ("_array", "_dtype", "_lanes")

    def __init__(self, array: Array, dtype: np.dtype[Any], lanes: int) -> None:
        """Use ``popsr.to_dlpack``."""
        self._array, self._dtype, self._lanes = array, dtype, lanes

    def __repr__(self) -> str:
        return f"DLPackArray[{self._dtype}{list(self._array.shape)}]"

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A new capsule.

        Args:
            stream: None: the CPU has no streams.
            max_version: the newest version that the caller reads. Default: the struct without a version.
            dl_device: None or the CPU.
            copy: True: always; False: never; None: where it must be.
        Raises:
            UnsupportedError: a stream, another device, or a copy that must be made and must not.
        """
        where = "__dlpack__"
        if stream is not None:
            raise UnsupportedError(f"{where}: the CPU has no streams, got {shown(stream)}, expected None")
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise UnsupportedError(
                f"{where}: wrong device, got {shown(dl_device)}, expected {_CPU}, the CPU's"
            )
        versioned = max_version is not None and max_version[0] >= _VERSION[0]
        array, bits = self._codes(), _CODE_OF[self._dtype]
        reason = self._copied_because(array, versioned)
        if copy is False and reason:
            raise UnsupportedError(
                f"{where}: a copy is needed, got copy=False for {reason}, expected copy=None"
            )
        copied = bool(copy) or bool(reason)
        if copied:
            array = np.array(array, order="C", copy=True)
        if self._dtype == FLOAT4:
            return self._packed(array, versioned)
        flags = (_COPIED if copied else 0) | (0 if array.flags.writeable else _READ_ONLY)
        return _core.make_dlpack(array, *bits, 1, flags if versioned else None)

    def _codes(self) -> Array:
        """The array, as integers where NumPy lacks its type."""
        plain = self._dtype.isbuiltin == 1
        return self._array if plain else self._array.view(np.dtype(f"u{self._dtype.itemsize}"))

    def _copied_because(self, array: Array, versioned: bool) -> str:
        if self._dtype == FLOAT4:
            return "elements of 4 bits, which are packed"
        if any(stride % array.itemsize for stride in array.strides):
            return f"strides {array.strides} that are not of whole elements"
        if not versioned and not array.flags.writeable:
            return "a read-only array, which a struct without a version cannot tell"
        return ""

    def _packed(self, codes: Array, versioned: bool) -> Any:
        packed, shape = pack(codes), codes.shape
        if self._lanes == 2:
            packed = packed.reshape(*shape[:-1], shape[-1] // 2)
            return _core.make_dlpack(packed, *_CODE_OF[FLOAT4], 2, _COPIED if versioned else None)
        return _core.make_dlpack(
            packed, *_CODE_OF[FLOAT4], 1, _COPIED if versioned else None, shape=list(shape)
        )
