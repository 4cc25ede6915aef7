"""Embedding."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.context import gir
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice, read_dtype, read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._common import truncated_normal
from popsr.addons.module import Module
from popsr.errors import ShapeError
from popsr.replicas import ReplicaGrouping

__all__ = ["Embedding"]

_ROWS = 16  # rows of a part are a multiple of it


@public
class Embedding(Module):
    """Rows of a table by number; numbers outside the table give zeros.

    Variable, normal with standard deviation 0.02 cut off at 2 of them: ``weight`` ``[vocab_size, hidden_size]``. With
    several groups of replicas each group has a part of the table of its own: of its rows, so that the sum over parts of
    what ``indices - get_offsets(...)[part]`` give is the whole; or of its columns.

    Args:
        dtype: element type.
        vocab_size: rows of the table.
        hidden_size: columns of the table.
        axis: what the groups of replicas share out: 0 the rows, 1 the columns.
        replica_grouping: groups of replicas with the same part. Default: one of all, with the whole table.

    Attributes:
        weight: the variable in the graph that ``build`` ran in last, for a head that shares it.
    Raises:
        ValueError: a number out of range.
        TypeError: ``dtype`` is none.
    """

    def __init__(
        self,
        dtype: dtypes.dtype,
        vocab_size: int,
        hidden_size: int,
        axis: int = 0,
        replica_grouping: ReplicaGrouping | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.dtype = read_dtype("Embedding", dtype)
        self.vocab_size = read_int("Embedding: vocab_size", vocab_size, 1)
        self.hidden_size = read_int("Embedding: hidden_size", hidden_size, 1)
        self.axis = read_choice("Embedding", "axis", axis, (0, 1))
        self.replica_grouping = replica_grouping

    @staticmethod
    def get_vocab_shard_size(vocab_size: int, n_shards: int) -> int:
        """Rows of each part of a table: all for one part, else the next multiple of 16.

        Args:
            vocab_size: rows of the table.
            n_shards: number of parts.
        Raises:
            ValueError: a number is not an int of at least 1.
        """
        where = "get_vocab_shard_size"
        vocab_size = read_int(f"{where}: vocab_size", vocab_size, 1)
        if read_int(f"{where}: n_shards", n_shards, 1) == 1:
            return vocab_size
        rows = -(-vocab_size // n_shards)
        return -(-rows // _ROWS) * _ROWS

    @staticmethod
    def get_offsets(vocab_size: int, n_shards: int) -> np.ndarray[Any, Any]:
        """The first row of each part of a table, to subtract from indices.

        Args:
            vocab_size: rows of the table.
            n_shards: number of parts.
        Returns:
            int32 array ``[n_shards]``.
        Raises:
            ValueError: a number is not an int of at least 1.
        """
        rows = Embedding.get_vocab_shard_size(vocab_size, n_shards)
        return np.arange(n_shards, dtype=np.int32) * np.int32(rows)

    def build(self, indices: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            indices: integers of any shape; of the rows of this replica's part, which start at 0.
        Returns:
            Tensor ``[*indices.shape, columns]``.
        Raises:
            ShapeError: the columns cannot be shared out evenly.
            TypeError: ``indices`` are not integers.
        """
        groups = (self.replica_grouping or gir().replica_grouping()).num_groups
        rows, columns = self.vocab_size, self.hidden_size
        if self.axis == 0:
            rows = self.get_vocab_shard_size(rows, groups)
        elif columns % groups:
            raise ShapeError(
                f"Embedding: columns cannot be shared out, got hidden_size {columns} for {groups} groups, expected a "
                f"multiple"
            )
        else:
            columns //= groups
        draw = functools.partial(truncated_normal, (rows, columns))
        self.weight = self.add_variable_input(
            "weight", draw, self.dtype, replica_grouping=self.replica_grouping
        )
        return ops.gather(self.weight, indices, axis=0, zero_OOR=True)
