"""Elements of blocks: a value over its block's scale, rounded once by the core."""

from __future__ import annotations

import numpy as np

from popsr.sr._blocks.formats import BlockFormat, Element
from popsr.sr._call import Options, Source, run
from popsr.sr._formats import Format, format_of
from popsr.sr._kinds import NUMPY, Array

__all__ = ["quotient", "rounded_elements", "source_of", "widened"]


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


def widened(source: Source) -> Array:
    """The values as float32 or float64, exactly."""
    values = source.array.view(source.form.numpy)
    return values if values.dtype == np.float64 else values.astype(np.float32, copy=False)


def rounded_elements(form: BlockFormat, source: Source, scales: Array, options: Options) -> Array:
    """The elements, zeros in blocks without a scale.

    Args:
        form: the format.
        source: the values, in an array with an axis for the elements of a block.
        scales: of blocks, as float64 that are broadcast to the values; NaN of blocks without.
        options: how to round.
    """
    element = form.element
    binades = _binades(element, source, scales)
    powers = ((np.int32(127) + binades) << 23).view(np.float32)  # 2**binades
    if form.has_tensor_scale:
        divisors = scales * 2.0**-element.shift * powers
        codes = quotient(source, divisors, element.core, options)
    else:  # powers of two: float32 has all these factors
        factors = (2.0**element.shift / scales).astype(np.float32) / powers
        codes = np.empty(source.array.shape, element.core.carrier)
        run("mul", codes, element.core, (source, source_of(factors)), (), options)
    if not element.is_of_core:
        codes = _of_fewer_bits(element, codes, binades, np.signbit(widened(source)))
    unknown = np.isnan(scales)
    if unknown.any():
        codes = np.where(unknown, codes.dtype.type(0), codes)
    return codes.view(element.numpy)


def _binades(element: Element, source: Source, scales: Array) -> Array:
    """Number of the binade in which each element lies, from 0; a 0 for all where there is one."""
    binades = np.zeros((), np.uint8)
    if element.binades > 1:
        magnitudes = np.abs(widened(source))
        for k in range(1, element.binades):
            binades = binades + _at_least(magnitudes, scales * 2.0**k).view(np.uint8)
    return binades


def _at_least(magnitudes: Array, limits: Array) -> Array:
    """``magnitudes >= limits``, exactly; float32 is compared with float32, which is faster."""
    if magnitudes.dtype == np.float64:
        return np.asarray(magnitudes >= limits)
    above = limits.astype(np.float32)
    above = np.where(above < limits, np.nextafter(above, np.float32(np.inf)), above)
    return np.asarray(magnitudes >= above)


def _of_fewer_bits(element: Element, codes: Array, binades: Array, negative: Array) -> Array:
    """Bits of elements: codes of the core's format, and what lies before a binade, at most the largest; then signs."""
    codes = codes.view(element.core.raw)
    codes &= codes.dtype.type((1 << (8 * codes.itemsize - 1)) - 1)
    if element.numpy == np.int8:
        numbers, ones = np.minimum(codes, codes.dtype.type(127)).astype(np.int8), -negative.view(np.int8)
        return np.asarray((numbers ^ ones) - ones)  # two's complement
    codes += binades << np.uint8(1)  # a binade of e2m1 has two codes, and begins at twice its spacing
    np.minimum(codes, np.asarray(element.largest).astype(element.numpy).view(np.uint8), out=codes)
    codes |= negative.view(np.uint8) << np.uint8(element.bits - 1)
    return codes
