"""Integers of data that are known by their shape alone: what they are positions in, from how the step uses them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from popsr.bridge.jax._importer import stored
from popsr.bridge.jax._rules.calls import PLACED, RUN_ONCE, name_of
from popsr.bridge.jax._rules.kinds import EXCHANGES, MOVES

__all__ = ["Use", "uses_of"]

_PASS = MOVES | EXCHANGES | frozenset(PLACED) | frozenset([
    "split", "dynamic_slice", "stop_gradient", "add", "sub", "max", "min", "clamp",
])  # fmt: skip
"""Primitives whose results are their operands elsewhere, moved, or one of several."""


@dataclass
class Use:
    """Uses of integers in a step.

    Attributes:
        extents: of dimensions that they are positions in.
        beside: numbers that they are compared with.
        unclear: True if they are positions after another computation.
    """

    extents: set[int] = field(default_factory=set)
    beside: set[int] = field(default_factory=set)
    unclear: bool = False


@dataclass(frozen=True)
class _Value:
    """Integers that a value is made of, and the extent of positions that it counts."""

    of: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    counts: int = 0


_NOTHING = _Value()


def uses_of(jaxpr: Any, integers: Sequence[int]) -> Mapping[int, Use]:
    """The uses of integers by the number of the argument.

    Args:
        jaxpr: a closed one, of a step on one device.
        integers: numbers of arguments.
    """
    walk = _Walk({number: Use() for number in integers})
    given = [
        _Value(frozenset([number])) if number in walk.uses else _NOTHING
        for number in range(len(jaxpr.jaxpr.invars))
    ]
    walk.jaxpr(jaxpr, given)
    return walk.uses


class _Walk:
    def __init__(self, uses: dict[int, Use]) -> None:
        self.uses = uses

    def jaxpr(self, jaxpr: Any, given: Sequence[_Value]) -> list[_Value]:
        """Values of the results."""
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        known = dict(zip(jaxpr.invars, given, strict=True))

        def value_of(atom: Any) -> _Value:
            return _NOTHING if hasattr(atom, "val") else known.get(atom, _NOTHING)

        for equation in jaxpr.eqns:
            values = [value_of(atom) for atom in equation.invars]
            known.update(zip(equation.outvars, self._equation(equation, values), strict=True))
        return [value_of(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, values: list[_Value]) -> list[_Value]:
        name, params = name_of(equation), equation.params
        inside = self._inside(name, params, values)
        if inside is not None:
            return inside
        self._note(name, equation, values)
        if name == "select_n":
            values = values[1:]
        of = frozenset().union(*(each.of for each in values))
        lost = frozenset().union(*(each.lost for each in values))
        counts = max((each.counts for each in values), default=0)
        if name == "iota":
            made = _Value(counts=int(params["shape"][params["dimension"]]))
        elif name in _PASS:
            made = _Value(of, lost, counts)
        elif name.startswith("gather"):
            made = values[0]
        else:
            made = _Value(lost=of | lost)
        return [made] * len(equation.outvars)

    def _note(self, name: str, equation: Any, values: list[_Value]) -> None:
        """See where integers are positions, and what they are compared with."""
        if name in ("eq", "ne"):
            for mine, other, atom in zip(values, values[::-1], equation.invars[::-1], strict=True):
                for number in mine.of if other.counts else ():
                    self.uses[number].extents.add(other.counts)
                number_beside = stored(atom.val) if hasattr(atom, "val") else None
                if number_beside is not None and number_beside.size == 1:
                    for number in mine.of:
                        self.uses[number].beside.add(int(number_beside))
            return
        if name.startswith("gather"):
            numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
            axes, index = numbers.start_index_map, values[1]
            for number in index.of:
                if len(axes) == 1:
                    extent = equation.invars[0].aval.shape[axes[0]] - sizes[axes[0]] + 1
                    self.uses[number].extents.add(int(extent))
        elif name.startswith(("scatter", "dynamic_slice", "dynamic_update_slice")):
            axes = ()
            index = _Value(lost=frozenset().union(*(each.of | each.lost for each in values[1:])))
            if name.startswith("scatter"):
                index, axes = values[1], (0,)
        else:
            return
        for number in index.lost | (frozenset() if len(axes) == 1 else index.of):
            self.uses[number].unclear = True

    def _inside(self, name: str, params: Mapping[str, Any], values: list[_Value]) -> list[_Value] | None:
        if name == "scan":
            return self._loop(params["jaxpr"], values, params["num_consts"], params["num_carry"])
        if name == "while":
            c, b = params["cond_nconsts"], params["body_nconsts"]
            carry = self._loop(params["body_jaxpr"], values[c:], b, len(values) - c - b)
            self.jaxpr(params["cond_jaxpr"], [*values[:c], *carry])
            return carry
        if name == "cond":
            every = [self.jaxpr(each, values[1:]) for each in params["branches"]]
            return [functools.reduce(_both, each) for each in zip(*every, strict=True)]
        return self.jaxpr(params[RUN_ONCE[name]], values) if name in RUN_ONCE else None

    def _loop(self, jaxpr: Any, values: list[_Value], consts: int, carried: int) -> list[_Value]:
        """Values of the results of a loop, whose carry is of what any pass has made."""
        carry = values[consts : consts + carried]
        while True:
            found = self.jaxpr(jaxpr, [*values[:consts], *carry, *values[consts + carried :]])
            both = [_both(a, b) for a, b in zip(carry, found[:carried], strict=True)]
            if both == carry:
                return [*carry, *found[carried:]]
            carry = both


def _both(one: _Value, other: _Value) -> _Value:
    return _Value(one.of | other.of, one.lost | other.lost, max(one.counts, other.counts))


def drawn(use: Use, shape: Sequence[int], dtype: np.dtype[Any], number: int) -> Any:
    """Integers at random, from 0 to below an extent, and now and then a number that they are compared with."""
    rng = np.random.default_rng(number)
    (extent,) = use.extents
    made = rng.integers(0, extent, tuple(shape))
    for beside in sorted(use.beside):
        made = np.where(rng.integers(0, 8, made.shape) < 1, beside, made)
    return made.astype(dtype)
