"""Embedding whose table lies by rows on the replicas of a group."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.building.operands import check_floats
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_dtype, read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._parallel import (
    Initial,
    add_parts,
    divided,
    drawn_or,
    leave_region,
    own_numbers,
    read_integers,
    read_sequence_axis,
)
from popsr.addons.module import Module
from popsr.replicas import ReplicaGrouping

__all__ = ["ParallelEmbedding"]

_WHERE = "ParallelEmbedding"


@public
class ParallelEmbedding(Module):
    """Rows of a table by number, with a part of the table's rows on each replica of a group.

    Each replica looks up the numbers that are in its part, others give zeros, and the sum over the group is the
    result; backwards nothing is exchanged. Numbers outside the whole table give zeros. With ``sequence_axis`` (sequence
    parallelism) the sum is reduce-scattered forwards and its gradient all-gathered backwards.

    Variable, whose groups are the transpose of ``group`` (replicas of equal rank hold the same part): ``weight``
    ``[vocab_size / group size, hidden_size]``, by default parts of a normal table with standard deviation 0.02 cut off
    at 2 of them.

    Args:
        dtype: element type.
        vocab_size: rows of the whole table, a multiple of the group size.
        hidden_size: columns of the table.
        group: the replicas that share one table. Default: all replicas.
        sequence_axis: the axis of the result that the replicas of a group share out; not the last one. None: each
            replica has the whole result.
        initial_weight: the whole initial table ``[vocab_size, hidden_size]``, or a function that returns one.

    Attributes:
        weight: the variable in the graph that ``build`` ran in last, for a head that shares it.
    Raises:
        AttributeValueError: a number out of range.
        DTypeError: ``dtype`` is not of floats.
    Source:
        Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053.
    """

    def __init__(
        self,
        dtype: dtypes.dtype,
        vocab_size: int,
        hidden_size: int,
        group: ReplicaGrouping | None = None,
        sequence_axis: int | None = None,
        *,
        initial_weight: Initial | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.dtype = read_dtype(_WHERE, dtype)
        check_floats(_WHERE, "dtype", self.dtype)
        self.vocab_size = read_int(f"{_WHERE}: vocab_size", vocab_size, 1)
        self.hidden_size = read_int(f"{_WHERE}: hidden_size", hidden_size, 1)
        self.group = group
        self.sequence_axis = sequence_axis
        self._weight_data = initial_weight

    def build(self, indices: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            indices: integers of any shape: rows of the whole table; equal on the group.
        Returns:
            Tensor ``[*indices.shape, hidden_size]``, equal on the group; with ``sequence_axis`` this replica's part of
            it.
        Raises:
            ShapeError: the group size does not divide ``vocab_size`` or the sequence, or an initial value has another
                shape.
            AttributeValueError: the result has no axis ``sequence_axis``, or it is the last one.
            DTypeError: ``indices`` are not integers.
            ReplicaError: ``group`` is of another number of replicas.
        """
        group = read_group(_WHERE, self.group)
        shape = (self.vocab_size, self.hidden_size)
        rows = divided(_WHERE, "vocab_size", self.vocab_size, group)
        numbers = read_integers(_WHERE, "indices", indices)
        sequence_axis = read_sequence_axis(_WHERE, self.sequence_axis, (*indices.shape, self.hidden_size))
        whole = drawn_or(self._weight_data, shape)
        self.weight = add_parts(self, _WHERE, "weight", whole, shape, self.dtype, group, 0)
        y = ops.gather(self.weight, own_numbers(numbers, rows, group), axis=0, zero_OOR=True)
        return leave_region(_WHERE, y, group, sequence_axis)
