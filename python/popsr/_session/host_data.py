"""Checks and conversions of what users hand to a session."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from popsr import dtypes, sr
from popsr._program.building.location import short_place
from popsr._program.ir import Ir
from popsr._program.streams import HostToDeviceStream, Stream
from popsr._program.tensor import Tensor, Variable
from popsr._session.rows import Array, host_array, keeps_all_replicas
from popsr._support.host.carriers import CARRIERS
from popsr._support.host.float8 import FLOAT8
from popsr._support.host.interface import is_plain_dlpack
from popsr._support.host.overlap import first_overlap, overlaps_itself
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, DTypeError, SessionError, ShapeError, UnsupportedError
from popsr.utils import as_array, check_range, downcast_np_dtypes, host_data


class StreamPlan:
    """Shape and dtype of the host's data of one stream."""

    __slots__ = ("name", "numpy", "prefix", "replicas", "rows", "shape", "stream", "to_device", "transfers")

    def __init__(self, ir: Ir, stream: Stream, rows: Sequence[int]) -> None:
        """Plan a stream of a session; ``rows``: the rows that this process gives or gets."""
        self.stream: Any = stream
        self.name = stream.tensor_id
        self.to_device = isinstance(stream, HostToDeviceStream)
        self.numpy = stream.dtype.as_numpy()
        self.transfers = ir.num_host_transfers
        self.rows = rows
        self.replicas = len(rows)
        self.prefix = tuple(extent for extent in (self.transfers, self.replicas) if extent > 1)
        self.shape = (*self.prefix, *stream.shape)

    @property
    def made(self) -> str:
        """Location of the stream, as the end of a message."""
        return f"; made at {self.stream.location or '?'}"

    def misfit(self, shape: tuple[int, ...]) -> str:
        """Name, shape given, shape expected and what that is made of."""
        parts = []
        mode = self.stream.replicated_stream_mode
        if self.transfers > 1:
            parts.append(f"{self.transfers} transfers (ir.num_host_transfers)")
        if self.replicas > 1:
            of = "replicas" if isinstance(mode, str) else "groups"
            parts.append(f"{self.replicas} {of}")
        elif not isinstance(mode, str):
            parts.append("one group")
        elif mode == "broadcast":
            parts.append("one for all replicas (broadcast)")
        made_of = ", ".join([*parts, f"the stream's {self.stream.shape}"])
        return f"{shown(self.name)}, got {shape}, expected {self.shape}: {made_of}{self.made}"

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """True for the full shape. More rows than transfers are fine; one element may have any rank."""
        prefix, rest = shape[: len(self.prefix)], shape[len(self.prefix) :]
        if len(prefix) < len(self.prefix):
            return False
        if self.transfers > 1:
            if prefix[0] < self.transfers or prefix[1:] != self.prefix[1:]:
                return False
        elif prefix != self.prefix:
            return False
        wanted: tuple[int, ...] = self.stream.shape
        return rest == wanted or all(extent == 1 for extent in (*rest, *wanted))


def check_keys(where: str, what: str, given: Mapping[Any, Any], expected: Iterable[StreamPlan]) -> None:
    """Raise SessionError unless the keys are exactly the streams in use."""
    plans = list(expected)
    streams = [plan.stream for plan in plans]
    for key in given:
        if isinstance(key, str):
            raise SessionError(_name_as_key(where, what, key, plans))
    missing = [plan.stream for plan in plans if plan.stream not in given]
    known = set(streams)
    unexpected = [key for key in given if key not in known]
    if missing or unexpected:
        raise SessionError(
            f"{where}: {what} do not match the streams in use, got unexpected {_listed(unexpected)} and missing "
            f"{_listed(missing)}, expected {_listed(streams)}"
        )


def _name_as_key(where: str, what: str, key: str, plans: list[StreamPlan]) -> str:
    """A stream was meant: one of that name, or perhaps of one like it."""
    by_name = {plan.name: plan.stream for plan in plans}
    expected = f"one of {_listed(by_name.values())}"
    close = difflib.get_close_matches(key, by_name, n=1)
    if key in by_name:
        expected = f"the stream {_key_text(by_name[key])} itself"
    elif close:
        expected += f"; did you mean the stream {_key_text(by_name[close[0]])}?"
    return f"{where}: keys of {what} are streams, not names, got {shown(key)}, expected {expected}"


