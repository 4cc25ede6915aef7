"""Convolutions over one, two or three spatial axes.

Every element of a result is one chain of fused multiply-adds in float32 (float64 for float64), rounded once: over the
input channels of its group and, for each of them, the elements of the kernel in ascending order. So a result depends
neither on the number of threads nor on what else is in the batch. Positions outside the input count as zeros, also
against infinite weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import integer_of, is_a, read_choice, read_ints, read_items, read_mapping
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError
from popsr.ops._facts import public_op

__all__ = [
    "PadType",
    "conv",
    "conv_pow2scaled",
    "conv_transpose",
    "conv_transpose_pow2scaled",
    "multi_conv_options",
]

PadType = Literal["not_set", "same_upper", "same_lower", "valid"]

_ONE = (1, 1)
_ZERO = (0, 0, 0, 0)


@public
@dataclass(frozen=True)
class MultiConvOptions:
    """Hints for convolutions, one entry each or one for all; none has an effect here."""

    available_memory_proportions: tuple[float, ...] = ()
    partials_types: tuple[str, ...] = ()
    enable_conv_dithering: tuple[int, ...] = ()


@public_op
def conv(
    t: Tensor,
    weight: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    available_memory_proportions: list[float] | None = None,
    partials_types: list[str] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """Convolution: ``out[n, o, p]`` is the sum of ``t[n, c, p * stride + k * dilation - begin] * weight[o, c, k]``.

    The defaults of ``stride``, ``padding`` and ``dilation`` fit data of any number of spatial axes.

    Args:
        t: the operand, ``[N, C, spatial...]`` with one to three spatial axes.
        weight: ``[O, C / groups, kernel...]``.
        stride: steps between output positions, one per spatial axis.
        padding: zeros around ``t``: before it for each spatial axis, then after it for each.
        dilation: steps between elements of the kernel, one per spatial axis.
        groups: parts into which both kinds of channels are cut; each sees its own input channels only.
        pad_type: "not_set" takes ``padding``. The others ignore it: "valid" is not a padding; "same_upper" and
            "same_lower" pad to ``ceil(extent / stride)`` outputs, an odd zero after or before ``t``.
        available_memory_proportions: accepted for PopXL programs; has no effect.
        partials_types: accepted for PopXL programs, "half" or "float"; sums are kept in float32 or wider.
        enable_conv_dithering: accepted for PopXL programs; has no effect.
    Returns:
        Tensor ``[N, O, spatial...]`` of the dtype of ``t``.
    Raises:
        ShapeError: the ranks or channels do not fit, or the kernel is larger than the padded operand.
        AttributeValueError: a list has a wrong length or a number out of range, or a name is unknown.
        DTypeError: the dtypes differ or are not floating.
    Source:
        ONNX: operator Conv.
    Example:
        >>> evaluate(ops.conv, [[[1.0, 2.0, 3.0, 4.0]]], [[[1.0, -1.0]]], stride=(1,), padding=(0, 0), dilation=(1,))
        array([[[-1., -1., -1.]]], dtype=float32)
    """
    _read_hints("conv", available_memory_proportions, partials_types, enable_conv_dithering)
    return emit(
        "conv", {"t": t, "weight": weight}, **_attributes("conv", stride, padding, dilation, groups, pad_type)
    )


@public_op
def conv_transpose(
    t: Tensor,
    weight: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    output_padding: tuple[int, ...] | None = (),
    output_shape: tuple[int, ...] | None = (),
    available_memory_proportions: list[float] | None = None,
    partials_types: list[str] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """Transposed convolution: what ``conv`` takes from a position is added to that position instead.

    ``t[n, c, p] * weight[c, o, k]`` is a term of ``out[n, o, p * stride + k * dilation - begin]``. The result reaches
    ``stride * (extent - 1) + output_padding + (kernel - 1) * dilation + 1`` positions, from which padding is cut off.

    Args:
        t: the operand, ``[N, C, spatial...]`` with one to three spatial axes.
        weight: ``[C, O / groups, kernel...]``.
        stride: steps between what neighbours of ``t`` are added to, one per spatial axis.
        padding: positions that are cut off: in front for each spatial axis, then at the end for each.
        dilation: steps between elements of the kernel, one per spatial axis.
        groups: parts into which both kinds of channels are cut; each sees its own input channels only.
        pad_type: "not_set" takes ``padding``. The others ignore it: "valid" cuts nothing off; "same_upper" and
            "same_lower" leave ``extent * stride`` positions, an odd one is cut off at the end or in front.
        output_padding: positions added at the end, less than the stride or the dilation; one per spatial axis.
        output_shape: the extents of the result, all of them or the spatial ones. Then padding follows from them, an odd
            position is cut off in front unless ``pad_type`` is "same_upper".
        available_memory_proportions: accepted for PopXL programs; has no effect.
        partials_types: accepted for PopXL programs, "half" or "float"; sums are kept in float32 or wider.
        enable_conv_dithering: accepted for PopXL programs; has no effect.
    Returns:
        Tensor ``[N, O, spatial...]`` of the dtype of ``t``.
    Raises:
        ShapeError: the ranks or channels do not fit, padding cuts off more than there is, or ``output_shape`` has other
            samples or channels than the result.
        AttributeValueError: a list has a wrong length or a number out of range, or a name is unknown.
        DTypeError: the dtypes differ or are not floating.
    Source:
        ONNX: operator ConvTranspose.
    Example:
        >>> evaluate(ops.conv_transpose, [[[1.0, 2.0]]], [[[1.0, 10.0]]], stride=(2,), padding=(0, 0), dilation=(1,))
        array([[[ 1., 10.,  2., 20.]]], dtype=float32)
    """
    where = "conv_transpose"
    _read_hints(where, available_memory_proportions, partials_types, enable_conv_dithering)
    return emit(
        where,
        {"t": t, "weight": weight},
        **_attributes(where, stride, padding, dilation, groups, pad_type),
        output_padding=_numbers(where, "output_padding", output_padding, ()),
        output_shape=_spatial(where, output_shape, t, weight, groups),
    )


@public_op
def conv_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    available_memory_proportions: list[float] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """``conv`` of float8 operands, times ``2**log2_scale``; scaled and rounded once. Autodiff refuses.

    Args:
        t: the operand, of a float8 type.
        weight: the weight, of either type.
        log2_scale: int32 of rank 0, from -32 to 31 when the program runs.
        stride: as for :func:`conv`, like the next ones.
        padding: zeros around ``t``, or positions that are cut off.
        dilation: steps between elements of the kernel.
        groups: parts into which channels are cut.
        pad_type: "not_set", "same_upper", "same_lower" or "valid".
        available_memory_proportions: accepted for PopXL programs; has no effect.
        enable_conv_dithering: accepted for PopXL programs; has no effect.
    Returns:
        Tensor ``[N, O, spatial...]`` of float16.
    Raises:
        ShapeError: as there, or ``log2_scale`` is not a scalar.
        DTypeError: other dtypes than these.
        AttributeValueError: as there; when the program runs: ``log2_scale`` is out of range, unless
            ``ir.options.throw_if_log2_scale_tensor_not_in_range`` is False: then it is clamped.
    Source:
        Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022, arXiv:2206.02915.
    Example:
        >>> def convolve(t, weight):
        ...     zero = popsr.constant(0)
        ...     t, weight = (ops.pow2scale_cast_to_fp8(x, zero, popsr.float8_143) for x in (t, weight))
        ...     return ops.conv_pow2scaled(t, weight, popsr.constant(1), stride=(1,), padding=(0, 0), dilation=(1,))
        >>> evaluate(convolve, np.array([[[1.0, 2.0, 3.0]]], np.float16), np.array([[[1.0, -1.0]]], np.float16))
        array([[[-2., -2.]]], dtype=float16)
    """
    where = "conv_pow2scaled"
    _read_hints(where, available_memory_proportions, None, enable_conv_dithering)
    return emit(
        where,
        {"t": t, "weight": weight, "log2_scale": log2_scale},
        **_attributes(where, stride, padding, dilation, groups, pad_type),
    )


@public_op
def conv_transpose_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    output_padding: tuple[int, ...] | None = (),
    output_shape: tuple[int, ...] | None = (),
    available_memory_proportions: list[float] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """``conv_transpose`` of float8 operands, times ``2**log2_scale``; scaled and rounded once. Autodiff refuses.

    Args:
        t: the operand, of a float8 type.
        weight: the weight, of either type.
        log2_scale: int32 of rank 0, from -32 to 31 when the program runs.
        stride: as for :func:`conv_transpose`, like the next ones.
        padding: zeros around ``t``, or positions that are cut off.
        dilation: steps between elements of the kernel.
        groups: parts into which channels are cut.
        pad_type: "not_set", "same_upper", "same_lower" or "valid".
        output_padding: positions added at the end.
        output_shape: the extents of the result, all of them or the spatial ones.
        available_memory_proportions: accepted for PopXL programs; has no effect.
        enable_conv_dithering: accepted for PopXL programs; has no effect.
    Returns:
        Tensor ``[N, O, spatial...]`` of float16.
    Raises:
        ShapeError: as there, or ``log2_scale`` is not a scalar.
        DTypeError: other dtypes than these.
        AttributeValueError: as there; when the program runs: ``log2_scale`` is out of range, unless
            ``ir.options.throw_if_log2_scale_tensor_not_in_range`` is False: then it is clamped.
    Source:
        Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022, arXiv:2206.02915.
    Example:
        >>> def convolve(t, weight):
        ...     zero = popsr.constant(0)
        ...     t, weight = (ops.pow2scale_cast_to_fp8(x, zero, popsr.float8_143) for x in (t, weight))
        ...     return ops.conv_transpose_pow2scaled(
        ...         t, weight, popsr.constant(1), stride=(2,), padding=(0, 0), dilation=(1,)
        ...     )
        >>> evaluate(convolve, np.array([[[1.0, 2.0]]], np.float16), np.array([[[1.0, 10.0]]], np.float16))
        array([[[ 2., 20.,  4., 40.]]], dtype=float16)
    """
    where = "conv_transpose_pow2scaled"
    _read_hints(where, available_memory_proportions, None, enable_conv_dithering)
    return emit(
        where,
        {"t": t, "weight": weight, "log2_scale": log2_scale},
        **_attributes(where, stride, padding, dilation, groups, pad_type),
        output_padding=_numbers(where, "output_padding", output_padding, ()),
        output_shape=_spatial(where, output_shape, t, weight, groups),
    )


@public_call
def multi_conv_options(
    sess_opts: Any,
    attr_param: Mapping[str, Any] | None,
    available_memory_proportions: list[float] | None,
    partials_types: list[str] | None,
    enable_conv_dithering: list[int] | None,
) -> MultiConvOptions:
    """The checked hints of convolutions.

    Args:
        sess_opts: accepted for PopXL programs; has no effect.
        attr_param: hints by name, for those that are None.
        available_memory_proportions: numbers from 0 to 1.
        partials_types: "half" or "float", in any case.
        enable_conv_dithering: 0 or 1.
    Returns:
        The hints.
    Raises:
        AttributeValueError: an entry is none of these.
        ArgumentTypeError: something is not a list.
    """
    del sess_opts
    named = read_mapping("multi_conv_options", "attr_param", attr_param)
    given = {
        "available_memory_proportions": available_memory_proportions,
        "partials_types": partials_types,
        "enable_conv_dithering": enable_conv_dithering,
    }
    hints = {name: named.get(name) if value is None else value for name, value in given.items()}
    return _read_hints("multi_conv_options", *hints.values())


def _read_hints(where: str, proportions: Any, partials: Any, dithering: Any) -> MultiConvOptions:
    hints = MultiConvOptions(
        _entries(where, "available_memory_proportions", proportions),
        _entries(where, "partials_types", partials),
        _entries(where, "enable_conv_dithering", dithering),
    )
    for proportion in hints.available_memory_proportions:
        number = is_a(proportion, (int, float, np.integer, np.floating)) and not is_a(proportion, bool)
        if not number or not 0 <= proportion <= 1:
            raise AttributeValueError(
                f"{where}: available_memory_proportions has a wrong entry, got {shown(proportion)}, expected 0 to 1"
            )
    for partial in hints.partials_types:
        name = partial.lower() if is_a(partial, str) else partial
        read_choice(where, "partials_types entry", name, ("half", "float"))
    for flag in hints.enable_conv_dithering:
        read_choice(where, "enable_conv_dithering entry", flag, (0, 1))
    return hints


def _entries(where: str, name: str, values: Any) -> tuple[Any, ...]:
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentTypeError(f"{where}: {name} is not a list, got {shown(values)}, expected a list")
    return read_items(where, name, values)


def _attributes(
    where: str, stride: Any, padding: Any, dilation: Any, groups: int | None, pad_type: str | None
) -> dict[str, Any]:
    return {
        "stride": _numbers(where, "stride", stride, _ONE),
        "padding": _numbers(where, "padding", padding, _ZERO),
        "dilation": _numbers(where, "dilation", dilation, _ONE),
        "groups": groups,
        "pad_type": pad_type,
    }


def _numbers(where: str, name: str, values: Any, default: tuple[int, ...]) -> tuple[Any, ...] | None:
    """None for the default, which is written for two spatial axes but serves any number of them."""
    if values is None:
        return None
    read = read_ints(where, name, values)
    return None if tuple(integer_of(each) for each in read) == default else read


def _spatial(where: str, values: Any, t: Any, weight: Any, groups: Any) -> tuple[Any, ...] | None:
    """The spatial extents of a result whose extents are given, all of them or these."""
    read = _numbers(where, "output_shape", values, ())
    if read is None or not isinstance(t, Tensor) or not isinstance(weight, Tensor) or len(read) != t.rank:
        return read
    parts = integer_of(groups)
    lead = (t.shape[0], weight.shape[1] * (1 if parts is None else parts)) if weight.rank > 1 else None
    if lead is not None and tuple(integer_of(each) for each in read[:2]) != lead:
        raise ShapeError(
            f"{where}: output_shape has other samples or channels, got {shown(list(read))}, expected {list(lead)} and "
            "the spatial extents"
        )
    return read[2:]
