"""Arrays of which each replica holds a part."""

from __future__ import annotations

from dataclasses import dataclass

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._mesh import Spec, Spread

__all__ = ["Sharded", "gathered", "sliced"]


@dataclass(frozen=True, slots=True)
class Sharded:
    """An array that is cut over replicas.

    Attributes:
        part: what the replica holds.
        spec: the axes that each dimension is cut over.
    """

    part: Tensor
    spec: Spec

    def whole(self, spread: Spread) -> Tensor:
        """The array, on all replicas."""
        return gathered(self.part, self.spec, spread)


def gathered(part: Tensor, spec: Spec, spread: Spread) -> Tensor:
    """Parts put together along each dimension that is cut."""
    for dimension, axes in enumerate(spec):
        for axis in reversed(axes):
            part = ops.collectives.replicated_all_gather(part, dimension, spread.group([axis]), "concat")
    return part


def sliced(whole: Tensor, spec: Spec, spread: Spread) -> Tensor:
    """The part of this replica of an array that all hold."""
    for dimension, axes in enumerate(spec):
        for axis in axes:
            whole = ops.collectives.replicated_slice(whole, dimension, spread.group([axis]))
    return whole
