"""Rows of the table of ops for updates of variables: accumulations, sparse ones, optimiser steps; with their oracles.

Oracles of optimiser steps are given wide arrays, so each case knows the dtypes of its moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Facts, Row, normal, positive, special, together
from tests_py.support.helpers import ALL_DTYPES, FLOATS, INTS, NUMBERS, Array
from tests_py.support.oracles import ops as oracles

_ONE = ("float32",)


def _quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arrays: Array, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays, **attrs)

    return call


# Sums, means, scales, copies


def _mean_update(t: Array, x: Array, step: Any) -> Array:
    wide = t.dtype.type
    b = wide(1) / (wide(step) + wide(1))
    return oracles.scaled_add(t, x, wide(1) - b, b)


def _accumulate(t: Array, x: Array, f: Any = 1.0) -> Array:
    return oracles.scaled_add(t, x.astype(t.dtype), 1.0, f)


def _plain_updates() -> dict[str, Row]:
    pair = normal((3, 5), (3, 5))
    mixed = together(normal((300,)), (normal((300,)), "float32"))
    factor = together(normal((9,), (9,)), (positive(()), "float32"))

    def row(*cases: Case, required: tuple[str, ...] = (), replicas: tuple[Facts, ...] = ()) -> Row:
        return Row(cases, "modifies", required=required, replicas=replicas)

    unread = Case(special(2), lambda t, x, f: t, {"f": 0.0}, "nothing", NUMBERS)
    cleared = Case(special(1), lambda t, f: np.zeros_like(t), {"f": 0.0}, "clear", NUMBERS)

    def scaled(t: Array, f: Any) -> Array:
        with np.errstate(all="ignore"):
            return t * t.dtype.type(f)

    return {
        "accumulate_": row(
            Case(pair, _accumulate, dtypes=NUMBERS),
            Case(pair, _accumulate, {"f": 3.0}, "factor", NUMBERS),
            Case(pair, _accumulate, {"f": 0.3}, "fraction"),
            Case(mixed, _accumulate, {"f": 1e-3}, "mixed"),
            Case(factor, _accumulate, {}, "tensor"),
            unread,
            replicas=(Facts(("0011", "0101"), "0011", case=unread),),
        ),
        "accumulate_mean_": row(
            Case(pair, _mean_update, {"step": 0.0}),
            Case(pair, _mean_update, {"step": 6.0}, "later"),
            Case(special(2), lambda t, x, step: x + 0, {"step": 0.0}, "overwritten"),
            Case(factor, _mean_update, {}, "tensor"),
            required=("step",),
        ),
        "accumulator_scale_": row(
            Case(normal((3, 5)), scaled, {"f": 3.0}, "", NUMBERS),
            Case(normal((3, 5)), scaled, {"f": 0.3}, "fraction"),
            Case(together(normal((9,)), (positive(()), "float32")), scaled, {}, "tensor"),
            cleared,
            required=("f",),
            replicas=(Facts(("0011",), "0000", case=cleared),),
        ),
        "accumulator_zero_": row(
            Case(special(1), np.zeros_like, dtypes=ALL_DTYPES), replicas=(Facts(("0011",), "0000"),)
        ),
        "copy_var_update_": row(
            Case(pair, lambda t, x: x, dtypes=ALL_DTYPES),
            Case(mixed, lambda t, x: x, {}, "mixed", ("float16", "bfloat16", "float32")),
            replicas=(Facts(("0011", "0101"), "0101"), Facts(("0011", "0000"), "0000")),
        ),
    }


# Squares, moving averages


def square(t: Array, x: Array, f: Any = 1.0) -> Array:
    """t + f * X^2."""
    x = x.astype(t.dtype)
    return oracles.scaled_add(t, x * x, 1.0, f)


def average(t: Array, x: Array, f: Any) -> Array:
    """f * t + (1 - f) * X."""
    wide = t.dtype.type
    return oracles.scaled_add(t, x, wide(f), wide(1) - wide(f))


def average_square(t: Array, x: Array, f: Any) -> Array:
    """f * t + (1 - f) * X^2."""
    x = x.astype(t.dtype)
    return average(t, x * x, f)


def _accumulations() -> dict[str, Row]:
    pair = normal((3, 5), (3, 5))
    mixed = together(normal((300,)), (normal((300,)), "float32"))
    factor = together(normal((9,), (9,)), (positive(()), "float32"))
    fraction = together(normal((9,), (9,)), ((lambda *_: [np.array([0.25], np.float64)]), "float64"))
    squares, averages, average_squares = (_quietly(each) for each in (square, average, average_square))

    def averaged(oracle: Callable[..., Any]) -> Row:
        return Row(
            (
                Case(pair, oracle, {"f": 0.9}),
                Case(pair, oracle, {"f": 0.0}, "next"),
                Case(pair, oracle, {"f": 1.0}, "old"),
                Case(mixed, oracle, {"f": 0.999}, "mixed"),
                Case(fraction, oracle, {}, "tensor"),
                Case(special(2), oracle, {"f": 0.9}, "special"),
                Case(normal((0, 3), (0, 3)), oracle, {"f": 0.9}, "empty"),
            ),
            "modifies",
            required=("f",),
        )

    return {
        "accumulate_square_": Row(
            (
                Case(pair, squares, dtypes=NUMBERS),
                Case(pair, squares, {"f": 3.0}, "factor", NUMBERS),
                Case(pair, squares, {"f": 0.1}, "fraction"),
                Case(mixed, squares, {"f": 1e-3}, "mixed"),
                Case(factor, squares, {}, "tensor"),
                Case(special(2), squares, {"f": 0.5}, "special"),
                Case(special(2), lambda t, x, f: t, {"f": 0.0}, "nothing", NUMBERS),
            ),
            "modifies",
            defaults={"f": 1.0},
        ),
        "accumulate_moving_average_": averaged(averages),
        "accumulate_moving_average_square_": averaged(average_squares),
    }


# Sparse updates


def sparse(t: Array, x: Array, indices: Array, *tensors: Array, axis: int = 0, f: float = 1.0) -> Array:
    """One addition after another; the last one of each element is exact (to odd) for float32."""
    wide = t.dtype.type
    factor = wide(tensors[0]) if tensors else wide(f)
    rows = np.moveaxis(t, axis, 0)
    axis %= t.ndim
    values = x.reshape((*t.shape[:axis], indices.size, *t.shape[axis + 1 :]))
    total = rows.copy()
    last = total.astype(np.float64) if t.dtype == np.float32 else total.copy()
    with np.errstate(all="ignore"):
        for position, value in zip(indices.flat, np.moveaxis(values, axis, 0), strict=True):
            term = np.asarray(factor * value.astype(t.dtype))
            last[int(position)] = oracles.add(total[int(position)], term)
            total[int(position)] = total[int(position)] + term
    return np.moveaxis(last, 0, axis)


def _sparse() -> Row:
    def case(
        label: str,
        t: tuple[int, ...],
        indices: tuple[int, ...],
        axis: int = 0,
        *,
        flat: bool = False,
        **options: Any,
    ) -> Case:
        at = axis % len(t)
        middle = (int(np.prod(indices)),) if flat else indices
        draw_indices = (lambda rng, name: [rng.integers(0, t[at], indices).astype(name)], "int32")
        draw = together(normal(t), normal((*t[:at], *middle, *t[at + 1 :])), draw_indices)
        attrs = {"axis": axis} if axis else {}
        return Case(draw, sparse, attrs | options.pop("attrs", {}), label, **{"dtypes": FLOATS, **options})

    def by_index(name: str) -> Case:
        indices = (lambda rng, kind: [rng.integers(0, 9, 5).astype(kind)], name)
        return Case(together(normal((9, 2)), normal((5, 2)), indices), sparse, {}, f"by-{name}", _ONE)

    def as_weight(fn: Any, t: Any, x: Any, indices: Any, weight: Any) -> Any:
        return fn(t, x, indices, W=weight)

    def scaled(fn: Any, t: Any, x: Any, indices: Any, factor: Any) -> Any:
        return fn(t, x, indices, f=factor)

    few = (lambda rng, name: [rng.integers(0, 4, 6).astype(name)], "int32")
    mixed = together(normal((4, 7)), (normal((6, 7)), "float32"), few)
    return Row(
        (
            case("", (5, 3), (2,), dtypes=NUMBERS),
            case("duplicates", (3, 8), (40,), dtypes=NUMBERS),
            case("factor", (5, 3), (9,), dtypes=NUMBERS, attrs={"f": 2.0}),
            case("fraction", (5, 3), (9,), attrs={"f": 0.1}),
            case("last", (3, 5), (7,), -1),
            case("middle", (2, 4, 3), (2, 3), 1),
            case("flat", (2, 4, 3), (2, 3), 1, flat=True),
            case("scalar", (5, 3), ()),
            case("vector", (6,), (9,)),
            case("wide", (40, 1500), (70,), dtypes=("bfloat16", "float64")),
            case("nothing", (5, 3), (0,)),
            case("empty", (5, 0), (2,)),
            case("empty-axis", (0, 3), (0,)),
            Case(mixed, sparse, {"f": 1e-3}, "mixed"),
            Case(together(mixed, (positive(()), "float32")), sparse, {}, "tensor", call=scaled),
            Case(
                together(mixed, (normal((4, 7)), "float16")),
                lambda t, x, indices, weight: sparse(t, x, indices),
                {},
                "weight",
                call=as_weight,
            ),
            Case(
                together(special(1), special(1), (lambda *_: [np.zeros(0, np.int32)], "int32")),
                lambda t, x, indices, **_: t,
                {"f": 0.0},
                "zero",
                call=lambda fn, t, x, indices, f: fn(t, x, _counting(t), f=f),
            ),
            *(by_index(name) for name in INTS),
        ),
        "modifies",
        parameters=("t", "X", "indices", "axis", "f", "W"),
    )


def _counting(t: Any) -> Any:
    import popsr

    return popsr.constant(np.arange(t.shape[0], dtype=np.int32))


# Optimiser steps


def power(beta: float, t: int) -> float:
    """beta^t in float64 by squaring, from the highest bit down."""
    result = 1.0
    for bit in bin(t)[2:]:
        result *= result
        if bit == "1":
            result *= beta
    return result


def correction(beta: float, t: int, moment: str, *, wide: bool) -> Any:
    """1 - beta^t as the updaters round it."""
    if wide:
        value = np.float64(1.0) - np.float64(power(float(beta), t))
    else:
        single = np.float32(1) - np.float32(power(float(np.float32(beta)), t))
        value = np.float64(single)
    return np.float64(oracles.round_once(np.asarray(value), moment))


def step(
    m: Array,
    v: Array,
    weight: Array | None,
    corrections: tuple[Any, Any],
    epsilon: Any,
    decay: Any,
    *,
    kind: type[Any],
    adamax: bool = False,
) -> Array:
    """The step in compute type ``kind``; the last sum is exact (to odd) for float32."""
    with np.errstate(all="ignore"):
        first = m.astype(kind) / kind(corrections[0])
        second = v.astype(kind)
        if not adamax:
            second = np.sqrt(second / kind(corrections[1]))
        quotient = first / (second + kind(epsilon))
        if weight is None:
            return np.asarray(quotient)
        return oracles.scaled_add(quotient, weight.astype(kind), 1.0, decay)


class Updater:
    """Case of an updater: dtypes of the moments and of the weight, what is given, and in which form."""

    def __init__(
        self,
        first: str,
        second: str = "",
        weight: str = "",
        *,
        adamax: bool = False,
        counts: int | None = None,
        counter: str = "float32",
        numbers: bool = True,
    ) -> None:
        """``counts``: the time step before; ``numbers``: scalars are numbers, else tensors."""
        self.first, self.second, self.weight = first, second or first, weight
        self.adamax, self.counts, self.counter = adamax, counts, counter
        scalars: dict[str, float] = {"epsilon": 1e-5}
        if weight:
            scalars["weight_decay"] = 0.01
        if counts is not None:
            scalars |= {"beta1": 0.9} if adamax else {"beta1": 0.9, "beta2": 0.999}
        self.numbers = scalars if numbers else {}
        self.tensors = {} if numbers else scalars

    def draw(self, rng: np.random.Generator, _: str) -> list[Array]:
        """Moments, weight, time step, scalar tensors."""
        arrays = [*normal((3, 50))(rng, self.first), *positive((3, 50))(rng, self.second)]
        if self.weight:
            arrays += normal((3, 50))(rng, self.weight)
        if self.counts is not None:
            arrays.append(np.array(self.counts, self.counter))
        return [*arrays, *(np.array([value], np.float32) for value in self.tensors.values())]

    def special(self, rng: np.random.Generator, name: str) -> list[Array]:
        """As ``draw``, with special values in the moments."""
        return [*special(2)(rng, self.first), *self.draw(rng, name)[2:]]

    def call(self, fn: Any, m: Any, v: Any, *rest: Any, **attrs: Any) -> Any:
        """Passes what is given by name."""
        names = ["weight"] * bool(self.weight) + ["time_step"] * (self.counts is not None) + [*self.tensors]
        return fn(m, v, **dict(zip(names, rest, strict=True)), **attrs)

    def oracle(self, m: Array, v: Array, *rest: Array, **attrs: Any) -> Any:
        """The step, and the time step where there is one."""
        given = list(rest)
        weight = given.pop(0) if self.weight else None
        counted = given.pop(0) if self.counts is not None else None
        scalars = {name: float(value[0]) for name, value in zip(self.tensors, given, strict=True)} | attrs
        moments_wide = "float64" in (self.first, self.second)
        kind = np.float64 if moments_wide or (self.weight or self.first) == "float64" else np.float32
        corrections: Any = (1.0, 1.0)
        if counted is not None:
            t = int(counted) + 1
            corrections = tuple(
                correction(scalars[beta], t, moment, wide=moments_wide) if beta in scalars else 1.0
                for beta, moment in (("beta1", self.first), ("beta2", self.second))
            )
        x = step(
            m,
            v,
            weight,
            corrections,
            scalars["epsilon"],
            scalars.get("weight_decay", 0.0),
            kind=kind,
            adamax=self.adamax,
        )
        return x if counted is None else (x, np.asarray(counted + counted.dtype.type(1)))

    def case(self, label: str, *, plain: bool = False, draw: Draw | None = None) -> Case:
        """``plain``: tensors are passed by position."""
        at = 2 + bool(self.weight)
        return Case(
            draw or self.draw,
            self.oracle,
            self.numbers,
            label,
            (self.first,),
            call=None if plain else self.call,
            written=() if self.counts is None else (at,),
        )


def _updater(*, adamax: bool = False) -> Row:
    def cases(label: str, *dtypes: str, **options: Any) -> Case:
        return Updater(*dtypes, adamax=adamax, **{"counts": 0, **options}).case(label)

    plain = [
        Updater(name, name, name, adamax=adamax, counts=4).case("" if name == FLOATS[0] else name, plain=True)
        for name in FLOATS
    ]
    extremes = [
        (each := Updater(name, adamax=adamax, counts=0)).case(f"special-{name}", draw=each.special)
        for name in FLOATS
    ]
    more = [
        cases("mixed-state", "float16", "float32", "float32"),
        cases("mixed-state-narrow-weight", "float16", "float32", "float16"),
        cases("wide-second", "float32", "float64", "float32"),
        cases("wide-weight", "bfloat16", "float32", "float64"),
        cases("narrow-weight-of-wide-state", "float64", "float64", "bfloat16"),
        cases("no-weight", "float16", "float32"),
        cases("far", "float32", "float32", "float32", counts=100_000),
        cases("tensors", "bfloat16", "bfloat16", "bfloat16", numbers=False),
        cases("tensors-wide", "float64", "float32", "float64", numbers=False, counts=9),
        *(cases(f"counter-{name}", "float32", counter=name, counts=6) for name in (*INTS, "float64")),
    ]
    if not adamax:
        more += [
            cases(f"uncorrected-{label or 'plain'}", "float16", "float32", label, counts=None)
            for label in ("", "float32")
        ]
    defaults = {"epsilon": 1e-7} | ({"beta1": 0.9} if adamax else {})
    return Row((*plain, *extremes, *more), "modifies", defaults=defaults)


def var_update(
    t: Array,
    x: Array,
    r1: Array,
    r2: Array,
    *tensors: Array,
    learning_rate: Any = None,
    max_weight_norm: Any = None,
) -> Array:
    """t - (rate * ratio) * x."""
    kind = t.dtype.type
    given = [kind(each.reshape(-1)[0]) for each in tensors]
    rate = kind(learning_rate) if learning_rate is not None else given.pop(0)
    bound = given.pop(0) if given else max_weight_norm
    first, second, ratio = kind(r1.reshape(-1)[0]), kind(r2.reshape(-1)[0]), kind(1)
    with np.errstate(all="ignore"):
        if bound is not None and first != 0 and second != 0 and bound != 0:
            ratio = kind(min(np.sqrt(first), kind(bound)) / np.sqrt(second))
        return oracles.scaled_add(t, x.astype(t.dtype), 1.0, -(rate * ratio))


def _var_update() -> Row:
    def case(label: str, r1: float, r2: float, norms: str = "float32", **attrs: Any) -> Case:
        squares = (lambda *_: [np.array(r1, norms), np.array([r2], norms)], norms)
        return Case(
            together(normal((5, 40), (5, 40)), squares), var_update, {"learning_rate": 0.1, **attrs}, label
        )

    def tensors(fn: Any, t: Any, x: Any, r1: Any, r2: Any, rate: Any, bound: Any) -> Any:
        return fn(t, x, r1, r2, rate, bound)

    scalars = together(normal((5, 40), (5, 40)), (positive((), (1,), (), (1,)), "float32"))
    mixed = together(normal((300,)), (normal((300,)), "float32"), (positive((), ()), "float32"))
    integers = together(normal((300,)), (normal((300,)), "int16"), (positive((), ()), "int32"))
    without_norms = case("no-greatest-norm", 2.0, 0.7)
    return Row(
        (
            case("", 30.0, 0.7, max_weight_norm=2.0),
            without_norms,
            case("unbounded", 3.0, 0.7, max_weight_norm=10.0),
            case("no-weight", 0.0, 0.7, max_weight_norm=10.0),
            case("no-step", 3.0, 0.0, max_weight_norm=10.0),
            case("no-bound", 3.0, 2.0, max_weight_norm=0.0),
            case("wide-norms", 3.0, 2.0, "float64", max_weight_norm=1.0),
            Case(scalars, var_update, {}, "tensors", call=tensors),
            Case(mixed, var_update, {"learning_rate": 1e-3, "max_weight_norm": 10.0}, "mixed"),
            Case(integers, var_update, {"learning_rate": 0.5, "max_weight_norm": 10.0}, "integers"),
            Case(
                together(special(2), (positive((), ()), "float32")),
                var_update,
                {"learning_rate": 0.5, "max_weight_norm": 1.0},
                "special",
            ),
        ),
        "modifies",
        replicas=(Facts(("0000", "0011", "0101", "0101"), "0011", case=without_norms, label="norms-unread"),),
    )


def update_rows() -> dict[str, Row]:
    """Rows by op."""
    return {
        **_plain_updates(),
        **_accumulations(),
        "sparse_accumulate_": _sparse(),
        "adam_updater": _updater(),
        "lamb_updater": _updater(),
        "adamax_updater": _updater(adamax=True),
        "adam_var_update": _var_update(),
    }
