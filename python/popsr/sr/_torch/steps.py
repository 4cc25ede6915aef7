"""Steps of optimisers over all weights of a group: one call of the core, with the bits of one call per weight."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from popsr.sr._formats import FORMATS
from popsr.sr._runs import Runs

__all__ = ["COUNTED", "Row", "Weight", "mark_written", "row_of"]

_INDEX: dict[Any, int] = {
    getattr(torch, name): form.index for name, form in FORMATS.items() if hasattr(torch, name)
}
_TYPES = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_counter = ctypes.c_int64.from_address

Row = tuple[int, ...]
"""Number, step, is it the first, elements; address and format of w, g and both moments; number of the first element,
address and number of runs."""

COUNTED = ("step", "begun")
"""Entries of a state that a step counts whatever the weight is: its number, and if SGD's momentum has begun."""


class Weight(NamedTuple):
    """A parameter with a gradient, its number among all parameters, and those of its elements in the whole of it."""

    number: int
    p: Any
    grad: Any
    state: dict[str, Any]
    offset: Any = 0  # an int or Runs, which the public types of ``offset`` do not have


def row_of(weight: Weight, moments: Sequence[Any]) -> Row | None:
    """The row of a weight that the core can step; None for what goes the general way."""
    number, p, grad, state, offset = weight
    step, begun, shape = state["step"], state.get("begun"), p.shape
    if step.dtype is not torch.int64 or not step.is_cpu:
        return None
    parts = [number, int(step) + 1, 0 if begun is None or begun else 1, p.numel()]
    for x in (p, grad, *moments):
        form = _INDEX.get(x.dtype)
        if (
            form is None
            or type(x) not in _TYPES
            or x.layout is not _STRIDED
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


def mark_written(weights: Sequence[Weight], rows: Sequence[Row], moments: Iterable[Any]) -> None:
    """Count the step, and let autograd see that tensors which it saved have changed."""
    for weight, (_, step, is_first, *_) in zip(weights, rows, strict=True):
        # add_ takes a tenth of the step of a small weight.
        _counter(weight.state["step"].data_ptr()).value = step
        if is_first:
            weight.state["begun"].fill_(True)
    if weights:
        torch.autograd.graph.increment_version([*(weight.p for weight in weights), *moments])
