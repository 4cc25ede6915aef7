"""Streams between host and device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeVar

from popsr import dtypes
from popsr._args import read_choice, read_dtype, read_name, read_shape
from popsr._handles import Handle
from popsr._transaction import transactional
from popsr.context import _context
from popsr.errors import UnsupportedError
from popsr.tensor import TensorSpec

if TYPE_CHECKING:
    from popsr.ir import Ir

__all__ = ["DeviceToHostStream", "HostToDeviceStream", "Stream", "d2h_stream", "h2d_stream"]


class Stream(Handle):
    """A stream; made by ``h2d_stream`` and ``d2h_stream``."""

    __slots__ = ("_broadcast", "_dtype", "_id", "_ir", "_name", "_shape")

    _ir: Ir
    _id: int
    _name: str
    _dtype: dtypes.dtype
    _shape: tuple[int, ...]
    _broadcast: bool

    def __init__(self) -> None:
        raise UnsupportedError(f"{type(self).__name__}: cannot be constructed, use h2d_stream or d2h_stream")

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what one replica loads or stores at once."""
        return self._shape

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(self._shape, self._dtype)

    @property
    def tensor_id(self) -> str:
        """Name of the stream."""
        return self._name

    @property
    def replicated_stream_mode(self) -> Literal["replicate", "broadcast"]:
        """Does each replica have its own data, or do all share one element?"""
        return "broadcast" if self._broadcast else "replicate"

    def __hash__(self) -> int:
        return hash((self._ir.id, self._id))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self._name} {self._dtype} {self._shape}]"


class HostToDeviceStream(Stream):
    """Data that the program loads from the host."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self._name}: {self._dtype.name}{list(self._shape)} from host to device"


class DeviceToHostStream(Stream):
    """Data that the program stores to the host."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self._name}: {self._dtype.name}{list(self._shape)} from device to host"


S = TypeVar("S", bound=Stream)


@transactional
def _make(
    cls: type[S], where: str, shape: Iterable[int], dtype: dtypes.dtype, name: str | None, broadcast: bool
) -> S:
    ir = _context.graph_of(where).ir
    stream = cls.__new__(cls)
    stream._ir, stream._broadcast = ir, broadcast
    stream._shape, stream._dtype = read_shape(where, shape), read_dtype(where, dtype)
    scoped = _context.scoped(read_name(where, name))
    to_device = issubclass(cls, HostToDeviceStream)
    stream._id = ir._core.add_stream(scoped, stream._dtype.name, list(stream._shape), to_device, broadcast)
    stream._name = ir._core.stream(stream._id)[0]
    ir._stream_cache[stream._id] = stream
    return stream


def h2d_stream(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    *,
    replicated_stream_mode: Literal["replicate", "broadcast"] = "replicate",
) -> HostToDeviceStream:
    """A stream from the host to the device.

    Args:
        shape: shape of what one replica loads at once.
        dtype: element type.
        name: its name. Default: "t".
        replicated_stream_mode: "replicate": each replica has its own data; "broadcast": one element for all
            replicas, and the host's data has no replica dimension.
    """
    mode = read_choice(
        "h2d_stream", "replicated_stream_mode", replicated_stream_mode, ("replicate", "broadcast")
    )
    return _make(HostToDeviceStream, "h2d_stream", shape, dtype, name, mode == "broadcast")


def d2h_stream(shape: Iterable[int], dtype: dtypes.dtype, name: str | None = None) -> DeviceToHostStream:
    """A stream from the device to the host.

    Args:
        shape: shape of what one replica stores at once.
        dtype: element type.
        name: its name. Default: "t".
    """
    return _make(DeviceToHostStream, "d2h_stream", shape, dtype, name, False)
