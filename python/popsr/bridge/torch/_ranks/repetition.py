"""Removal of ops that compute what another one does, of the same operands: ranks of two stages may run one op each."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from popsr.bridge.torch._notes import is_backward
from popsr.bridge.torch._ranks.same import attribute_of, key_of, meta_key
from popsr.bridge.torch._ranks.varying import is_part
from popsr.bridge.torch._tracing.draws import draw_of, generator_draw_of
from popsr.bridge.torch._tracing.messages import is_sent

__all__ = ["without_repetition"]


def without_repetition(module: Any) -> None:
    """Let the first of equal ops stand for all, and what is sent for the send; what the graph computes stays."""
    found: dict[Hashable, Any] = {}
    for node in list(module.graph.nodes):
        if is_sent(node):
            made = node.args[0]
        elif str(node.target) == "aten.where.self" and node.args[1] is node.args[2] and _is_whole(node):
            made = node.args[1]
        elif node.op == "get_attr" and not hasattr(attribute_of(module, node), "graph"):
            made = found.setdefault(("constant", key_of(attribute_of(module, node))), node)
        elif node.op == "call_function" and _is_pure(node):
            operands = key_of((node.args, node.kwargs))
            made = found.setdefault((str(node.target), operands, is_backward(node)), node)
        else:
            continue
        if made is not node:
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)


def _is_whole(node: Any) -> bool:
    """True for a selection of the shape and type of what it selects."""
    return meta_key(node) == meta_key(node.args[1])


def _is_pure(node: Any) -> bool:
    """True for an op whose result is the same whenever its operands are."""
    import torch

    if is_part(node):
        return True
    return (
        getattr(node.target, "namespace", "") == "aten"
        and not node.target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and "empty" not in str(node.target)
        and draw_of(node) is None
        and generator_draw_of(node) is None
    )
