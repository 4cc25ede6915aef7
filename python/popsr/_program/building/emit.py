"""Ops of Python functions: their results are Tensors."""

from __future__ import annotations

from typing import Any

from popsr._core import transact
from popsr._program.building.append import Inputs, append_op, foreign_tensor, number, optional_tensor, tensor
from popsr._program.context import _context
from popsr._program.tensor import Tensor

__all__ = ["Inputs", "emit", "emit_op", "foreign_tensor", "number", "optional_tensor", "tensor"]


def emit(op: str, inputs: Inputs, /, **attrs: Any) -> Tensor:
    """Append an op of one output to the current graph; attributes that are None keep their default."""
    # In one line: no Ctrl-C may come between the op and its return.
    return transact(append_op, _context.graph_of(op), op, inputs, attrs, 1, None, None)[1][0]  # type: ignore[no-any-return]


def emit_op(
    op: str,
    inputs: Inputs,
    attrs: dict[str, Any],
    *,
    outputs: int = 1,
    name: str | tuple[str, ...] | None = None,
    place: tuple[int, bool] | None = None,
) -> tuple[int, list[Tensor]]:
    """Append an op to the current graph.

    Args:
        op: name of its definition.
        inputs: its tensors.
        attrs: its attributes.
        outputs: how many outputs it has (for their names in a name scope).
        name: name of its outputs, below the name scopes; or the whole name of each. Default: the op's stem.
        place: its device, and whether it is on io tiles. Default: the enclosing contexts'.
    Returns:
        Id of the op, and its outputs.
    """
    return transact(append_op, _context.graph_of(op), op, inputs, attrs, outputs, name, place)
