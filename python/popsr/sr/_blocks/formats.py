"""Block formats: their elements, and how the core rounds to these.

The core rounds to formats of 8 and 16 bits. A format of fewer bits has the first codes of one whose fraction is as
long, but for a power of two: e2m3 those of e4m3, e3m2 those of e5m2. Integers are subnormals of float16, and e2m1 has
in each of its three binades the multiples of one spacing, which are subnormals of e4m3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from popsr.sr._formats import FORMATS, Format

__all__ = ["BLOCK_FORMATS", "BlockFormat", "BlockFormatName", "Element", "Scale"]

BlockFormatName = Literal["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxint8", "nvfp4"]
"""Names of block formats."""

Scale = Literal["rceil", "floor", "nearest"]
"""Rules that choose scales."""


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """Elements of a block format.

    Attributes:
        numpy: dtype of arrays that users see, one element a byte.
        bits: of an element; the lowest of its byte.
        unit: what an element of the value 1 in that dtype stands for.
        largest: magnitude of the largest element.
        core: format whose codes the core rounds to.
        shift: log2 of the factor from an element, in its first binade, to a value of ``core``.
        binades: binades whose spacings differ, where each is rounded as multiples of its spacing; otherwise 1.
    """

    numpy: np.dtype[Any]
    bits: int
    unit: float
    largest: float
    core: Format
    shift: int
    binades: int = 1

    @property
    def is_of_core(self) -> bool:
        """True if the core has the format itself."""
        return bool(self.core.numpy == self.numpy)


@dataclass(frozen=True, slots=True, eq=False)
class BlockFormat:
    """A block format.

    Attributes:
        element: of what it has blocks.
        scale: dtype of a block's scale.
        size: elements of a block.
        rules: what ``scale=`` may be.
    """

    element: Element
    scale: np.dtype[Any]
    size: int
    rules: tuple[Scale, ...]

    @property
    def has_tensor_scale(self) -> bool:
        """True if the scales of blocks have one scale in common."""
        return bool(self.scale == _E4M3)


def _float(name: str, bits: int, core: str, shift: int, binades: int = 1) -> Element:
    numpy_type = np.dtype(getattr(ml_dtypes, name))
    largest = float(ml_dtypes.finfo(numpy_type).max)  # type: ignore[no-untyped-call, unused-ignore]
    return Element(numpy_type, bits, 1.0, largest, FORMATS[core], shift, binades)


_E4M3, _E8M0 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e8m0fnu)
_E2M1 = _float("float4_e2m1fn", 4, "float8_e4m3fn", 1 - 9, binades=3)
_INT8 = Element(np.dtype(np.int8), 8, 2.0**-6, 127 * 2.0**-6, FORMATS["float16"], 6 - 24)


def _mx(element: Element) -> BlockFormat:
    return BlockFormat(element, _E8M0, 32, ("rceil", "floor"))


BLOCK_FORMATS: dict[BlockFormatName, BlockFormat] = {
    "mxfp8_e4m3": _mx(_float("float8_e4m3fn", 8, "float8_e4m3fn", 0)),
    "mxfp8_e5m2": _mx(_float("float8_e5m2", 8, "float8_e5m2", 0)),
    "mxfp6_e2m3": _mx(_float("float6_e2m3fn", 6, "float8_e4m3fn", 3 - 9)),
    "mxfp6_e3m2": _mx(_float("float6_e3m2fn", 6, "float8_e5m2", 4 - 16)),
    "mxfp4": _mx(_E2M1),
    "mxint8": _mx(_INT8),
    "nvfp4": BlockFormat(_E2M1, _E4M3, 16, ("rceil", "nearest")),
}
