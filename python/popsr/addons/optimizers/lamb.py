"""LAMB, Adam with a ratio of trust for each variable, for variables that may be sharded."""

from __future__ import annotations

import functools

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.operands import check_floats
from popsr._program.context import gir, in_sequence
from popsr._program.tensor import Tensor, TensorByRef
from popsr._support.host.arguments import read_dtype
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import widened
from popsr.addons.optimizers._step import OptimizerStep, scalar
from popsr.ops import collectives, var_updates
from popsr.replicas import ReplicaGrouping

__all__ = ["LambOptimizerStep"]

_WHERE = "LambOptimizerStep"


@public
class LambOptimizerStep(OptimizerStep):
    """One step of LAMB for one variable.

    State, zeros at first and by reference: ``first_order`` (m) and, in float32, ``second_order`` (v), of the shape of
    the variable, sharded as it is; with bias correction ``step``, a float32 scalar.
    """

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
        eps: float | Tensor = 1e-6,
        weight_decay: float | Tensor = 1e-2,
        max_weight_norm: float | Tensor = 10.0,
        first_order_dtype: dtypes.dtype = dtypes.float32,
        bias_correction: bool = True,
        loss_scaling: float | Tensor = 1,
        global_norm: Tensor | None = None,
        global_norm_max: float | Tensor | None = None,
    ) -> None:
        """``var -= lr r u`` in place, with Adam's step u and ``r = min(norm(var), max_weight_norm) / norm(u)``.

        The ratio r is 1 where one of the norms is 0. Norms are of the whole variable, also of one that is sharded.
        Moments, the step u, the gradient g and the arithmetic are as in ``AdamOptimizerStep``.

        Args:
            var: the variable, or a shard of one; floats of any shape. It is modified.
            grad: its gradient, of its shape.
            replica_grouping: groups of replicas with the same state. Default: one of all.
            lr: learning rate. Each scalar is a number, or a tensor of one element that becomes an input.
            beta1: decay of the first moment.
            beta2: decay of the second moment.
            eps: added to the denominator.
            weight_decay: factor of the variable in its step. 0: none.
            max_weight_norm: the greatest norm of the variable that counts.
            first_order_dtype: dtype of ``first_order``.
            bias_correction: correct the moments for having started from zeros.
            loss_scaling: what the loss was multiplied by.
            global_norm: norm of all gradients without loss scaling, one element.
            global_norm_max: the norm that they are scaled down to.
        Raises:
            ValueError: shapes differ, a scalar has several elements, only one of ``global_norm`` and
                ``global_norm_max`` is given, or ``var`` is not a shard that the groups could hold.
            TypeError: an operand is not a tensor of floats.
        Source:
            You et al., Large Batch Optimization for Deep Learning, 2019, arXiv:1904.00962.
        """
        self._check(
            var,
            grad,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            max_weight_norm=max_weight_norm,
            loss_scaling=loss_scaling,
        )
        kind = read_dtype(_WHERE, first_order_dtype)
        check_floats(_WHERE, "first_order_dtype", kind)
        g = self._gradient(grad, loss_scaling, global_norm, global_norm_max)
        m = self._state_of("first_order", var, kind, replica_grouping)
        v = self._state_of("second_order", var, dtypes.float32, replica_grouping)
        step = None
        if bias_correction:
            zero = functools.partial(np.zeros, (), np.float32)
            step = self.add_variable_input("step", zero, dtypes.float32, by_ref=True)
        var_updates.accumulate_moving_average_(m, g, beta1)
        var_updates.accumulate_moving_average_square_(v, g, beta2)
        wide = widened(var)
        u = var_updates.lamb_updater(
            widened(m),
            v,
            weight=wide,
            time_step=step,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            epsilon=eps,
        )
        r1, r2 = (self._square(t, var, replica_grouping) for t in (wide, u))
        var_updates.adam_var_update(var, u, r1, r2, lr, max_weight_norm)

    def _square(self, t: Tensor, var: Tensor, replica_grouping: ReplicaGrouping | None) -> Tensor:
        """The squared norm of the whole of what ``t`` is, like ``var``, perhaps a part of."""
        square = ops.lamb_square(t)
        parts = self._parts(var, replica_grouping)
        if parts == 1:
            return square
        group = replica_grouping or gir().replica_grouping()
        total = collectives.replicated_all_reduce(square, "add", group)
        return total * scalar(parts / group.group_size, total.dtype)  # members that hold one part count once
