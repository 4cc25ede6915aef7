"""Rules of Python's arithmetic on numbers that are known only when the step runs, such as ``0.9 ** step.item()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.torch._dtypes import Scalar, is_float
from popsr.bridge.torch._rules.table import Gap, Site, cast, python_rule, rule
from popsr.tensor import Tensor, constant

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
