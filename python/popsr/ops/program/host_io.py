"""Exchange with the host, and new tensors without operands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from popsr import dtypes
from popsr._program.building.emit import emit, emit_op
from popsr._program.context import _context
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, Stream
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_dtype, read_name, read_shape
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError, UnknownNameError
from popsr.ops._facts import public_op

__all__ = ["host_load", "host_store", "init", "print_tensor"]


FloatFormat = Literal["auto", "fixed", "scientific", "none"]
"""The format of floats in ``print_tensor``."""


def _stream_id(where: str, stream: Stream, cls: type[Stream]) -> int:
    if not isinstance(stream, cls):
        maker = "h2d_stream" if cls is HostToDeviceStream else "d2h_stream"
        raise ArgumentTypeError(
            f"{where}: not a {cls.__name__}, got {shown(stream)}, expected what popsr.{maker}(shape, dtype) returns"
        )
    if stream._ir is not _context.graph_of(where).ir:
        raise GraphError(
            f"{where}: stream of another Ir, got {shown(stream)}, expected one of the current Ir"
        )
    return stream._id


@public_op
def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """Load the next element of a stream.

    Args:
        h2d_stream: the stream.
        name: name of the tensor. Default: the stream's name with ``_load``.
    Returns:
        Tensor of the stream's shape and dtype.
    Raises:
        GraphError: the stream is of another Ir.
    Example:
        >>> ir = popsr.Ir()
        >>> with ir.main_graph:
        ...     given = popsr.h2d_stream((2,), popsr.float32)
        ...     doubled = popsr.d2h_stream((2,), popsr.float32)
        ...     ops.host_store(doubled, ops.host_load(given) * 2.0)
        >>> with popsr.Session(ir) as session:
        ...     results = session.run({given: np.array([1.0, 2.0], np.float32)})
        >>> results[doubled]
        array([2., 4.], dtype=float32)
    """
    id_ = _stream_id("host_load", h2d_stream, HostToDeviceStream)
    name = read_name("host_load", name, f"{h2d_stream.tensor_id.rpartition('/')[2]}_load")
    return emit_op("host_load", {}, {"h2d_stream": id_}, name=name)[1][0]


@public_op
def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """Store the next element of a stream.

    Args:
        d2h_stream: the stream.
        t: the value, of the stream's shape and dtype.
    Raises:
        ShapeError: the shape differs from the stream's.
        DTypeError: the dtype differs from the stream's.
        GraphError: the stream is of another Ir.
    Example:
        >>> ir = popsr.Ir()
        >>> with ir.main_graph:
        ...     given = popsr.h2d_stream((2,), popsr.float32)
        ...     doubled = popsr.d2h_stream((2,), popsr.float32)
        ...     ops.host_store(doubled, ops.host_load(given) * 2.0)
        >>> with popsr.Session(ir) as session:
        ...     results = session.run({given: np.array([1.0, 2.0], np.float32)})
        >>> results[doubled]
        array([2., 4.], dtype=float32)
    """
    id_ = _stream_id("host_store", d2h_stream, DeviceToHostStream)
    emit_op("host_store", {"t": t}, {"d2h_stream": id_})


@public_op
def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 75,
    digits: int = 8,
    float_format: FloatFormat = "auto",
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> Tensor:
    """Write a tensor to Python's ``sys.stderr`` each time that this point runs; changes no other result.

    Every replica that runs it writes a block of its own, in their order, followed by an empty line: also where they
    hold one value, so that the text does not depend on what others hold. With several replicas the title of a block
    ends in ``_replica_<number>``. The last dimension is a row on one line; other dimensions have a line for each
    bracket, and their parts are indented by one space. A scalar has no brackets.

    Args:
        t: the tensor, any dtype.
        title: text before it. Default: ``print_<name>``.
        print_self: print the tensor.
        print_gradient: print its gradient as ``<title>_gradient``, where ``autodiff`` makes one.
        summarise_threshold: a tensor of more elements is summarised: of each dimension longer than twice
            ``edge_items`` the middle is left out; 0 = never.
        edge_items: how many elements are shown at each end then.
        max_line_width: rows are broken where a line, with the title, would be longer; 0 = nowhere.
        digits: significant digits of floats (in fixed notation, of the greatest one). Elements are aligned. 0 = not
            aligned, and ``float_format`` is "none".
        float_format: "fixed", "scientific", the shortest text that gives the value back ("none", not aligned), or
            "auto": fixed where every element but 0 keeps at least half of its digits, else scientific.
        separator: character between elements.
        open_bracket: character that opens a dimension.
        close_bracket: character that closes a dimension.
    Returns:
        A copy of ``t``. Its gradient is the gradient of the copy.
    Raises:
        KeyError: unknown ``float_format``.
        ValueError: a separator or bracket that is not one character, or a negative number.
    Example:
        >>> evaluate(lambda t: ops.print_tensor(t, title="t"), [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    if is_a(float_format, str) and float_format not in get_args(FloatFormat):
        raise UnknownNameError(
            f"print_tensor: unknown float_format, got {shown(float_format)}, "
            f"expected one of {', '.join(map(repr, get_args(FloatFormat)))}"
        )
    if title is None:
        title = f"print_{t.name}" if is_a(t, Tensor) else "print"
    return emit(
        "print_tensor",
        {"t": t},
        title=title,
        print_self=print_self,
        print_gradient=print_gradient,
        summarise_threshold=summarise_threshold,
        edge_items=edge_items,
        max_line_width=max_line_width,
        digits=digits,
        float_format=float_format,
        separator=separator,
        open_bracket=open_bracket,
        close_bracket=close_bracket,
    )


@public_op
def init(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    init_type: Literal["zero", "undef"] = "zero",
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """A new tensor of the current graph.

    Args:
        shape: shape on one replica.
        dtype: element type.
        name: its name.
        init_type: "zero", or "undef" for contents that differ on every replica.
        meta_shape: shape before sharding, if it is a shard.
    Returns:
        Tensor of that shape and dtype.
    Raises:
        ValueError: a negative extent, or unknown ``init_type``.
    Example:
        >>> evaluate(lambda: ops.init((2,), popsr.float32, init_type="zero"))
        array([0., 0.], dtype=float32)
    """
    attrs = {
        "shape": read_shape("init", shape),
        "dtype": read_dtype("init", dtype).name,
        "init_type": init_type,
        "meta_shape": () if meta_shape is None else read_shape("init", meta_shape, "meta_shape"),
    }
    return emit_op("init", {}, attrs, name=None if name is None else read_name("init", name))[1][0]
