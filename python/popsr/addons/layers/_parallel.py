"""Parallel layers: parts of whole initial values, and the collectives at both ends of a split region.

A tensor-parallel group shares one layer. The convention of its gradients is Megatron-LM's: the loss is one value on the
group and counts once; the gradient of a value that is equal on the group is the whole gradient, equal on it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Union

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.operands import check_floats, read_tensor
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_flag, read_int
from popsr._support.host.types import HostTensor
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.layers._common import truncated_normal
from popsr.addons.module import Module
from popsr.errors import AttributeValueError, DTypeError, ShapeError
from popsr.ops import collectives
from popsr.replicas import ReplicaGrouping
from popsr.utils import as_array

__all__ = [
    "ColumnPart",
    "Initial",
    "add_parts",
    "divided",
    "drawn_or",
    "enter_region",
    "leave_region",
    "own_numbers",
    "read_bias",
    "read_features",
    "read_integers",
    "read_sequence_axis",
    "zeros_or",
]

Array = np.ndarray[Any, Any]
Initial = Union[HostTensor, Callable[[], HostTensor]]  # noqa: UP007 - evaluated, Callable has no | here
"""A whole initial value, or a function that returns one for each variable that is made."""


def divided(where: str, what: str, extent: int, group: ReplicaGrouping) -> int:
    """The extent of each part.

    Raises:
        ShapeError: the group size does not divide the extent.
    """
    if extent % group.group_size:
        raise ShapeError(
            f"{where}: {what} cannot be shared out, got {extent} for groups of {group.group_size} replicas, expected a "
            "multiple"
        )
    return extent // group.group_size


def add_parts(
    layer: Module,
    where: str,
    name: str,
    whole: Initial,
    shape: tuple[int, ...],
    dtype: dtypes.dtype,
    group: ReplicaGrouping,
    axis: int | None,
) -> Tensor:
    """A variable input of a layer, for this replica's part of a whole value.

    Args:
        layer: gets the variable.
        where: prefix of errors.
        name: the variable's.
        whole: the initial value.
        shape: shape of the whole value.
        dtype: the variable's.
        group: the replicas that share out the value; replicas of equal rank hold the same part.
        axis: where the value is cut. None: all replicas hold the whole value.
    Raises:
        ShapeError: an initial value of another shape.
    """
    count, same = (1, None) if axis is None else (group.group_size, group.transpose())
    data = _parts(f"{where}: {name}", whole, shape, axis or 0, count)
    return layer.add_variable_input(name, data, dtype, replica_grouping=same)


def _parts(what: str, whole: Initial, shape: tuple[int, ...], axis: int, count: int) -> Iterator[Array]:
    """The parts of a whole value, then the parts of the next value, without end."""
    while True:
        value = as_array(what, whole() if callable(whole) else whole)
        if value.shape != shape:
            raise ShapeError(f"{what} has another initial shape, got {value.shape}, expected {shape}")
        yield from np.split(value, count, axis)


def drawn_or(given: Initial | None, shape: tuple[int, ...]) -> Initial:
    """The given value; by default a function that draws normal numbers, cut off."""
    return functools.partial(truncated_normal, shape) if given is None else given


def read_bias(where: str, bias: bool, given: Initial | None) -> bool:
    """True if a layer has a bias.

    Raises:
        AttributeValueError: it has none, and an initial value for it is given.
    """
    has_bias = read_flag(f"{where}: bias", bias)
    if given is not None and not has_bias:
        raise AttributeValueError(
            f"{where}: initial_bias without a bias, got {shown(given)} with bias=False, expected bias=True"
        )
    return has_bias


def zeros_or(given: Initial | None, features: int) -> Initial:
    """The given value; by default zeros."""
    return np.zeros(features, np.float32) if given is None else given


def read_features(where: str, x: Any, name: str = "x") -> Tensor:
    """An operand of floats with an axis of features.

    Raises:
        DTypeError: it is not of floats.
        ShapeError: it is a scalar.
    """
    t = read_tensor(where, name, x)
    check_floats(where, name, t.dtype)
    if t.rank < 1:
        raise ShapeError(f"{where}: {name} has too few axes, got shape {t.shape}, expected at least 1 axis")
    return t


def read_integers(where: str, name: str, value: Any) -> Tensor:
    """An operand of integers, of at least 32 bits: narrow ones are widened, since differences must fit.

    Raises:
        DTypeError: it is not of integers.
    """
    t = read_tensor(where, name, value)
    if not t.dtype.is_int:
        raise DTypeError(f"{where}: {name} are not integers, got {t.dtype.name}, expected int32 or uint32")
    narrow = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
    return ops.cast(t, dtypes.int32) if t.dtype in narrow else t


def own_numbers(numbers: Tensor, extent: int, group: ReplicaGrouping) -> Tensor:
    """Numbers of the whole as numbers of this replica's part, which has ``extent`` of them."""
    first = ops.replica_index(group) * extent
    return numbers - ops.cast(first, numbers.dtype)


