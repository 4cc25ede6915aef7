"""A part of the global norm of gradients."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.building.operands import read_floats, read_scalar
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import widened
from popsr.ops.utils import cast_if_needed

__all__ = ["grad_reduce_square_add"]


@public
@transactional
def grad_reduce_square_add(t: Tensor, loss_scaling: int | float | Tensor) -> Tensor:
    """The sum of the squares of unscaled gradients, ``(t / loss_scaling)**2``.

    Each element is divided before it is squared, in float32 (float64 where ``t`` is): neither narrow gradients nor a
    large loss scaling overflow.

    Args:
        t: gradients, float16, bfloat16, float32 or float64, any shape.
        loss_scaling: what the loss was multiplied by: a number or a tensor of one element.
    Returns:
        float32 scalar.
    Raises:
        TypeError: ``t`` is not a tensor of floats, or ``loss_scaling`` neither a number nor a tensor.
        ValueError: a tensor is of another graph, or ``loss_scaling`` has several elements.
    """
    where = "grad_reduce_square_add"
    scale = read_scalar(where, "loss_scaling", loss_scaling)
    wide = widened(read_floats(where, "t", t))
    if isinstance(scale, Tensor):
        scale = ops.reshape(cast_if_needed(scale, wide.dtype), ())
    return cast_if_needed(ops.sumsquare(wide / scale), dtypes.float32)
