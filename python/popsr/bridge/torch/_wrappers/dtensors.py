"""DTensor on traced tensors: torch's own code, which asks more of its operands than a trace can answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["dtensors_followed"]


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