def read_sequence_axis(where: str, axis: Any, shape: tuple[int, ...]) -> int | None:
    """The axis of the sequence, counted from the front; None if there is none.

    Raises:
        ArgumentTypeError: it is not an int.
        AttributeValueError: there is no such axis, or it is the last one, which has the features.
    """
    if axis is None:
        return None
    number = read_int(f"{where}: sequence_axis", axis)
    if not -len(shape) <= number < len(shape):
        raise AttributeValueError(
            f"{where}: sequence_axis is out of range, got {number}, expected one of shape {shape} but the last"
        )
    number %= len(shape)
    if number == len(shape) - 1:
        raise AttributeValueError(
            f"{where}: sequence_axis is the axis of the features, got {axis} of shape {shape}, expected another"
        )
    return number


def enter_region(x: Tensor, group: ReplicaGrouping, sequence_axis: int | None) -> Tensor:
    """The operand on all replicas of a group, which use it in different ways; its gradient is summed over the group.

    Args:
        x: equal on the group; with ``sequence_axis`` this replica's part of the sequence, which is gathered.
        group: the groups.
        sequence_axis: where ``x`` is cut. Its gradient is the part of the sum: a reduce-scatter.
    """
    if sequence_axis is not None:
        x = collectives.replicated_all_gather(x, sequence_axis, group, "concat")
    return collectives.replicated_all_reduce_identical_inputs(x, group=group)


def leave_region(where: str, y: Tensor, group: ReplicaGrouping, sequence_axis: int | None) -> Tensor:
    """The sum of partial results over a group, whose gradient is equal on the group.

    Args:
        where: prefix of errors.
        y: the partial result.
        group: the groups.
        sequence_axis: where the sum is cut, each replica keeping its part: a reduce-scatter, whose gradient is an
            all-gather.
    Raises:
        ShapeError: the group size does not divide the axis.
    """
    if sequence_axis is not None:
        divided(where, "sequence", y.shape[sequence_axis], group)
    y = collectives.replicated_all_reduce_identical_grad_inputs(y, group=group)
    return y if sequence_axis is None else collectives.replicated_slice(y, sequence_axis, group)


@public
class ColumnPart(Module):
    """``x @ weight + bias`` for the columns of this replica, without collectives.

    Args:
        where: prefix of errors.
        out_features: columns of the whole weight.
        bias: true if there is one.
        group: the replicas that share out the columns.
        weight_data: the whole initial weight.
        bias_data: the whole initial bias.
    """

    def __init__(
        self,
        where: str,
        out_features: int,
        bias: bool,
        group: ReplicaGrouping | None,
        weight_data: Initial | None = None,
        bias_data: Initial | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self._where = where
        self.out_features = read_int(f"{where}: out_features", out_features, 1)
        self.bias = read_bias(where, bias, bias_data)
        self.group = group
        self._weight_data, self._bias_data = weight_data, bias_data

    def build(self, x: Tensor) -> Tensor:
        """The columns ``[..., out_features / group size]`` for whole features ``[..., features]``."""
        where, features = self._where, self.out_features
        group = read_group(where, self.group)
        divided(where, "out_features", features, group)
        shape = (x.shape[-1], features)
        whole = drawn_or(self._weight_data, shape)
        self.weight = add_parts(self, where, "weight", whole, shape, x.dtype, group, 1)
        y = ops.matmul(x, self.weight)
        if not self.bias:
            return y
        whole = zeros_or(self._bias_data, features)
        return y + add_parts(self, where, "bias", whole, (features,), x.dtype, group, 0)
