"""Resizing of tensors, with the meaning of ONNX's Resize."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_choice, read_ints
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.ops._facts import public_op

__all__ = ["interpolate"]

InterpolateType = Literal["nearest", "linear", "cubic"]
InterpolateNearestType = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
InterpolateCoordinateTransformationType = Literal[
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"
]

_MODES = ("nearest", "linear", "cubic")
_NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


@public_op
def interpolate(
    t: Tensor,
    scale_factor: Iterable[float] | None = (1.0, 1.0, 1.0, 1.0),
    mode: InterpolateType | None = "nearest",
    nearest_mode: InterpolateNearestType | None = "round_prefer_floor",
    coordinate_transformation_mode: InterpolateCoordinateTransformationType | None = "half_pixel",
) -> Tensor:
    """Resize dimensions: an extent d becomes ``floor(d * scale)``; dimensions of scale 1 stay as they are.

    Result i of a dimension is interpolated at position p of the operand, whose elements lie at 0 to d - 1; an element
    outside is the nearest one inside. With a result of extent n, p is

    - "half_pixel": ``(i + 0.5) / scale - 0.5``;
    - "pytorch_half_pixel": the same, and 0 for n = 1;
    - "align_corners": ``i * (d - 1) / (n - 1)``, and 0 for n = 1;
    - "asymmetric": ``i / scale``;
    - "tf_crop_and_resize": of the whole operand, there being no region to give: as "align_corners", and
      ``(d - 1) / 2`` for n = 1.

    Dimensions are interpolated one after another, the outermost first, each as a sum over neighbours in ascending
    order; positions and weights are computed as float64, weights are rounded to the type of the arithmetic (float32
    for narrow floats, which are rounded once at the end). Neighbours of weight 0 are not looked at. The gradient is
    the transpose, which adds in the order of the results.

    Args:
        t: the operand, of any rank.
        scale_factor: a positive number per dimension. None: 1 for each.
        mode: "nearest" | "linear" (of 2 neighbours in each dimension) | "cubic" (of 4, with a = -0.75).
        nearest_mode: the neighbour of "nearest": "round_prefer_floor" and "round_prefer_ceil" take the nearest one,
            the lower or upper one where two are; "floor" and "ceil" take the lower or upper one.
        coordinate_transformation_mode: the rule above.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        AttributeValueError: ``scale_factor`` has another length or a number that is not positive and finite, or there
            is no such mode.
        ShapeError: an extent would become 0.
        DTypeError: ``t`` is not floating.
    Source:
        ONNX: operator Resize.
    Example:
        >>> evaluate(ops.interpolate, [[[1.0, 3.0]]], scale_factor=(1.0, 1.0, 2.0), mode="nearest")
        array([[[1., 1., 3., 3.]]], dtype=float32)
    """
    where = "interpolate"
    if not is_a(t, Tensor):
        raise ArgumentTypeError(f"{where}: t is not a Tensor, got {shown(t)}, expected a Tensor")
    for name, value, choices in (
        ("mode", mode, _MODES),
        ("nearest_mode", nearest_mode, _NEAREST_MODES),
        ("coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES),
    ):
        if value is not None:
            read_choice(where, name, value, choices)
    factors = (
        (1.0,) * t.rank
        if scale_factor is None
        else read_ints(where, "scale_factor", scale_factor, kind="floats")
    )
    return emit(
        where,
        {"t": t},
        scale_factor=factors,
        mode=mode,
        nearest_mode=nearest_mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )
