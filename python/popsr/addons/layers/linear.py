"""Dense layer."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._common import map_bias, read_operand, torch_data, truncated_normal, variable_of
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import WeightsDict
from popsr.replicas import ReplicaGrouping

__all__ = ["Linear"]


@public
class Linear(Module):
    """``x @ weight + bias``.

    Variables, of the dtype of ``x``: ``weight`` ``[features of x, out_features]``, normal with standard deviation 0.02
    cut off at 2 of them; ``bias`` ``[out_features]``, zeros.

    Args:
        out_features: extent of the last axis of the result.
        bias: is there one?
        replica_grouping: groups of replicas with the same variables. Default: one of all.

    Attributes:
        weight: the variable in the graph that ``build`` ran in last, for layers that share it.
    Raises:
        ValueError: ``out_features`` is not an int of at least 1.
    """

    def __init__(
        self, out_features: int, bias: bool = True, replica_grouping: ReplicaGrouping | None = None
    ) -> None:
        """No state yet."""
        super().__init__()
        self.out_features = read_int("Linear: out_features", out_features, 1)
        self.bias = bias
        self.replica_grouping = replica_grouping

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[..., features]``.
        Returns:
            Tensor ``[..., out_features]`` of the dtype of ``x``.
        Raises:
            ShapeError: ``x`` is a scalar.
        """
        read_operand("Linear", x, 1)
        shape = (x.shape[-1], self.out_features)
        self.weight = self.add_variable_input(
            "weight",
            functools.partial(truncated_normal, shape),
            x.dtype,
            replica_grouping=self.replica_grouping,
        )
        y = ops.matmul(x, self.weight)
        if not self.bias:
            return y
        zeros = functools.partial(np.zeros, self.out_features, np.float32)
        return y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=self.replica_grouping)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: dtypes.dtype = dtypes.float32
    ) -> WeightsDict:
        """The data of a ``torch.nn.Linear`` for the variables.

        Args:
            variables: what ``init`` returned: ``weight``, and ``bias`` if there is one.
            nn_layer: the layer of torch.
            dtype: dtype of the variables.
        Returns:
            Data by variable; the weight is transposed.
        Raises:
            ValueError: only one side has a bias, or shapes differ.
            TypeError: the variables are of another dtype.
        """
        weight = torch_data("Linear", nn_layer, "weight", dtype)
        weights = WeightsDict({variable_of("Linear", variables, "weight"): np.ascontiguousarray(weight.T)})
        return map_bias("Linear", weights, variables, nn_layer, dtype)
