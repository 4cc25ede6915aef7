"""Smaller sizes in place of large ones, and numbers of a program as functions of sizes."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

__all__ = ["TINY", "Measure", "NotSizedError", "Sized", "Sizes", "choices"]

_LEAST = 8
"""Sizes up to this one stay: programs have such numbers for other reasons."""
TINY = 2
"""Integers up to this one act at smaller sizes as they do at large ones."""
_COUNTS = 512
"""Sizes up to this one, as numbers of heads, are also tried as multiples of those that divide them."""
_PRIMES = [n for n in range(3, 400) if n != 5 and all(n % d for d in range(2, math.isqrt(n) + 1))]
"""Primes that sizes are multiples of, but for those of decimal fractions."""


class NotSizedError(Exception):
    """A program that is another one at smaller sizes; the text says why. Never seen by users.

    Args:
        text: the reason.
        place: the line.
    """

    def __init__(self, text: str, place: str = "") -> None:
        """With or without a line."""
        super().__init__(f"{text} at {place}" if place else text)
        self.place = place


@dataclass(frozen=True)
class Choice:
    """Smaller sizes, each with a prime of its own, so that numbers tell which sizes they are products of.

    Attributes:
        sizes: the size that each has become, in the order in which they were chosen; others stay.
        primes: the primes, by the large size.
    """

    sizes: Mapping[int, int]
    primes: Mapping[int, int]

    def parts(self, number: Fraction) -> tuple[Mapping[int, int], Fraction]:
        """Powers of large sizes in a number at the smaller ones, and the factor that is left."""
        powers = {}
        for size in reversed([*self.primes]):
            power = _power(number, self.primes[size])
            if power:
                powers[size] = power
                number /= Fraction(self.sizes[size]) ** power
        return powers, number

    def at(self, powers: Mapping[int, int], factor: Fraction) -> Fraction:
        """The number of such powers at these sizes."""
        return math.prod((Fraction(self.sizes[size]) ** n for size, n in powers.items()), start=factor)


def _power(number: Fraction, prime: int) -> int:
    power, top, bottom = 0, number.numerator, number.denominator
    while top and top % prime == 0:
        power, top = power + 1, top // prime
    while bottom % prime == 0:
        power, bottom = power - 1, bottom // prime
    return power


@dataclass(frozen=True)
class Sizes:
    """Sizes in place of large ones, three times.

    Attributes:
        distinct: sizes with primes of their own, at which numbers of a program are told apart.
        small: two choices of the smallest sizes, at which the program is compared. Their ratios are multiplicatively
            independent up to products of four of them: what is equal at both by chance alone is none of these.
    """

    distinct: Choice
    small: tuple[Mapping[int, int], Mapping[int, int]]


def choices(
    cuts: Mapping[int, int],
    axes: Collection[int],
    cost: Callable[[Mapping[int, int]], int],
    kept: Collection[int] = (),
) -> Iterator[Sizes]:
    """Smaller sizes, few numbers first, then such that keep more of how sizes divide each other.

    Args:
        cuts: large sizes, with the number of parts that each is cut into at most.
        axes: sizes of the axes of the mesh.
        cost: of a step with such sizes.
        kept: sizes that stay.
    """
    changing = {size: cut for size, cut in cuts.items() if size > _LEAST and size != cut and size not in kept}
    tried: list[Mapping[int, int]] = []
    while changing:
        stay = [n for n in (*cuts, *cuts.values(), *axes) if n not in changing]
        primes = [p for p in _PRIMES if all(n % p for n in stay)]
        large = set()
        for mode in _MODES:
            found = _Chosen(changing, stay, mode, axes)
            small, large_now = found.small(cost)
            large |= large_now
            if not large_now and small[0] not in tried:
                tried.append(small[0])
                yield Sizes(found.with_primes(primes, cost), small)
        if not large:
            return
        changing = {size: cut for size, cut in changing.items() if size not in large}


class _Mode(NamedTuple):
    """Relations of sizes that smaller ones keep: cuts along each axis, counts that divide each other, products."""

    along: bool
    counts: bool
    products: bool


_MODES = [
    _Mode(False, False, False),
    _Mode(False, True, False),
    _Mode(True, False, False),
    _Mode(True, True, False),
    _Mode(False, True, True),
    _Mode(True, True, True),
]
_LOW, _HIGH = TINY + 1, 24
_FACTORS = sorted(
    ((m, n) for m in range(_LOW, _HIGH) for n in range(_LOW, _HIGH) if m != n),
    key=lambda each: (sum(each), each),
)
"""Factors of a size at the two choices; parts have more elements than a tiny number counts."""
_DEGREE = 4
"""Ratios in products that differ from each other."""


@dataclass
class _Chosen:
    """Sizes of one mode."""

    changing: Mapping[int, int]
    stay: Collection[int]
    mode: _Mode
    axes: Collection[int]

    def _order(self, cost: Callable[[Mapping[int, int]], int]) -> list[int]:
        """Sizes in the order in which they are chosen: those that cost most first, or that divide others."""
        if self.mode.counts or self.mode.products:
            return sorted(self.changing)
        least = {size: _LOW * self._unit(size) for size in self.changing}
        before = cost(least)
        return sorted(
            least, key=lambda size: (-round(4 * cost(least | {size: 2 * least[size]}) / before), size)
        )

    def _unit(self, size: int) -> int:
        axes = math.lcm(1, *self.axes) if self.mode.along else 1
        return math.lcm(self.changing[size], math.gcd(size, axes))

    def _least(self, size: int, sizes: Mapping[int, int]) -> tuple[int, bool]:
        """A number that a size is a multiple of, beside those that are chosen already; True if it is the size."""
        if self.mode.products:
            for a, b in itertools.combinations_with_replacement(sizes, 2):
                if a * b == size:
                    return sizes[a] * sizes[b], True
        unit = self._unit(size)
        if self.mode.counts and size <= _COUNTS:
            unit = math.lcm(unit, *(new for old, new in sizes.items() if size % old == 0))
        return unit, False

    def with_primes(self, primes: Sequence[int], cost: Callable[[Mapping[int, int]], int]) -> Choice:
        """Sizes with primes of their own."""
        sizes: dict[int, int] = {}
        found: dict[int, int] = {}
        left = iter(primes)
        for size in self._order(cost):
            unit, is_product = self._least(size, sizes)
            if not is_product:
                found[size] = next(left)
            sizes[size] = unit * found.get(size, 1)
        return Choice(sizes, found)

    def small(
        self, cost: Callable[[Mapping[int, int]], int]
    ) -> tuple[tuple[Mapping[int, int], Mapping[int, int]], set[int]]:
        """The two choices, and sizes that are not smaller there, or not independent of others."""
        first: dict[int, int] = {}
        second: dict[int, int] = {}
        ratios = [{Fraction(1)}, *(set[Fraction]() for _ in range(_DEGREE))]
        large = set()
        for size in self._order(cost):
            units = [self._least(size, sizes) for sizes in (first, second)]
            for factors in [(1, 1)] if units[0][1] else _FACTORS:
                now = tuple(factor * unit for factor, (unit, _) in zip(factors, units, strict=True))
                is_new = all(
                    new not in (*sizes.values(), *self.stay)
                    for new, sizes in zip(now, (first, second), strict=True)
                )
                if units[0][1] or (is_new and _add_ratio(ratios, Fraction(*now))):
                    break
            else:
                large.add(size)
            first[size], second[size] = now
            large |= {size} if max(now) >= size else set()
        return (first, second), large


def _add_ratio(ratios: list[set[Fraction]], ratio: Fraction) -> bool:
    """Add a ratio to products of ratios, by their number, unless one becomes another; True if it was added."""
    for power in range(1, _DEGREE + 1):
        for sign in (1, -1):
            if any(ratio ** (sign * power) in ratios[degree] for degree in range(_DEGREE + 1 - power)):
                return False
    before = [set(each) for each in ratios]
    for power in range(1, _DEGREE + 1):
        for degree in range(_DEGREE + 1 - power):
            for each in before[degree]:
                ratios[degree + power] |= {each * ratio**power, each / ratio**power}
    return True


class Sized(enum.IntEnum):
    """Whether an integer is a function of sizes; a tiny integer beside one moves it."""

    NOT = 0
    PLAIN = 1
    MOVED = 2


class Measure:
    """Numbers of a program as functions of sizes: at its own, at such that tell them apart, and at small ones.

    Args:
        distinct: sizes at which numbers are told apart.
        small: sizes at which it is compared.
        known: sizes of arguments and of parts of them, as they are at all three.
    """

    def __init__(
        self, distinct: Choice, small: Mapping[int, int], known: Collection[tuple[int, int, int]]
    ) -> None:
        """With sums of which one part is known."""
        self._distinct = distinct
        self._others = (
            Choice({size: size for size in distinct.sizes}, distinct.primes),
            Choice(small, distinct.primes),
        )
        self._known = [each for each in known if len(set(each)) > 1]
        self._integers: dict[tuple[int, ...], Sized] = {}

    def integer(self, given: Sequence[Any]) -> Sized:
        """Whether an integer is a function of sizes.

        Functions are products of sizes with a factor, also with a tiny integer or another size added.

        Raises:
            NotSizedError: it is none.
        """
        numbers = tuple(map(int, given))
        if numbers not in self._integers:
            self._integers[numbers] = self._is_sized(numbers)
        return self._integers[numbers]

    def _is_sized(self, numbers: tuple[int, ...]) -> Sized:
        if len(set(numbers)) < 2:
            return Sized.NOT
        if len({each in (0, 1) for each in numbers}) == 1:
            sums = [(n * a, n * b, n * c) for a, b, c in self._known for n in (1, 2, -1)]
            for offset in ((0, 0, 0), *sums, *((c, c, c) for c in (1, -1, 2, -2))):
                rest = [Fraction(a - b) for a, b in zip(numbers, offset, strict=True)]
                if all(rest) and self._is_product(rest):
                    return Sized.MOVED if len(set(offset)) == 1 and offset[0] else Sized.PLAIN
        raise NotSizedError(f"{numbers[0]} is {numbers[1]} and {numbers[2]} at smaller sizes")

    def _is_product(self, numbers: list[Fraction]) -> bool:
        powers, factor = self._distinct.parts(numbers[1])
        return [each.at(powers, factor) for each in self._others] == [numbers[0], numbers[2]]

    def floating(self, numbers: Sequence[float], unit: float) -> bool:
        """True for a float that is a function of sizes, False for one that is the same at all.

        Functions are products of powers of sizes, with a factor: itself, squares and fourth powers are fractions.

        Args:
            numbers: at the three sizes.
            unit: relative distance of numbers of that format.
        Raises:
            NotSizedError: it is none.
        """
        if len({np.float64(each).tobytes() for each in numbers}) < 2:
            return False
        if all(map(math.isfinite, numbers)) and all(numbers):
            for power in (1, 2, 4):
                found = [abs(each) ** power for each in numbers]
                if self._is_near(found, 4 * power * unit):
                    return True
        shown = ", ".join(f"{each:.6g}" for each in numbers[1:])
        raise NotSizedError(f"{numbers[0]:.6g} is {shown} at smaller sizes")

    def _is_near(self, numbers: Sequence[float], distance: float) -> bool:
        exact = None if distance > _COARSE else _simplest(numbers[1], distance)
        if not exact:
            return False
        powers, factor = self._distinct.parts(exact)
        return all(
            abs(float(choice.at(powers, factor)) / number - 1) <= distance
            for choice, number in zip(self._others, (numbers[0], numbers[2]), strict=True)
        )


_COARSE = 1e-5
"""Relative distance of numbers of a format from which on too many fractions are near."""


def _simplest(number: float, distance: float) -> Fraction | None:
    """A fraction of few digits near a positive number."""
    for digits in range(1, 7):
        for inverse in (False, True):
            near = Fraction(1 / number if inverse else number).limit_denominator(10**digits)
            exact = 1 / near if inverse and near else near
            if exact and abs(float(exact) / number - 1) <= distance:
                return exact
    return None
