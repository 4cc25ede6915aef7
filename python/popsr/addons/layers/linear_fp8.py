"""Dense layer whose products are of float8."""

from __future__ import annotations

import functools

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import read_choice, read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._common import read_operand, truncated_normal
from popsr.addons.layers.linear import Linear
from popsr.addons.module import Module
from popsr.addons.ops.fp8_amax_scale import fp8_amax_scale
from popsr.addons.ops.fp8_mse_scale import fp8_mse_scale
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = ["LinearFP8"]

_LEAST, _MOST = -32, 31  # what ops take as log2_scale
_CHOOSERS = {
    "amax": fp8_amax_scale,
    "mse": fp8_mse_scale,
    "manual_scale": None,
    "manual": None,
}  # None: the given one


@public
class LinearFP8(Module):
    """``x @ weight + bias``, where operands become float8 before each product.

    Values become float8_143, gradients float8_152. The variables are ``Linear``'s. It has a gradient of its own, so
    it is called with ``call_module`` or as a graph.

    Args:
        out_features: extent of the last axis of the result.
        bias: is there one?
        scale_metric: how the power of two is chosen that operands are multiplied by: "amax" is the greatest that fits,
            "mse" loses least, "manual_scale" (or "manual") is ``scale``.
        scale: its exponent for "manual_scale", from -15 to 16.
        replica_grouping: groups of replicas with the same variables. Default: one of all.
    Raises:
        ValueError: a number out of range, or an unknown ``scale_metric``.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        scale_metric: str = "amax",
        scale: int = 0,
        replica_grouping: ReplicaGrouping | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.out_features = read_int("LinearFP8: out_features", out_features, 1)
        self.bias = bias
        self.scale_metric = read_choice("LinearFP8", "scale_metric", scale_metric, tuple(_CHOOSERS))
        self.scale = read_int("LinearFP8: scale", scale, -15, 16)
        self.replica_grouping = replica_grouping

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[..., features]``.
        Returns:
            Tensor ``[..., out_features]`` of the dtype of ``x``; products are sums of float32 rounded to float16.
        Raises:
            ShapeError: ``x`` has less than two axes.
        """
        read_operand("LinearFP8", x, 2)
        draw = functools.partial(truncated_normal, (x.shape[-1], self.out_features))
        weight = self.add_variable_input("weight", draw, x.dtype, replica_grouping=self.replica_grouping)
        x8, x_scale = self._to_float8(x, dtypes.float8_143)
        w8, w_scale = self._to_float8(weight, dtypes.float8_143, x_scale)
        for name, each in {"x": x8, "x_scale": x_scale, "w": w8, "w_scale": w_scale}.items():
            self.aux[name] = each
        y = _product(x8, w8, x_scale, w_scale, x.dtype)
        if not self.bias:
            return y
        zeros = functools.partial(np.zeros, self.out_features, np.float32)
        return y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=self.replica_grouping)

    def build_grad(self, dLdy: Tensor) -> Tensor:
        """Gradients of ``x`` and, among the variables, of ``weight`` and ``bias``.

        Args:
            dLdy: gradient of the result.
        Returns:
            Gradient of ``x``.
        """
        x8, w8 = self.aux["x"], self.aux["w"]
        x_scale, w_scale = self.aux["x_scale"], self.aux["w_scale"]
        g8, g_scale = self._to_float8(dLdy, dtypes.float8_152, w_scale, x_scale)
        if self.bias:
            self.var_grad["bias"] = ops.sum(dLdy, tuple(range(dLdy.rank - 1)))
        rows = ops.transpose(ops.reshape(x8, (-1, x8.shape[-1])))
        columns = ops.reshape(g8, (-1, g8.shape[-1]))
        self.var_grad["weight"] = _product(rows, columns, x_scale, g_scale, dLdy.dtype)
        return _product(g8, ops.transpose(w8), g_scale, w_scale, dLdy.dtype)

    def _to_float8(self, t: Tensor, kind: dtypes.dtype, *partners: Tensor) -> tuple[Tensor, Tensor]:
        """The tensor as float8 and its scale, which together with each partner's can be undone in one step."""
        choose = _CHOOSERS[self.scale_metric]
        scale: Tensor = constant(self.scale, dtypes.int32) if choose is None else choose(t, kind)
        for partner in partners:
            scale = ops.maximum(scale, constant(-_MOST, dtypes.int32) - partner)
            limit = constant(_LEAST, dtypes.int32) + partner
            scale = ops.negate(ops.maximum(ops.negate(scale), limit))
        return ops.pow2scale_cast_to_fp8(t, scale, kind), scale

    torch_mapping = staticmethod(Linear.torch_mapping)  # the variables are Linear's


def _product(lhs: Tensor, rhs: Tensor, lhs_scale: Tensor, rhs_scale: Tensor, kind: dtypes.dtype) -> Tensor:
    """The product of scaled operands without their scales."""
    undone = ops.negate(lhs_scale + rhs_scale)
    return cast_if_needed(ops.matmul_pow2scaled(lhs, rhs, undone), kind)
