"""Streams between host and device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from popsr import dtypes
from popsr._program.building.location import current_location
from popsr._program.building.transaction import transactional
from popsr._program.handles import Handle, Program, is_retired
from popsr._program.state import _context
from popsr._program.tensor_spec import TensorSpec
from popsr._support.host.arguments import is_a, read_choice, read_dtype, read_name, read_shape
from popsr._support.host.float8 import FLOAT8
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, DTypeError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["DeviceToHostStream", "HostToDeviceStream", "Stream", "d2h_stream", "h2d_stream"]

StreamMode = Literal["replicate", "broadcast", "equal"]
"""Rows of the host's data that have a name; a ReplicaGrouping is the mode of a row for each of its groups."""

_ROUNDED = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


@public
class Stream(Handle):
    """A stream; made by ``h2d_stream`` and ``d2h_stream``."""

    __slots__ = ("_downcast", "_dtype", "_hash", "_id", "_mode", "_name", "_program", "_shape", "_was")

    _known = ("_program", "_dtype", "_shape", "_mode", "_downcast")

    _ir: Program
    _id: int
    _name: str
    _dtype: dtypes.dtype
    _shape: tuple[int, ...]
    _mode: StreamMode | ReplicaGrouping
    _downcast: bool
    _hash: int

    def __init__(self) -> None:
        raise UnsupportedError(f"{type(self).__name__}: cannot be constructed, use h2d_stream or d2h_stream")

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return self._live()._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what one replica loads or stores at once."""
        return self._live()._shape

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(self.shape, self.dtype)

    @property
    def tensor_id(self) -> str:
        """Name of the stream."""
        return self._live()._name

    @property
    def replicated_stream_mode(self) -> StreamMode | ReplicaGrouping:
        """As given to ``h2d_stream`` or ``d2h_stream``."""
        return self._live()._mode

    @property
    def num_rows(self) -> int:
        """Rows of the host's data for one transfer: one for each replica or group, one for a broadcast stream."""
        mode = self.replicated_stream_mode
        if isinstance(mode, ReplicaGrouping):
            return mode.num_groups
        return 1 if mode == "broadcast" else self._ir._core.replication

    @property
    def location(self) -> str:
        """``file:line`` in the user's program where it was made."""
        return self._ir._core.location_of_stream(self._id)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        return repr(self) if is_retired(self) else self._sentence()

    def _sentence(self) -> str:
        return repr(self)

    def _text(self) -> str:
        return f"{type(self).__name__}[{self._name} {self._dtype} {self._shape}]"


class HostToDeviceStream(Stream):
    """Data that the program loads from the host."""

    __slots__ = ()

    @property
    def downcast_inputs(self) -> bool:
        """True if the host's data may be floats of a wider type, which are rounded once, to nearest."""
        return self._live()._downcast

    def _sentence(self) -> str:
        rounded = ", wider floats rounded" if self._downcast else ""
        return f"{self._name}: {self._dtype.name}{list(self._shape)} from host to device{rounded}"

    def _text(self) -> str:
        rounded = " downcast_inputs" if self._downcast else ""
        return f"{type(self).__name__}[{self._name} {self._dtype} {self._shape}{rounded}]"


class DeviceToHostStream(Stream):
    """Data that the program stores to the host."""

    __slots__ = ()

    def _sentence(self) -> str:
        return f"{self._name}: {self._dtype.name}{list(self._shape)} from device to host"


S = TypeVar("S", bound=Stream)


@transactional
def _make(
    cls: type[S],
    where: str,
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None,
    mode: StreamMode | ReplicaGrouping = "replicate",
    downcast: bool = False,
) -> S:
    ir = _context.graph_of(where)._ir
    stream = cls.__new__(cls)
    stream._program, stream._mode, stream._downcast = ir, mode, downcast
    stream._shape, stream._dtype = read_shape(where, shape), read_dtype(where, dtype)
    if downcast and stream._dtype not in _ROUNDED:
        hint = (
            ": float8 needs a scale, see fp8_utils.host_pow2scale_cast_to_fp8"
            if stream._dtype in FLOAT8
            else ""
        )
        raise DTypeError(
            f"{where}: downcast_inputs rounds floats to narrower ones, got {stream._dtype.name}, expected one of "
            f"{', '.join(each.name for each in _ROUNDED)}{hint}"
        )
    scoped = _context.scoped(read_name(where, name))
    to_device = issubclass(cls, HostToDeviceStream)
    groups = mode if isinstance(mode, ReplicaGrouping) else None
    kind = "groups" if isinstance(mode, ReplicaGrouping) else mode
    stream._id = ir._core.add_stream(
        scoped, stream._dtype.name, list(stream._shape), to_device, kind, groups, current_location(ir)
    )
    stream._name = ir._core.stream(stream._id).name
    stream._hash = hash((ir.id, stream._id))
    ir._stream_cache[stream._id] = stream
    return stream


@public_call
def h2d_stream(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    *,
    replicated_stream_mode: StreamMode | ReplicaGrouping = "replicate",
    downcast_inputs: bool = False,
) -> HostToDeviceStream:
    """A stream from the host to the device.

    Args:
        shape: shape of what one replica loads at once.
        dtype: element type.
        name: its name. Default: "t".
        replicated_stream_mode: "replicate": each replica has its own data; "broadcast": one element for all
            replicas, and the host's data has no replica dimension; "equal": the host's data has a row for each replica,
            and the rows are compared when they are fed. A row that differs is a ``ReplicaError`` before anything runs.
            A ``ReplicaGrouping``: the host's data has a row for each group, in the order of the groups, which all
            replicas of the group load; with one group it has no such dimension.
        downcast_inputs: the host's data may be float64 or float32 that is wider than ``dtype``, one of float32,
            float16 and bfloat16: it is rounded once, to nearest even, straight from what it is. Integers are not
            narrowed.
    Raises:
        DTypeError: ``downcast_inputs`` for another dtype; float8 needs a scale.
        ReplicaError: a grouping of another number of replicas than the program's.
    """
    where = "h2d_stream"
    mode = _read_mode(where, replicated_stream_mode, ("replicate", "broadcast", "equal"))
    if not is_a(downcast_inputs, bool):
        raise ArgumentTypeError(f"{where}: downcast_inputs is not a bool, got {shown(downcast_inputs)}")
    return _make(HostToDeviceStream, where, shape, dtype, name, mode, downcast_inputs)


@public_call
def d2h_stream(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    *,
    replicated_stream_mode: Literal["replicate"] | ReplicaGrouping = "replicate",
) -> DeviceToHostStream:
    """A stream from the device to the host.

    Args:
        shape: shape of what one replica stores at once.
        dtype: element type.
        name: its name. Default: "t".
        replicated_stream_mode: "replicate": the host gets a row for each replica. A ``ReplicaGrouping``: a row for each
            group, in the order of the groups: the value of its smallest replica that stores one; with one group there
            is no such dimension. Lint L3 names stores of values that are not proved equal in each group.
    Raises:
        ReplicaError: a grouping of another number of replicas than the program's.
    """
    where = "d2h_stream"
    mode = _read_mode(where, replicated_stream_mode, ("replicate",))
    return _make(DeviceToHostStream, where, shape, dtype, name, mode)


def _read_mode(where: str, value: Any, modes: tuple[str, ...]) -> Any:
    if isinstance(value, ReplicaGrouping):
        return value
    return read_choice(where, "replicated_stream_mode", value, modes, ", or a ReplicaGrouping")
