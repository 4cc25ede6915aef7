"""Group norm."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._common import map_bias, read_operand, torch_data, variable_of
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import WeightsDict
from popsr.replicas import ReplicaGrouping

__all__ = ["GroupNorm"]


@public
class GroupNorm(Module):
    """Groups of channels of each sample without their mean, by their standard deviation; then ``weight`` and ``bias``.

    Variables, of the dtype of ``x`` and one element a channel: ``weight``, ones; ``bias``, zeros.

    Args:
        num_groups: number of groups of adjacent channels.
        replica_grouping: groups of replicas with the same variables. Default: one of all.
        eps: added to the variance.
        cache: ``create_graph`` returns the same graph for equal arguments.
    Raises:
        ValueError: ``num_groups`` is not an int of at least 1.
    """

    def __init__(
        self,
        num_groups: int,
        replica_grouping: ReplicaGrouping | None = None,
        eps: float = 1e-05,
        cache: bool = False,
    ) -> None:
        """No state yet."""
        super().__init__(cache=cache)
        self.num_groups = read_int("GroupNorm: num_groups", num_groups, 1)
        self.replica_grouping = replica_grouping
        self.eps = eps

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[samples, channels, ...]``.
        Returns:
            Tensor of the shape and dtype of ``x``.
        Raises:
            ShapeError: ``x`` has no axis of channels.
            ValueError: ``num_groups`` does not divide the channels.
        """
        channels = read_operand("GroupNorm", x, 2).shape[1]
        ones = functools.partial(np.ones, channels, np.float32)
        weight = self.add_variable_input("weight", ones, x.dtype, replica_grouping=self.replica_grouping)
        zeros = functools.partial(np.zeros, channels, np.float32)
        bias = self.add_variable_input("bias", zeros, x.dtype, replica_grouping=self.replica_grouping)
        return ops.group_norm(x, weight, bias, self.num_groups, self.eps)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: dtypes.dtype = dtypes.float32
    ) -> WeightsDict:
        """The data of a ``torch.nn.GroupNorm`` for the variables.

        Args:
            variables: what ``init`` returned: ``weight`` and ``bias``.
            nn_layer: the layer of torch.
            dtype: dtype of the variables.
        Returns:
            Data by variable.
        Raises:
            ValueError: the layer has no weight or bias, or shapes differ.
            TypeError: the variables are of another dtype.
        """
        weight = torch_data("GroupNorm", nn_layer, "weight", dtype)
        weights = WeightsDict({variable_of("GroupNorm", variables, "weight"): weight})
        return map_bias("GroupNorm", weights, variables, nn_layer, dtype)
