"""Streams with names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

from popsr._program.building.transaction import transactional
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, Stream, d2h_stream, h2d_stream
from popsr._support.host.arguments import integer_of, is_a, read_dtype, read_ints, read_shape
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.utils import OrderedDict
from popsr.errors import (
    ArgumentTypeError,
    AttributeAccessError,
    AttributeValueError,
    OutOfRangeError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from popsr.dtypes import dtype

__all__ = ["InputStreams", "OutputStreams"]

S = TypeVar("S", bound=Stream)


@public
class _StreamsBase(Generic[S]):
    """By name or position: ``streams.x``, ``streams["x"]``, ``streams[0]``, ``streams[1:]``; iterable."""

    _cls: ClassVar[type[Stream]]
    _new: ClassVar[Callable[..., Any]]
    _streams: OrderedDict[str, S]

    @transactional
    def __init__(self, **kwargs: tuple[Iterable[int], dtype]) -> None:
        """Make a stream of the current Ir for each keyword, named as it.

        Args:
            **kwargs: shape and dtype of each.
        Raises:
            ArgumentTypeError, ShapeError, DTypeError: not a pair of both; no stream is made then.
        """
        specs = {key: self._read(key, value) for key, value in kwargs.items()}
        self._streams = OrderedDict((key, self._new(*spec, key)) for key, spec in specs.items())

    @classmethod
    def _read(cls, key: str, value: Any) -> tuple[tuple[int, ...], dtype]:
        where = f"{cls.__name__}: {key}"
        if not isinstance(value, tuple) or len(value) != 2:
            raise ArgumentTypeError(
                f"{where}: not a shape and a dtype, got {shown(value)}, expected a tuple of both"
            )
        return read_shape(where, value[0]), read_dtype(where, value[1])

    @classmethod
    def from_streams(cls, streams: Iterable[S]) -> Self:
        """Streams that exist, by their ``tensor_id``.

        Args:
            streams: the streams, in order.
        Raises:
            ArgumentTypeError: something else than streams of that direction.
            AttributeValueError: two of one name.
        """
        where = f"{cls.__name__}.from_streams"
        found: OrderedDict[str, S] = OrderedDict()
        for stream in read_ints(where, "streams", streams, kind="streams"):
            if not is_a(stream, cls._cls):
                raise ArgumentTypeError(f"{where}: not a {cls._cls.__name__}, got {shown(stream)}")
            if stream.tensor_id in found:
                raise AttributeValueError(
                    f"{where}: two streams of one name, got {shown(stream.tensor_id)} twice, expected a name for each"
                )
            found[stream.tensor_id] = stream
        self = cls()
        self._streams = found
        return self

    def keys(self) -> list[str]:
        """Names, in order."""
        return list(self._streams)

    def __getattr__(self, key: str) -> S:
        streams: dict[str, S] = self.__dict__.get("_streams", {})  # copies are looked at before they have any
        if key in streams:
            return streams[key]
        raise AttributeAccessError(
            f"{type(self).__name__}: no such stream, got {shown(key)}, expected one of {list(streams)}"
        )

    @overload
    def __getitem__(self, key: str | int) -> S: ...
    @overload
    def __getitem__(self, key: slice) -> list[S]: ...
    def __getitem__(self, key: str | int | slice) -> S | list[S]:
        """The stream of a name or position, or the streams of a slice of positions.

        Raises:
            UnknownNameError: no such name; it is a KeyError.
            OutOfRangeError: no such position; it is an IndexError.
        """
        if isinstance(key, slice):
            return list(self)[key]
        if isinstance(key, str):
            if key in self._streams:
                return self._streams[key]
            raise UnknownNameError(
                f"{type(self).__name__}: no such stream, got {shown(key)}, expected one of {self.keys()}"
            )
        position = integer_of(key)
        if position is None or not -len(self) <= position < len(self):
            raise OutOfRangeError(
                f"{type(self).__name__}: no such position, got {shown(key)}, expected {-len(self)} <= position "
                f"< {len(self)}"
            )
        return self._streams.idx(position)

    def __iter__(self) -> Iterator[S]:
        return iter(self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, value: object) -> bool:
        return value in self._streams if isinstance(value, str) else value in self._streams.values()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._streams!r})"


class InputStreams(_StreamsBase[HostToDeviceStream]):
    """Host-to-device streams with names: ``InputStreams(x=((2, 4), popsr.float32))``.

    Args:
        **kwargs: shape and dtype of each, as for ``popsr.h2d_stream``.
    """

    _cls = HostToDeviceStream
    _new = staticmethod(h2d_stream)


class OutputStreams(_StreamsBase[DeviceToHostStream]):
    """Device-to-host streams with names: ``OutputStreams(loss=((), popsr.float32))``.

    Args:
        **kwargs: shape and dtype of each, as for ``popsr.d2h_stream``.
    """

    _cls = DeviceToHostStream
    _new = staticmethod(d2h_stream)
