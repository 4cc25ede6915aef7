"""The call of a step as the only rank of a job: what one device is given, and how ranks hold parts of that."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._support.host.arguments import read_mapping, read_text
from popsr._support.host.patterns import Patterns
from popsr._support.text.shown import shown
from popsr.bridge._step.arguments import Array, Cut, Start, Whole
from popsr.bridge.torch._ranks.job import is_running
from popsr.bridge.torch._states.leaves import Leaf
from popsr.bridge.torch._wrappers.recipes import is_wrapped
from popsr.errors import ArgumentTypeError, UnsupportedError

__all__ = ["Cuts", "Parts", "Said", "check_alone", "joined", "start_of", "whole_of"]


@dataclass(frozen=True, slots=True)
class Said:
    """Path and place of a tensor on one device, as the user says them.

    Attributes:
        cut: how ranks have parts of it; None where nothing is said.
        name: its path on one device; empty where nothing is said.
    """

    cut: Cut | None = None
    name: str = ""


_NOTHING = Said()


class Cuts:
    """Places of ranks' tensors in those of one device, by patterns of paths, as the user says them.

    Args:
        declared: a dimension, or a function of the whole tensor and the rank, by pattern.
        where: the call, for messages.
    """

    def __init__(self, declared: Mapping[str, Any] | None, where: str) -> None:
        """The patterns in their order; the first that fits counts."""
        self._where = where
        pairs = [
            (read_text(f"{where}: a pattern of cuts", pattern), cut)
            for pattern, cut in read_mapping(where, "cuts", declared).items()
        ]
        self._patterns = Patterns((pattern, self._said(pattern, cut)) for pattern, cut in pairs)

    def _said(self, pattern: str, value: Any) -> Said:
        """A path on one device, a place, or both."""
        named = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
        name, cut = value if named else (value, None) if isinstance(value, str) else ("", value)
        if callable(cut):
            return Said(functools.partial(_moved, cut), name)
        if isinstance(cut, bool) or not isinstance(cut, int | None) or (cut is None and not name):
            raise ArgumentTypeError(
                f"{self._where}: cuts of {shown(pattern)} say no place, got {shown(cut)}, expected a dimension, a "
                "function of the whole tensor and the rank that gives the rank's part, or the tensor's path on one "
                "device, alone or in a pair with one of these"
            )
        return Said(cut, name)

    def of(self, path: str) -> Said:
        """Path and place on one device that are said for a path."""
        return self._patterns.of(path) or _NOTHING

    def require_used(self, paths: Sequence[str]) -> None:
        """Refuse patterns that fit nothing.

        Raises:
            UnknownNameError: there is one.
        """
        self._patterns.require_used(paths, f"{self._where}: cuts")


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
        groups: ranks that share it, of those that read it.
        cut: how the user says that ranks have parts of it.
        rows: what each rank is given.
    """

    path: str
    groups: Sequence[tuple[int, ...]]
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
        rows = [part.rows[members[0]] for members in part.groups]
        if flat[i].shape == rows[0].shape and not hasattr(flat[i], "placements"):
            flat[i] = rows[0] if len(rows) == 1 else _concatenated(part, rows)
    made: tuple[Any, ...] = trees.tree_unflatten(flat, spec)
    return made


def _concatenated(part: Parts, rows: list[Any]) -> Any:
    import torch

    dims = rows[0].ndim
    if not dims:
        raise UnsupportedError(
            f"trace_step: {shown(part.path)} is one number on each rank, got {len(rows)} of them, expected one that "
            f"all share: equal=[{shown(part.path)}]"
        )
    return torch.cat(rows, part.cut % dims if isinstance(part.cut, int) else 0)


def start_of(leaf: Leaf, leaves: Mapping[str, Leaf]) -> Start:
    """Counts and other numbers that an optimiser keeps for each parameter stay as they are."""
    owner = leaves.get(leaf.owner)
    if owner is None or leaf.owner == (leaf.name or leaf.path) or leaf.local.numel() != 1:
        return "drawn"
    counts = leaf.path.endswith(".step") or leaf.local.shape != owner.local.shape
    return "kept" if leaf.path.startswith("optimizer.") and counts else "drawn"


def whole_of(layouts: Sequence[Any]) -> Whole | None:
    """The tensor of which ranks hold parts by their placements; None of placements that it does not follow."""
    first = layouts[0]
    places = [_place(layout) for layout in layouts]
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
