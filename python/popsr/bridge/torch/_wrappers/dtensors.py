"""DTensor on traced tensors: torch's own code, which asks more of its operands than a trace can answer."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._wrappers.sharded import unsharded_specs
from popsr.errors import UnsupportedError

__all__ = [
    "SharedBatch",
    "check_cut",
    "dtensors_followed",
    "shapes_unrecorded",
    "shared_batch",
    "splitting_ranks",
]


def check_cut(model: Any) -> None:
    """Refuse DTensors of which ranks hold parts of different sizes.

    Raises:
        UnsupportedError: with what to do.
    """
    for name, t in (*model.named_parameters(), *model.named_buffers()):
        sizes: dict[int, int] = {}
        for number, each in enumerate(getattr(t, "placements", ())):
            if hasattr(each, "dim"):
                sizes[each.dim] = sizes.get(each.dim, 1) * t.device_mesh.size(number)
        for dim, size in sizes.items():
            if t.shape[dim] % size:
                raise UnsupportedError(
                    f"trace_step: {shown(name)} is not cut into equal parts, got axis {dim} of {tuple(t.shape)} over "
                    f"{size} ranks, expected a length that {size} divides: pad the axis, cut another one "
                    "(shard_placement_fn= of fully_shard), or prove a job of another number of ranks (replicas=)"
                )


def splitting_ranks(model: Any) -> dict[str, tuple[int, ...]]:
    """Ranks with which this one splits layers, by the name of the mesh axis; those of ``fully_shard`` split data."""
    import torch.distributed as dist

    found: dict[str, tuple[int, ...]] = {}
    unsharded = unsharded_specs(model)
    for p in model.parameters():
        spec: Any = unsharded[id(p)] if id(p) in unsharded else getattr(p, "_spec", None)
        for number, each in enumerate(() if spec is None else spec.placements):
            if not each.is_replicate():
                names = spec.mesh.mesh_dim_names
                found[names[number] if names else ""] = tuple(
                    dist.get_process_group_ranks(spec.mesh.get_group(number))
                )
    return found


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """Data that ranks which split layers may share.

    Attributes:
        paths: data that each rank has of its own.
        groups: the ranks that split layers together.
        option: the keyword of ``trace_step`` that says so.
        hint: a line about it.
    """

    paths: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    option: str
    hint: str


def shared_batch(
    paths: Sequence[str], of_ranks: Sequence[Mapping[str, tuple[int, ...]]]
) -> SharedBatch | None:
    """The data that ranks which split layers may share; None where no ranks do.

    Args:
        paths: data that each rank has of its own.
        of_ranks: what ``splitting_ranks`` gives on each rank.
    """
    together = [{rank} for rank in range(len(of_ranks))]
    for of_rank in of_ranks:
        for members in of_rank.values():
            merged = set().union(*(together[member] for member in members))
            for member in merged:
                together[member] = merged
    groups = sorted({tuple(sorted(each)) for each in together})
    if not paths or len(groups) == len(of_ranks):
        return None
    names = [name for name in dict.fromkeys(name for each in of_ranks for name in each) if name]
    over = f" over mesh axis {' and '.join(map(shown, names))}" if names else ""
    lists = [list(each) for each in groups]
    option = f"equal={list(paths)}" if len(groups) == 1 else f"groups={dict.fromkeys(paths, lists)}"
    hint = (
        f"{', '.join(map(shown, paths))} differ on each rank, also on ranks that split layers{over}, {lists}: if these "
        f"share a batch, as in tensor parallelism, say {option}"
    )
    return SharedBatch(tuple(paths), tuple(groups), option, hint)


@contextlib.contextmanager
def dtensors_followed() -> Iterator[None]:
    """Let DTensor find out about ops without a record of what it calls for that, and of numbers of the step.

    Raises:
        UnsupportedError: attention of torch's context parallelism, which has operands on the device alone.
    """
    with _numbers_hashed(), shapes_unrecorded(), _attention_refused():
        yield


@contextlib.contextmanager
def _attention_refused() -> Iterator[None]:
    """Refuse ``context_parallel`` of torch, also where the step itself imports it."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"trace_step: context_parallel of torch is not read at {shown_place(current_place())}, got its attention "
            "kernels of a device, expected attention over keys and values that all_gather or all_to_all collects"
        )

    with contextlib.suppress(ImportError):
        importlib.import_module(_EXPERIMENTAL)
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_EXPERIMENTAL)]
    names = ("_context_parallel_buffers", "_enable_context_parallel_dispatcher_impl")
    with replaced((m, name, refuse) for m in modules for name in names if hasattr(m, name)):
        yield


_EXPERIMENTAL = "torch.distributed.tensor.experimental"


@contextlib.contextmanager
def shapes_unrecorded() -> Iterator[None]:
    """Keep the op that DTensor calls for the shape of a whole result from those that are recorded."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.utils._python_dispatch import _disable_current_modes

    members: Any = ShardingPropagator
    name = next(
        each
        for each in ("_propagate_tensor_meta_non_cached", "_propagate_tensor_meta")
        if hasattr(members, each)
    )
    kept = getattr(members, name)

    def propagate(self: Any, schema: Any) -> Any:
        with _disable_current_modes():
            return kept(self, schema)

    with replaced([(members, name, propagate)]):
        yield


@contextlib.contextmanager
def _numbers_hashed() -> Iterator[None]:
    """Let DTensor look up ops whose operands are numbers that are known only when the step runs, such as a count."""
    from torch.distributed.tensor._op_schema import OpSchema

    kept = OpSchema.__hash__, OpSchema.__eq__

    def hashed(self: Any) -> int:
        try:
            return int(kept[0](self))
        except RuntimeError:  # a symbol without a value
            return id(self)

    def equal(self: Any, other: Any) -> bool:
        try:
            return self is other or bool(kept[1](self, other))
        except RuntimeError:
            return False

    with replaced([(OpSchema, "__hash__", hashed), (OpSchema, "__eq__", equal)]):
        yield
