"""Memory beside the device that keeps a number of equally shaped values on each replica."""

from __future__ import annotations

import math
from collections.abc import Iterable

from popsr import dtypes
from popsr._program.building.transaction import transactional
from popsr._program.handles import Handle, Program
from popsr._program.state import _context
from popsr._program.tensor_handle import TensorHandle
from popsr._support.host.arguments import read_dtype, read_int, read_shape
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, Error, ShapeError

__all__ = ["RemoteBuffer", "remote_buffer"]

_MAX_ENTRIES = 2**31 - 1


@public
class RemoteBuffer(Handle):
    """A remote buffer of the current Ir: ``entries`` values, other ones on each replica.

    Entries are zeros until something is stored or a remote variable is placed there. Ops reach them through
    ``ops.remote_load``, ``ops.remote_load_`` and ``ops.remote_store``, which run in program order.

    Args:
        tensor_shape: shape of one entry on one replica.
        tensor_dtype: element type.
        entries: how many entries.
    Raises:
        AttributeValueError: ``entries`` is not a positive integer.
    """

    _known = ("_program", "_dtype", "_shape")

    _ir: Program

    def __init__(self, tensor_shape: Iterable[int], tensor_dtype: dtypes.dtype, entries: int) -> None:
        """Make a buffer in the current Ir."""
        self._program = _context.graph_of("remote_buffer")._ir
        self._shape = read_shape("remote_buffer", tensor_shape)
        self._dtype = read_dtype("remote_buffer", tensor_dtype)
        self._id: int
        self._hash: int
        self._make(_read_entries(entries))

    @transactional
    def _make(self, entries: int) -> None:
        ir = self._ir
        self._id = ir._core.add_remote_buffer(self._dtype.name, list(self._shape), entries, [])
        self._hash = hash((ir.id, self._id))
        ir._remote_cache[self._id] = self

    @property
    def remote_buffer_id(self) -> int:
        """Number of the buffer in its Ir, from 1."""
        return self._live()._id + 1

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of one entry on one replica."""
        return self._live()._shape

    @property
    def tensor_dtype(self) -> dtypes.dtype:
        """Element type."""
        return self._live()._dtype

    @property
    def entries(self) -> int:
        """Number of entries. Settable to more."""
        return self._ir._core.remote_buffer(self._id).entries

    @entries.setter
    def entries(self, value: int) -> None:
        self._ir._core.grow_remote_buffer(self._id, _read_entries(value))

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Shape of the tensors whose shards the entries are; empty when they are not shards. Settable."""
        return self._ir._core.remote_buffer(self._id).meta_shape

    @meta_shape.setter
    def meta_shape(self, value: Iterable[int]) -> None:
        self._ir._core.set_meta_shape(self._id, list(read_shape("remote_buffer", value)))

    def set_remote_buffer_info(
        self, tensor_dtype: dtypes.dtype, tensor_shape: Iterable[int], entries: int
    ) -> None:
        """Check that dtype and shape are the buffer's, and grow it to ``entries``.

        Raises:
            ShapeError: another dtype or shape.
            AttributeValueError: fewer entries than before.
        """
        shape, dtype = read_shape("remote_buffer", tensor_shape), read_dtype("remote_buffer", tensor_dtype)
        if (shape, dtype) != (self.tensor_shape, self.tensor_dtype):
            raise ShapeError(
                f"remote_buffer: buffer {self.remote_buffer_id} is of another type, got {dtype.name}{list(shape)}, "
                f"expected {self._dtype.name}{list(self._shape)}"
            )
        self.entries = entries

    def validate_tensor_matches_buffer(self, t: TensorHandle, num_shards: int = 1) -> None:
        """Check that a tensor, or each of its shards, is like an entry.

        Args:
            t: the tensor.
            num_shards: how many equal parts of the flattened tensor become entries.
        Raises:
            ShapeError: its dtype or shape is another.
        """
        if not isinstance(t, TensorHandle):
            raise ArgumentTypeError(f"remote_buffer: not a Tensor, got {shown(t)}")
        shards = read_int("remote_buffer: num_shards", num_shards, 1)
        shape = t.shape if shards == 1 else (-(-math.prod(t.shape) // shards),)
        if (shape, t.dtype) != (self.tensor_shape, self.tensor_dtype):
            raise ShapeError(
                f"Tensor {t.id} does not match buffer. got {t.dtype.name}{list(shape)}, expected "
                f"{self._dtype.name}{list(self._shape)} of remote buffer {self.remote_buffer_id}"
            )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other

    def _text(self) -> str:
        return f"RemoteBuffer[id={self.remote_buffer_id} {self._dtype.name} {self._shape} entries={self.entries}]"


@public_call
def remote_buffer(tensor_shape: Iterable[int], tensor_dtype: dtypes.dtype, entries: int = 1) -> RemoteBuffer:
    """A remote buffer in the current Ir.

    Args:
        tensor_shape: shape of one entry on one replica.
        tensor_dtype: element type.
        entries: how many entries.
    Raises:
        AttributeValueError: ``entries`` is not a positive integer.
    """
    return RemoteBuffer(tensor_shape, tensor_dtype, entries)


def _read_entries(value: int) -> int:
    try:
        return read_int("remote_buffer: entries", value, 1, _MAX_ENTRIES)
    except Error:
        raise AttributeValueError(
            f"remote_buffer: Entries must be a non-zero, positive integer, got {shown(value)}, expected 1 to "
            f"{_MAX_ENTRIES}"
        ) from None
