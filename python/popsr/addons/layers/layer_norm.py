"""Layer norm."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import integer_of, read_a, read_shape
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.layers._common import fitted, map_bias, torch_data, variable_of
from popsr.addons.module import Module
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import WeightsDict
from popsr.errors import ShapeError

__all__ = ["LayerNorm"]


@public
class LayerNorm(Module):
    """Each row without its mean, by its standard deviation, times ``weight``, plus ``bias``.

    Variables, of the dtype of ``x`` and the shape that is normalised: ``weight``, ones; ``bias``, zeros.

    Args:
        cache: as for ``Module``.
        grad_inlining_error: as for ``Module``.
        normalized_shape: extents of the last axes, or of the last one, that are normalised together, as
            ``torch.nn.LayerNorm`` has it. Default: the columns of ``x`` of two axes.
    Raises:
        ValueError: ``normalized_shape`` is empty or has an extent below 1.
    """

    def __init__(
        self,
        cache: bool = False,
        grad_inlining_error: Literal["error", "warning", "none"] = "error",
        *,
        normalized_shape: int | Iterable[int] | None = None,
    ) -> None:
        """No state yet."""
        super().__init__(cache, grad_inlining_error)
        self.normalized_shape = None if normalized_shape is None else _read_extents(normalized_shape)

    def build(self, x: Tensor, eps: float = 1e-05) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[rows, columns]``, or ``[..., *normalized_shape]``.
            eps: added to the variance.
        Returns:
            Tensor of the shape and dtype of ``x``.
        Raises:
            ShapeError: ``x`` has not two axes, or not the last axes of ``normalized_shape``.
        """
        shape = self._normalised(read_a("LayerNorm: x", x, Tensor))
        weight = self.add_variable_input("weight", functools.partial(np.ones, shape, np.float32), x.dtype)
        bias = self.add_variable_input("bias", functools.partial(np.zeros, shape, np.float32), x.dtype)
        columns = math.prod(shape)
        rows = _reshaped(x, (math.prod(x.shape[: x.rank - len(shape)]), columns))
        normed = ops.layer_norm(rows, _reshaped(weight, (columns,)), _reshaped(bias, (columns,)), eps)
        return _reshaped(normed, x.shape)

    def _normalised(self, x: Tensor) -> tuple[int, ...]:
        shape = self.normalized_shape
        if shape is None:
            if x.rank != 2:
                raise ShapeError(
                    f"LayerNorm: x has another rank, got shape {x.shape}, expected two axes, or "
                    "normalized_shape as torch.nn.LayerNorm has it"
                )
            return x.shape[1:]
        if x.shape[-len(shape) :] != shape:
            raise ShapeError(
                f"LayerNorm: x has other last axes than normalized_shape, got shape {x.shape}, expected (..., "
                f"{', '.join(map(str, shape))})"
            )
        return shape

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
            Data by variable; several axes that are normalised are laid out as one where only one side has one.
        Raises:
            ValueError: the layer has no weight or bias, or shapes differ.
            TypeError: the variables are of another dtype.
        """
        weight = variable_of("LayerNorm", variables, "weight")
        weights = WeightsDict({weight: fitted(torch_data("LayerNorm", nn_layer, "weight", dtype), weight)})
        return map_bias("LayerNorm", weights, variables, nn_layer, dtype)


def _read_extents(given: Any) -> tuple[int, ...]:
    extent = integer_of(given)
    shape = read_shape("LayerNorm", given if extent is None else (extent,), "normalized_shape")
    if not shape or min(shape) < 1:
        raise ShapeError(
            f"LayerNorm: nothing is normalised, got normalized_shape {shown(given)}, expected extents of at least 1"
        )
    return shape


def _reshaped(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    return t if t.shape == shape else ops.reshape(t, shape)
