"""Adam, with decay of weights, for variables that may be sharded."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._host.arguments import read_dtype
from popsr._lazy import names_only
from popsr._program.operands import check_floats, read_scalar, read_tensor
from popsr._text.shown import shown
from popsr.addons.module import Module
from popsr.addons.ops._operands import widened
from popsr.context import gir, in_sequence
from popsr.errors import AttributeValueError, ReplicaError, ShapeError
from popsr.ops import var_updates
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping
from popsr.tensor import Tensor, TensorByRef, constant

__all__ = ["AdamOptimizerStep"]

_WHERE = "AdamOptimizerStep"


class AdamOptimizerStep(Module):
    """One step of Adam for one variable.

    State, zeros at first and by reference: ``first_order`` (m) and, in float32, ``second_order`` (v), of the shape of
    the variable, sharded as it is; with bias correction ``step``, a float32 scalar.

    Args:
        *args: see ``Module``.
        **kwargs: see ``Module``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """No state yet."""
        super().__init__(*args, **kwargs)

    @in_sequence()
    def build(
        self,
        var: TensorByRef,
        grad: Tensor,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        lr: float | Tensor,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        eps: float | Tensor = 1e-5,
        weight_decay: float | Tensor = 1e-2,
        first_order_dtype: dtypes.dtype = dtypes.float16,
        bias_correction: bool = True,
        loss_scaling: float | Tensor = 1,
        global_norm: Tensor | None = None,
        global_norm_max: float | Tensor | None = None,
    ) -> None:
        """``m = beta1 m + (1 - beta1) g``, ``v = beta2 v + (1 - beta2) g**2``, ``var -= lr u`` in place.

        The step u is ``m' / (sqrt(v') + eps) + weight_decay var``.
        With bias correction ``step`` is increased first and m' and v' are m and v divided by ``1 - beta**step``. The
        gradient g is ``grad / loss_scaling * global_norm_max / max(global_norm, global_norm_max)``. Arithmetic is in
        float32 (float64 where an operand is), also for narrow m and var, which are rounded once when they are stored.

        Args:
            var: the variable, or a shard of one; floats of any shape. It is modified.
            grad: its gradient, of its shape.
            replica_grouping: groups of replicas with the same state. Default: one of all.
            lr: learning rate. Each scalar is a number, or a tensor of one element that becomes an input.
            beta1: decay of the first moment.
            beta2: decay of the second moment.
            eps: added to the denominator.
            weight_decay: factor of the variable in its step. 0: none.
            first_order_dtype: dtype of ``first_order``.
            bias_correction: correct the moments for having started from zeros.
            loss_scaling: what the loss was multiplied by.
            global_norm: norm of all gradients without loss scaling, one element.
            global_norm_max: the norm that they are scaled down to.
        Raises:
            ValueError: shapes differ, a scalar has several elements, only one of ``global_norm`` and
                ``global_norm_max`` is given, or ``var`` is not a shard that the groups could hold.
            TypeError: an operand is not a tensor of floats.
        """
        _check(var, grad, lr, beta1, beta2, eps, weight_decay, loss_scaling)
        first_kind = read_dtype(_WHERE, first_order_dtype)
        check_floats(_WHERE, "first_order_dtype", first_kind)
        g = _scaled(grad, loss_scaling, global_norm, global_norm_max)
        m = self._state_of("first_order", var, first_kind, replica_grouping)
        v = self._state_of("second_order", var, dtypes.float32, replica_grouping)
        step = None
        if bias_correction:
            zero = functools.partial(np.zeros, (), np.float32)
            step = self.add_variable_input("step", zero, dtypes.float32, by_ref=True)
        var_updates.accumulate_moving_average_(m, g, beta1)
        var_updates.accumulate_moving_average_square_(v, g, beta2)
        u = var_updates.adam_updater(
            widened(m),
            v,
            weight=widened(var),
            time_step=step,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            epsilon=eps,
        )
        rate = ops.negate(lr) if isinstance(lr, Tensor) else -lr
        ops.scaled_add_(var, u, b=rate)

    def _state_of(
        self, name: str, var: Tensor, dtype: dtypes.dtype, replica_grouping: ReplicaGrouping | None
    ) -> Tensor:
        """Zeros like the variable."""
        parts = _shards(var, replica_grouping or gir().replica_grouping()) if var.meta_shape else 1
        zeros = functools.partial(np.zeros, var.shape if parts == 1 else var.meta_shape, np.float32)
        if parts == 1:
            return self.add_variable_input(name, zeros, dtype, True, replica_grouping)
        return self.add_replica_sharded_variable_input(name, zeros, dtype, True, replica_grouping, parts)


def _check(var: Tensor, grad: Tensor, *scalars: float | Tensor) -> None:
    for name, each in (("var", var), ("grad", grad)):
        check_floats(_WHERE, name, read_tensor(_WHERE, name, each).dtype)
    if grad.shape != var.shape:
        raise ShapeError(f"{_WHERE}: grad has another shape, got {grad.shape}, expected {var.shape}")
    names = ("lr", "beta1", "beta2", "eps", "weight_decay", "loss_scaling")
    for name, scalar in zip(names, scalars, strict=True):
        read_scalar(_WHERE, name, scalar)


def _scaled(
    grad: Tensor,
    loss_scaling: float | Tensor,
    global_norm: Tensor | None,
    global_norm_max: float | Tensor | None,
) -> Tensor:
    """The gradient without loss scaling, and no longer than it may be."""
    if (global_norm is None) != (global_norm_max is None):
        raise AttributeValueError(
            f"{_WHERE}: global_norm and global_norm_max belong together, got {shown(global_norm)} and "
            f"{shown(global_norm_max)}"
        )
    if global_norm is not None:
        read_scalar(_WHERE, "global_norm", global_norm)
        read_scalar(_WHERE, "global_norm_max", global_norm_max)
    is_scaled = isinstance(loss_scaling, Tensor) or loss_scaling != 1
    if not is_scaled and global_norm is None:
        return grad
    g = widened(grad)
    if is_scaled:
        g = g / _scalar(loss_scaling, g.dtype)
    if global_norm is not None and global_norm_max is not None:
        most = _scalar(global_norm_max, g.dtype)
        g = g * (most / ops.maximum(_scalar(global_norm, g.dtype), most))
    return g


def _scalar(value: float | Tensor, dtype: dtypes.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return ops.reshape(cast_if_needed(value, dtype), ())
    return constant(value, dtype)


def _shards(var: Tensor, group: ReplicaGrouping) -> int:
    """Into how many parts the groups' members share out what ``var`` is a part of."""
    elements, size = math.prod(var.meta_shape), group.group_size
    for parts in range(size, 0, -1):
        if size % parts == 0 and (-(-elements // parts),) == var.shape:
            return parts
    raise ReplicaError(
        f"{_WHERE}: var is not a shard of its groups, got shape {var.shape} of {var.meta_shape}, expected a part of it "
        f"for a divisor of group size {size}"
    )


__dir__ = names_only(__all__)
