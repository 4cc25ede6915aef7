"""popsr's functions for operators in C++ that were published with models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from popsr import ops
from popsr._program.transaction import transactional
from popsr.addons.ops import rotary_pos_embed as rotary
from popsr.tensor import Tensor

__all__ = ["ENTRIES"]


@transactional
def rotary_pos_embed(x: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
    """Rotary position embedding.

    Args:
        x: floats ``[batch, sequence, heads, features]``.
        sin: sines ``[sequence, rotary_dim / 2]``, or with a batch axis.
        cos: cosines, likewise.
        rotary_dim: how many features are turned.
    Returns:
        Tensor of the shape and dtype of ``x``.
    """
    return rotary(x, sin, cos, rotary_dim)


@transactional
def rotary_pos_embed_grad(dy: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
    """Gradient of ``rotary_pos_embed``: turned back by the same angles.

    Args:
        dy: gradient of its result.
        sin: sines, as there.
        cos: cosines, as there.
        rotary_dim: how many features were turned.
    Returns:
        Gradient of its ``x``.
    """
    return rotary(dy, ops.negate(sin), cos, rotary_dim)


# Functions by name and version of the operator; models put theirs into domains of their own.
ENTRIES: Mapping[tuple[str, int], Callable[..., Any]] = {
    ("RotaryPosEmbed", 1): rotary_pos_embed,
    ("RotaryPosEmbedGrad", 1): rotary_pos_embed_grad,
}
