"""Device meshes of a step: the names of axes that its ranks lie along."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from popsr.analysis._axes import ReplicaAxes

__all__ = ["axes_of", "noted_meshes"]


@contextlib.contextmanager
def noted_meshes(world: int) -> Iterator[list[ReplicaAxes]]:
    """Note the axes of the device meshes of all ranks that are made inside."""
    found: list[ReplicaAxes] = []
    try:
        from torch.distributed.device_mesh import DeviceMesh
    except ImportError:
        yield found
        return
    kind: Any = DeviceMesh
    made = kind.__init__

    @functools.wraps(made)
    def noted(mesh: Any, /, *args: Any, **options: Any) -> None:
        made(mesh, *args, **options)
        found.extend(_axes(mesh, world))

    kind.__init__ = noted
    try:
        yield found
    finally:
        kind.__init__ = made


def axes_of(found: Iterable[ReplicaAxes], tensors: Iterable[Any], world: int) -> ReplicaAxes | None:
    """The axes of the mesh with most dimensions, of those that were made and those of tensors; None without names.

    Args:
        found: axes of meshes that were made.
        tensors: meshes of DTensors.
        world: number of ranks.
    """
    of_tensors = (axes for mesh in tensors for each in _roots(mesh) for axes in _axes(each, world))
    return max([*found, *of_tensors], key=lambda axes: len(axes.names), default=None)


def _roots(mesh: Any) -> Iterator[Any]:
    """A mesh and the one that it is a part of."""
    yield mesh
    root = getattr(mesh, "_root_mesh", None)
    if root is not None:
        yield root


def _axes(mesh: Any, world: int) -> Iterator[ReplicaAxes]:
    """The axes of a mesh with names that has all ranks."""
    import torch

    names = mesh.mesh_dim_names
    if not names:
        return
    with torch._subclasses.fake_tensor.unset_fake_temporarily():
        ranks = mesh.mesh
    if ranks.numel() != world:
        return
    places = {rank: place for place, rank in _enumerated(ranks.tolist())}
    if len(places) == world:
        in_order = [places[rank] for rank in range(world)]
        yield ReplicaAxes(tuple(map(str, names)), tuple(zip(*in_order, strict=True)))


def _enumerated(ranks: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], int]]:
    """Ranks in nested lists, with their places."""
    if not isinstance(ranks, list):
        yield place, ranks
        return
    for number, inner in enumerate(ranks):
        yield from _enumerated(inner, (*place, number))
