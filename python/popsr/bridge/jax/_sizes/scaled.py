"""Whether a step is the same program at smaller sizes: jaxprs beside each other, numbers as functions of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from popsr._program.building.location import short_place
from popsr.bridge._same._sizes import TINY, Measure, NotSizedError
from popsr.bridge.jax._known.constants import Constants
from popsr.bridge.jax._locations import user_line
from popsr.bridge.jax._rules.calls import RUN_ONCE, name_of
from popsr.bridge.jax._second_trace import same_parameter
from popsr.bridge.jax._sizes.kinds import ALONG, SMOOTH, Kind, either, joined

__all__ = ["Scaled"]

Triple = Sequence[Any]

_STARTS = {"dynamic_slice": 1, "dynamic_update_slice": 2}
"""Number of operands before those that are positions along each dimension of the first one."""

_WINDOWS = {
    "slice": ("start_indices", "limit_indices", "strides"),
    "dynamic_slice": ("slice_sizes",),
    "gather": ("slice_sizes",),
    "pad": ("padding_config",),
    "reduce_window": ("window_dimensions", "window_strides", "padding"),
}
"""Parameters with a number, or some, for each dimension of the operand."""


class Scaled:
    """A program at its own sizes beside itself at two choices of others.

    Args:
        measure: numbers as functions of sizes.
    """

    def __init__(self, measure: Measure) -> None:
        """With nothing compared."""
        self._measure = measure
        self._constants = Constants(measure)
        self._moved, self._loops = 0, 0

    @property
    def held(self) -> set[float]:
        """Numbers of the program that are the same at all sizes."""
        return self._constants.held

    def compare(self, jaxprs: Triple, kinds: Sequence[Kind]) -> None:
        """Compare the program.

        Args:
            jaxprs: closed ones, of its own sizes first.
            kinds: of its arguments.
        Raises:
            NotSizedError: it is another program, or one of its numbers, or what one decides, does not follow the sizes.
        """
        self._jaxpr(jaxprs, kinds)

    def _jaxpr(self, jaxprs: Triple, kinds: Sequence[Kind]) -> list[Kind]:
        """Kinds of the results."""
        opened: list[Any] = [getattr(each, "jaxpr", each) for each in jaxprs]
        consts = [getattr(each, "consts", ()) for each in jaxprs]
        first = opened[0]
        names: list[dict[Any, Any]] = [{}, {}]
        for role in ("constvars", "invars"):
            self._bind([getattr(each, role) for each in opened], names)
        known = dict(zip(first.invars, kinds, strict=True))
        for number, variable in enumerate(first.constvars):
            values = [each[number] for each in consts] if consts[0] else []
            known[variable] = self._constants.kind(values) if values else Kind.MIXED
        if len({len(each.eqns) for each in opened}) > 1:
            raise NotSizedError(
                f"it has {len(first.eqns)} equations, and {len(opened[1].eqns)} at smaller sizes"
            )
        for equations in zip(*(each.eqns for each in opened), strict=True):
            try:
                found = self._equation(equations, known, names)
            except NotSizedError as error:
                raise _placed(error, equations[0]) from None
            known.update(zip(equations[0].outvars, found, strict=True))
        self._atoms([each.outvars for each in opened], names)
        return [self._kind(atoms, known) for atoms in zip(*(each.outvars for each in opened), strict=True)]

    def _bind(self, variables: Triple, names: list[dict[Any, Any]]) -> None:
        """Take variables of one place for each other."""
        if len({len(each) for each in variables}) > 1:
            raise NotSizedError("it has other values at smaller sizes")
        for triple in zip(*variables, strict=True):
            self._type([each.aval for each in triple])
            for known, its in zip(names, triple[1:], strict=True):
                known[triple[0]] = its

    def _type(self, avals: Triple) -> None:
        dtypes = {str(getattr(each, "dtype", type(each).__name__)) for each in avals}
        shapes = [tuple(getattr(each, "shape", ())) for each in avals]
        if len(dtypes) > 1 or len({len(each) for each in shapes}) > 1:
            raise NotSizedError(f"a value of shape {list(shapes[0])} is {list(shapes[1])} at smaller sizes")
        for numbers in zip(*shapes, strict=True):
            self._measure.integer(numbers)

    def _atoms(self, atoms: Triple, names: list[dict[Any, Any]]) -> None:
        """Require operands that are the same values."""
        if len({len(each) for each in atoms}) > 1:
            raise NotSizedError("it has other operands at smaller sizes")
        for one, *others in zip(*atoms, strict=True):
            for known, other in zip(names, others, strict=True):
                if hasattr(one, "val") != hasattr(other, "val"):
                    raise NotSizedError("it has other operands at smaller sizes")
                if (
                    not hasattr(one, "val")
                    and type(one).__name__ != "DropVar"
                    and known.get(one) is not other
                ):
                    raise NotSizedError("it has other operands at smaller sizes")

    def _kind(self, atoms: Triple, known: Mapping[Any, Kind]) -> Kind:
        if hasattr(atoms[0], "val"):
            self._type([each.aval for each in atoms])
            return self._constants.kind([each.val for each in atoms])
        return known[atoms[0]]

    # Equations

    def _equation(
        self, equations: Triple, known: Mapping[Any, Kind], names: list[dict[Any, Any]]
    ) -> list[Kind]:
        """Kinds of the results of an equation."""
        name = name_of(equations[0])
        if len({name_of(each) for each in equations}) > 1:
            raise NotSizedError(f"{name} is {name_of(equations[1])} at smaller sizes")
        self._atoms([each.invars for each in equations], names)
        self._bind([each.outvars for each in equations], names)
        kinds = [self._kind(atoms, known) for atoms in zip(*(each.invars for each in equations), strict=True)]
        params = [each.params for each in equations]
        if len({tuple(each) for each in params}) > 1:
            raise NotSizedError(f"{name} has other parameters at smaller sizes")
        sized = False
        for key in params[0]:
            sized |= self._parameter(f"{key} of {name}", [each[key] for each in params])
        shrinking = self._shrinking(equations)
        self._windows(name, equations, shrinking)
        inside = self._inside(name, params, kinds)
        if inside is not None:
            return inside
        return self._result(name, equations, kinds, shrinking, sized=sized)

    def _parameter(self, name: str, values: Triple) -> bool:
        """True for a parameter of which a number follows the sizes."""
        one = values[0]
        if _is_jaxpr(one):
            return False
        if isinstance(one, (int, np.integer)) and not isinstance(one, (bool, np.bool_)):
            if not all(isinstance(each, (int, np.integer)) for each in values):
                raise NotSizedError(f"{name} is {values[1]} at smaller sizes")
            return bool(self._measure.integer(values))
        if isinstance(one, (tuple, list)) and type(one) in (tuple, list):
            if len({len(each) for each in values}) > 1:
                raise NotSizedError(f"{name} has another length at smaller sizes")
            parts = [self._parameter(name, each) for each in zip(*values, strict=True)]
            return any(parts)
        if hasattr(one, "shape") and hasattr(one, "dtype") and not hasattr(one, "__array__"):
            self._type(values)
            return False
        if not all(same_parameter(one, each) for each in values[1:]):
            raise NotSizedError(f"{name} is another one at smaller sizes")
        return False

    def _windows(self, name: str, equations: Triple, shrinking: Sequence[int]) -> None:
        """Refuse windows of a fixed width along a dimension that shrinks."""
        params = equations[0].params
        keys = next((keys for kind, keys in _WINDOWS.items() if name.startswith(kind)), ())
        for axis in shrinking:
            for key in keys:
                for numbers in _along(axis, [each.params[key] for each in equations]):
                    self._require_width(f"{key} of {name}", numbers)
            if name == "split" and params["axis"] == axis:
                for numbers in zip(*(each.params["sizes"] for each in equations), strict=True):
                    self._require_width("sizes of split", numbers)
            if name == "top_k":
                self._require_width("k of top_k", [each.params["k"] for each in equations])
            if name == "conv_general_dilated" and axis in params["dimension_numbers"].lhs_spec[2:]:
                raise NotSizedError("a convolution along a dimension that is smaller")

    def _move(self, name: str, equations: Triple, kinds: list[Kind], shrinking: Sequence[int]) -> None:
        """Count by how much elements move along dimensions that are smaller: few parts have more elements.

        Raises:
            NotSizedError: by more than a tiny number, or in each pass of a loop.
        """
        moved = TINY if name.startswith("gather") and kinds[1] is Kind.MOVED else 0
        if name in ("slice", "dynamic_slice", "pad"):
            before, after = (each.aval.shape for each in (equations[0].invars[0], equations[0].outvars[0]))
            for axis in shrinking:
                step = abs(int(before[axis]) - int(after[axis]))
                moved += step if step <= TINY else 0
        self._moved += moved
        if moved and (self._loops or self._moved > 2 * TINY):
            raise NotSizedError(
                f"{name} moves elements again and again by numbers that are the same at all sizes"
            )

    def _require_width(self, what: str, numbers: Sequence[Any]) -> None:
        if abs(int(numbers[0])) > TINY and not self._measure.integer(numbers):
            raise NotSizedError(f"{what} is {numbers[0]} at all sizes, along a dimension that is smaller")

    def _shrinking(self, equations: Triple) -> list[int]:
        """Dimensions of the first operand whose extents follow the sizes."""
        shapes = [getattr(each.invars[0].aval, "shape", ()) if each.invars else () for each in equations]
        return [
            axis for axis, extents in enumerate(zip(*shapes, strict=True)) if self._measure.integer(extents)
        ]

    def _result(
        self, name: str, equations: Triple, kinds: list[Kind], shrinking: Sequence[int], *, sized: bool
    ) -> list[Kind]:
        """Kinds of the results of an equation that runs no jaxpr."""
        outs = [var.aval for var in equations[0].outvars]
        if name.startswith(("random_", "threefry", "rng_")) or Kind.NOISE in kinds:
            return [Kind.NOISE] * len(outs)
        if name == "iota":
            return [Kind.POSITION if sized else Kind.BOUNDED]
        if name == "axis_index":
            return [Kind.BOUNDED]
        _require_positions(name, equations[0], kinds, shrinking)
        self._move(name, equations, kinds, shrinking)
        found = joined(name, kinds)
        if shrinking and Kind.ZERO < found < Kind.POSITION and name not in ALONG:
            found = Kind.MIXED if found is Kind.BOUNDED and Kind.BOUNDED in kinds else Kind.POSITION
        is_smooth = name in SMOOTH and not (name in ("div", "convert_element_type") and _is_integer(outs[0]))
        if found is Kind.MIXED and not is_smooth:
            raise NotSizedError(f"{name} of positions and a number that is the same at all sizes")
        return [Kind.POSITION if found is Kind.DRAWN and _is_integer(aval) else found for aval in outs]

    def _inside(self, name: str, params: Triple, kinds: list[Kind]) -> list[Kind] | None:
        """Kinds of the results of an equation that runs jaxprs; None for one that does not."""
        one = params[0]
        if name == "scan":
            sized = bool(self._measure.integer([each["length"] for each in params]))
            jaxprs = [each["jaxpr"] for each in params]
            return self._loop(jaxprs, kinds, one["num_consts"], one["num_carry"], is_long=sized)
        if name == "while":
            c, b = one["cond_nconsts"], one["body_nconsts"]
            carry = self._loop(
                [each["body_jaxpr"] for each in params], kinds[c:], b, len(kinds) - c - b, is_long=True
            )
            if Kind.MIXED in self._jaxpr([each["cond_jaxpr"] for each in params], [*kinds[:c], *carry]):
                raise NotSizedError(
                    "the condition of a loop is of positions and a number that is the same at all sizes"
                )
            return carry
        if name == "cond":
            if kinds[0] is Kind.MIXED:
                raise NotSizedError("cond of positions and a number that is the same at all sizes")
            found = [
                self._jaxpr(each, kinds[1:]) for each in zip(*(p["branches"] for p in params), strict=True)
            ]
            return [joined("select_n", [kinds[0], *each]) for each in zip(*found, strict=True)]
        if name in RUN_ONCE:
            return self._jaxpr([each[RUN_ONCE[name]] for each in params], kinds)
        if any(map(_is_jaxpr, one.values())) and not name.startswith("scatter"):
            raise NotSizedError(f"{name} runs a program of its own")
        return None

    def _loop(
        self, jaxprs: Triple, kinds: list[Kind], consts: int, carried: int, *, is_long: bool
    ) -> list[Kind]:
        """Kinds of the results of a loop, of whose carry each pass may change the kinds.

        What changes in each pass of a loop whose length follows the sizes is as a position is.
        """
        carry = kinds[consts : consts + carried]
        body: Any = getattr(jaxprs[0], "jaxpr", jaxprs[0])
        for number, (kind, its) in enumerate(zip(carry, body.invars[consts:], strict=False)):
            if is_long and body.outvars[number] is not its and kind < Kind.POSITION:
                carry[number] = Kind.MIXED if kind is Kind.BOUNDED else Kind.POSITION
        while True:
            self._loops += 1
            found = self._jaxpr(jaxprs, [*kinds[:consts], *carry, *kinds[consts + carried :]])
            self._loops -= 1
            both = [either(a, b) for a, b in zip(carry, found, strict=False)]
            if is_long:  # a count of passes is a position
                both = [
                    a if (a, b) == (Kind.POSITION, Kind.MOVED) else b
                    for a, b in zip(carry, both, strict=True)
                ]
            if both == carry:
                return [*carry, *found[carried:]]
            carry = both


def _require_positions(name: str, equation: Any, kinds: Sequence[Kind], shrinking: Sequence[int]) -> None:
    """Refuse positions along a dimension that is smaller which do not follow it."""
    numbers = equation.params.get("dimension_numbers")
    if name in _STARTS:
        found = [(kinds[_STARTS[name] + axis], axis) for axis in range(len(kinds) - _STARTS[name])]
    elif name.startswith("gather"):
        found = [(kinds[1], axis) for axis in numbers.start_index_map]
    elif name.startswith("scatter"):
        found = [(kinds[1], axis) for axis in numbers.scatter_dims_to_operand_dims]
    else:
        return
    for kind, axis in found:
        if kind is Kind.MIXED or (kind is Kind.BOUNDED and axis in shrinking):
            raise NotSizedError(f"{name} at a position that is the same at all sizes")


def _is_jaxpr(value: Any) -> bool:
    return (
        hasattr(value, "eqns")
        or hasattr(getattr(value, "jaxpr", None), "eqns")
        or (isinstance(value, tuple) and any(map(_is_jaxpr, value)))
    )


def _placed(error: NotSizedError, equation: Any) -> NotSizedError:
    """The error with the line of the user, of the innermost equation that has one."""
    line = None if error.place else user_line(equation)
    return error if line is None else NotSizedError(str(error), short_place(f"{line[0]}:{line[1]}"))


def _is_integer(aval: Any) -> bool:
    return getattr(getattr(aval, "dtype", None), "kind", "") in ("i", "u")


def _along(axis: int, values: Triple) -> Iterator[Sequence[Any]]:
    """Numbers of a parameter that are said for a dimension, or for all."""
    if isinstance(values[0], (int, np.integer)):
        yield values
        return
    if values[0] is None or axis >= len(values[0]):
        return
    each = [value[axis] for value in values]
    yield from zip(*each, strict=True) if isinstance(each[0], (tuple, list)) else [each]
