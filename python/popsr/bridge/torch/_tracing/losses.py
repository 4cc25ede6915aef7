"""Losses that a step differentiates: whether each is a mean over the rows of a rank."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from popsr.bridge._step.arguments import Loss
from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._user.notes import note_of, noted

__all__ = ["Seeds", "joined_losses", "loss_of", "rows_of", "seeds_noted"]

_SEED = "popsr_seed"
_MEAN = 1  # of torch.nn._reduction
_PASSED = frozenset(["alias", "clone", "detach", "view", "reshape", "squeeze", "unsqueeze", "_to_copy"])
"""Ops whose result is their first operand, in another form."""


@dataclass(slots=True)
class Seeds:
    """Gradients that backward passes of a trace begin with.

    Attributes:
        given: True if the step gave one itself.
    """

    given: bool = False


@contextlib.contextmanager
def seeds_noted() -> Iterator[Seeds]:
    """Inside, a node says if a backward pass begins with it: with ones for a loss."""
    from torch import autograd

    module: Any = autograd
    make = module._make_grads
    found = Seeds()

    def made(outputs: Any, grads: Any, *args: Any, **options: Any) -> Any:
        found.given |= any(each is not None for each in grads)
        with noted(_SEED, True):
            return make(outputs, grads, *args, **options)

    with replaced([(module, "_make_grads", made)]):
        yield found


def loss_of(modules: Iterable[Any], rows: Collection[int]) -> Loss:
    """Kind of the losses that the backward passes of a step differentiate.

    Args:
        modules: graphs of a step in torch's own ops, as ranks and ways of branches are recorded.
        rows: rows of data on a rank.
    """
    kinds = {_loss(node, rows) for module in modules for node in module.graph.nodes if note_of(node, _SEED)}
    return joined_losses(kinds)


def rows_of(leaves: Iterable[Any]) -> set[int]:
    """Rows of data on a rank; 0 of data without rows.

    Args:
        leaves: tensors of a step.
    """
    return {leaf.local.shape[0] if leaf.local.dim() else 0 for leaf in leaves if leaf.role == "data"}


def joined_losses(kinds: Collection[Loss]) -> Loss:
    """The kind of several losses, and of their sum."""
    if not kinds or "" in kinds:
        return ""
    return "of constants" if "of constants" in kinds else "mean"


def _loss(seed: Any, rows: Collection[int]) -> Loss:
    """The loss that a node is the seed of."""
    import torch

    return _kind(seed.args[0], rows) if seed.target is torch.ops.aten.ones_like.default else ""


def _kind(node: Any, rows: Collection[int]) -> Loss:
    """Whether a number is a mean over the rows of a rank.

    Ops with a reduction say it. A plain mean may be one of sums over rows: constants of the backward pass tell them
    apart.
    """
    schema = getattr(getattr(node, "target", None), "_schema", None)
    if getattr(getattr(node, "target", None), "__name__", "") == "getitem":
        return _kind(node.args[0], rows) if node.args[1] == 0 else ""
    if schema is None:
        return ""
    names = [each.name for each in schema.arguments]
    operands = dict(zip(names, node.args, strict=False)) | node.kwargs
    if "reduction" in names:
        shape = operands["self"].meta["val"].shape
        is_mean = operands.get("reduction", _MEAN) == _MEAN and operands.get("weight") is None
        return "mean" if is_mean and shape and rows and all(r and shape[0] % r == 0 for r in rows) else ""
    name = node.target.overloadpacket.__name__
    if name == "mean":
        return "of constants"
    if name == "add" and operands.get("alpha", 1) == 1:
        return joined_losses({_kind(operands["self"], rows), _kind(operands["other"], rows)})
    return _kind(node.args[0], rows) if name in _PASSED else ""
