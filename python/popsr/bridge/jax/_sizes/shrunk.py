"""A step of large sizes, given by shapes alone, at smaller ones at which it is the same program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from popsr._support.text.one_line import one_line
from popsr.bridge._same._sizes import Measure, NotSizedError, Sizes, choices
from popsr.bridge._step.arguments import Reading, Smaller
from popsr.bridge.jax._arguments import Leaf, is_shape
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import is_key
from popsr.bridge.jax._known.indices import Use, drawn, uses_of
from popsr.bridge.jax._sizes.kinds import Kind
from popsr.bridge.jax._sizes.scaled import Scaled
from popsr.bridge.jax._traced import Traced

__all__ = ["Shrinking", "resized"]

_LARGE = 1 << 22
"""Elements of floats known by shapes alone from which a step is shrunk."""
_MOST = 1 << 24
"""Elements up to which smaller sizes are small."""
_OWN = 1 << 27
"""Elements up to which a step that cannot be shrunk is compared as it is."""
_TRIES = 24
"""Choices of sizes that are tried at most."""
_FEW = 8
"""Elements of integers that are given, and say nothing about sizes."""
_COUNT = 3
"""The number that a count begins with that is known by its shape alone."""

Trace = Callable[[Reading], Traced]


def _is_open(value: Any) -> bool:
    """True for an argument of numbers of which the shape alone is known."""
    return is_shape(value) and not is_key(value)


def resized(leaf: Leaf, number: int, how: Reading, has_rows: bool) -> Any:
    """An argument at other sizes, with as many rows for replicas; its integers are drawn."""
    value, sizes = leaf.value, how.sizes
    if sizes is None or not _is_open(value):
        return value
    rows = 1 if has_rows else 0
    shape = (*value.shape[:rows], *(sizes.get(n, n) for n in value.shape[rows:]))
    kind = np.dtype(value.dtype).kind
    if kind in "iub" and how.integers is not None:
        return how.integers(number, shape)
    return the_jax().ShapeDtypeStruct(shape, value.dtype)


class Shrinking:
    """A search for smaller sizes.

    Args:
        leaves: arguments of the step.
        like: the step in its place on one device, or None.
        trace: traces the step in some way.
    """

    def __init__(self, leaves: Sequence[Leaf], like: Any, trace: Trace) -> None:
        """Without anything traced."""
        self._leaves, self._like, self._trace = leaves, like, trace
        self._shapes = [each for each in leaves if _is_open(each.value)]

    @property
    def is_large(self) -> bool:
        """True for a step with many floats that are known by shapes alone."""
        return self._elements({}) >= _LARGE

    def _elements(self, sizes: Mapping[int, int]) -> int:
        floats = [each for each in self._shapes if np.dtype(each.value.dtype).kind not in "iub"]
        return sum(math.prod(sizes.get(n, n) for n in each.value.shape) for each in floats)

    def _cost(self, sizes: Mapping[int, int]) -> int:
        """Products of all elements of weights with all places of a batch."""
        batch = [each for each in self._shapes if np.dtype(each.value.dtype).kind in "iu"]
        places = sum(math.prod(sizes.get(n, n) for n in each.value.shape) for each in batch)
        return self._elements(sizes) * max(places, 1)

    def found(self) -> Sequence[Smaller] | str | None:
        """Two choices of smaller sizes, or why there are none; None where the step can be compared at its own."""
        found = self._found()
        return None if isinstance(found, str) and self._elements({}) <= _OWN else found

    def _found(self) -> Sequence[Smaller] | str | None:
        if hasattr(self._like, "arguments"):
            return "like is a step that is read, expected a function"
        given = next((each for each in self._leaves if self._holds_positions(each)), None)
        if given is not None:
            return f"integers of {given.path} are given as an array: give its shape alone"
        try:
            large = [self._trace(self._how(alone, {})) for alone in (False, True)]
        except (
            Exception
        ):  # also whatever the user's code raises: the comparison says what, as it reads the step
            return None
        reason, tries = "", 0
        cuts, axes = self._cuts(large[0]), [*large[0].spread.sizes.values()]
        for kept in self._kept(cuts):
            for sizes in self._choices(cuts, axes, kept):
                tries += 1
                if tries > _TRIES:
                    return reason
                try:
                    return self._at(large, cuts, axes, sizes)
                except NotSizedError as error:
                    found = str(error)
                except (
                    Exception
                ) as error:  # whatever the framework or the user's code raises with other sizes
                    text = one_line(str(error).partition("\n")[0], 160)
                    found = f"{type(error).__name__} at smaller sizes: {text}"
                reason = reason or found
        return reason or "no size can be smaller"

    def _holds_positions(self, leaf: Leaf) -> bool:
        value = leaf.value
        if is_shape(value) or is_key(value):
            return False
        return np.asarray(value).dtype.kind in "iu" and np.size(value) > _FEW

    def _how(self, alone: bool, sizes: Mapping[int, int]) -> Reading:
        return Reading(alone=alone, still=True, sizes=sizes, like=self._like if alone else None)

    def _cuts(self, traced: Traced) -> dict[int, int]:
        """Sizes of arguments, with the number of parts that each is cut into."""
        cuts: dict[int, int] = {}
        rows = traced.per_replica or [False] * len(self._leaves)
        for leaf, spec, has_rows in zip(self._leaves, traced.specs, rows, strict=True):
            shape = np.shape(leaf.value) if not is_key(leaf.value) else ()
            for axis, n in enumerate(shape[1:] if has_rows else shape):
                axes = () if has_rows or axis >= len(spec) else spec[axis]
                cuts[n] = math.lcm(cuts.get(n, 1), traced.spread.size(axes))
        return cuts

    def _fixed(self) -> set[int]:
        """Sizes of arguments that are given as arrays."""
        return {
            n
            for each in self._leaves
            if not is_shape(each.value) and not is_key(each.value)
            for n in np.shape(each.value)
        }

    def _kept(self, cuts: Mapping[int, int]) -> Iterator[set[int]]:
        """Sizes that stay: those of arrays that are given; then also one other."""
        fixed = self._fixed()
        yield fixed
        yield from (fixed | {size} for size in sorted({*cuts} - fixed))

    def _choices(self, cuts: Mapping[int, int], axes: Sequence[int], kept: set[int]) -> Iterator[Sizes]:
        for sizes in choices(cuts, axes, self._cost, kept):
            if max(map(self._elements, sizes.small)) <= _MOST:
                yield sizes

    def _at(
        self, large: Sequence[Traced], cuts: Mapping[int, int], axes: Sequence[int], sizes: Sizes
    ) -> Sequence[Smaller]:
        """The step at these sizes.

        Raises:
            NotSizedError: it is another program.
        """
        kinds = [self._kind(each) for each in self._leaves]
        alone: list[Traced] = []
        held: set[float] = set()
        for number, traced in enumerate(large):
            told = self._trace(self._how(bool(number), sizes.distinct.sizes))
            for small in sizes.small:
                its = self._trace(self._how(bool(number), small))
                measure = Measure(sizes.distinct, small, _known(cuts, sizes.distinct.sizes, small))
                scaled = Scaled(measure)
                scaled.compare([each.jaxpr for each in (traced, told, its)], kinds)
                held |= scaled.held
                alone += [its] if number else []
        drawn_ones = [number for number, leaf in enumerate(self._leaves) if self._is_drawn(leaf)]
        doubt = self._doubt(cuts, axes, sizes.small[0], held)
        return [
            self._smaller(small, uses_of(its.jaxpr, drawn_ones), doubt)
            for small, its in zip(sizes.small, alone, strict=True)
        ]

    def _doubt(
        self, cuts: Mapping[int, int], axes: Sequence[int], sizes: Mapping[int, int], held: set[float]
    ) -> str:
        """Reason for which a step may be right at its own sizes alone: a size as a number, or a product of others."""
        parts = {part for size in sizes for part in (size, size // cuts[size])}
        known = parts | {a * b for a in parts for b in {*parts, *cuts}}
        mesh = {math.prod(some) for n in range(len(axes) + 1) for some in itertools.combinations(axes, n)}
        for number in sorted(held - mesh - {1 / n for n in mesh}):
            for power in (number, 1 / number, number**2, 1 / number**2):
                near = round(power) if power < 1e15 else 0
                if near > 2 and near in known and abs(power / near - 1) < 1e-6:
                    return f"{number:g} may be a size that it is no more: take it from a shape"
        for a, b in itertools.combinations_with_replacement(cuts, 2):
            lost = a * b in sizes and sizes.get(a, a) * sizes.get(b, b) != sizes[a * b]
            if lost and a > 2 and self._like is not None:
                return f"{a * b} is not {a} times {b}, as it is at its own"
        return ""

    def _smaller(self, sizes: Mapping[int, int], uses: Mapping[int, Use], doubt: str) -> Smaller:
        for number, use in uses.items():
            if use.unclear or len(use.extents) != 1:
                raise NotSizedError(
                    f"it is not known what integers of {self._leaves[number].path} are positions in"
                )
        return Smaller(sizes, self._integers(uses), self._notes(sizes, uses), doubt)

    def _is_drawn(self, leaf: Leaf) -> bool:
        value = leaf.value
        return _is_open(value) and np.dtype(value.dtype).kind in "iu" and bool(value.shape)

    def _kind(self, leaf: Leaf) -> Kind:
        value = leaf.value
        if is_key(value):
            return Kind.NOISE
        kind = np.dtype(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype).kind
        if kind == "b" or self._is_drawn(leaf):
            return Kind.POSITION
        return Kind.BOUNDED if kind in "iu" else Kind.DRAWN

    def _integers(self, uses: Mapping[int, Use]) -> Callable[[int, tuple[int, ...]], Any]:
        """Integers and truth values in place of those that are known by their shape."""

        def made(number: int, shape: tuple[int, ...]) -> Any:
            dtype = np.dtype(self._leaves[number].value.dtype)
            if number in uses:
                return drawn(uses[number], shape, dtype, number)
            if dtype.kind == "b":
                return np.random.default_rng(number).integers(0, 2, shape).astype(bool)
            return np.full(shape, _COUNT, dtype)

        return made

    def _notes(self, sizes: Mapping[int, int], uses: Mapping[int, Use]) -> tuple[str, ...]:
        changed = ", ".join(f"{old} as {new}" for old, new in sorted(sizes.items()))
        notes = [
            f"compared at smaller sizes, where the step is the same program but for numbers that follow them: {changed}"
        ]
        for number, use in uses.items():
            beside = "".join(f", and {n}" for n in sorted(use.beside))
            notes.append(f"{self._leaves[number].path} is drawn from 0 to below {min(use.extents)}{beside}")
        counts = [
            each.path
            for number, each in enumerate(self._leaves)
            if _is_open(each.value) and np.dtype(each.value.dtype).kind in "iu" and number not in uses
        ]
        if counts:
            notes.append(f"{', '.join(counts)}: {_COUNT}")
        return tuple(notes)


def _known(
    cuts: Mapping[int, int], told: Mapping[int, int], small: Mapping[int, int]
) -> list[tuple[int, int, int]]:
    """Sizes of arguments and of their parts, at all three."""
    threes = [(size, told.get(size, size), small.get(size, size), cut) for size, cut in cuts.items()]
    return sorted({(a // n, b // n, c // n) for a, b, c, cut in threes for n in (1, cut)})
