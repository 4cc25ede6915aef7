"""Matrix products and convolutions."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._rules.shape import moved, padded, reshaped
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, dtype_of, rule, width

__all__: list[str] = []


@rule("dot_general")
def _dot_general(equation: Equation, a: Tensor, b: Tensor) -> Result:
    """One matrix product with at most one batch axis, of operands whose axes are grouped by their role."""
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    a, b = _of_one_type(equation, a, b)
    free_a = [axis for axis in range(a.rank) if axis not in (*contract_a, *batch_a)]
    free_b = [axis for axis in range(b.rank) if axis not in (*contract_b, *batch_b)]
    batches, rows, columns = _count(a, batch_a), _count(a, free_a), _count(b, free_b)
    inner = _count(a, contract_a)
    left = moved(a, (*map(int, batch_a), *free_a, *map(int, contract_a)))
    right = moved(b, (*map(int, batch_b), *map(int, contract_b), *free_b))
    lead = (batches,) if batches > 1 else ()
    left, right = reshaped(left, (*lead, rows, inner)), reshaped(right, (*lead, inner, columns))
    product = ops.matmul(left, right) if a.dtype.is_floating_point else _integer_product(left, right)
    return reshaped(product, equation.shape)


def _of_one_type(equation: Equation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Operands widened to the type of the result, which is exact, or to the wider of both."""
    kind = equation.dtype
    preferred = equation.params.get("preferred_element_type")
    if preferred is not None:
        kind = dtype_of(np.dtype(preferred))
    widest = max((a.dtype, b.dtype, kind), key=width)
    return (a if a.dtype == widest else ops.cast(a, widest)), (
        b if b.dtype == widest else ops.cast(b, widest)
    )


def _count(t: Tensor, axes: object) -> int:
    return int(np.prod([t.shape[axis] for axis in axes], dtype=np.int64))  # type: ignore[attr-defined]


def _integer_product(left: Tensor, right: Tensor) -> Tensor:
    """Products of integers, summed: exact, modulo 2 to the number of bits."""
    if left.dtype == dtypes.bool:
        raise NotSupportedError("bool")
    wide_left = ops.reshape(left, (*left.shape, 1))
    wide_right = ops.reshape(right, (*right.shape[:-2], 1, *right.shape[-2:]))
    return ops.sum(ops.mul(wide_left, wide_right), -2)


@rule("conv_general_dilated")
def _conv(equation: Equation, a: Tensor, b: Tensor) -> Result:
    """With channels first, padding and gaps made of zeros, and groups of the batch as groups of channels."""
    params, where = equation.params, equation.params["dimension_numbers"]
    if not 1 <= a.rank - 2 <= 3:
        raise NotSupportedError(f"{a.rank - 2} spatial dimensions")
    a, b = _of_one_type(equation, a, b)
    if not a.dtype.is_floating_point:
        raise NotSupportedError(a.dtype.name)
    a = moved(a, tuple(map(int, where.lhs_spec)))
    b = moved(b, tuple(map(int, where.rhs_spec)))
    spatial = a.rank - 2
    zero = equation.constant(0, a.dtype)
    edges = [(0, 0), (0, 0), *((int(low), int(high)) for low, high in params["padding"])]
    a = padded(a, zero, edges, [1, 1, *params["lhs_dilation"]])
    groups = int(params["feature_group_count"])
    if (parts := int(params["batch_group_count"])) > 1:
        a = ops.reshape(a, (parts, a.shape[0] // parts, *a.shape[1:]))
        a = moved(a, (1, 0, *range(2, a.rank)))
        a = ops.reshape(a, (a.shape[0], parts * a.shape[2], *a.shape[3:]))
        groups = parts
    strides = tuple(int(step) for step in params["window_strides"])
    dilation = tuple(int(step) for step in params["rhs_dilation"])
    needed = [(extent - 1) * step + 1 for extent, step in zip(b.shape[2:], dilation, strict=True)]
    if any(have < need for have, need in zip(a.shape[2:], needed, strict=True)):
        raise NotSupportedError("a kernel that is larger than the padded operand")
    out = ops.conv(a, b, strides, (0,) * (2 * spatial), dilation, groups)
    back = [0] * out.rank
    for place, axis in enumerate(where.out_spec):
        back[int(axis)] = place
    return moved(out, tuple(back))
