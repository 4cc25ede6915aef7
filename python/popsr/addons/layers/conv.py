"""Convolution of images."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_choice, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.layers._common import map_bias, torch_data, truncated_normal, variable_of
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import WeightsDict
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError
from popsr.ops.nn.conv import PadType
from popsr.replicas import ReplicaGrouping

__all__ = ["Conv2D"]

_RULES = ("same_upper", "same_lower", "valid")


@public
class Conv2D(Module):
    """Convolution of ``[samples, channels, height, width]``.

    Variables, of the dtype of ``x``: ``weight`` ``[out_channels, channels / groups, *kernel_size]``, normal with
    standard deviation 0.02 cut off at 2 of them; ``bias`` ``[1, out_channels, 1, 1]``, zeros.

    Args:
        out_channels: channels of the result.
        kernel_size: height and width of the kernel, or both as one int.
        strides: steps between output positions.
        paddings: zeros above, left, below and right; or a rule: "same_upper", "same_lower" or "valid".
        dilations: steps between elements of the kernel.
        groups: parts into which both kinds of channels are cut.
        bias: is there one?
        available_memory_proportions: accepted for PopXL programs; has no effect.
        partials_types: accepted for PopXL programs, "half" or "float"; sums are kept in float32 or wider.
        enable_conv_dithering: accepted for PopXL programs; has no effect.
        replica_grouping: groups of replicas with the same variables. Default: one of all.
    Raises:
        ValueError: a number out of range, a kernel that is not of two, or an unknown rule.
        TypeError: a kernel of something else.
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: tuple[int, ...] | int,
        strides: tuple[int, ...] | None = (1, 1),
        paddings: str | tuple[int, ...] | None = (0, 0, 0, 0),
        dilations: tuple[int, ...] | None = (1, 1),
        groups: int | None = 1,
        bias: bool = True,
        available_memory_proportions: list[float] | None = None,
        partials_types: list[str] | None = None,
        enable_conv_dithering: list[int] | None = None,
        replica_grouping: ReplicaGrouping | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.out_channels = read_int("Conv2D: out_channels", out_channels, 1)
        self.kernel_size = _read_kernel(kernel_size)
        self.strides, self.dilations = strides, dilations
        if isinstance(paddings, str):
            read_choice("Conv2D", "paddings", paddings, _RULES)
        self.paddings = paddings
        self.groups = read_int("Conv2D: groups", 1 if groups is None else groups, 1)
        self.bias = bias
        self.available_memory_proportions = available_memory_proportions
        self.partials_types = partials_types
        self.enable_conv_dithering = enable_conv_dithering
        self.replica_grouping = replica_grouping

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[samples, channels, height, width]``.
        Returns:
            Tensor ``[samples, out_channels, height, width]`` of the dtype of ``x``, with other height and width.
        Raises:
            ShapeError: ``x`` has not four axes, or the kernel is larger than the padded image.
            ValueError: ``groups`` does not divide the channels.
        """
        if read_a("Conv2D: x", x, Tensor).rank != 4:
            raise ShapeError(f"Conv2D: x has another rank, got shape {x.shape}, expected four axes")
        if x.shape[1] % self.groups or self.out_channels % self.groups:
            raise AttributeValueError(
                f"Conv2D: groups do not divide the channels, got {self.groups} for {x.shape[1]} and "
                f"{self.out_channels}, expected a divisor of both"
            )
        shape = (self.out_channels, x.shape[1] // self.groups, *self.kernel_size)
        draw = functools.partial(truncated_normal, shape)
        weight = self.add_variable_input("weight", draw, x.dtype, replica_grouping=self.replica_grouping)
        is_rule = isinstance(self.paddings, str)
        y = ops.conv(
            x,
            weight,
            self.strides,
            (0, 0, 0, 0) if is_rule else cast("tuple[int, ...] | None", self.paddings),
            self.dilations,
            self.groups,
            cast(PadType, self.paddings) if is_rule else "not_set",
            self.available_memory_proportions,
            self.partials_types,
            self.enable_conv_dithering,
        )
        if not self.bias:
            return y
        zeros = functools.partial(np.zeros, (1, self.out_channels, 1, 1), np.float32)
        return y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=self.replica_grouping)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: dtypes.dtype = dtypes.float32
    ) -> WeightsDict:
        """The data of a ``torch.nn.Conv2d`` for the variables.

        Args:
            variables: what ``init`` returned: ``weight``, and ``bias`` if there is one.
            nn_layer: the layer of torch.
            dtype: dtype of the variables.
        Returns:
            Data by variable.
        Raises:
            ValueError: only one side has a bias, or shapes differ.
            TypeError: the variables are of another dtype.
        """
        weight = torch_data("Conv2D", nn_layer, "weight", dtype)
        weights = WeightsDict({variable_of("Conv2D", variables, "weight"): weight})
        return map_bias("Conv2D", weights, variables, nn_layer, dtype)


def _read_kernel(kernel_size: Any) -> tuple[int, int]:
    if isinstance(kernel_size, (tuple, list)):
        if len(kernel_size) != 2:
            raise AttributeValueError(
                f"Conv2D: kernel_size has another length, got {shown(kernel_size)}, expected two ints"
            )
        extents = kernel_size
    elif isinstance(kernel_size, (int, np.integer)):
        extents = (kernel_size, kernel_size)
    else:
        raise ArgumentTypeError(
            f"Conv2D: kernel_size is not an int, got {shown(kernel_size)}, expected one or two ints"
        )
    height, width = (read_int("Conv2D: kernel_size", extent, 1) for extent in extents)
    return height, width
