"""``cast_blocks``: to elements of few bits with a scale for each block, rounded once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from popsr._support.host.arguments import read_choice, read_int, require_memory
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr.sr._blocks.blocks import Blocks, axis_of_blocks, blocked, read_block_format, read_tensor_scale
from popsr.sr._blocks.elements import rounded_elements, widened
from popsr.sr._blocks.formats import BlockFormatName, Scale
from popsr.sr._blocks.scales import scales_of
from popsr.sr._call import REQUIRED, Key, Source, check_numbers, read_options, read_source
from popsr.sr._kinds import Array
from popsr.sr._types import Mode, OtherArray
from popsr.sr._watch import draws

__all__ = ["cast_blocks"]

_TILE = 1 << 16  # elements


@public
@in_default_environment
def cast_blocks(
    x: OtherArray,
    format: BlockFormatName,
    *,
    key: Key = REQUIRED,
    axis: int = -1,
    scale: Scale = "rceil",
    tensor_scale: float | None = None,
    mode: Mode = "sr",
    offset: int = 0,
    num_threads: int | None = None,
) -> Blocks:
    """``x`` in a block format: each element over its block's scale, the exact quotient rounded once.

    A block is 32 (``nvfp4``: 16) elements along an axis. Scales follow from the largest magnitudes and are not random.
    Elements are multiplied by float8_e8m0fnu, powers of two; those of ``nvfp4`` by float8_e4m3fn times a float32 that
    the whole tensor has.

    Args:
        x: array ``[...]`` of any format of :func:`add`, with any strides; not a buffer of integers.
        format: "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4" (e2m1), "mxint8" or "nvfp4" (e2m1).
        key: as in :func:`add`. Element i of ``x``, in C order, draws number i.
        axis: along which blocks lie. Its extent is a multiple of the block.
        scale: "rceil": the least scale with which the largest element is not too large, so that all are rounded to a
            neighbour and ``mode="sr"`` is unbiased. "floor", of MX formats: OCP's rule, the power of two at or below
            the largest magnitude, over the greatest power of two of the elements; "nearest", of ``nvfp4``: both
            scales rounded to nearest. With these two, elements beyond the largest become the largest, which is a bias.
        tensor_scale: that of ``nvfp4``, a positive float32, for parts of a tensor. Default: the least with which the
            blocks' scales are not too large (to nearest with ``scale="nearest"``); 1 if all is zero.
        mode: how to round; see :func:`add`.
        offset: number of the first element, for a part of a larger array.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        :class:`Blocks`, of NumPy arrays. A block with a NaN or an infinity, or too large for any scale, has a NaN for a
        scale and zeros for elements. A block of zeros has the least scale. ``int8`` is from -127 to 127.
    Raises:
        TypeError: ``key`` is missing, ``x`` is not an array of a supported format, or ``axis`` no int.
        ValueError: the extent is not a multiple of the block; an unknown format, rule or ``mode``; a ``tensor_scale``
            that is not a positive float32, or of an MX format; ``axis`` or ``offset`` is out of range.
    The chance is exact to 2**-64.
    Source:
        OCP Microscaling Formats (MX) Specification, version 1.0, 2023. NVIDIA, Pretraining Large Language Models with
        NVFP4, 2025, arXiv:2509.25149.
    Example:
        >>> blocks = sr.cast_blocks(np.full(32, 1.2, np.float32), "mxfp4", key=sr.Key(0))
        >>> blocks.dequantise()[:4], blocks.scales
        (array([1. , 1.5, 1. , 1. ], dtype=float32), array([0.25], dtype='float8_e8m0fnu'))
    """
    options = read_options("cast_blocks", key, mode, "saturate", offset, num_threads)
    start = read_int("cast_blocks: offset", offset, 0, 2**64 - 1)
    form = read_block_format("cast_blocks", format)
    rule = read_choice("cast_blocks", "scale", scale, form.rules, f" for {format}")
    tensor = read_tensor_scale("cast_blocks", tensor_scale, format)
    source = read_source("cast_blocks", "x", x, None)
    shape = source.array.shape
    k = axis_of_blocks("cast_blocks", axis, len(shape))
    check_numbers("cast_blocks", start, shape)
    draws("cast_blocks", options.key, options.mode, start, shape)
    source = source._replace(array=blocked("cast_blocks", source.array, k, form))
    require_memory("cast_blocks", source.array.size)
    with np.errstate(all="ignore"):
        largest = _largest(source, k + 1)
        scales = scales_of(form, largest, rule, tensor, options)
        elements = np.empty(source.array.shape, form.element.numpy)
        exact = np.expand_dims(scales.exact, k + 1)
        for tile, first in _tiles(source.array.shape):
            part = source._replace(array=source.array[tile])
            numbers = options._replace(offset=start + first)
            elements[tile] = rounded_elements(form, part, exact[tile], numbers)
    return Blocks(elements.reshape(shape), scales.blocks, format, k, scales.tensor)


def _largest(source: Source, axis: int) -> Array:
    """Largest magnitudes along an axis as float64; not finite where one is not."""
    shape = source.array.shape
    found = np.empty((*shape[:axis], *shape[axis + 1 :]))
    for tile, _ in _tiles(shape):
        found[tile] = np.abs(widened(source._replace(array=source.array[tile]))).max(axis=axis)
    return found


def _tiles(shape: tuple[int, ...]) -> Iterator[tuple[slice, int]]:
    """Parts along the first axis that fit into a cache, with the number of the first element of each."""
    row = math.prod(shape[1:])
    step = max(1, _TILE // max(1, row))
    return ((slice(k, k + step), k * row) for k in range(0, shape[0], step))
