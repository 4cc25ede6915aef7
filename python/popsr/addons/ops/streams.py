"""A stream and the op that uses it, in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_dtype
from popsr._support.host.types import HostTensor
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.utils import to_numpy

__all__ = ["host_load", "host_store"]


@public
@transactional
def host_load(
    t: HostTensor, dtype: dtypes.dtype, name: str
) -> tuple[np.ndarray[Any, Any], HostToDeviceStream, Tensor]:
    """Load data through a new stream of its shape.

    Args:
        t: what one replica loads at once: an array or what becomes one.
        dtype: element type.
        name: the stream is called ``<name>_stream``.
    Returns:
        The data as array of ``dtype``, the stream, and the tensor that is loaded, of the shape of the data.
    Raises:
        ArgumentTypeError: ``name`` is not a str.
        DTypeError: ``dtype`` is none, or the data is not numeric.
    """
    if not is_a(name, str):
        raise ArgumentTypeError(f"host_load: name is not a str, got {shown(name)}")
    data = to_numpy(t, read_dtype("host_load", dtype))
    stream = h2d_stream(data.shape, dtype, f"{name}_stream")
    return data, stream, ops.host_load(stream, name)


@public
@transactional
def host_store(t: Tensor) -> DeviceToHostStream:
    """Store a tensor through a new stream called ``<its name>_stream``.

    Args:
        t: any shape and dtype.
    Returns:
        The stream, of the tensor's shape and dtype.
    Raises:
        ArgumentTypeError: ``t`` is not a Tensor.
    """
    if not is_a(t, Tensor):
        raise ArgumentTypeError(f"host_store: t is not a Tensor, got {shown(t)}")
    stream = d2h_stream(t.shape, t.dtype, f"{t.name}_stream")
    ops.host_store(stream, t)
    return stream
