"""Process groups without processes: a step is traced as each rank of a fake job in turn."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, MissingPackageError, ReplicaError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = [
    "grouping_of_all",
    "grouping_of_holders",
    "grouping_of_labels",
    "grouping_of_one",
    "grouping_of_ranks",
    "grouping_of_values",
    "is_running",
    "rank_of",
]


def is_running() -> bool:
    """True if the user has made a process group, of whatever kind."""
    import torch.distributed as dist

    return bool(dist.is_available() and dist.is_initialized())


@contextlib.contextmanager
def rank_of(rank: int, world: int, where: str) -> Iterator[None]:
    """Be a rank of a job of a number of ranks; of the user's own job, where there is one.

    Raises:
        ReplicaError: the user's job has another number of ranks.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        raise MissingPackageError(
            f"{where}: torch.distributed is not available, got a torch built without it, expected one with it"
        )
    if dist.is_initialized():
        if dist.get_world_size() != world:
            raise ReplicaError(
                f"{where}: replicas do not match the process group, got {world}, expected {dist.get_world_size()}"
            )
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    hook = sys.excepthook  # torch puts one before it that shows the rank
    with _launched(rank, world):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        random_state = torch.get_rng_state()
        try:
            with _own_shards(), _without_pinning():
                yield
        finally:
            torch.set_rng_state(random_state)
            _forget_meshes()
            dist.destroy_process_group()
            sys.excepthook = hook


@contextlib.contextmanager
def _launched(rank: int, world: int) -> Iterator[None]:
    """Set the environment as ``torchrun`` does on one host, and put it back."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    kept = {name: os.environ.get(name) for name in numbers}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _own_shards() -> Iterator[None]:
    """Let a rank cut its shards of a DTensor off its own tensor, where they would come from the first rank's.

    Nothing is sent in a job that does not exist; all ranks make the same tensor, as they are seeded alike.
    """
    try:
        module: Any = importlib.import_module("torch.distributed.tensor.placement_types")
    except ImportError:
        yield
        return

    def scatter(output: Any, scatter_list: Any, mesh: Any, mesh_dim: int = 0, **_options: Any) -> None:
        output.copy_(scatter_list[mesh.get_local_rank(mesh_dim)])

    kept = module.mesh_scatter
    module.mesh_scatter = scatter
    try:
        yield
    finally:
        module.mesh_scatter = kept


@contextlib.contextmanager
def _without_pinning() -> Iterator[None]:
    """Let memory be that of any tensor where no accelerator could read it faster."""
    import torch

    if torch.accelerator.is_available():
        yield
        return
    members: Any = torch.Tensor
    kept = members.pin_memory
    members.pin_memory = lambda self, *_: self
    try:
        yield
    finally:
        members.pin_memory = kept


def _forget_meshes() -> None:
    """Let DTensor forget what it derived for the rank that was."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch.distributed.tensor import DTensor

        propagator = DTensor._op_dispatcher.sharding_propagator
        for name in ("propagate_op_sharding", "propagate_op_sharding_non_cached"):
            clear = getattr(getattr(getattr(propagator, name, None), "cache", None), "cache_clear", None)
            if clear is not None:
                clear()
    with contextlib.suppress(ImportError, AttributeError):
        from torch._C import _clear_DTensor_sharding_propagator_cache as clear_native

        clear_native()


def grouping_of_all(
    name: str, ranks: Mapping[int, tuple[int, ...]], world: int, where: str
) -> ReplicaGrouping:
    """The grouping of a process group, of the members that each rank's group of that name has.

    Ranks without one get groups of their own: they take no part, and nothing reads what they would get.

    Raises:
        ReplicaError: the groups do not fit together: a collective of them would hang.
        UnsupportedError: the ranks that are left cannot be in groups of that size.
    """
    for rank, members in ranks.items():
        if rank not in members or any(ranks.get(member) != members for member in members):
            other = next((m for m in members if ranks.get(m) != members), rank)
            raise ReplicaError(
                f"{where}: the ranks of process group {shown(name)} do not fit together, got {list(members)} on rank "
                f"{rank} and {list(ranks.get(other, ()))} on rank {other}, expected one list on all its members"
            )
    labels = [min(ranks[rank]) if rank in ranks else None for rank in range(world)]
    filled = _filled(labels)
    if filled is None:
        sizes = sorted({len(members) for members in ranks.values()})
        raise UnsupportedError(
            f"{where}: a collective of some ranks in process group {shown(name)}, got groups of {sizes} of {world} "
            "ranks, expected groups of one size that divides the number of ranks without any"
        )
    return grouping_of_labels(filled)


