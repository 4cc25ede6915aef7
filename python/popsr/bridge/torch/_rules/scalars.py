"""Rules of Python's arithmetic on numbers that are known only when the step runs, such as ``0.9 ** step.item()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._dtypes import Scalar, is_float
from popsr.bridge.torch._rules.table import Gap, Site, cast, python_rule, rule

__all__: list[str] = []


@rule("_local_scalar_dense.default", "item.default")
def _item(_site: Site, t: Tensor) -> Scalar:
    t = ops.reshape(t, ())
    if t.dtype == dtypes.bool:
        return Scalar(t)
    return Scalar(cast(t, dtypes.float64 if is_float(t.dtype) else dtypes.int64))


def _pair(a: Any, b: Any, *, floats: bool = False) -> tuple[Tensor, Tensor]:
    """Both numbers as Python computes with them: in float64 if one is a float, else in int64."""
    given = [each.tensor if isinstance(each, Scalar) else each for each in (a, b)]
    some = floats or any(
        is_float(each.dtype) if isinstance(each, Tensor) else isinstance(each, float) for each in given
    )
    kind = dtypes.float64 if some else dtypes.int64
    left, right = (
        cast(each, kind) if isinstance(each, Tensor) else constant(np.asarray(each), kind) for each in given
    )
    return left, right


def _binary(name: str, function: Callable[[Tensor, Tensor], Tensor], *, floats: bool = False) -> None:
    def apply(_site: Site, a: Any, b: Any) -> Scalar:
        return Scalar(function(*_pair(a, b, floats=floats)))

    python_rule(name)(apply)


_binary("add", ops.add)
_binary("sub", ops.sub)
_binary("mul", ops.mul)
_binary("truediv", ops.div, floats=True)
_binary("int_truediv", ops.div, floats=True)
_binary("gt", ops.greater)
_binary("lt", lambda a, b: ops.greater(b, a))
_binary("ge", lambda a, b: ops.logical_or(ops.greater(a, b), ops.equal(a, b)))
_binary("le", lambda a, b: ops.logical_or(ops.greater(b, a), ops.equal(a, b)))
_binary("eq", ops.equal)
_binary("ne", lambda a, b: ops.logical_not(ops.equal(a, b)))
_binary("sym_max", lambda a, b: ops.where(ops.greater(a, b), a, b))
_binary("sym_min", lambda a, b: ops.where(ops.greater(b, a), a, b))


def _truth(value: Any) -> Tensor:
    """A number or tensor as Python's truth value, which NaN has, too."""
    if isinstance(value, Scalar):
        value = value.tensor
    if not isinstance(value, Tensor):
        return constant(np.asarray(bool(value)), dtypes.bool)
    return cast(ops.reshape(value, ()), dtypes.bool)


@python_rule("and_")
def _and(_site: Site, a: Any, b: Any) -> Scalar:
    return Scalar(ops.logical_and(_truth(a), _truth(b)))


@python_rule("or_")
def _or(_site: Site, a: Any, b: Any) -> Scalar:
    return Scalar(ops.logical_or(_truth(a), _truth(b)))


@python_rule("sym_not")
def _not(_site: Site, a: Any) -> Scalar:
    return Scalar(ops.logical_not(_truth(a)))


@python_rule("select_way")
def _select_way(site: Site, holds: Any, taken: Any, other: Any) -> Any:
    """The value of the way that a rank takes; of numbers a number."""
    truth = _truth(holds)
    if not isinstance(taken, Tensor) or not isinstance(other, Tensor):
        return Scalar(ops.where(truth, *_pair(taken, other)))
    return ops.where(site.expand(truth, taken.shape), taken, other)


@python_rule("pow", "float_pow")
def _pow(_site: Site, a: Any, b: Any) -> Scalar:
    left, right = _pair(a, b)
    if not is_float(left.dtype):
        raise Gap("integers to a power that is known only when the step runs")
    return Scalar(ops.sqrt(left) if b == 0.5 else ops.pow(left, right))


@python_rule("neg")
def _neg(_site: Site, a: Scalar) -> Scalar:
    return Scalar(ops.negate(a.tensor))


@python_rule("sqrt", "_sym_sqrt", "sym_sqrt")
def _sqrt(_site: Site, a: Scalar) -> Scalar:
    return Scalar(ops.sqrt(cast(a.tensor, dtypes.float64)))


@python_rule("sym_float", "float")
def _float(_site: Site, a: Scalar) -> Scalar:
    return Scalar(cast(a.tensor, dtypes.float64))
