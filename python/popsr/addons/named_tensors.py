"""Trees of tensors and of their data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from popsr import ops
from popsr._transaction import transactional
from popsr.addons.dot_tree import DotTree
from popsr.errors import UnknownNameError
from popsr.tensor import Tensor

__all__ = ["NamedTensorData", "NamedTensors", "TensorMap", "print_named_tensors"]

TensorMap = Mapping[Tensor, Tensor]


class NamedTensorData(DotTree[np.ndarray[Any, Any]]):
    """A tree of arrays."""


class NamedTensors(DotTree[Tensor]):
    """A tree of tensors."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, sorted by their names, not by their keys.

        Variables, the graph inputs that stand for them, their accumulators and their shards sort alike.
        """
        return tuple(sorted(self.values_flat(), key=lambda t: t.name))

    @property
    def named_tensors(self) -> dict[str, Tensor]:
        """Tensors by dotted key."""
        return dict(self.to_dict())

    def remap(self, mapping: TensorMap) -> NamedTensors:
        """A tree of the same keys with other tensors.

        Args:
            mapping: the tensor to put in the place of each.
        Raises:
            KeyError: a tensor is not in ``mapping``; the message has its key.
        """
        tree = NamedTensors()
        for key, tensor in self.to_dict().items():
            if tensor not in mapping:
                raise UnknownNameError(
                    f"remap: no tensor in the place of {key!r}, got a mapping without {tensor!r}"
                )
            tree.insert(key, mapping[tensor], overwrite=True)
        return tree


@transactional
def print_named_tensors(named_tensors: NamedTensors) -> NamedTensors:
    """Print each tensor when the program runs, with its key as title; see ``ops.print_tensor``.

    Args:
        named_tensors: the tensors.
    Returns:
        What the ops return, by the same keys.
    """
    printed = {key: ops.print_tensor(tensor, title=key) for key, tensor in named_tensors.to_dict().items()}
    return NamedTensors.from_dict(printed)