def _listed(streams: Iterable[Any]) -> str:
    """Streams with the places where they were made, the first few; other keys as they are."""
    texts = [_key_text(each) for each in streams]
    more = f", … {len(texts) - 4} more" if len(texts) > 4 else ""
    return f"[{', '.join(texts[:4])}{more}]"


def _key_text(key: Any) -> str:
    if not isinstance(key, Stream):
        return shown(key)
    return f"{shown(key.tensor_id)} made at {short_place(key.location)}"


def input_array(plan: StreamPlan, data: Any, downcast: bool) -> Array:
    """The data of a host-to-device stream, checked."""
    where = f"run: stream {plan.name!r}"
    if plan.stream._downcast:
        data = _rounded(where, plan, data)
    # Python numbers have no type of their own: they take the stream's unless that loses their kind.
    data = _named_bits(plan.stream.dtype, data)
    untyped = not hasattr(data, "dtype")
    narrow = downcast and not untyped and not _is_of(plan, data)
    array = host_data(where, data, None, narrow, copy=False)
    if array.dtype != plan.numpy:
        if not untyped or not _keeps_kind(array.dtype, plan.stream.dtype):
            kind = downcast_np_dtypes.get(array.dtype, array.dtype) if downcast else array.dtype
            given = getattr(data, "dtype", kind)
            raise DTypeError(
                f"run: dtypes differ for stream {shown(plan.name)}, got {given}, expected {plan.stream.dtype.name}: "
                f"{_dtype_hint(plan, kind, is_torch=str(given).startswith('torch.'))}{plan.made}"
            )
        check_range(where, array, plan.stream.dtype)
        array = host_data(where, array, plan.stream.dtype)
    if not plan.accepts(array.shape):
        raise ShapeError(f"run: shapes differ for stream {plan.misfit(array.shape)}")
    return array


def _named_bits(dtype: dtypes.dtype, data: Any) -> Any:
    """Data of an object that only has ``__array_interface__`` or ``__dlpack__``; other data as it is."""
    if type(data) is np.ndarray or not (is_plain_dlpack(data) or hasattr(data, "__array_interface__")):
        return data
    return as_array("run", data, dtype)


def _is_of(plan: StreamPlan, data: Any) -> bool:
    """True if the data has the stream's dtype, which 64-bit types keep; torch's dtypes are known by their names."""
    dtype = getattr(data, "dtype", None)
    return dtype == plan.numpy or str(dtype) == f"torch.{plan.stream.dtype.name}"


def _rounded(where: str, plan: StreamPlan, data: Any) -> Any:
    """Floats that are wider than the stream's rounded to it, once; other data as it is."""
    array = as_array(where, data)
    if array.dtype.name not in ("float64", "float32") or array.dtype.itemsize <= plan.numpy.itemsize:
        return data
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return sr.cast(
        native, plan.numpy, key=sr.Key(0), mode="rn"
    )  # a key that rounding to nearest does not use


def _dtype_hint(plan: StreamPlan, given: np.dtype[Any], *, is_torch: bool) -> str:
    """Conversion that makes data of that dtype fit."""
    name = plan.stream.dtype.name
    if plan.stream.dtype in CARRIERS:
        return f"{name} is cast to and from float32 alone, convert with .astype('{name}') of float32"
    if plan.stream.dtype in FLOAT8:
        return "float8 needs a scale, convert with fp8_utils.host_pow2scale_cast_to_fp8"
    wider = given.kind == "f" and plan.stream.dtype.is_floating_point and given.itemsize > plan.numpy.itemsize
    convert = f"convert with .to(torch.{name})" if is_torch else f"convert with .astype('{name}')"
    return f"make it with h2d_stream(..., downcast_inputs=True) to round, or {convert}" if wider else convert


def _keeps_kind(numpy_type: np.dtype[Any], target: dtypes.dtype) -> bool:
    if numpy_type.kind == "b":
        return target.name == "bool"
    if target in FLOAT8:
        return False  # numbers need a scale
    if target in CARRIERS:
        return True  # numbers of Python
    return target.is_floating_point or (numpy_type.kind in "iu" and target.is_int)


