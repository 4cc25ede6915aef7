"""Adam, with decay of weights, for variables that may be sharded."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._program.building.operands import check_floats
from popsr._program.context import in_sequence
from popsr._program.tensor import Tensor, TensorByRef
from popsr._support.host.arguments import read_dtype
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import widened
from popsr.addons.optimizers._step import OptimizerStep, descend
from popsr.ops import var_updates
from popsr.replicas import ReplicaGrouping

__all__ = ["AdamOptimizerStep"]

_WHERE = "AdamOptimizerStep"


@public
class AdamOptimizerStep(OptimizerStep):
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
        self._check(
            var,
            grad,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            loss_scaling=loss_scaling,
        )
        first_kind = read_dtype(_WHERE, first_order_dtype)
        check_floats(_WHERE, "first_order_dtype", first_kind)
        g = self._gradient(grad, loss_scaling, global_norm, global_norm_max)
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
        descend(var, u, lr)
