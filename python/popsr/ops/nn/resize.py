"""Resizing of some axes of a tensor: the whole of ONNX's Resize."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice, read_flag, read_ints
from popsr.ops._facts import public_op

__all__ = ["resize"]

ResizeMode = Literal["nearest", "linear", "cubic"]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
CoordinateMode = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


@public_op
def resize(
    t: Tensor,
    sizes: Iterable[int] | None = None,
    scales: Iterable[float] | None = None,
    axes: Iterable[int] = (),
    mode: ResizeMode = "nearest",
    nearest_mode: NearestMode = "round_prefer_floor",
    coordinate_transformation_mode: CoordinateMode = "half_pixel",
    cubic_coeff_a: float = -0.75,
    antialias: bool = False,
    exclude_outside: bool = False,
    roi: Iterable[float] = (),
    extrapolation_value: float = 0.0,
) -> Tensor:
    """Resize axes by interpolation. An addition of popsr: ``interpolate`` with all that ONNX's Resize has.

    An axis of extent d gets extent n, which is its size or ``floor(d * scale)``. Result i is interpolated at position
    p of the operand, whose elements lie at 0 to d - 1; an element outside is the nearest one inside. p is

    - "half_pixel": ``(i + 0.5) / scale - 0.5``;
    - "half_pixel_symmetric": the same, moved by ``d / 2 * (1 - n / (d * scale))``;
    - "pytorch_half_pixel": as "half_pixel", and 0 for n = 1;
    - "align_corners": ``i * (d - 1) / (d * scale - 1)``, and 0 for n = 1;
    - "asymmetric": ``i / scale``;
    - "tf_crop_and_resize": from ``roi``, of begin b and end e: ``(b * (n - 1) + i * (e - b)) * (d - 1) / (n - 1)``, and
      ``(b + e) / 2 * (d - 1)`` for n = 1; a result outside the operand is ``extrapolation_value``.

    Axes are interpolated one after another, the outermost first, each as a sum over its elements in ascending order.
    Positions and weights are computed as float64, weights are rounded to the type of the arithmetic (float32 for
    narrow floats, which are rounded once at the end). Elements of weight 0 are not looked at. The gradient is the
    transpose, which adds in the order of the results.

    Args:
        t: the operand, of any rank; of any dtype for "nearest", which copies elements.
        sizes: the extent of each of ``axes`` in the result.
        scales: a positive number for each of ``axes``. Default: size / extent.
        axes: different axes. Empty: all of them, in order.
        mode: "nearest" | "linear" (of 2 neighbours along an axis) | "cubic" (of 4).
        nearest_mode: the neighbour of "nearest": "round_prefer_floor" and "round_prefer_ceil" take the nearest one,
            the lower or upper one where two are; "floor" and "ceil" take the lower or upper one.
        coordinate_transformation_mode: the rule above.
        cubic_coeff_a: the coefficient of Keys' kernel, for "cubic".
        antialias: an axis that shrinks has a kernel as much wider, whose weights sum to 1. Not for "nearest".
        exclude_outside: elements outside have weight 0, and the other weights sum to 1.
        roi: for "tf_crop_and_resize": the begin on each of ``axes``, then the ends, as parts of the axis.
        extrapolation_value: for "tf_crop_and_resize".
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        AttributeValueError: there are neither sizes nor scales, or they, ``axes`` or ``roi`` do not fit.
        ShapeError: elements would be made of none, or nothing of some.
        DTypeError: ``t`` is not floating and the mode is not "nearest".
    Source:
        ONNX: operator Resize. Keys, Cubic convolution interpolation for digital image processing, 1981.
    Example:
        >>> evaluate(ops.resize, [[1.0, 3.0]], sizes=(4,), axes=(1,), mode="linear")
        array([[1. , 1.5, 2.5, 3. ]], dtype=float32)
    """
    where = "resize"
    read_choice(where, "mode", mode, get_args(ResizeMode))
    read_choice(where, "nearest_mode", nearest_mode, get_args(NearestMode))
    coordinates = get_args(CoordinateMode)
    rule = read_choice(where, "coordinate_transformation_mode", coordinate_transformation_mode, coordinates)
    return emit(
        where,
        {"t": t},
        sizes=None if sizes is None else read_ints(where, "sizes", sizes),
        scales=None if scales is None else read_ints(where, "scales", scales, kind="floats"),
        axes=read_ints(where, "axes", axes),
        mode=mode,
        nearest_mode=nearest_mode,
        coordinate_transformation_mode=rule,
        cubic_coeff_a=cubic_coeff_a,
        antialias=read_flag(f"{where}: antialias", antialias),
        exclude_outside=read_flag(f"{where}: exclude_outside", exclude_outside),
        roi=read_ints(where, "roi", roi, kind="floats"),
        extrapolation_value=extrapolation_value,
    )
