"""``Blocks``: an array in a block format, and back to numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._support.host.arguments import read_choice, read_int, read_number
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ShapeError
from popsr.sr._blocks.formats import BLOCK_FORMATS, BlockFormat, BlockFormatName
from popsr.sr._formats import read_format
from popsr.sr._kinds import Array
from popsr.sr._types import AnyArray, FormatLike

__all__ = ["Blocks", "axis_of_blocks", "blocked", "read_block_format", "read_tensor_scale"]


@public
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Blocks:
    """An array in a block format, as :func:`cast_blocks` makes it; also of arrays that were stored.

    Attributes:
        elements: array ``[...]`` of ml_dtypes, one element a byte; int8 of ``mxint8``, in 64ths.
        scales: float8_e8m0fnu, of ``nvfp4`` float8_e4m3fn; its extent along ``axis`` is the number of blocks.
        format: name of the format.
        axis: along which the elements of a block lie, from 0.
        tensor_scale: what all scales are multiplied by; None of MX formats.
    Raises:
        TypeError: an attribute is not of its type.
        ValueError: shapes do not fit, or the format or the axis does not exist.
    """

    elements: AnyArray[Any]
    scales: AnyArray[Any]
    format: BlockFormatName
    axis: int
    tensor_scale: np.float32 | None = None

    def __post_init__(self) -> None:
        form = read_block_format("Blocks", self.format)
        for name, dtype in (("elements", form.element.numpy), ("scales", form.scale)):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
                raise ArgumentTypeError(
                    f"Blocks: {name} of {self.format} have another type, got {got}, expected a NumPy array of {dtype}"
                )
        axis = axis_of_blocks("Blocks", self.axis, self.elements.ndim)
        shape = blocked("Blocks", self.elements, axis, form).shape
        expected = (*shape[: axis + 1], *shape[axis + 2 :])
        if self.scales.shape != expected:
            raise ShapeError(
                f"Blocks: scales have another shape, got {self.scales.shape}, expected {expected}"
            )
        object.__setattr__(self, "axis", axis)
        scale = read_tensor_scale("Blocks", self.tensor_scale, self.format)
        if scale is None and form.has_tensor_scale:
            raise AttributeValueError(f"Blocks: tensor_scale of {self.format} is missing, expected a float")
        object.__setattr__(self, "tensor_scale", scale)

    def __repr__(self) -> str:
        return f"Blocks({self.format} {list(self.elements.shape)}, axis={self.axis})"

    @in_default_environment
    def dequantise(self, dtype: FormatLike = "float32") -> AnyArray[Any]:
        """The numbers that the elements stand for.

        Args:
            dtype: float32 or float64.
        Returns:
            NumPy array ``[...]``, new. Exact in float64. In float32 exact for MX formats, but infinite from 2**128 on,
            and rounded once to nearest for ``nvfp4``. Blocks without a scale are NaN.
        Raises:
            TypeError: another dtype.
        """
        to = read_format("dequantise", dtype)
        if to.name not in ("float32", "float64"):
            raise DTypeError(
                f"dequantise: dtype is not wide enough, got {to.name}, expected float32 or float64"
            )
        form = BLOCK_FORMATS[self.format]
        wide = np.float64 if self.tensor_scale is not None else to.numpy
        with np.errstate(all="ignore"):
            scales = np.expand_dims(self.scales, self.axis + 1).astype(wide)
            if self.tensor_scale is not None:
                scales *= self.tensor_scale
            elements = self.elements.astype(wide)
            if form.element.unit != 1:
                elements *= form.element.unit
            numbers: Array = blocked("dequantise", elements, self.axis, form) * scales
            return numbers.astype(to.numpy, copy=False).reshape(elements.shape)


def read_block_format(op: str, format: Any) -> BlockFormat:
    """The format of that name.

    Raises:
        AttributeValueError: there is none.
    """
    return BLOCK_FORMATS[read_choice(op, "format", format, tuple(BLOCK_FORMATS))]


def axis_of_blocks(op: str, axis: Any, rank: int) -> int:
    """An axis, counted from 0.

    Raises:
        ArgumentTypeError: it is not an int.
        AttributeValueError: the array has no such axis.
    """
    number = read_int(f"{op}: axis", axis)
    if not -rank <= number < rank:
        raise AttributeValueError(
            f"{op}: axis is out of range, got {shown(number)}, expected an axis of {rank}"
        )
    return number % rank


def blocked(op: str, array: Array, axis: int, form: BlockFormat) -> Array:
    """A view with an axis of blocks, and after it one of a block's elements, in the place of ``axis``.

    Raises:
        ShapeError: a block would be left over in part.
    """
    shape = array.shape
    if shape[axis] % form.size:
        raise ShapeError(
            f"{op}: axis {axis} cannot be cut into blocks, got shape {shape}, "
            f"expected an extent that is a multiple of {form.size}"
        )
    return array.reshape(*shape[:axis], shape[axis] // form.size, form.size, *shape[axis + 1 :])


def read_tensor_scale(op: str, value: Any, name: BlockFormatName) -> np.float32 | None:
    """The scale of a tensor.

    Raises:
        ArgumentTypeError: it is not a number.
        AttributeValueError: it is not a positive float32, or the format has none.
    """
    if value is None:
        return None
    number = read_number(f"{op}: tensor_scale", value)
    if not BLOCK_FORMATS[name].has_tensor_scale:
        raise AttributeValueError(f"{op}: {name} has no tensor_scale, got {shown(value)}, expected None")
    with np.errstate(over="ignore"):
        scale = np.float32(number)
    if not (0 < number < np.inf and float(scale) == number):
        raise AttributeValueError(
            f"{op}: tensor_scale is not a positive float32, got {shown(value)}, expected a finite one"
        )
    return scale
