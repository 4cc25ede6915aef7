"""Scales of blocks, which follow from the largest magnitude of each: exactly, and without a random number."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from popsr.sr._blocks.elements import quotient, source_of
from popsr.sr._blocks.formats import BLOCK_FORMATS, BlockFormat, Scale
from popsr.sr._call import Options
from popsr.sr._formats import FORMATS
from popsr.sr._kinds import Array
from popsr.sr._types import Mode, Overflow

__all__ = ["Scales", "scales_of"]

_LARGEST_SCALE = BLOCK_FORMATS["mxfp8_e4m3"].element.largest
_LEAST = 2.0**-149


class Scales(NamedTuple):
    """Scales.

    Attributes:
        blocks: in the dtype of the format.
        exact: float64, what elements are multiplied by: the products with the tensor's scale. NaN of blocks that have
            no scale.
        tensor: the tensor's.
    """

    blocks: Array
    exact: Array
    tensor: np.float32 | None


def scales_of(
    form: BlockFormat, largest: Array, rule: Scale, tensor: np.float32 | None, options: Options
) -> Scales:
    """The scales that a rule chooses.

    Args:
        form: the format.
        largest: largest magnitude of each block as float64; not finite where an element is not.
        rule: one of the format's.
        tensor: the tensor's scale. Default: by the rule.
        options: threads.
    """
    if form.has_tensor_scale:
        return _two_levels(form, largest, rule, tensor, options)
    return _powers_of_two(form, largest, rule)


def _powers_of_two(form: BlockFormat, largest: Array, rule: Scale) -> Scales:
    """The greatest power of two up to ``largest``, or the least of which no element is too large."""
    fraction, exponent = np.frexp(largest)
    most, most_exponent = math.frexp(form.element.largest)
    log2 = exponent - most_exponent
    if rule == "rceil":
        log2 += fraction > most
    has_scale = np.isfinite(largest) & (log2 <= 127)
    log2 = np.clip(np.where(largest == 0, -127, log2), -127, 127)
    codes = np.where(has_scale, log2 + 127, 255).astype(np.uint8)
    return Scales(codes.view(form.scale), np.where(has_scale, np.ldexp(1.0, log2), np.nan), None)


def _two_levels(
    form: BlockFormat, largest: Array, rule: Scale, tensor: np.float32 | None, options: Options
) -> Scales:
    """The largest elements over that of the format, rounded up or to nearest, first of all blocks and then of each."""
    mode: Mode = "ru" if rule == "rceil" else "rn"
    overflow: Overflow = "ieee" if rule == "rceil" else "saturate"
    most, finite = form.element.largest, np.isfinite(largest)
    if tensor is None:
        whole = largest[finite].max(initial=0.0)
        rounding = options._replace(mode=mode, overflow="saturate")
        divisor = np.asarray(_LARGEST_SCALE * most)
        scale = quotient(source_of(np.asarray(whole)), divisor, FORMATS["float32"], rounding).item()
        tensor = np.float32(max(scale, _LEAST) if whole else 1)
    known = np.where(finite, largest, np.nan)
    rounding = options._replace(mode=mode, overflow=overflow)
    codes = quotient(
        source_of(known), np.asarray(float(tensor) * most), FORMATS[form.scale.name], rounding
    ).view(np.uint8)
    blocks = np.maximum(codes, np.uint8(1)).view(form.scale)
    with np.errstate(invalid="ignore"):
        exact = blocks.astype(np.float64) * np.float64(tensor)
    return Scales(blocks, exact, tensor)
