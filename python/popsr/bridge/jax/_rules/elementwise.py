"""Element-wise primitives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._rules.calls import PLACED
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, rule

__all__: list[str] = []

_OPS: dict[str, Callable[..., Tensor]] = {
    "abs": ops.abs,
    "acos": ops.acos,
    "acosh": ops.acosh,
    "add": ops.add,
    "add_any": ops.add,
    "and": ops.bitwise_and,
    "asin": ops.asin,
    "asinh": ops.asinh,
    "atan": ops.atan,
    "atan2": ops.atan2,
    "atanh": ops.atanh,
    "cbrt": ops.cbrt,
    "ceil": ops.ceil,
    "clz": ops.count_leading_zeros,
    "cos": ops.cos,
    "cosh": ops.cosh,
    "div": ops.div,
    "eq": ops.equal,
    "erf": ops.erf,
    "erf_inv": ops.erf_inv,
    "erfc": ops.erfc,
    "exp": ops.exp,
    "exp2": ops.exp2,
    "expm1": ops.expm1,
    "floor": ops.floor,
    "ge": ops.greater_equal,
    "gt": ops.greater,
    "is_finite": ops.isfinite,
    "le": ops.less_equal,
    "log": ops.log,
    "log1p": ops.log1p,
    "logistic": ops.sigmoid,
    "lt": ops.less,
    "ne": ops.not_equal,
    "neg": ops.negate,
    "not": ops.bitwise_not,
    "or": ops.bitwise_or,
    "population_count": ops.population_count,
    "rem": ops.fmod,
    "rsqrt": ops.rsqrt,
    "shift_left": ops.shift_left,
    "shift_right_arithmetic": ops.shift_right_arithmetic,
    "shift_right_logical": ops.shift_right_logical,
    "sign": ops.sign,
    "sin": ops.sin,
    "sinh": ops.sinh,
    "sqrt": ops.sqrt,
    "square": ops.square,
    "sub": ops.sub,
    "tan": ops.tan,
    "tanh": ops.tanh,
    "xor": ops.bitwise_xor,
}
"""Primitives that are one op."""


def _one_op(function: Callable[..., Tensor]) -> Callable[..., Result]:
    """The op as a function of this file, which is how the table knows the kind of a rule."""
    return lambda *operands: function(*operands)


for _name, _function in _OPS.items():
    rule(_name, plain=True)(_one_op(_function))


@rule("mul", plain=True)
def _mul(a: Tensor, b: Tensor) -> Result:
    return ops.bitwise_and(a, b) if a.dtype == dtypes.bool else ops.mul(a, b)


@rule("max", plain=True)
def _max(a: Tensor, b: Tensor) -> Result:
    return ops.bitwise_or(a, b) if a.dtype == dtypes.bool else ops.maximum(a, b)


@rule("min", plain=True)
def _min(a: Tensor, b: Tensor) -> Result:
    return ops.bitwise_and(a, b) if a.dtype == dtypes.bool else ops.minimum(a, b)


@rule("integer_pow")
def _integer_pow(equation: Equation, a: Tensor) -> Result:
    return ops.integer_pow(a, int(equation.params["y"]))


@rule("round")
def _round(equation: Equation, a: Tensor) -> Result:
    to_even = int(equation.params["rounding_method"]) == 1
    return ops.round(a, half="even" if to_even else "away")


@rule("pow", plain=True)
def _pow(a: Tensor, b: Tensor) -> Result:
    if not a.dtype.is_floating_point:
        raise NotSupportedError(f"{a.dtype.name}")
    return ops.pow(a, b if b.dtype == a.dtype else ops.cast(b, a.dtype))


@rule("clamp", plain=True)
def _clamp(low: Tensor, a: Tensor, high: Tensor) -> Result:
    return ops.minimum(ops.maximum(a, low), high)


@rule("select_n", raw=True)
def _select_n(equation: Equation) -> Result:
    """Case k where the predicate is k; a bool counts as 0 or 1. Of a predicate that is one known number, that case."""
    importer, predicate = equation.importer, equation.values[0]
    if isinstance(predicate, np.ndarray) and predicate.size and (predicate == predicate.flat[0]).all():
        return importer.tensor(equation.values[1 + int(predicate.flat[0])])
    which, *cases = map(importer.tensor, equation.values)
    if len(cases) == 1:
        return cases[0]
    if which.dtype == dtypes.bool:
        return ops.where(which, cases[1], cases[0])
    chosen = cases[0]
    for number, case in enumerate(cases[1:], 1):
        chosen = ops.where(ops.equal(which, equation.constant(number, which.dtype)), case, chosen)
    return chosen


@rule("convert_element_type")
def _convert(equation: Equation, a: Tensor) -> Result:
    to = equation.dtype
    if to == dtypes.bool and a.dtype != dtypes.bool:
        return ops.not_equal(a, equation.constant(0, a.dtype))
    return a if a.dtype == to else ops.cast(a, to)


@rule("copy", "stop_gradient", "optimization_barrier", "name", plain=True)
def _same(*operands: Tensor) -> Result:
    return list(operands)


@rule("pvary", *PLACED, raw=True)
def _kept(equation: Equation) -> Result:
    """The operands: the place of an array and the axes that it varies over change no value."""
    return list(equation.values)
