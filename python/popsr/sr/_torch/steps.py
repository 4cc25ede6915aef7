"""Steps of optimisers over all weights of a group: one call of the core, with the bits of one call per weight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from popsr.sr._formats import FORMATS
from popsr.sr._runs import Runs

__all__ = ["Row", "Weight", "mark_written", "row_of"]

_INDEX: dict[Any, int] = {
    getattr(torch, name): form.index for name, form in FORMATS.items() if hasattr(torch, name)
}
_TYPES = (torch.Tensor, torch.nn.Parameter)

Row = tuple[int, ...]
"""Number, step, is it the first, elements; address and format of w, g and both moments; number of the first element,
address and number of runs."""


class Weight(NamedTuple):
    """A parameter with a gradient, its number among all parameters, and those of its elements in the whole of it."""

    number: int
    p: Any
    grad: Any
    state: dict[str, Any]
    offset: Any = 0  # an int or Runs, which the public types of ``offset`` do not have


def row_of(weight: Weight, is_first: bool, moments: Sequence[Any]) -> Row | None:
    """The row of a weight that the core can step; None for what goes the general way."""
    number, p, grad, state, offset = weight
    shape, parts = p.shape, [number, state.get("step", 0) + 1, is_first, p.numel()]
    for x in (p, grad, *moments):
        form = _INDEX.get(x.dtype)
        if (
            form is None
            or type(x) not in _TYPES
            or x.layout is not torch.strided
            or not x.is_cpu
            or not x.is_contiguous()
            or x.is_neg()
            or x.is_inference()
            or x.shape != shape
        ):
            return None
        parts += (x.data_ptr(), form)
    numbers = (0, *offset.words) if isinstance(offset, Runs) else (offset, 0, 0)
    return *parts, *(0, 0) * (2 - len(moments)), *numbers


def mark_written(weights: Sequence[Weight], moments: Iterable[Any]) -> None:
    """Count the step, and let autograd see that tensors which it saved have changed."""
    for weight in weights:
        weight.state["step"] = weight.state.get("step", 0) + 1
    if weights:
        torch.autograd.graph.increment_version([*(weight.p for weight in weights), *moments])