def output_array(plan: StreamPlan, array: Any) -> Array:
    """The caller's array of a device-to-host stream, checked; a copy when it is not C-contiguous."""
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(
            f"run_with_outputs: not an array for stream {shown(plan.name)}, got {type(array).__name__}, expected a "
            f"NumPy array{plan.made}"
        )
    if dtypes.dtype._of_numpy(array.dtype) is not plan.stream.dtype or not array.dtype.isnative:
        raise DTypeError(
            f"run_with_outputs: dtypes differ for stream {shown(plan.name)}, got {array.dtype}, expected "
            f"{plan.stream.dtype.name}{plan.made}"
        )
    if not plan.accepts(array.shape):
        raise ShapeError(f"run_with_outputs: shapes differ for stream {plan.misfit(array.shape)}")
    if not array.flags.writeable:
        raise SessionError(
            f"run_with_outputs: array of stream {shown(plan.name)} is read-only, expected a writable one{plan.made}"
        )
    return array if array.flags.c_contiguous else np.array(array, order="C")


def check_outputs(outputs: Mapping[Stream, Array]) -> None:
    """Raise SessionError unless every element of the caller's arrays has memory of its own."""
    streams, arrays = list(outputs), list(outputs.values())
    for stream, array in outputs.items():
        if overlaps_itself(array):
            raise SessionError(
                f"run_with_outputs: elements of the array of stream '{stream.tensor_id}' overlap each other, "
                f"got strides {array.strides} for shape {array.shape}, expected memory of its own for each"
            )
    pair = first_overlap(arrays)
    if pair is not None:
        one, other = (streams[i].tensor_id for i in pair)
        raise SessionError(
            f"run_with_outputs: the arrays of streams '{one}' and '{other}' overlap, got memory in common, "
            "expected memory of its own for each"
        )


def unshared(plans: Iterable[StreamPlan], arrays: list[Array]) -> list[Array]:
    """The arrays of the streams, inputs copied where a run might write an output before it has read them."""
    to_device = [plan.to_device for plan in plans]
    outputs = [array for array, is_input in zip(arrays, to_device, strict=True) if not is_input]
    return [
        array.copy() if is_input and any(np.may_share_memory(array, out) for out in outputs) else array
        for array, is_input in zip(arrays, to_device, strict=True)
    ]


def constant_data(tensor: Tensor) -> Array:
    """A copy of the data of a constant."""
    data = tensor._ir._core.tensor_data(tensor._id)
    assert data is not None
    return host_array(data, tensor.dtype.name, tensor.shape).copy()


def require_variable(where: str, tensor: object) -> None:
    """Raise ArgumentTypeError unless it is a variable."""
    if not isinstance(tensor, Variable):
        raise ArgumentTypeError(
            f"{where}: Tensor {shown(tensor.id if isinstance(tensor, Tensor) else tensor)} is not of type Variable"
        )


def variable_data(tensor: Variable, data: Any) -> Array:
    """New data of a variable, checked; it may be the caller's."""
    where = "write_variable_data"
    require_variable(where, tensor)
    if keeps_all_replicas(tensor):
        raise UnsupportedError(
            f"{where}: '{tensor.id}' keeps all replicas, expected a variable with one per group"
        )
    # Numbers and lists take the variable's dtype, but float8, which needs a scale.
    data = _named_bits(tensor.dtype, data)
    typed = hasattr(data, "dtype") or tensor.dtype in FLOAT8
    array = host_data(
        f"{where} {tensor.id!r}", data, None if typed else tensor.dtype, downcast=False, copy=False
    )
    if array.dtype != tensor.dtype.as_numpy():
        raise DTypeError(
            f"{where}: dtypes differ for '{tensor.id}', got {array.dtype}, expected {tensor.dtype.name}"
        )
    if array.shape != tensor.shape_on_host:
        raise ShapeError(
            f"{where}: shapes differ for '{tensor.id}', got {array.shape}, expected {tensor.shape_on_host}"
        )
    return array
