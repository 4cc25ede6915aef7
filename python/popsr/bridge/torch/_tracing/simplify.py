"""Removal of nodes that change nothing: copies, and permutations and reshapes that undo each other."""

from __future__ import annotations

from typing import Any

from popsr.bridge.torch._tracing.uninitialised import fill_unread

__all__ = ["return_writes", "simplify"]

_COPIES = (
    "aten.clone.default",
    "aten.detach.default",
    "aten.detach_copy.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.lift_fresh_copy.default",
)
_PERMUTES = ("aten.permute.default", "aten.permute_copy.default")
_VIEWS = (
    "aten.view.default",
    "aten.view_copy.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.unsqueeze.default",
    "aten.unsqueeze_copy.default",
)


def simplify(module: Any) -> None:
    """Change a functional graph so; what it computes stays."""
    for node in list(module.graph.nodes):
        name = str(node.target)
        if _writes_input(node):
            module.graph.erase_node(node)  # the new value of an input, which the graph returns anyway
        elif name in _COPIES or (name == "aten.copy.default" and _alike(*node.args[:2])):
            node.replace_all_uses_with(node.args[-1] if name == "aten.copy.default" else node.args[0])
        elif name in _PERMUTES:
            _permute(node)
        elif name in _VIEWS:
            _view(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    fill_unread(module)


def return_writes(module: Any) -> None:
    """Return the new values of placeholders after what the graph returns; ``meta`` says which they are."""
    nodes = list(module.graph.nodes)
    numbers = {node: i for i, node in enumerate(n for n in nodes if n.op == "placeholder")}
    output = nodes[-1]
    returned = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
    new = {numbers[n.args[0]]: n.args[1] for n in nodes if _writes_input(n)}
    output.args = ([*returned, *new.values()],)
    module.meta["returned"] = len(returned)
    module.meta["written"] = {number: len(returned) + i for i, number in enumerate(new)}


def _writes_input(node: Any) -> bool:
    return str(node.target) == "aten.copy_.default" and node.args[0].op == "placeholder" and not node.users


def _alike(a: Any, b: Any) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    return x is not None and y is not None and (x.shape, x.dtype) == (y.shape, y.dtype)


def _permute(node: Any) -> None:
    source, order = node.args
    order = [d % len(order) for d in order]
    if str(source.target) in _PERMUTES:
        inner = [d % len(order) for d in source.args[1]]
        order = [inner[d] for d in order]
        source = source.args[0]
        node.args = (source, order)
    if order == sorted(order):
        node.replace_all_uses_with(source)


def _view(node: Any) -> None:
    source = node.args[0]
    while str(source.target) in _VIEWS:
        source = source.args[0]
    if source is not node.args[0]:
        node.args = (source, *node.args[1:])
    if _alike(source, node):
        node.replace_all_uses_with(source)
