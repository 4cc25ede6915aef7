"""Layer norm whose hidden axis lies on the replicas of a group."""

from __future__ import annotations

import functools

import numpy as np

from popsr._program.context import gir
from popsr._program.tensor import Tensor
from popsr._support.text.entry_points import public
from popsr.addons.layers._common import read_operand
from popsr.addons.module import Module
from popsr.addons.ops.layer_norm_distributed import layer_norm_distributed
from popsr.replicas import ReplicaGrouping

__all__ = ["LayerNormDistributed"]


@public
class LayerNormDistributed(Module):
    """Layer norm over a last axis that is shared out over the replicas of each group.

    Variables, of the dtype of ``x`` and one element for each of the replica's own columns: ``weight``, ones; ``bias``,
    zeros. Their grouping is the transpose: replicas of equal rank in their groups hold the same part.

    Args:
        replica_grouping: the replicas that share out the axis. Default: all replicas.
    """

    def __init__(self, replica_grouping: ReplicaGrouping | None = None) -> None:
        """No state yet."""
        super().__init__()
        self.replica_grouping = replica_grouping

    def build(self, x: Tensor, eps: float = 1e-05) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[..., columns / group size]``.
            eps: added to the variance.
        Returns:
            Tensor of the shape and dtype of ``x``; see ``layer_norm_distributed``.
        Raises:
            ShapeError: ``x`` is a scalar.
        """
        read_operand("LayerNormDistributed", x, 1)
        group = self.replica_grouping or gir().replica_grouping()
        same, columns = group.transpose(), x.shape[-1]
        ones = functools.partial(np.ones, columns, np.float32)
        weight = self.add_variable_input("weight", ones, x.dtype, replica_grouping=same)
        zeros = functools.partial(np.zeros, columns, np.float32)
        bias = self.add_variable_input("bias", zeros, x.dtype, replica_grouping=same)
        return layer_norm_distributed(x, weight, bias, eps, group)
