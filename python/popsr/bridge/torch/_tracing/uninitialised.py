"""Uninitialised memory in a functional graph: which of it is read before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from popsr.bridge.torch._user.notes import note_of, noted

__all__ = ["EMPTY", "fill_unread", "memory_of", "named_memory"]

_KEY = "popsr_memory"

EMPTY = (
    "empty.memory_format",
    "empty_like.default",
    "empty_strided.default",
    "empty_permuted.default",
    "new_empty.default",
    "new_empty_strided.default",
)
"""Names of ops whose results have any elements, without their namespace."""

# Operands that an op replaces, and does not read, by the op's name without its overload.
_REPLACED = {
    **dict.fromkeys(("copy", "fill", "full_like", "zeros_like", "ones_like", "empty_like"), 0),
    **dict.fromkeys(("new_full", "new_zeros", "new_ones", "new_empty", "new_empty_strided"), 0),
    **dict.fromkeys(("rand_like", "randn_like", "randint_like", "uniform", "normal_functional", "random"), 0),
    **dict.fromkeys(("exponential", "geometric", "cauchy", "log_normal"), 0),
    "rrelu_with_noise_functional": 1,
}
_REPLACED_OVERLOADS = {"bernoulli.p": 0, "bernoulli.Tensor": 0}

# Ops that move elements to places that no data decide.
_MOVES = frozenset(
    {
        "alias",
        "clone",
        "contiguous",
        "detach",
        "lift",
        "lift_fresh",
        "view",
        "_unsafe_view",
        "reshape",
        "unsqueeze",
    }
    | {
        "squeeze",
        "permute",
        "t",
        "transpose",
        "expand",
        "repeat",
        "cat",
        "stack",
        "split",
        "split_with_sizes",
    }
    | {"unbind", "slice", "select", "flip", "roll", "diagonal", "as_strided", "constant_pad_nd"}
    | {"slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter"}
)
_LARGEST = 1 << 27
"""Elements of a tensor that is followed by element; a larger one is taken to be read."""


def fill_unread(module: Any) -> None:
    """Put zeros in place of memory that is written before it is read, so that nothing depends on what it was.

    Each element is followed through views, scatters and concatenations. What else uses a tensor reads all of it.
    """
    import torch

    for inner in module.modules():
        graph = getattr(inner, "graph", None)
        if not isinstance(graph, torch.fx.Graph):
            continue
        empties = [node for node in graph.nodes if _name(node) in EMPTY]
        if not empties:
            continue
        unread = set(empties) - _Memory(graph).read
        for node in unread:
            value = node.meta["val"]
            with graph.inserting_before(node):
                made = graph.call_function(
                    torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype}
                )
            made.meta = dict(node.meta)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        if unread:
            graph.eliminate_dead_code()
            inner.recompile()


def named_memory(name: str) -> AbstractContextManager[None]:
    """Inside, memory that nodes make has a name, for explanations."""
    return noted(_KEY, name)


def memory_of(node: Any) -> str:
    """Name of the memory that a node makes, if nothing writes it."""
    return note_of(node, _KEY) or "uninitialised memory"


def _name(node: Any) -> str:
    """Name of an ATen op with its overload; empty for others."""
    return str(node.target)[5:] if getattr(node.target, "namespace", "") == "aten" else ""


class _Memory:
    """The elements of each value of a graph that nothing has written yet.

    Attributes:
        read: nodes that make memory of which an element is read before it is written.
    """

    def __init__(self, graph: Any) -> None:
        """Follow the memory through a graph."""
        self.read: set[Any] = set()
        self._unwritten: dict[Any, Any] = {}
        self._made_by: dict[Any, set[Any]] = {}
        for node in graph.nodes:
            self._follow(node)

    def _follow(self, node: Any) -> None:
        import torch

        name = _name(node)
        if name in EMPTY:
            self._made_by[node] = {node}
            value = node.meta["val"]
            if value.numel() > _LARGEST:
                self.read.add(node)
            elif value.numel():
                self._unwritten[node] = torch.ones(value.shape, dtype=torch.bool)
            return
        used = [each for each in self._read_operands(node, name) if each in self._unwritten]
        if not used:
            return
        if getattr(node.target, "__name__", "") == "getitem":
            self._hold(node, self._unwritten[node.args[0]][node.args[1]], used)
        elif name.split(".")[0].removesuffix("_copy") in _MOVES and _is_small(node):
            options = {k: v for k, v in node.kwargs.items() if k in ("dim", "start", "end", "step")}
            self._hold(node, node.target(*self._masks(node, name), **options), used)
        else:
            self.read.update(*(self._made_by[each] for each in used))

    def _hold(self, node: Any, unwritten: Any, used: list[Any]) -> None:
        is_list = isinstance(unwritten, list | tuple)
        parts = [part.contiguous() for part in (unwritten if is_list else [unwritten])]
        if any(bool(part.any()) for part in parts):
            self._unwritten[node] = parts if is_list else parts[0]
            self._made_by[node] = set().union(*(self._made_by[each] for each in used))

    def _read_operands(self, node: Any, name: str) -> Iterator[Any]:
        place = _REPLACED_OVERLOADS.get(name, _REPLACED.get(name.split(".")[0]))
        replaced = node.args[place] if place is not None and len(node.args) > place else None
        for each in node.all_input_nodes:
            others = (*node.args[:place], *node.args[place + 1 :]) if place is not None else ()
            if each is not replaced or each in others:
                yield each

    def _masks(self, node: Any, name: str) -> Any:
        """The operands, with the unwritten elements of tensors in their place; those of ``constant_pad_nd`` end so."""
        import torch

        def mask(each: Any) -> Any:
            written = torch.zeros(each.meta["val"].shape, dtype=torch.bool)
            return self._unwritten.get(each, written)

        args = node.args[:2] if name.startswith("constant_pad_nd") else node.args
        return torch.fx.node.map_arg(args, mask)


def _is_small(node: Any) -> bool:
    """True if the operands and results of a node are tensors that can be followed by element."""
    value = node.meta.get("val")
    values = [*(value if isinstance(value, list | tuple) else [value])]
    values += [each.meta.get("val") for each in node.all_input_nodes]
    return all(hasattr(each, "numel") and each.numel() <= _LARGEST for each in values)
