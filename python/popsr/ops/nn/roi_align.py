"""Averages of samples in the bins of regions."""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_ints
from popsr.ops._facts import public_op

__all__ = ["roi_align"]


@public_op
def roi_align(
    t: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    output_size: Iterable[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> Tensor:
    """Average of bilinear samples in each bin of each region (ONNX: RoiAlign, mode "avg").

    A region is its corners times ``spatial_scale``, without a shift by half a pixel (ONNX: "output_half_pixel"), and
    at least 1 wide and high. It is cut into ``output_size`` bins; samples lie evenly in a bin. A sample further than
    1 outside the operand is 0, others outside are taken at its border. A region of which a corner is infinite or NaN
    gives NaN.

    Weights are computed as float64; a bin is a sum over lines, then columns, both ascending, divided by the number of
    samples, in float32 for narrow floats, which are rounded once. ``t`` has a gradient, which adds over regions and
    bins in ascending order; NaN regions add nothing. ``rois`` has none.

    Args:
        t: the operand, shape ``[samples, channels, height, width]``.
        rois: regions of the dtype of ``t``, shape ``[regions, 4]``: x and y of the first corner and of the last.
        batch_index: the sample that a region is in: integers, shape ``[regions]``.
        output_size: bins: height and width.
        spatial_scale: from coordinates of ``rois`` to positions in ``t``.
        sampling_ratio: samples of a bin along each axis. 0: one per position that a bin spans, rounded up.
    Returns:
        Tensor of the dtype of ``t``, shape ``[regions, channels, *output_size]``.
    Raises:
        OutOfRangeError: when the program runs: an index is not one of 0 to samples - 1; nothing is written.
        ShapeError: a shape does not fit.
        AttributeValueError: sizes or the scale are not positive, or the ratio is negative.
        DTypeError: the dtypes of ``t`` and ``rois`` differ, they are not floating, or the indices are not integers.
    Source:
        He et al., Mask R-CNN, 2017, arXiv:1703.06870.
    Example:
        >>> image, box = [[[[1.0, 2.0], [3.0, 4.0]]]], [[0.0, 0.0, 2.0, 2.0]]
        >>> evaluate(ops.roi_align, image, box, [0], output_size=(1, 1), spatial_scale=1.0, sampling_ratio=2)
        array([[[[3.25]]]], dtype=float32)
    """
    return emit(
        "roi_align",
        {"t": t, "rois": rois, "batch_index": batch_index},
        output_size=read_ints("roi_align", "output_size", output_size),
        spatial_scale=spatial_scale,
        sampling_ratio=sampling_ratio,
    )
