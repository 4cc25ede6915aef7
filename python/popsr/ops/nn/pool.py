"""Averages and maxima over windows, with the meaning of ONNX, and reductions of windows of any axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice, read_flag, read_ints
from popsr._support.text.entry_points import public
from popsr.ops._facts import public_op
from popsr.ops.nn.conv import PadType

__all__ = ["average_pool", "max_pool", "reduce_window"]

_PAD_TYPES = ("not_set", "same_upper", "same_lower", "valid")


@public
@dataclass(frozen=True)
class ReceptiveAttributes:
    """Layout of windows; None stands for the default of a number per dimension."""

    strides: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    out_pads: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    in_dilations: tuple[int, ...] | None
    auto_pad: PadType
    ceil_mode: bool

    def _as_attrs(self) -> dict[str, Any]:
        return {
            "stride": self.strides,
            "padding": self.pads,
            "out_pads": self.out_pads,
            "dilation": self.dilations,
            "in_dilations": self.in_dilations,
            "auto_pad": self.auto_pad,
            "ceil_mode": self.ceil_mode,
        }


def receptive_attributes(
    strides: Iterable[int] | None,
    pads: Iterable[int] | None,
    out_pads: Iterable[int] | None,
    dilations: Iterable[int] | None,
    in_dilations: Iterable[int] | None,
    auto_pad: PadType | None,
    ceil_mode: bool | None,
) -> ReceptiveAttributes:
    """The layout of windows in one object; parameters as in ``max_pool``.

    Args:
        strides: positions from one window to the next.
        pads: positions before and after the operand.
        out_pads: zeros before and after the result.
        dilations: positions from one element of a window to the next.
        in_dilations: positions from one element of the operand to the next.
        auto_pad: a rule that gives the padding.
        ceil_mode: keep a last window that is not full.
    Returns:
        The attributes, sequences as tuples.
    Raises:
        ArgumentTypeError: a sequence is none.
        AttributeValueError: the rule is unknown.
    """
    return _attributes(
        "receptive_attributes", strides, pads, out_pads, dilations, in_dilations, auto_pad, ceil_mode
    )


def _attributes(
    where: str,
    strides: Iterable[int] | None,
    pads: Iterable[int] | None,
    out_pads: Iterable[int] | None,
    dilations: Iterable[int] | None,
    in_dilations: Iterable[int] | None,
    auto_pad: PadType | None,
    ceil_mode: bool | None,
) -> ReceptiveAttributes:
    def ints(name: str, values: Iterable[int] | None) -> tuple[int, ...] | None:
        return None if values is None else read_ints(where, name, values)

    return ReceptiveAttributes(
        strides=ints("stride", strides),
        pads=ints("padding", pads),
        out_pads=ints("out_pads", out_pads),
        dilations=ints("dilation", dilations),
        in_dilations=ints("in_dilations", in_dilations),
        auto_pad="not_set" if auto_pad is None else read_choice(where, "auto_pad", auto_pad, _PAD_TYPES),
        ceil_mode=read_flag(f"{where}: ceil_mode", ceil_mode),
    )


@public_op
def average_pool(
    t: Tensor,
    kernel_size: Iterable[int],
    stride: Iterable[int] | None = None,
    padding: Iterable[int] | None = None,
    out_pads: Iterable[int] | None = None,
    dilation: Iterable[int] | None = None,
    in_dilations: Iterable[int] | None = None,
    auto_pad: PadType | None = "not_set",
    ceil_mode: bool = False,
) -> Tensor:
    """Averages of the elements that windows meet.

    Padding does not count: the sum, in C order, is divided by the number of elements of ``t`` in the window (ONNX:
    ``count_include_pad=0``), narrow floats as float32 that is rounded once. A window of padding alone gives 0.

    Args:
        t: the operand, shape ``[samples, channels, spatial...]`` with 1 to 3 spatial dimensions.
        kernel_size: elements of a window: a number per spatial dimension, as are ``stride``, ``dilation`` and
            ``in_dilations``.
        stride: positions from one window to the next. Default: 1.
        padding: positions before and after ``t``: all begins, then all ends. Default: 0.
        out_pads: zeros before and after the result: all begins, then all ends. Default: 0.
        dilation: positions from one element of a window to the next. Default: 1.
        in_dilations: positions from one element of ``t`` to the next; between them is padding. Default: 1.
        auto_pad: the rule of the padding. "not_set": ``padding``. The others ignore it: "same_upper", "same_lower": one
            window every ``stride`` positions, an odd rest of the padding after or before ``t``; "valid": none.
        ceil_mode: without ``auto_pad``, keep a last window that reaches beyond the padding but begins before it.
    Returns:
        Tensor of the dtype of ``t``, shape ``[samples, channels, windows...]``.
    Raises:
        ShapeError: ``t`` has another rank, or a window is larger than the padded operand.
        AttributeValueError: a sequence has another length, a number is out of range, or the rule is unknown.
        DTypeError: ``t`` is not floating.
    Source:
        ONNX: operator AveragePool.
    Example:
        >>> evaluate(ops.average_pool, [[[1.0, 3.0, 5.0, 9.0]]], kernel_size=(2,), stride=(2,), padding=(0, 0))
        array([[[2., 7.]]], dtype=float32)
    """
    given = _attributes(
        "average_pool", stride, padding, out_pads, dilation, in_dilations, auto_pad, ceil_mode
    )
    kernel = read_ints("average_pool", "kernel_size", kernel_size)
    return emit("average_pool", {"t": t}, kernel_size=kernel, **given._as_attrs())


@public_op
def max_pool(
    t: Tensor,
    kernel_size: Iterable[int],
    stride: Iterable[int] | None = None,
    padding: Iterable[int] | None = None,
    out_pads: Iterable[int] | None = None,
    dilation: Iterable[int] | None = None,
    in_dilations: Iterable[int] | None = None,
    auto_pad: PadType | None = "not_set",
    ceil_mode: bool = False,
    storage_order: Literal["row", "column"] = "row",
) -> Tensor:
    """Maxima of the elements that windows meet: NaN where a window meets one, +0 rather than -0.

    A window of padding alone gives -infinity. The gradient of a window goes to its first maximum in C order, which is
    the first NaN where there is one; an element adds the gradients of its windows in ascending order.

    Args:
        t: the operand, shape ``[samples, channels, spatial...]`` with 1 to 3 spatial dimensions.
        kernel_size: elements of a window, a number per spatial dimension.
        stride: as for ``average_pool``.
        padding: as for ``average_pool``.
        out_pads: as for ``average_pool``.
        dilation: as for ``average_pool``.
        in_dilations: as for ``average_pool``.
        auto_pad: as for ``average_pool``.
        ceil_mode: as for ``average_pool``.
        storage_order: the order of the indices of maxima, which are not an output; has no effect.
    Returns:
        Tensor of the dtype of ``t``, shape ``[samples, channels, windows...]``.
    Raises:
        ShapeError: as for ``average_pool``.
        AttributeValueError: as for ``average_pool``; or the order is unknown.
        DTypeError: ``t`` is not floating.
    Source:
        ONNX: operator MaxPool.
    Example:
        >>> evaluate(ops.max_pool, [[[1.0, 3.0, 5.0, 9.0]]], kernel_size=(2,), stride=(2,), padding=(0, 0))
        array([[[3., 9.]]], dtype=float32)
    """
    given = _attributes("max_pool", stride, padding, out_pads, dilation, in_dilations, auto_pad, ceil_mode)
    kernel = read_ints("max_pool", "kernel_size", kernel_size)
    read_choice("max_pool", "storage_order", storage_order, ("row", "column"))
    return emit("max_pool", {"t": t}, kernel_size=kernel, storage_order=storage_order, **given._as_attrs())


@public_op
def reduce_window(
    t: Tensor,
    window: Iterable[int],
    *,
    strides: Iterable[int] | None = None,
    low: Iterable[int] | None = None,
    high: Iterable[int] | None = None,
    base_dilation: Iterable[int] | None = None,
    window_dilation: Iterable[int] | None = None,
    reduction: Literal["sum", "mul", "min", "max"] = "sum",
) -> Tensor:
    """Reduce windows of any axes. An addition of popsr.

    A window's elements are reduced in C order; padding has none. Each list has a number for each axis of ``t``. The
    gradient of an extreme goes to the first element that it is; "mul" has no gradient: asking for one is an error.

    Args:
        t: the operand.
        window: extents of the windows.
        strides: positions from one window to the next. Default: 1.
        low: positions before the operand; negative numbers cut elements off. Default: 0.
        high: positions after it, likewise.
        base_dilation: positions from one element of the operand to the next. Default: 1.
        window_dilation: positions from one element of a window to the next. Default: 1.
        reduction: of the elements. One that meets none gives 0, 1, or the largest or the least value of the dtype.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: a list has a wrong length, or a number is out of range.
        DTypeError: ``t`` is bool.
    Source:
        XLA's ReduceWindow.
    Example:
        >>> evaluate(ops.reduce_window, [1.0, 3.0, 2.0, 5.0], window=(2,), strides=(2,), reduction="max")
        array([3., 5.], dtype=float32)
    """
    lists = {
        "window": window,
        "strides": strides,
        "low": low,
        "high": high,
        "base_dilation": base_dilation,
        "window_dilation": window_dilation,
    }
    read = {
        name: None if given is None and name != "window" else read_ints("reduce_window", name, given)
        for name, given in lists.items()
    }
    return emit("reduce_window", {"t": t}, reduction=reduction, **read)
