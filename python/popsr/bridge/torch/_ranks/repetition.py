"""Removal of ops that compute what another one does, of the same operands: ranks of two stages may run one op each."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from popsr.bridge.torch._ranks.same import attribute_of, key_of, meta_key
from popsr.bridge.torch._ranks.varying import Varying, is_part
from popsr.bridge.torch._tracing.draws import draw_of, generator_draw_of
from popsr.bridge.torch._tracing.messages import is_sent
from popsr.bridge.torch._user.notes import is_backward

__all__ = ["without_repetition"]

_Choice = tuple[Any, ...]
"""The node whose value each rank takes."""


def without_repetition(module: Any, varying: Sequence[Varying]) -> None:
    """Let the first of equal ops stand for all, and what is sent for the send; what the graph computes stays.

    Selections by rank that choose one value on each rank are equal, too, whatever they are nested in.

    Args:
        module: the graph.
        varying: the values of its last placeholders.
    """
    found: dict[Hashable, Any] = {}
    masks = _masks(module, varying)
    choices: dict[Any, _Choice] = {}
    for node in list(module.graph.nodes):
        if is_sent(node):
            made = node.args[0]
        elif node.op == "get_attr" and not hasattr(attribute_of(module, node), "graph"):
            made = found.setdefault(("constant", key_of(attribute_of(module, node))), node)
        elif node.op == "call_function" and _is_pure(node):
            choice = _choice(node, masks, choices)
            if choice is not None and len(set(choice)) == 1:
                made = choice[0]
            else:
                operands = key_of((node.args, node.kwargs))
                key = (str(node.target), operands, is_backward(node)) if choice is None else choice
                made = found.setdefault(key, node)
            if choice is not None and made is node:
                choices[node] = choice
        else:
            continue
        if made is not node:
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)


def _masks(module: Any, varying: Sequence[Varying]) -> dict[Any, tuple[bool, ...]]:
    """Placeholders that are true on some ranks."""
    import torch

    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        node: tuple(bool(value) for value in each.values)
        for node, each in zip(inputs[len(inputs) - len(varying) :], varying, strict=True)
        if all(value.dtype is torch.bool and not value.dim() for value in each.values)
    }


def _choice(
    node: Any, masks: Mapping[Any, tuple[bool, ...]], choices: Mapping[Any, _Choice]
) -> _Choice | None:
    """The operand that each rank takes of a selection by rank; None for other ops."""
    if str(node.target) != "aten.where.self" or node.args[0] not in masks:
        return None
    _, taken, other = node.args
    if not meta_key(node) == meta_key(taken) == meta_key(other):
        return None
    mask = masks[node.args[0]]
    sides = [choices.get(each) or (each,) * len(mask) for each in (taken, other)]
    return tuple(sides[not holds][rank] for rank, holds in enumerate(mask))


def _is_pure(node: Any) -> bool:
    """True for an op whose result is the same whenever its operands are."""
    import torch

    of_numbers = getattr(node.target, "__module__", "") == operator.mul.__module__
    if of_numbers or is_part(node) or str(node.target) == "_c10d_functional.wait_tensor.default":
        return True
    return (
        getattr(node.target, "namespace", "") in ("aten", "prims")
        and not node.target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and "empty" not in str(node.target)
        and draw_of(node) is None
        and generator_draw_of(node) is None
    )
