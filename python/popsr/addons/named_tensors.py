"""Trees of tensors and of their data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, Variable
from popsr._support.host.arguments import is_a, read_a, read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import Summarised, Summary
from popsr.addons.dot_tree import DotTree
from popsr.addons.utils import OrderedDict
from popsr.errors import UnknownNameError

__all__ = ["NamedTensorData", "NamedTensors", "NamedVariables", "TensorMap", "print_named_tensors"]

TensorMap = Mapping[Tensor, Tensor]


def keep_key(tensor: Tensor, key: str) -> None:
    """Let a tensor sort by a key among others, whatever its name is; the first key stays.

    Args:
        tensor: a variable, or a graph's input for one.
        key: its key in the tree that it was made for.
    """
    keys: dict[Tensor, str] = tensor.ir.__dict__.setdefault("_addons_keys", {})
    keys.setdefault(tensor, key)


def _sort_name(key: str, tensor: Tensor) -> str:
    read_a(f"NamedTensors: {key!r}", tensor, Tensor)
    kept: str | None = tensor.ir.__dict__.get("_addons_keys", {}).get(tensor)
    if kept is not None:
        return kept
    producer = tensor.ir._core.tensor(tensor._id).producer
    return tensor.name if producer is None else key


class NamedTensorData(DotTree[np.ndarray[Any, Any]]):
    """A tree of arrays."""


@public
class NamedTensors(Summarised, DotTree[Tensor]):
    """A tree of tensors."""

    _is_named = True

    def _summary(self) -> Summary:
        keys, tensors = self.unpack()
        rows = (
            (key, t.name, t.dtype.name, t.shape)
            for key, t in zip(keys, tensors, strict=True)
            if is_a(t, Tensor)
        )
        title = f"{type(self).__name__} of {len(keys)} tensors"
        return Summary(title, ("key", "name", "dtype", "shape"), rows, len(keys))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, sorted by their names, not by their keys in this tree.

        What stands for one value sorts alike, so that ``zip`` of two such tuples is right: variables that factories
        made, named inputs of graphs and accumulators count by the keys that they were made with, whatever became of
        their names, and results of ops by their keys here.
        """
        leaves = [(_sort_name(key, tensor), key, tensor) for key, tensor in self.to_dict().items()]
        return tuple(tensor for _, _, tensor in sorted(leaves, key=lambda leaf: leaf[:2]))

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
        read_mapping("remap", "mapping", mapping)
        tree = NamedTensors()
        for key, tensor in self.to_dict().items():
            if tensor not in mapping:
                raise UnknownNameError(
                    f"remap: no tensor in the place of {shown(key)}, got a mapping without {shown(tensor)}, "
                    "expected each tensor of the tree as a key"
                )
            tree.insert(key, mapping[tensor], overwrite=True)
        return tree


if TYPE_CHECKING:

    class NamedVariables(NamedTensors):
        """A tree of variables, as factories make it. Its class is ``NamedTensors`` when a program runs."""

        @property
        def tensors(self) -> tuple[Variable, ...]:
            """All variables, sorted as in ``NamedTensors``."""

        # Nothing checks that variables alone are inserted later.

        @property
        def named_tensors(self) -> dict[str, Variable]:  # type: ignore[override]
            """Variables by dotted key."""

        def to_dict(self) -> OrderedDict[str, Variable]:  # type: ignore[override]
            """Variables by dotted key."""

        def values_flat(self) -> list[Variable]:  # type: ignore[override]
            """All variables."""

else:
    NamedVariables = NamedTensors


@public
@transactional
def print_named_tensors(named_tensors: NamedTensors) -> NamedTensors:
    """Print each tensor when the program runs, with its key as title; see ``ops.print_tensor``.

    Args:
        named_tensors: the tensors.
    Returns:
        What the ops return, by the same keys.
    """
    read_a("print_named_tensors: named_tensors", named_tensors, NamedTensors)
    printed = {key: ops.print_tensor(tensor, title=key) for key, tensor in named_tensors.to_dict().items()}
    return NamedTensors.from_dict(printed)
