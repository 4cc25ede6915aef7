"""Layer norm."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._host.arguments import read_a
from popsr._lazy import names_only
from popsr.addons.layers._common import map_bias, torch_data, variable_of
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import WeightsDict
from popsr.errors import ShapeError
from popsr.tensor import Tensor

__all__ = ["LayerNorm"]


class LayerNorm(Module):
    """Each row without its mean, by its standard deviation, times ``weight``, plus ``bias``.

    Variables, of the dtype of ``x`` and one element a column: ``weight``, ones; ``bias``, zeros.
    """

    def build(self, x: Tensor, eps: float = 1e-05) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[rows, columns]``.
            eps: added to the variance.
        Returns:
            Tensor of the shape and dtype of ``x``.
        Raises:
            ShapeError: ``x`` has not two axes.
        """
        if read_a("LayerNorm: x", x, Tensor).rank != 2:
            raise ShapeError(f"LayerNorm: x has another rank, got shape {x.shape}, expected two axes")
        columns = x.shape[1]
        weight = self.add_variable_input("weight", functools.partial(np.ones, columns, np.float32), x.dtype)
        bias = self.add_variable_input("bias", functools.partial(np.zeros, columns, np.float32), x.dtype)
        return ops.layer_norm(x, weight, bias, eps)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: dtypes.dtype = dtypes.float32
    ) -> WeightsDict:
        """The data of a ``torch.nn.LayerNorm`` for the variables.

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
        weight = torch_data("LayerNorm", nn_layer, "weight", dtype)
        weights = WeightsDict({variable_of("LayerNorm", variables, "weight"): weight})
        return map_bias("LayerNorm", weights, variables, nn_layer, dtype)


__dir__ = names_only(__all__)
