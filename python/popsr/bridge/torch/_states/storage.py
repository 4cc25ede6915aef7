"""Tensors of a step that share memory: traced as views of one of them where they are plain, else not to be written."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.torch._user.locations import place_of_node, shown_place
from popsr.errors import UnsupportedError

__all__ = [
    "Place",
    "Sharing",
    "aliases",
    "as_views",
    "check_constants",
    "check_writes",
    "overlaps",
    "place_of",
    "sharing",
]


@dataclass(frozen=True)
class Place:
    """The bytes of a tensor: the memory that it is in, the first and the end."""

    storage: int
    start: int
    end: int

    def overlaps(self, other: Place) -> bool:
        """True if a byte may be of both."""
        return self.storage == other.storage and self.start < other.end and other.start < self.end


def place_of(t: Any) -> Place:
    """The place of a local tensor in memory."""
    import torch

    if t.layout is not torch.strided or not t.numel():
        return Place(id(t), 0, 0)
    width = t.element_size()
    start = t.storage_offset() * width
    extent = 1 + sum((n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True))
    return Place(t.untyped_storage()._cdata, start, start + extent * width)


def overlaps(tensors: Sequence[Any]) -> set[tuple[int, int]]:
    """Pairs of tensors that share memory; one that has an element at two places is a pair with itself."""
    places = [place_of(t) for t in tensors]
    by_storage: dict[int, list[int]] = {}
    for i, place in enumerate(places):
        by_storage.setdefault(place.storage, []).append(i)
    found = {(i, i) for i, t in enumerate(tensors) if any(s == 0 < n - 1 for n, s in _extents(t))}
    for members in by_storage.values():
        members.sort(key=lambda i: places[i].start)
        for number, i in enumerate(members):
            for j in members[number + 1 :]:
                if places[j].start >= places[i].end:
                    break
                if places[i].overlaps(places[j]):
                    found.add((min(i, j), max(i, j)))
    return found


def _extents(t: Any) -> Iterator[tuple[int, int]]:
    import torch

    return iter(()) if t.layout is not torch.strided else zip(t.shape, t.stride(), strict=True)


@dataclass(frozen=True)
class Sharing:
    """Leaves that share memory, by their numbers.

    Attributes:
        pairs: all of them.
        views: what is traced as a view: of which leaf, and from which element on.
    """

    pairs: frozenset[tuple[int, int]]
    views: dict[int, tuple[int, int]]

    @property
    def followed(self) -> frozenset[tuple[int, int]]:
        """The pairs that are traced as parts of one tensor."""
        owner = {i: self.views.get(i, (i, 0))[0] for pair in self.pairs for i in pair}
        return frozenset((i, j) for i, j in self.pairs if i != j and owner[i] == owner[j])


def sharing(leaves: Sequence[Any]) -> Sharing:
    """The leaves that share memory; views are contiguous parts of a contiguous state of their element type."""
    pairs = overlaps([leaf.local for leaf in leaves])
    views: dict[int, tuple[int, int]] = {}
    for i, j in sorted(pairs):
        owner, other = (i, j) if leaves[i].local.numel() >= leaves[j].local.numel() else (j, i)
        if owner == other or other in views or not _is_part(leaves[other], leaves[owner]):
            continue
        offset = leaves[other].local.storage_offset() - leaves[owner].local.storage_offset()
        if owner in views:
            owner, before = views[owner]
            offset += before
        views[other] = (owner, offset)
    owners = {owner for owner, _ in views.values()}
    return Sharing(frozenset(pairs), {} if owners & views.keys() else views)


def _is_part(leaf: Any, owner: Any) -> bool:
    a, b = leaf.local, owner.local
    plain = all(
        each.role == "state" and each.layout is None and each.local.is_contiguous() for each in (leaf, owner)
    )
    place, whole = place_of(a), place_of(b)
    return plain and a.dtype == b.dtype and whole.start <= place.start and place.end <= whole.end


def as_views(shared: Sharing, leaves: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """The traced tensors, views in place of those that are views."""
    import torch

    found = list(tensors)
    for i, (owner, offset) in shared.views.items():
        shape = leaves[i].local.shape
        with torch.no_grad():
            part = tensors[owner].detach().view(-1).narrow(0, offset, shape.numel()).view(shape)
        found[i] = part.requires_grad_(leaves[i].trained)
    return found


def check_writes(shared: Sharing, leaves: Sequence[Any], module: Any, where: str) -> None:
    """Refuse writes that reach memory of others: of leaves that are not traced as views, or from outside of the step.

    Raises:
        UnsupportedError: with both paths and the line.
    """
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    numbers = {node: i for i, node in enumerate(inputs)}
    roots, writes = aliases(nodes)
    apart = shared.pairs - shared.followed
    for root, node in writes:
        at = shown_place(place_of_node(node))
        if root.op == "get_attr":
            raise UnsupportedError(
                f"{where}: a tensor from outside of the step is written at {at}, got {node.target}, expected "
                "parameters, buffers of the model or state of the optimizer"
            )
        for i, j in apart:
            if numbers.get(root) in (i, j):
                texts = [shown(leaves[k].path) for k in (i, j)]
                what = " and ".join(texts) if i != j else f"{texts[0]}, which is expanded"
                raise UnsupportedError(
                    f"{where}: tensors that share memory are written at {at}, got {what}, expected memory of their "
                    "own, or states that are contiguous parts of one of them"
                )
    written = dict(writes)
    for leaf, node, value in zip(leaves, inputs, nodes[-1].args[0], strict=False):
        root = roots.get(value, node)
        is_others = root.op == "get_attr" or (root in numbers and leaves[numbers[root]].role == "data")
        if leaf.role == "state" and is_others and node in written:
            at = shown_place(place_of_node(written[node]))
            raise UnsupportedError(
                f"{where}: a state is written at {at} that the step leaves in the memory of its data or of a constant, "
                f"got {shown(leaf.path)}, expected a clone of what is assigned"
            )


def aliases(nodes: Sequence[Any]) -> tuple[dict[Any, Any], list[tuple[Any, Any]]]:
    """The node that each node is a view of, itself included; and each write as its target and the node that writes."""
    roots: dict[Any, Any] = {}
    written: list[tuple[Any, Any]] = []
    for node in nodes:
        if node.op == "call_function":
            operands = _aliased_operands(node.target)
            if operands is None and node.args and node.args[0] in roots:
                roots[node] = roots[node.args[0]]  # a part of a list of views
            for number, name, is_write in operands or ():
                value = node.args[number] if number < len(node.args) else node.kwargs.get(name)
                for each in value if isinstance(value, list | tuple) else [value]:
                    if not hasattr(each, "op"):
                        continue
                    if is_write:
                        written.append((roots[each], node))
                    roots.setdefault(node, roots[each])
            if operands and str(node.target) == "aten.set_.source_Tensor":
                roots[node] = roots[node.args[1]]
        roots.setdefault(node, node)
    return roots, written


@functools.cache
def _aliased_operands(op: Any) -> list[tuple[int, str, bool]] | None:
    """Place and name of the operands that an op writes, or makes views of, and if it writes; None without a schema."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return None
    infos = [(i, each.name, each.alias_info) for i, each in enumerate(schema.arguments)]
    return [(number, name, info.is_write) for number, name, info in infos if info is not None]


def check_constants(leaves: Sequence[Any], module: Any, where: str) -> None:
    """Refuse to read a tensor from outside of the step that is the memory of a state.

    Raises:
        UnsupportedError: with its path and the line.
    """
    import torch

    states = [(leaf, place_of(leaf.local)) for leaf in leaves if leaf.role == "state"]
    for node in module.graph.nodes:
        value = getattr(module, node.target, None) if node.op == "get_attr" else None
        if hasattr(value, "graph"):
            check_constants(leaves, value, where)
        if not isinstance(value, torch.Tensor):
            continue
        place = place_of(getattr(value, "_local_tensor", value))
        path = next((leaf.path for leaf, each in states if each.overlaps(place)), None)
        if path is not None:
            at = shown_place(next((p for p in map(place_of_node, node.users) if p), None))
            raise UnsupportedError(
                f"{where}: a state is read at {at} from outside of the step's arguments, got {shown(path)}, expected "
                "the tensor of the model or optimizer that the step is given"
            )
