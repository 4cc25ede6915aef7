"""Shared parts of optimizer steps: operands, the gradient that they take, state like the variable."""

from __future__ import annotations

import functools
import math

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.operands import check_floats, read_scalar, read_tensor
from popsr._program.context import gir
from popsr._program.tensor import Tensor, constant
from popsr._support.text.shown import shown
from popsr.addons.module import Module
from popsr.addons.ops._operands import widened
from popsr.errors import AttributeValueError, ReplicaError, ShapeError
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = ["OptimizerStep", "decayed", "descend", "scalar"]


class OptimizerStep(Module):
    """One step of an optimizer for one variable; its state is made of variables like that, sharded as it is."""

    def _check(self, var: Tensor, grad: Tensor, **scalars: float | Tensor) -> None:
        where = type(self).__name__
        for name, each in (("var", var), ("grad", grad)):
            check_floats(where, name, read_tensor(where, name, each).dtype)
        if grad.shape != var.shape:
            raise ShapeError(f"{where}: grad has another shape, got {grad.shape}, expected {var.shape}")
        for name, value in scalars.items():
            read_scalar(where, name, value)

    def _state_of(
        self, name: str, var: Tensor, dtype: dtypes.dtype, replica_grouping: ReplicaGrouping | None
    ) -> Tensor:
        """Zeros like the variable."""
        parts = self._parts(var, replica_grouping)
        zeros = functools.partial(np.zeros, var.shape if parts == 1 else var.meta_shape, np.float32)
        if parts == 1:
            return self.add_variable_input(name, zeros, dtype, True, replica_grouping)
        return self.add_replica_sharded_variable_input(name, zeros, dtype, True, replica_grouping, parts)

    def _parts(self, var: Tensor, replica_grouping: ReplicaGrouping | None) -> int:
        """The number of parts of the value that ``var`` is a part of; 1 if it is whole."""
        if not var.meta_shape:
            return 1
        group = replica_grouping or gir().replica_grouping()
        elements, size = math.prod(var.meta_shape), group.const_rg.group_size
        for parts in range(size, 0, -1):
            if size % parts == 0 and (-(-elements // parts),) == var.shape:
                return parts
        raise ReplicaError(
            f"{type(self).__name__}: var is not a shard of its groups, got shape {var.shape} of {var.meta_shape}, "
            f"expected a part of it for a divisor of group size {size}"
        )

    def _gradient(
        self,
        grad: Tensor,
        loss_scaling: float | Tensor,
        global_norm: Tensor | None,
        global_norm_max: float | Tensor | None,
    ) -> Tensor:
        """The gradient without loss scaling, and no longer than it may be."""
        where = type(self).__name__
        if (global_norm is None) != (global_norm_max is None):
            raise AttributeValueError(
                f"{where}: global_norm and global_norm_max belong together, got {shown(global_norm)} and "
                f"{shown(global_norm_max)}, expected both or neither"
            )
        if global_norm is not None:
            read_scalar(where, "global_norm", global_norm)
            read_scalar(where, "global_norm_max", global_norm_max)
        is_scaled = isinstance(loss_scaling, Tensor) or loss_scaling != 1
        if not is_scaled and global_norm is None:
            return grad
        g = widened(grad)
        if is_scaled:
            g = g / scalar(loss_scaling, g.dtype)
        if global_norm is not None and global_norm_max is not None:
            most = scalar(global_norm_max, g.dtype)
            g = g * (most / ops.maximum(scalar(global_norm, g.dtype), most))
        return g


def scalar(value: float | Tensor, dtype: dtypes.dtype) -> Tensor:
    """A number or a tensor of one element, as a scalar of that dtype."""
    if isinstance(value, Tensor):
        return ops.reshape(cast_if_needed(value, dtype), ())
    return constant(value, dtype)


def decayed(var: Tensor, step: Tensor, weight_decay: float | Tensor) -> Tensor:
    """``step + weight_decay * var``, widened."""
    if not isinstance(weight_decay, Tensor) and weight_decay == 0:
        return step
    return ops.scaled_add(widened(step), widened(var), 1.0, weight_decay)


def descend(var: Tensor, step: Tensor, lr: float | Tensor) -> None:
    """``var -= lr * step`` in place, rounded once."""
    ops.scaled_add_(var, step, b=ops.negate(lr) if isinstance(lr, Tensor) else -lr)
