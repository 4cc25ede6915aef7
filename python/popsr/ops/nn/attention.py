"""Attention that keeps no matrix of scores."""

from __future__ import annotations

from typing import Any

from popsr._program.building.emit import emit, tensor
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_flag, read_number
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.ops._facts import public_op

__all__ = ["attention"]


@public_op
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(scale * q @ k.T + mask) @ v``, of each head. An addition of popsr.

    The scores of 64 queries are in memory at a time, in float32, or in float64 for float64: they are never rounded to
    the dtype of the operands, only the result is. Queries are multiplied by ``scale`` first. The gradients compute the
    scores again; those of ``k`` and ``v`` are sums over blocks of 64 queries.

    As in PyTorch's ``scaled_dot_product_attention``, a query that sees no key gives zeros, and ``is_causal`` counts
    queries and keys from the first. A key that is not seen has the weight 0: its value should be finite, as 0 times
    nan is nan.

    Args:
        q: queries, ``(..., queries, size)``.
        k: keys, ``(..., keys, size)``.
        v: values, ``(..., keys, value size)``.
        mask: what is added to the scores, of the dtype of the operands, or bools: false where a query does not see a
            key. Of a shape that broadcasts to ``(..., queries, keys)``. Default: nothing.
        is_causal: query ``i`` sees keys 0 to ``i`` only.
        scale: of the scores. Default: ``size ** -0.5``.
    Returns:
        Tensor of shape ``(..., queries, value size)`` and the dtype of the operands.
    Raises:
        ShapeError: the batches, the sizes of ``q`` and ``k`` or the numbers of ``k`` and ``v`` differ, or the mask does
            not broadcast.
        DTypeError: the dtypes differ or are not floating.
    Source:
        Vaswani et al., Attention Is All You Need, 2017, equation 1.
    Example:
        >>> q, k = [[0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]]
        >>> evaluate(ops.attention, q, k, [[10.0], [20.0]])
        array([[15.]], dtype=float32)
    """
    where = "attention"
    if mask is not None and not is_a(mask, Tensor):
        raise ArgumentTypeError(f"{where}: mask is not a Tensor, got {shown(mask)}, expected a Tensor")
    inputs: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": tensor(mask)}
    if scale is None:
        size = q.shape[-1] if is_a(q, Tensor) and q.shape else 1
        scale = max(size, 1) ** -0.5
    else:
        scale = read_number(f"{where}: scale", scale)
    return emit(where, inputs, scale=scale, is_causal=read_flag(f"{where}: is_causal", is_causal))
