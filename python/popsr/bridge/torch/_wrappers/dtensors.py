"""DTensor on traced tensors: torch's own code, which asks more of its operands than a trace can answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from popsr._text.shown import shown
from popsr.errors import UnsupportedError

__all__ = ["check_cut", "dtensors_followed"]


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


@contextlib.contextmanager
def dtensors_followed() -> Iterator[None]:
    """Let DTensor find out about ops without a record of what it calls for that, and of numbers of the step."""
    with _numbers_hashed(), _shapes_unrecorded():
        yield


@contextlib.contextmanager
def _shapes_unrecorded() -> Iterator[None]:
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

    setattr(members, name, propagate)
    try:
        yield
    finally:
        setattr(members, name, kept)


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

    members: Any = OpSchema
    members.__hash__, members.__eq__ = hashed, equal
    try:
        yield
    finally:
        members.__hash__, members.__eq__ = kept