def _filled(labels: Sequence[Hashable | None]) -> list[Hashable] | None:
    """Labels of groups of one size, with groups for the ranks that have no label; None if there are none."""
    sizes = {labels.count(label) for label in labels if label is not None}
    left = labels.count(None)
    if len(sizes) > 1 and not left:
        return list(labels)
    (size, *others) = sizes
    if others or left % size:
        return None
    numbers = itertools.count()
    return [("left", next(numbers) // size) if label is None else label for label in labels]


def grouping_of_holders(labels: Sequence[Hashable], held: Sequence[int]) -> ReplicaGrouping | None:
    """The grouping of ranks that hold something, by equal labels; others fill it up. None if there is none.

    Args:
        labels: a label of each rank.
        held: the ranks whose labels count.
    """
    own: list[Hashable] = [labels[rank] if rank in held else None for rank in range(len(labels))]
    filled = _filled([None if label is None else ("own", label) for label in own])
    if filled is not None:
        return grouping_of_labels(filled)
    kinds = list(dict.fromkeys(labels[rank] for rank in held))
    left = len(labels) - len(held)
    if len({[labels[rank] for rank in held].count(kind) for kind in kinds}) > 1 or left % len(kinds):
        return None
    numbers = itertools.count()
    return grouping_of_labels(
        labels[rank] if rank in held else kinds[next(numbers) % len(kinds)] for rank in range(len(labels))
    )


def grouping_of_one(name: str, members: tuple[int, ...], world: int, where: str) -> ReplicaGrouping:
    """The grouping whose groups are like the one that is known: a regular pattern over all ranks.

    Raises:
        ReplicaError: the group is not of ranks at one distance that tile the job.
    """
    size = len(members)
    stride = members[1] - members[0] if size > 1 else 1
    labels = [rank // (stride * size) * stride + rank % stride for rank in range(world)]
    like_it = [rank for rank in range(world) if labels[rank] == labels[members[0]]]
    if world % (stride * size) or list(members) != like_it:
        raise ReplicaError(
            f"{where}: the other groups of process group {shown(name)} are unknown, got ranks {list(members)} of "
            f"{world}, expected process_groups={{{shown(name)}: [[...], ...]}}"
        )
    return grouping_of_labels(labels)


def grouping_of_ranks(value: Any, world: int, where: str) -> ReplicaGrouping:
    """A grouping of what a user says: a grouping, lists of ranks, or a number for each rank."""
    if isinstance(value, ReplicaGrouping):
        found = value
    else:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ArgumentTypeError(
                f"{where}: groups are said otherwise, got {shown(value)}, expected lists of ranks, a number for each "
                "rank or a ReplicaGrouping"
            )
        items = list(value)
        if items and isinstance(items[0], int):
            labels = items
        else:
            of = {rank: number for number, ranks in enumerate(items) for rank in ranks}
            labels = [of.get(rank, -1 - rank) for rank in range(max([world - 1, *of]) + 1)]
        found = grouping_of_labels(labels)
    if found.num_replicas != world:
        raise ReplicaError(f"{where}: groups of other replicas, got {found.num_replicas}, expected {world}")
    return found


def grouping_of_labels(labels: Iterable[Hashable]) -> ReplicaGrouping:
    """The grouping in which replicas of equal labels are together."""
    labels = list(labels)
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return ReplicaGrouping.from_assignment([numbers[label] for label in labels])


def grouping_of_values(labels: Iterable[Hashable]) -> ReplicaGrouping:
    """As ``grouping_of_labels``; where groups would differ in size each replica is by itself, which declares less."""
    labels = list(labels)
    sizes = {labels.count(label) for label in labels}
    return grouping_of_labels(labels if len(sizes) == 1 else range(len(labels)))
