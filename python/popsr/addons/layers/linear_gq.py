"""Dense layer whose weights have four bits each."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice, read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._common import map_bias, read_operand, torch_data, truncated_normal, variable_of
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.ops.group_quantize_decompress import (
    group_quantize_compress_numpy,
    group_quantize_decompress,
)
from popsr.addons.utils import WeightsDict
from popsr.replicas import ReplicaGrouping

__all__ = ["LinearGQ"]

Array = np.ndarray[Any, Any]
Triple = tuple[Array, Array, Array]


@public
class LinearGQ(Module):
    """``x @ weight + bias``, with a weight that is kept as numbers of four bits: see ``group_quantize_decompress``.

    Variables: ``weight``, uint16 of four numbers each; ``weight_scale`` and ``weight_bias`` for each group of them and
    ``bias`` ``[out_features]``, of the dtype of ``x``. Initial values are ``Linear``'s, compressed. Gradients
    reach ``x``, ``weight_scale``, ``weight_bias`` and ``bias``.

    Args:
        out_features: extent of the last axis of the result.
        bias: is there one?
        replica_grouping: groups of replicas with the same variables. Default: one of all.
        group_size: how many numbers share a scale. 0: all along ``dim``.
        dim: the axis of ``[features of x, out_features]`` that groups lie along; its extent is a multiple of 4 and of
            ``group_size``.
    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: ReplicaGrouping | None = None,
        group_size: int = 0,
        dim: int = -1,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.out_features = read_int("LinearGQ: out_features", out_features, 1)
        self.bias = bias
        self.replica_grouping = replica_grouping
        self.group_size = read_int("LinearGQ: group_size", group_size, 0)
        self.dim = read_choice("LinearGQ", "dim", dim, (0, 1, -1, -2))

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[..., features]``.
        Returns:
            Tensor ``[..., out_features]`` of the dtype of ``x``.
        Raises:
            ShapeError: ``x`` is a scalar, or the extent at ``dim`` does not divide.
        """
        read_operand("LinearGQ", x, 1)
        parts = itertools.tee(self._draws((x.shape[-1], self.out_features)), 3)
        names = {"weight": dtypes.uint16, "weight_scale": x.dtype, "weight_bias": x.dtype}
        words, scale, offset = (
            self.add_variable_input(name, _nth(part, i), dtype, replica_grouping=self.replica_grouping)
            for i, (part, (name, dtype)) in enumerate(zip(parts, names.items(), strict=True))
        )
        y = ops.matmul(x, group_quantize_decompress(words, scale, offset, self.dim))
        if not self.bias:
            return y
        zeros = functools.partial(np.zeros, self.out_features, np.float32)
        return y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=self.replica_grouping)

    def _draws(self, shape: tuple[int, int]) -> Iterator[Triple]:
        while True:
            yield group_quantize_compress_numpy(truncated_normal(shape), self.group_size, self.dim)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors,
        nn_layer: Any,
        dtype: dtypes.dtype = dtypes.float32,
        group_size: int = 64,
        dim: int = -1,
    ) -> WeightsDict:
        """The data of a ``torch.nn.Linear`` for the variables, compressed.

        Args:
            variables: what ``init`` returned.
            nn_layer: the layer of torch.
            dtype: dtype of the variables but ``weight``.
            group_size: this layer's.
            dim: this layer's.
        Returns:
            Data by variable.
        Raises:
            ValueError: only one side has a bias, or shapes differ, as with another ``group_size`` or ``dim``.
            TypeError: the variables are of another dtype.
        """
        whole = torch_data("LinearGQ", nn_layer, "weight", dtype).T.view(dtype.as_ml_dtypes())
        compressed = group_quantize_compress_numpy(whole, group_size, dim)
        weights = WeightsDict()
        for name, data in zip(("weight", "weight_scale", "weight_bias"), compressed, strict=True):
            variable = variable_of("LinearGQ", variables, name)
            weights[variable] = data.view(variable.dtype.as_numpy())
        return map_bias("LinearGQ", weights, variables, nn_layer, dtype)


def _nth(triples: Iterator[Triple], i: int) -> Iterator[Array]:
    """One of three of each."""
    return (triple[i] for triple in triples)
