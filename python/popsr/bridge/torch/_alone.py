"""The call of a step as the only rank of a job: what one device is given, and how ranks hold parts of that."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._host.arguments import read_mapping, read_text
from popsr._text.nearest import nearest
from popsr._text.shown import shown
from popsr.bridge._arguments import Array, Cut, Start, Whole
from popsr.bridge.torch._ranks.job import is_running
from popsr.bridge.torch._states.leaves import Leaf
from popsr.bridge.torch._wrappers.recipes import is_wrapped
from popsr.errors import ArgumentTypeError, UnknownNameError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["Cuts", "Parts", "check_alone", "joined", "start_of", "whole_of"]


class Cuts:
    """Places of ranks' tensors in those of one device, by patterns of paths, as the user says them.

    Args:
        declared: a dimension, or a function of the whole tensor and the rank, by pattern.
        where: the call, for messages.
    """

    def __init__(self, declared: Mapping[str, Any] | None, where: str) -> None:
        """The patterns in their order; the first that fits counts."""
        self._where = where
        self._patterns: dict[str, Cut] = {}
        for pattern, cut in read_mapping(where, "cuts", declared).items():
            name = read_text(f"{where}: a pattern of cuts", pattern)
            if not callable(cut) and (isinstance(cut, bool) or not isinstance(cut, int)):
                raise ArgumentTypeError(
                    f"{where}: cuts of {shown(name)} say no place, got {shown(cut)}, expected a dimension, or a "
                    "function of the whole tensor and the rank that gives the rank's part"
                )
            self._patterns[name] = functools.partial(_moved, cut) if callable(cut) else cut

    def of(self, path: str) -> Cut | None:
        """The place that is said for a path."""
        for pattern, cut in self._patterns.items():
            if path == pattern or fnmatch.fnmatchcase(path, pattern):
                return cut
        return None

    def require_used(self, paths: Sequence[str]) -> None:
        """Refuse patterns that fit nothing.

        Raises:
            UnknownNameError: there is one.
        """
        for pattern in self._patterns:
            if pattern not in paths and not fnmatch.filter(paths, pattern):
                raise UnknownNameError(
                    f"{self._where}: cuts of nothing, got {shown(pattern)}, expected "
                    f"{nearest(pattern, paths) or 'one of ' + shown(list(paths))}"
                )


def _moved(cut: Callable[[Any, int], Any], whole: Array, rank: int) -> Any:
    """A function of tensors on an array."""
    import torch

    made = cut(torch.from_numpy(whole), rank)
    return made.numpy() if isinstance(made, torch.Tensor) else made


def check_alone(model: Any, leaves: Sequence[Leaf], where: str) -> None:
    """Refuse a step that cannot be read as the only rank.

    Raises:
        UnsupportedError: the model was wrapped or cut for its ranks before, or a job of the user is running.
    """
    import torch

    if isinstance(model, torch.nn.Module) and (is_wrapped(model) or any(leaf.layout for leaf in leaves)):
        raise UnsupportedError(
            f"{where}: like= with a model that is wrapped or cut for its ranks, got {type(model).__name__}, expected a "
            "function that makes it: it is called as each rank, and once as the only one"
        )
    if is_running():
        raise UnsupportedError(
            f"{where}: like= in a job that runs, got a process group, expected none: ranks are played by popsr"
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """Data of all ranks.

    Attributes:
        path: its name.
        grouping: ranks that share it.
        cut: how the user says that ranks have parts of it.
        rows: what each rank is given.
    """

    path: str
    grouping: ReplicaGrouping
    cut: Cut | None
    rows: Sequence[Any]


def joined(batch: Sequence[Any], parts: Sequence[Parts]) -> tuple[Any, ...]:
    """The batch of one device: tensors that are of another shape than a rank's as they are, else those of all ranks.

    Args:
        batch: what the only rank is given.
        parts: what ranks are given, for each tensor of it.

    Raises:
        UnsupportedError: ranks have numbers of their own.
    """
    import torch
    import torch.utils._pytree as trees

    flat, spec = trees.tree_flatten(tuple(batch))
    places = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor)]
    for i, part in zip(places, parts, strict=False):
        value, shares = flat[i], part.grouping.num_groups == 1
        if not shares and value.shape == part.rows[0].shape and not hasattr(value, "placements"):
            flat[i] = _concatenated(part, value.ndim)
    made: tuple[Any, ...] = trees.tree_unflatten(flat, spec)
    return made


def _concatenated(part: Parts, rank: int) -> Any:
    import torch

    if not rank:
        raise UnsupportedError(
            f"trace_step: {shown(part.path)} is one number on each rank, got {part.grouping.num_groups} of them, "
            f"expected one that all share: equal=[{shown(part.path)}]"
        )
    rows = [part.rows[members[0]] for members in part.grouping.groups]
    return torch.cat(rows, part.cut % rank if isinstance(part.cut, int) else 0)


def start_of(leaf: Leaf, leaves: Mapping[str, Leaf]) -> Start:
    """Counts and other numbers that an optimiser keeps for each parameter stay as they are."""
    owner = leaves.get(leaf.owner)
    if owner is None or owner.path == leaf.path or leaf.local.numel() != 1:
        return "drawn"
    counts = leaf.path.endswith(".step") or leaf.local.shape != owner.local.shape
    return "kept" if leaf.path.startswith("optimizer.") and counts else "drawn"


def whole_of(leaves: Sequence[Leaf]) -> Whole | None:
    """The tensor of which ranks hold parts by their placements; None of placements that it does not follow."""
    first = leaves[0].layout
    places = [_place(leaf.layout) for leaf in leaves]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    return Whole(tuple(first[2]), lambda rank: known[rank])


def _place(layout: Any) -> tuple[slice, ...] | None:
    mesh, placements, shape, _ = layout
    starts, lengths = [0] * len(shape), list(shape)
    for dim, (place, each) in enumerate(zip(mesh.get_coordinate(), placements, strict=True)):
        if each.is_replicate():
            continue
        if type(each).__name__ != "Shard" or lengths[each.dim] % mesh.size(dim):
            return None
        lengths[each.dim] //= mesh.size(dim)
        starts[each.dim] += place * lengths[each.dim]
    return tuple(slice(start, start + n) for start, n in zip(starts, lengths, strict=True))
