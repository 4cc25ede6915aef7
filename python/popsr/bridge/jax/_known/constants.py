"""Constants of a program at several sizes: the same at all, functions of sizes, positions or masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from popsr.bridge._same._sizes import TINY, Measure, NotSizedError, Sized
from popsr.bridge.jax._importer import stored
from popsr.bridge.jax._sizes.kinds import Kind

__all__ = ["Constants"]

_TINY_FLOATS = {1.0, 2.0}


class Constants:
    """Constants of a program.

    Args:
        measure: numbers as functions of sizes.
    """

    def __init__(self, measure: Measure) -> None:
        """Without any."""
        self._measure = measure
        self.held: set[float] = set()
        """Numbers that are the same at all sizes."""

    def kind(self, values: Sequence[Any]) -> Kind:
        """The kind of a constant.

        Args:
            values: the constant at its own sizes, and at two choices of others.
        Raises:
            NotSizedError: it is another one at other sizes, and does not follow them.
        """
        arrays = [stored(each) for each in values]
        numbers, array = [_uniform(each) for each in arrays], arrays[0]
        if any(each is None for each in numbers):
            if array.dtype.kind == "V" or len({each.shape for each in arrays}) > 1:
                return _regular(arrays)
            if len({each.tobytes() for each in arrays}) > 1:
                raise NotSizedError(
                    f"an array of constants {list(array.shape)} is another one at smaller sizes"
                )
            return Kind.BOUNDED
        if not array.size or array.dtype.kind == "b":
            if len({*numbers}) > 1:
                raise NotSizedError("a truth value is another one at smaller sizes")
            return Kind.ZERO
        return self._number(numbers, array.dtype)

    def _number(self, numbers: Sequence[Any], dtype: np.dtype[Any]) -> Kind:
        number = numbers[0]
        if dtype.kind in "iu":
            sized = self._measure.integer(numbers)
            if sized:
                return Kind.MOVED if sized is Sized.MOVED else Kind.SIZED
            return self._held(float(number), is_tiny=abs(int(number)) <= TINY)
        if dtype.kind == "c":
            raise NotSizedError(f"a complex constant {number}")
        unit = float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7
        floats = tuple(map(float, numbers))
        if self._measure.floating(floats, unit):
            return Kind.SIZED
        return self._held(floats[0], is_tiny=abs(floats[0]) in _TINY_FLOATS)

    def _held(self, number: float, *, is_tiny: bool) -> Kind:
        """The kind of a number that is the same at all sizes."""
        if not number or not np.isfinite(number):
            return Kind.ZERO
        if is_tiny:
            return Kind.TINY
        self.held.add(abs(number))
        return Kind.BOUNDED


def _uniform(array: np.ndarray[Any, Any]) -> Any:
    """The number that an array is everywhere; None if it is not."""
    if not array.size:
        return 0
    flat = array.reshape(-1)
    return flat[0].item() if flat.tobytes() == np.broadcast_to(flat[0], flat.shape).tobytes() else None


def _regular(arrays: Sequence[np.ndarray[Any, Any]]) -> Kind:
    """The kind of an array of positions, or of a mask by the order of two of them."""
    for forms in zip(*map(_forms, arrays), strict=True):
        if all(
            each.tobytes() == form.astype(each.dtype).tobytes()
            for each, form in zip(arrays, forms, strict=True)
        ):
            return Kind.POSITION
    raise NotSizedError(
        f"an array of constants {list(arrays[0].shape)}, whose content is not known at smaller sizes: compute it "
        "inside of the step, or give it as an argument"
    )


def _forms(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Arrays of that shape: positions along each dimension, masks by their order, and a diagonal."""
    places = np.indices(array.shape, sparse=True)
    for each in places:
        yield np.broadcast_to(each, array.shape)
    if array.ndim > 1:
        yield from (
            compare(places[-2], places[-1]) for compare in (np.greater_equal, np.less_equal, np.equal)
        )
