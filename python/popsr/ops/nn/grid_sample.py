"""Samples of images at computed places."""

from __future__ import annotations

from typing import Literal, get_args

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice, read_flag
from popsr.ops._facts import public_op

__all__ = ["grid_sample"]

GridMode = Literal["nearest", "linear", "cubic"]
PaddingMode = Literal["zeros", "border", "reflection"]


@public_op
def grid_sample(
    t: Tensor,
    grid: Tensor,
    mode: GridMode = "linear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Interpolation of images at the places that a grid holds (ONNX: GridSample). An addition of popsr.

    A coordinate from -1 to 1 spans an axis: from the first element to the last one with ``align_corners``, otherwise
    between their outer edges. A result is a sum over neighbours, the outermost axis first,
    in ascending order; positions and weights are of the type of the arithmetic, which is float32 for narrow floats,
    that are rounded once. A place that is NaN gives 0.

    The gradient of ``t`` adds in the order of the places, that of ``grid`` over channels, then neighbours. The latter
    is 0 for "nearest" and where a place is moved to the border.

    Args:
        t: the operand, shape ``[samples, channels, *spatial]`` with 1 to 3 spatial axes.
        grid: places, of the dtype of ``t``, shape ``[samples, *places, axes]``: on the last axis the coordinate of the
            last spatial axis comes first.
        mode: "nearest" (half to even) | "linear" | "cubic" (Keys' kernel with a = -0.75).
        padding_mode: of what lies outside. "zeros": it is 0. "border": it is the nearest element inside. "reflection":
            the operand is mirrored at its edges. Places are moved inside; for "cubic" each neighbour.
        align_corners: the meaning of -1 and 1.
    Returns:
        Tensor of the dtype of ``t``, shape ``[samples, channels, *places]``.
    Raises:
        ShapeError: the shapes do not fit, or ``t`` has no elements.
        DTypeError: the dtypes differ or are not floating.
        AttributeValueError: ``mode`` or ``padding_mode`` is none of these words.
    Source:
        Jaderberg et al., Spatial transformer networks, 2015, arXiv:1506.02025.
    Example:
        >>> image, places = [[[[1.0, 2.0], [3.0, 4.0]]]], [[[[0.0, 0.0], [1.0, -1.0]]]]
        >>> evaluate(ops.grid_sample, image, places, align_corners=True)
        array([[[[2.5, 2. ]]]], dtype=float32)
    """
    where = "grid_sample"
    read_choice(where, "mode", mode, get_args(GridMode))
    read_choice(where, "padding_mode", padding_mode, get_args(PaddingMode))
    return emit(
        where,
        {"t": t, "grid": grid},
        mode=mode,
        padding_mode=padding_mode,
        align_corners=read_flag(f"{where}: align_corners", align_corners),
    )
