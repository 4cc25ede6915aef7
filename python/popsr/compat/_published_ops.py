"""Operators in C++ that were published with models, under one name for different computations: a program says which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.extensions import call
from popsr._support.host.arguments import read_choice
from popsr.compat._objects.custom_ops import custom_op

__all__ = ["HINTS", "rotary_ops"]

HINTS: Mapping[str, str] = dict.fromkeys(
    ("RotaryPosEmbed", "RotaryPosEmbedGrad"),
    "say what it turns by popsr.compat.rotary_ops({domain}, 'neighbours'), features 2 * i and 2 * i + 1, or "
    "'halves', features i and i + rotary_dim / 2",
)
"""Hints of errors about operators without a function, by the operator's name."""


def rotary_ops(domain: str, pairs: Literal["neighbours", "halves"], version: int = 1) -> None:
    """Register the operators ``RotaryPosEmbed`` and ``RotaryPosEmbedGrad`` of a domain.

    They take floats ``[batch, sequence, heads, features]``, sines and cosines ``[sequence, rotary_dim / 2]`` or with a
    batch axis, and ``rotary_dim``, how many features are turned. The second turns a gradient back.

    Args:
        domain: domain of the operators.
        pairs: which features are turned together: see ``popsr.addons.ops.rotary_pos_embed``. Models publish operators
            of both kinds under these names, and generate other tokens with the wrong one.
        version: their version.
    Raises:
        AttributeValueError: another word for ``pairs``, or an empty domain.
        StateError: another function is registered for one of them.
    """
    word = read_choice("rotary_ops", "pairs", pairs, ("neighbours", "halves"))

    @transactional
    def rotary_pos_embed(x: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
        turned: Tensor = call("addons", "rotary_pos_embed", x, sin, cos, rotary_dim, pairs=word)
        return turned

    @transactional
    def rotary_pos_embed_grad(dy: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
        return rotary_pos_embed(dy, ops.negate(sin), cos, rotary_dim)

    for function, name in (
        (rotary_pos_embed, "RotaryPosEmbed"),
        (rotary_pos_embed_grad, "RotaryPosEmbedGrad"),
    ):
        function.__qualname__ = f"rotary_ops.{name}.{word}"  # one that is registered again is the same
        custom_op(domain, name, version)(function)
