"""Operations of ``popsr.sr`` by their names, as the compiled functions of other libraries call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr.sr import _cast, _products, _sum, _sums

__all__ = ["call"]

_OPERATIONS: dict[str, Any] = {
    "add": _sums.add,
    "sub": _sums.sub,
    "lerp": _sums.lerp,
    "mul": _products.mul,
    "fma": _products.fma,
    "addcmul": _products.addcmul,
    "addcdiv": _products.addcdiv,
    "axpy": _sums.axpy,
    "cast": _cast.cast,
    "sum": _sum.sum,
}


def call(
    op: str,
    operands: Sequence[Any],
    alpha: Sequence[float],
    dtype: Any,
    axes: tuple[int, ...],
    **options: Any,
) -> Any:
    """The operation of that name.

    Args:
        op: its name.
        operands: arrays and numbers.
        alpha: its factor, if it takes one.
        dtype: of the result of ``cast`` and ``sum``; other operations have the first operand's.
        axes: of ``sum``.
        options: key, mode, overflow and offset.
    """
    operation = _OPERATIONS[op]
    if op == "cast":
        return operation(*operands, dtype, **options)
    if op == "sum":
        return operation(*operands, dtype, axis=axes, **options)
    if op == "axpy":
        return operation(*alpha, *operands, **options)
    return operation(*operands, *alpha, **options)
