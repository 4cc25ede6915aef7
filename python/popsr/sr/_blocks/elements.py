"""Elements of blocks: a value over its block's scale, rounded once by the core."""

from __future__ import annotations

import numpy as np

from popsr.sr._blocks.formats import BlockFormat, Element
from popsr.sr._call import Options, Source, run
from popsr.sr._formats import Format, format_of
from popsr.sr._kinds import NUMPY, Array

__all__ = ["quotient", "rounded_elements", "source_of"]


def source_of(array: Array) -> Source:
    """An array that popsr has made, as an operand of the core."""
    form = format_of(array.dtype)
    assert form is not None
    return Source("", array, NUMPY, array.view(form.carrier), form, is_raw=False)


def quotient(x: Source, y: Array, to: Format, options: Options) -> Array:
    """``x / y``, the exact value rounded once, in the carrier dtype of the format; zeros lose their sign."""
    out = np.empty(x.array.shape, to.carrier)
    run("addcdiv", out, to, (source_of(np.zeros(())), x, source_of(y)), (1.0,), options)
    return out


def rounded_elements(
    form: BlockFormat, source: Source, wide: Array, magnitudes: Array, scales: Array, options: Options
) -> Array:
    """The elements, zeros in blocks without a scale.

    Args:
        form: the format.
        source: the values, in an array with an axis for the elements of a block.
        wide: the same as float32 or float64.
        magnitudes: of these.
        scales: of blocks, as float64 that are broadcast to the values; NaN of blocks without.
        options: how to round.
    """
    element = form.element
    above = [_at_least(magnitudes, scales * 2.0**k) for k in range(1, element.binades)]
    if form.has_tensor_scale:
        divisors = _in_binades(scales * 2.0**-element.shift, 2.0, above)
        codes = quotient(source, divisors, element.core, options)
    else:  # powers of two: float32 has all these factors
        factors = _in_binades((2.0**element.shift / scales).astype(np.float32), 0.5, above)
        codes = np.empty(source.array.shape, element.core.carrier)
        run("mul", codes, element.core, (source, source_of(factors)), (), options)
    if not element.is_of_core:
        codes = _of_fewer_bits(element, codes, above, np.signbit(wide))
    unknown = np.isnan(scales)
    if unknown.any():
        codes = np.where(unknown, codes.dtype.type(0), codes)
    return codes.view(element.numpy)


def _at_least(magnitudes: Array, limits: Array) -> Array:
    """``magnitudes >= limits``, exactly; float32 is compared with float32, which is faster."""
    if magnitudes.dtype == np.float64:
        return np.asarray(magnitudes >= limits)
    above = limits.astype(np.float32)
    above = np.where(above < limits, np.nextafter(above, np.float32(np.inf)), above)
    return np.asarray(magnitudes >= above)


def _in_binades(first: Array, ratio: float, above: list[Array]) -> Array:
    """A block's number, times ``ratio`` in the second binade, and once more in the third."""
    found = first
    for k, elsewhere in enumerate(above, 1):
        found = np.where(elsewhere, first * first.dtype.type(ratio**k), found)
    return found


def _of_fewer_bits(element: Element, codes: Array, above: list[Array], negative: Array) -> Array:
    """Bits of elements: codes of the core's format, and what lies before a binade, at most the largest; then signs."""
    codes = codes.view(element.core.raw)
    codes &= codes.dtype.type((1 << (8 * codes.itemsize - 1)) - 1)
    for each in above:  # a binade of e2m1 has two codes, and a first one that is twice its spacing
        codes += each.view(np.uint8) << np.uint8(1)
    if element.numpy == np.int8:
        numbers = np.minimum(codes, codes.dtype.type(127)).astype(np.int8)
        return np.asarray(np.where(negative, -numbers, numbers))
    largest = np.asarray(element.largest).astype(element.numpy).view(np.uint8)
    np.minimum(codes, largest, out=codes)
    codes |= negative.view(np.uint8) << np.uint8(element.bits - 1)
    return codes
