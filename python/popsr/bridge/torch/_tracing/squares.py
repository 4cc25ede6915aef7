"""Squares of square roots, written without the roots, as exact arithmetic knows no identity of them.

Norms of shards are squared, summed over ranks, and a root is taken again, as a DTensor's norm is. In real numbers that
is the norm of the whole tensor.
"""

from __future__ import annotations

from typing import Any

__all__ = ["squares_without_roots"]

_MOVES = (
    "view", "view_copy", "_unsafe_view", "reshape", "unsqueeze", "unsqueeze_copy", "squeeze", "squeeze_copy", "alias",
    "alias_copy", "clone", "expand", "expand_copy",
)  # fmt: skip
"""Ops that move the elements of their first operand."""
_SUMS = ("_c10d_functional.all_reduce.default", "_c10d_functional.wait_tensor.default")


def squares_without_roots(module: Any) -> Any:
    """A copy of a graph in which squares of roots are what the roots were taken of; the graph itself without any."""
    import torch

    if not any(_is_root(node) for node in module.graph.nodes):
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in [*graph.nodes]:
        _rewrite(graph, node)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)


def _name(node: Any) -> str:
    """Name of an op of ATen without its overload; empty of others."""
    is_aten = getattr(node.target, "namespace", "") == "aten"
    return str(node.target).split(".")[1] if is_aten else ""


def _is_root(node: Any) -> bool:
    """True for a square root, and for a norm that is one."""
    name, args = _name(node), node.args
    if name == "linalg_vector_norm":
        order = args[1] if len(args) > 1 else node.kwargs.get("ord", 2)
        return order == 2 and len(args) < 5 and "dtype" not in node.kwargs
    return (name == "sqrt" or (name == "pow" and _is_number(node, 0.5))) and _is_positive(args[0])


def _is_positive(value: Any) -> bool:
    """True for what is never negative: squares and norms, and sums, products and moves of such."""
    left, seen = [value], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            operands = _positive_with(each)
            if operands is None:
                return False
            left += operands
    return True


def _positive_with(value: Any) -> list[Any] | None:
    """Operands with which a value is never negative; None of a value that may be."""
    if not hasattr(value, "target"):
        return [] if isinstance(value, int | float) and value >= 0 else None
    name, args = _name(value), value.args
    if _is_square(value) or name in ("linalg_vector_norm", "abs", "exp"):
        return []
    if name in ("add", "mul", "div"):
        return [*args[:2], *value.kwargs.values()]
    if name in ("cat", "stack"):
        return [*args[0]]
    is_sum = name in ("pow", "sum", "mean", "sqrt", *_MOVES) or str(value.target) in _SUMS
    return [args[0]] if is_sum else None


def _is_square(node: Any) -> bool:
    name, args = _name(node), node.args
    return (name == "mul" and args[0] is args[1]) or (name == "pow" and _is_number(node, 2))


def _is_number(node: Any, power: float) -> bool:
    return len(node.args) > 1 and isinstance(node.args[1], int | float) and node.args[1] == power


def _rewrite(graph: Any, node: Any) -> None:
    """Replace the square of roots, or the norm of roots, by what the roots are taken of."""
    import torch

    is_square = _is_square(node)
    is_norm = _name(node) == "linalg_vector_norm" and _is_root(node)
    if not (is_square or is_norm) or not hasattr(node.args[0], "target"):
        return
    with graph.inserting_before(node):
        squared = _squared(graph, node.args[0])
        if squared is None:
            return
        if not is_square:
            total = _summed(graph, node, squared)
            squared = _made(graph, node, torch.ops.aten.sqrt.default, (total,))
    node.replace_all_uses_with(squared)


def _squared(graph: Any, node: Any) -> Any:
    """A node for the square of another one that is made of roots; None of others."""
    import torch

    name = _name(node)
    if name == "linalg_vector_norm" and _is_root(node):
        x = node.args[0]
        return _summed(graph, node, _made(graph, x, torch.ops.aten.mul.Tensor, (x, x), at=node))
    if _is_root(node):
        return node.args[0]
    if name in _MOVES:
        moved = _squared(graph, node.args[0])
        return None if moved is None else _made(graph, node, node.target, (moved, *node.args[1:]))
    if name in ("cat", "stack"):
        parts = [_squared(graph, each) for each in node.args[0]]
        is_known = all(each is not None for each in parts)
        return _made(graph, node, node.target, (parts, *node.args[1:])) if is_known else None
    return None


def _summed(graph: Any, norm: Any, squares: Any) -> Any:
    """The sum over the dimensions of a norm."""
    import torch

    given = dict(zip(("dim", "keepdim"), norm.args[2:], strict=False)) | norm.kwargs
    dims, keep = given.get("dim"), given.get("keepdim", False)
    if dims is None and not keep:
        return _made(graph, norm, torch.ops.aten.sum.default, (squares,))
    return _made(graph, norm, torch.ops.aten.sum.dim_IntList, (squares, dims, keep))


def _made(graph: Any, like: Any, target: Any, args: tuple[Any, ...], at: Any = None) -> Any:
    """A node of the shape of another one, at its line or that of a third."""
    made = graph.call_function(target, args, like.kwargs if target is like.target else {})
    made.meta = {**(at or like).meta, "val": like.meta.get("val")}
    return made
